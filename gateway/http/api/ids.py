"""/_/ids/…: the one rule for identifiers, to try."""

from __future__ import annotations

import asyncio
import os
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gateway.aside import Aside
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Principal
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http.json_body import decoded, require_known
from gateway.http.parameters import Parameters
from gateway.http.render import encode
from gateway.http.request import Head, Refused, check_json_body, read_body
from gateway.http.response import json_response
from gateway.names.content import Identity, content_of_json, content_of_text, context_of_values
from gateway.names.tokens import new_handle
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

    async def base62(self, request: Request) -> Response:
        """New ids of 8 base62 characters, `?count=` of them: for things of the client's own. No aggregate has
        such a key."""
        count = Parameters(request.scope["query_string"]).integer("count", 1, 1, IDS_MAX)
        ids = [new_handle(os.urandom) for _ in range(count)]
        return json_response(200, encode({"ok": True, "ids": ids}))

    async def hash(self, request: Request) -> Response:
        """What identifies a record: its content, its context, and both."""
        refusal = check_json_body(Head(request.scope), self._body_bytes_max)
        if refusal is not None:
            raise Refused(refusal)
        text = await read_body(request.receive, self._body_bytes_max, self._body_timeout_s)
        body = await decoded(self._aside, request.scope["sluice.principal"], text)
        found = await self._aside.run(
            request.scope["sluice.principal"].tenant.id.bytes, partial(hashes_of, body, text)
        )
        return json_response(200, encode({"ok": True, **found}))

    async def check(self, request: Request) -> Response:
        """The kind of each id by the tenant's spec, or why it is invalid."""
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


def hashes_of(body: object, text: bytes) -> dict[str, str | None]:
    """`content`, and where a context was sent `context` and `record`; else null. Raises Refused."""
    if not isinstance(body, dict) or ("text" in body) == ("json" in body):
        raise Refused(Refusal("missing_field", 'Send one of {"text": "…"} and {"json": …}.', "text"))
    require_known(body, ("text", "json", "context"))
    if "text" in body:
        if not isinstance(body["text"], str):
            raise Refused(Refusal("invalid_field", "`text` must be a string.", "text"))
        content = content_of_text(body["text"])
    else:
        content = content_of_json(bytes(msgspec.json.decode(text, type=_Json).json), strict=True)
    if body.get("context") is None:
        return {"content": content, "context": None, "record": None}
    found = Identity(content, _context(body["context"]))
    return {"content": content, "context": found.context, "record": found.record}


class _Json(msgspec.Struct):
    json: msgspec.Raw


def _context(value: object) -> str:
    """Of `{"name", "type", "properties"}`, each of which may be left out. Raises Refused."""
    if not isinstance(value, dict):
        raise Refused(Refusal("invalid_field", "`context` is an object: name, type, properties.", "context"))
    require_known(value, ("name", "type", "properties"), "A context", "context")
    name, kind, properties = value.get("name", ""), value.get("type", ""), value.get("properties", {})
    for field, text in (("name", name), ("type", kind)):
        if not isinstance(text, str):
            path = f"context.{field}"
            raise Refused(Refusal("invalid_field", f"`{path}` must be a string.", path))
    if not isinstance(properties, dict):
        path = "context.properties"
        raise Refused(Refusal("invalid_field", f"`{path}` must be an object.", path))
    return context_of_values(name, kind, properties)


def _ids(body: object) -> list[str]:
    if not isinstance(body, dict) or "ids" not in body:
        raise Refused(Refusal("missing_field", 'Send {"ids": […]}.', "ids"))
    require_known(body, ("ids",))
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
