"""/_/ids/…: the one rule for identifiers, to try."""

from __future__ import annotations

import asyncio
import os

from starlette.requests import Request
from starlette.responses import Response

from gateway.aside import Aside
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Principal
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http.json_body import decoded
from gateway.http.parameters import Parameters
from gateway.http.render import encode
from gateway.http.request import Head, Refused, check_json_body, read_body
from gateway.http.response import json_response
from spec.identifiers import HUMANE_RANDOM_BYTES, Identifier, identify, mint_humane

IDS_MAX = 1000
_AT_A_TIME = 50


class Ids:
    def __init__(self, catalog: Catalog, aside: Aside, config: Config) -> None:
        self._aside = aside
        self._catalog = catalog
        self._body_bytes_max = config.body_bytes_max
        self._body_timeout_s = config.body_timeout_s

    async def humane(self, request: Request) -> Response:
        """New humane codes, `?count=` of them."""
        count = Parameters(request.scope["query_string"]).integer("count", 1, 1, IDS_MAX)
        codes = [mint_humane(os.urandom(HUMANE_RANDOM_BYTES)) for _ in range(count)]
        return json_response(200, encode({"ok": True, "ids": codes}))

    async def check(self, request: Request) -> Response:
        """What each id is by the tenant's spec, or why it is none."""
        refusal = check_json_body(Head(request.scope), self._body_bytes_max)
        if refusal is not None:
            raise Refused(refusal)
        text = await read_body(request.receive, self._body_bytes_max, self._body_timeout_s)
        principal: Principal = request.scope["sluice.principal"]
        body = await decoded(self._aside, principal, text)
        deployed = self._catalog.deployed(principal.tenant.id)
        singletons = frozenset[str]() if deployed is None else deployed.spec.singletons
        ids, checked = _ids(body), []
        for first in range(0, len(ids), _AT_A_TIME):
            checked += [_checked(text, singletons) for text in ids[first : first + _AT_A_TIME]]
            await asyncio.sleep(0)
        return json_response(200, encode({"ok": True, "ids": checked}))


def _ids(body: object) -> list[str]:
    if not isinstance(body, dict) or "ids" not in body:
        raise Refused(Refusal("missing_field", 'Send {"ids": […]}.', "ids"))
    for name in body:
        if name != "ids":
            raise Refused(Refusal("unknown_field", f"There is no field {name[:64]!r} here.", name[:64]))
    ids = body["ids"]
    if not isinstance(ids, list) or len(ids) > IDS_MAX:
        raise Refused(Refusal("invalid_field", f"`ids` must be a list of at most {IDS_MAX} strings.", "ids"))
    for n, text in enumerate(ids):
        if not isinstance(text, str):
            raise Refused(Refusal("invalid_field", "An id must be a string.", f"ids[{n}]"))
    return ids


def _checked(text: str, singletons: frozenset[str]) -> dict[str, str]:
    verdict = identify(text, singletons)
    if isinstance(verdict, Identifier):
        return {"input": text, "canonical": verdict.canonical, "kind": verdict.kind.value}
    return {"input": text, "error": verdict.reason}
