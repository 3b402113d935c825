"""/_/sources: what foreign systems call aggregates, asked and told over HTTP.

Owns how source ids are read from a request and told. What they stand for is the catalog's to keep
(catalog/source_ids.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from gateway.admit.address import bad_identifier, undeclared_type
from gateway.aside import Aside
from gateway.catalog import source_ids
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Principal
from gateway.catalog.narrowness import Only
from gateway.catalog.source_ids import Mapping
from gateway.config import Config
from gateway.errors import Refusal
from gateway.events import Stream
from gateway.http.api.reads import unavailable
from gateway.http.json_body import decoded, require_known
from gateway.http.key_watch import KeyWatch
from gateway.http.parameters import Parameters
from gateway.http.render import encode
from gateway.http.request import Head, Refused, check_json_body, read_body
from gateway.http.response import PRIVATE, json_response
from gateway.log.log import Log
from gateway.log.read.ranges import VERSION_MAX, Range
from gateway.names.source_ids import SourceId, Unusable, read
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Share, Shares
from gateway.stored_extra import SourceRef, split
from spec.identifiers import canonicalize, uuid_text
from spec.model import Spec

SOURCES_MAX: Final = 1_000
"""Of one request to resolve: some statements' worth."""
_PAGE: Final = 1_000
_T = TypeVar("_T")
_PARTS: Final = ("source", "scope", "id")


