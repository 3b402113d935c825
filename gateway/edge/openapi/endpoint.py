"""GET /_/openapi.json: made once for a spec, then served from memory."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from gateway.admit.preconditions import not_modified
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Deployed, Principal
from gateway.config import Config
from gateway.edge.openapi.document import document
from gateway.edge.request import Head, Refused
from gateway.edge.respond import json_response, unchanged
from gateway.errors import Refusal

KEPT_BYTES_MAX = 32 * 1024 * 1024
"""Of all documents in memory: a hundred large ones. The one asked for longest ago is made again."""


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class _Made:
    """`body` is for the very `deployed` it was made of, not merely its revision: while a deployment closes
    what it removes, the spec that is served is narrower."""

    deployed: Deployed
    body: bytes
    etag: str


class OpenApi:
    def __init__(self, catalog: Catalog, config: Config) -> None:
        self._catalog = catalog
        self._config = config
        self._made: OrderedDict[UUID, _Made] = OrderedDict()
        self._bytes = 0

    async def get(self, request: Request) -> Response:
        """The document of the caller's own spec."""
        principal: Principal = request.scope["sluice.principal"]
        deployed = self._catalog.deployed(principal.tenant.id)
        if deployed is None:
            raise Refused(Refusal("not_found", "No spec was deployed yet; PUT one to /_/spec."))
        made = self._made.get(principal.tenant.id)
        if made is None or made.deployed is not deployed:
            # A spec of a megabyte takes a good part of a second: appends go on meanwhile.
            made = await asyncio.to_thread(_make, deployed, self._config)
        self._keep(principal.tenant.id, made)
        headers = {"etag": made.etag}
        if not_modified(Head(request.scope).joined(b"if-none-match"), made.etag):
            return unchanged(headers)
        return json_response(200, made.body, headers)

    def _keep(self, tenant: UUID, made: _Made) -> None:
        former = self._made.pop(tenant, None)
        self._bytes += len(made.body) - (0 if former is None else len(former.body))
        self._made[tenant] = made
        while self._bytes > KEPT_BYTES_MAX and len(self._made) > 1:
            _, given_up = self._made.popitem(last=False)
            self._bytes -= len(given_up.body)


def _make(deployed: Deployed, config: Config) -> _Made:
    """The ETag names the spec's revision, and by a digest all else that the document depends on: the release,
    its settings."""
    found = document(deployed.spec, deployed.revision, config)
    # In pieces: `encode` would hold the interpreter, and so all appends, for as long as a large one takes.
    body = "".join(_ENCODER.iterencode(found)).encode()
    digest = hashlib.sha256(body).hexdigest()[:12]
    return _Made(deployed, body, f'"{deployed.revision}.{digest}"')
