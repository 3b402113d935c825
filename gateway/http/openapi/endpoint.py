"""GET /_/openapi.json: made once for a spec, then served from memory."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from uuid import UUID
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.responses import Response

from gateway.admit.preconditions import not_modified
from gateway.aside import Aside, Busy
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Deployed, Principal
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http.openapi.document import document
from gateway.http.request import Head, Refused
from gateway.http.response import json_response, unchanged

KEPT_BYTES_MAX = 32 * 1024 * 1024
"""Of all documents in memory: a hundred large ones. The one asked for longest ago is made again."""

DOCUMENT_BYTES_MAX = 8 * 1024 * 1024
"""Of one: a type with one event makes about 10 KB, and readers of OpenAPI give up long before."""

PARTS_MAX = 2_000
"""Aggregate types and events that it is made of: what is surely too long is not even begun."""

_TOO_LARGE = (
    f"The OpenAPI document of this spec would be longer than {DOCUMENT_BYTES_MAX} bytes, or have over "
    f"{PARTS_MAX} types and events. GET /_/spec shows what is declared."
)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class _Made:
    """`body` is for the very `deployed` it was made of, not merely its revision: while a deployment closes
    what it removes, the spec that is served is narrower. The body
    is empty where it would be too long."""

    deployed: Deployed
    body: bytes
    etag: str


class OpenApi:
    def __init__(self, catalog: Catalog, aside: Aside, config: Config) -> None:
        self._catalog = catalog
        self._aside = aside
        # One of each tenant, as long as a request of it has or waits for it.
        self._making: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()
        self._config = config
        self._made: OrderedDict[UUID, _Made] = OrderedDict()
        self._bytes = 0

    async def get(self, request: Request) -> Response:
        """The document of the caller's own spec."""
        principal: Principal = request.scope["sluice.principal"]
        deployed = self._catalog.deployed(principal.tenant.id)
        if deployed is None:
            raise Refused(Refusal("not_found", "No spec was deployed yet; PUT one to /_/spec."))
        tenant = principal.tenant.id
        made = self._known(tenant, deployed)
        if made is None:
            # A large spec takes a good part of a second. Those who ask meanwhile wait for the same.
            turn = self._making.setdefault(tenant, asyncio.Lock())
            async with turn:
                made = self._known(tenant, deployed)
                if made is None:
                    made = await self._made_aside(tenant, deployed)
        self._keep(tenant, made)
        if not made.body:
            raise Refused(Refusal("too_large", _TOO_LARGE))
        headers = {"etag": made.etag}
        if not_modified(Head(request.scope).joined(b"if-none-match"), made.etag):
            return unchanged(headers)
        return json_response(200, made.body, headers)

    def _known(self, tenant: UUID, deployed: Deployed) -> _Made | None:
        made = self._made.get(tenant)
        return made if made is not None and made.deployed is deployed else None

    async def _made_aside(self, tenant: UUID, deployed: Deployed) -> _Made:
        try:
            return await self._aside.run(tenant.bytes, partial(_make, deployed, self._config))
        except Busy as busy:
            raise Refused(Refusal("unavailable", busy.why)) from busy

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
    types = deployed.spec.aggregate_types.values()
    if sum(1 + len(each.events) for each in types) > PARTS_MAX:
        return _Made(deployed, b"", "")
    found = document(deployed.spec, deployed.revision, config)
    # In pieces: `encode` would hold the interpreter, and so all appends, for as long as a large one takes.
    pieces, size = [], 0
    for piece in _ENCODER.iterencode(found):
        pieces.append(piece)
        size += len(piece)
        if size > DOCUMENT_BYTES_MAX:
            return _Made(deployed, b"", "")
    body = "".join(pieces).encode()
    digest = hashlib.sha256(body).hexdigest()[:12]
    return _Made(deployed, body, f'"{deployed.revision}.{digest}"')