class Sources:
    def __init__(
        self, log: Log, catalog: Catalog, shares: Shares, keys: KeyWatch, aside: Aside, config: Config
    ) -> None:
        self._keys = keys
        self._log = log
        self._catalog = catalog
        self._shares = shares
        self._aside = aside
        self._body_bytes_max = config.body_bytes_max
        self._body_timeout_s = config.body_timeout_s

    async def get(self, request: Request) -> Response:
        """The aggregate that an id maps to."""
        asked = _asked(request)
        found = (await self._mappings(request, [asked]))[0]
        if found is None:
            why = f"{asked.source} has no {asked.source_id[:64]!r} in scope {asked.scope[:64]!r}."
            raise Refused(Refusal("not_found", why))
        try:
            said = await self._last_record(_principal(request).tenant.id.bytes, asked, found)
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble
        return json_response(200, encode({"ok": True, **_told(found), **said}))

    async def _last_record(self, tenant: bytes, asked: SourceId, found: Mapping) -> dict[str, object]:
        """What the last record of this id says, else the last event of the aggregate; nothing where there is
        none."""
        if found.aggregate_type is None:
            return {"last_event": None}
        ref = SourceRef(asked.source, asked.scope, asked.source_id)
        wanted = Range(
            Stream(tenant, found.aggregate_type, found.key), 1, VERSION_MAX, _PAGE, newest_first=True
        )
        events = (await self._log.page(wanted)).events
        records = [(each, split(each.event.extra)[1]) for each in events]
        mapped = source_ids.mapped_by(self._shares.of(tenant))
        for earlier_name in (False, True):
            for each, said in records:
                if said is None or said.source is None:
                    continue
                if said.source != ref if not earlier_name else not ref.elsewhere(said.source):
                    continue
                if earlier_name and await mapped(UUID(bytes=tenant), said.source) == found.key:
                    continue
                told: dict[str, object] = {"content": said.content, "context": said.context}
                return {**told, "last_event": uuid_text(each.event.id)}
        return {"last_event": uuid_text(events[0].event.id) if events else None}

    async def put(self, request: Request) -> Response:
        """Lets an id stand for an aggregate; what it stands for already never changes."""
        principal, asked = _principal(request), _asked(request)
        body = await self._body(request, required=("aggregate_type", "key"))
        spec = self._spec(principal)
        aggregate_type = _declared(spec, body["aggregate_type"])
        key = body["key"]
        if not isinstance(key, str):
            raise Refused(Refusal("invalid_field", "`key` must be a string.", "key"))
        assert spec is not None  # it declares the type
        canonical = canonicalize(key, spec.singletons)
        if canonical is None:
            raise Refused(bad_identifier(key, spec, "key"))
        wanted = Mapping(canonical, aggregate_type)
        share, tenant = self._share(principal), principal.tenant.id
        await self._answered(source_ids.link(share, tenant, asked, canonical, aggregate_type))
        found = (await self._mappings(request, [asked], aggregate_type=aggregate_type))[0]
        if found != wanted:
            raise Refused(taken(asked, found))
        return json_response(200, encode({"ok": True, **_told(found)}))

    async def resolve(self, request: Request) -> Response:
        """The keys of up to SOURCES_MAX ids, in order; minted where they were never seen, if that is asked
        for."""
        body = await self._body(request, required=("sources",), optional=("mint", "aggregate_type"))
        mint, aggregate_type = body.get("mint", False), body.get("aggregate_type")
        if not isinstance(mint, bool):
            raise Refused(Refusal("invalid_field", "`mint` is true or false.", "mint"))
        if aggregate_type is not None:
            aggregate_type = _declared(self._spec(_principal(request)), aggregate_type)
        wanted = read_sources(body["sources"])
        found = await self._mappings(request, wanted, mint=mint, aggregate_type=aggregate_type)
        for n, each in enumerate(found):
            if each is not None and aggregate_type not in (None, each.aggregate_type):
                raise Refused(taken(wanted[n], each, f"sources[{n}]"))
        keys = [None if each is None else each.key for each in found]
        return json_response(200, encode({"ok": True, "keys": keys}))

    async def of_key(self, request: Request) -> Response:
        """What foreign systems call an aggregate: `?key=`."""
        principal = _principal(request)
        key, spec = Parameters(request.scope["query_string"]).text("key"), self._spec(principal)
        if key is None:
            raise Refused(Refusal("missing_field", "Name the aggregate by `?key=`.", "key"))
        canonical = canonicalize(key, () if spec is None else spec.singletons)
        if canonical is None:
            raise Refused(
                Refusal("invalid_identifier", "This is not an identifier of any of the four kinds.", "key")
                if spec is None
                else bad_identifier(key, spec, "key")
            )
        found = await self._answered(
            source_ids.mapped_to(self._share(principal), principal.tenant.id, canonical)
        )
        told = [{**source_told(each), "aggregate_type": kind} for each, kind in found]
        return json_response(200, encode({"ok": True, "key": canonical, "sources": told}))

    async def export(self, request: Request) -> Response:
        """All ids of a source with what they stand for, one JSON object a line."""
        source = request.path_params["source"]
        first = await self._page(request, source, (0, ""))
        headers = {"sluice-api": "1", **{name.decode(): value.decode() for name, value in PRIVATE}}
        lines = self._lines(request, source, first)
        return StreamingResponse(lines, 200, headers, media_type="application/x-ndjson")

    async def _lines(
        self, request: Request, source: str, page: list[tuple[int, SourceId, Mapping]]
    ) -> AsyncIterator[bytes]:
        """Raises Refused where the key ends: it breaks off, rather than end as if it were whole."""
        with self._keys.watching(Head(request.scope)) as key:
            while page:
                yield b"".join([_line(each, mapping) for _, each, mapping in page])
                after, last, _ = page[-1]
                page = (
                    await self._page(request, source, (after, last.source_id)) if len(page) == _PAGE else []
                )
                if key.ended and page:
                    raise Refused(key.ended)

    async def _page(
        self, request: Request, source: str, after: tuple[int, str]
    ) -> list[tuple[int, SourceId, Mapping]]:
        principal = _principal(request)
        share, tenant = self._share(principal), principal.tenant.id
        return await self._answered(source_ids.export(share, tenant, source, after, _PAGE))

    async def _mappings(
        self,
        request: Request,
        wanted: Sequence[SourceId],
        *,
        mint: bool = False,
        aggregate_type: str | None = None,
    ) -> list[Mapping | None]:
        principal = _principal(request)
        share, tenant = self._share(principal), principal.tenant.id
        return await self._answered(
            source_ids.mappings(share, tenant, wanted, mint=mint, aggregate_type=aggregate_type)
        )

    def _share(self, principal: Principal) -> Share:
        return self._shares.of(principal.tenant.id.bytes)

    async def _answered(self, asked: Awaitable[_T]) -> _T:
        try:
            return await asked
        except PostgresTrouble as trouble:
            raise Refused(Refusal("unavailable", "Postgres does not answer. Try again shortly.")) from trouble

    async def _body(
        self, request: Request, required: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        refusal = check_json_body(Head(request.scope), self._body_bytes_max)
        if refusal is not None:
            raise Refused(refusal)
        text = await read_body(request.receive, self._body_bytes_max, self._body_timeout_s)
        body = await decoded(self._aside, _principal(request), text)
        if not isinstance(body, dict):
            raise Refused(Refusal("invalid_field", f"The body must be an object with {', '.join(required)}."))
        for name in required:
            if name not in body:
                raise Refused(Refusal("missing_field", f"`{name}` is missing.", name))
        require_known(body, (*required, *optional))
        return body

    def _spec(self, principal: Principal) -> Spec | None:
        deployed = self._catalog.deployed(principal.tenant.id)
        return None if deployed is None else deployed.reading


def read_source(value: object, path: str) -> SourceId:
    """`{"source", "scope", "id"}`; the scope may be left out where the source has but one. Raises Refused."""
    if not isinstance(value, dict):
        raise Refused(Refusal("invalid_field", 'A source is {"source", "scope", "id"}.', path))
    require_known(value, _PARTS, "A source", path)
    for name in ("source", "id"):
        if name not in value:
            raise Refused(Refusal("missing_field", f"`{path}.{name}` is missing.", f"{path}.{name}"))
    source, scope = value["source"], value.get("scope", "")
    for name, text in (("source", source), ("scope", scope)):
        if not isinstance(text, str):
            raise Refused(Refusal("invalid_field", f"`{path}.{name}` must be a string.", f"{path}.{name}"))
    found = read(source, scope, value["id"])
    if isinstance(found, Unusable):
        raise Refused(Refusal("invalid_field", found.reason, f"{path}.{found.part}"))
    return found


def read_sources(value: object) -> list[SourceId]:
    """Raises Refused."""
    if not isinstance(value, list) or len(value) > SOURCES_MAX:
        raise Refused(Refusal("invalid_field", f"`sources` lists at most {SOURCES_MAX} of them.", "sources"))
    return [read_source(each, f"sources[{n}]") for n, each in enumerate(value)]


def taken(
    asked: SourceId, found: Mapping | None, path: str | None = None, only: Only | None = None
) -> Refusal:
    """Of an id that stands for another aggregate, which a key that is `only` for others is not told."""
    assert found is not None
    what = f"the {found.aggregate_type or 'aggregate'} {found.key}"
    if only is not None and not only.reads(found.aggregate_type or "", found.key):
        what = "another aggregate"
    return Refusal(
        "source_taken", f"{asked.source_id[:64]!r} is mapped to {what}, and that never changes.", path
    )


def source_told(source: SourceId) -> dict[str, str]:
    return {"source": source.source, "scope": source.scope, "id": source.source_id}


def _line(source: SourceId, mapping: Mapping) -> bytes:
    told = {**source_told(source), "key": mapping.key, "aggregate_type": mapping.aggregate_type}
    return encode(told) + b"\n"


def _told(mapping: Mapping) -> dict[str, object]:
    return {"key": mapping.key, "aggregate_type": mapping.aggregate_type}


def _principal(request: Request) -> Principal:
    principal: Principal = request.scope["sluice.principal"]
    return principal


def _asked(request: Request) -> SourceId:
    """Of the path."""
    names = request.path_params
    found = read(names["source"], names["scope"], names["source_id"])
    if isinstance(found, Unusable):
        raise Refused(Refusal("invalid_field", found.reason, found.part))
    return found


def _declared(spec: Spec | None, name: object) -> str:
    """Raises Refused."""
    if not isinstance(name, str):
        raise Refused(Refusal("invalid_field", "`aggregate_type` must be a string.", "aggregate_type"))
    if spec is None or name not in spec.aggregate_types:
        raise Refused(undeclared_type(spec, name, "aggregate_type", status=422))
    return name
