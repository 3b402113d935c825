"""/_/projections: the rows of projections, and the status of all read models of a tenant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Principal
from gateway.errors import Refusal
from gateway.follow.declarations import Declarations
from gateway.follow.standing import LIST_PREFIX, Stands, position_text, standings
from gateway.http import response
from gateway.http.api.follow import SSE, wanted_stream
from gateway.http.api.list_query import Asked, read_parameters
from gateway.http.api.live_rows import LiveRows
from gateway.http.api.reads import unavailable
from gateway.http.api.rows import Named, RowReader, item_json, page_json
from gateway.http.render import encode
from gateway.http.request import Head, Receive, Refused, Scope, Send
from gateway.postgres.errors import PostgresTrouble
from spec.errors import nearest
from spec.identifiers import canonicalize
from spec.model import Spec


class Projections:
    def __init__(
        self, reader: RowReader, live: LiveRows, declarations: Declarations, catalog: Catalog
    ) -> None:
        self._reader = reader
        self._live = live
        self._declarations = declarations
        self._catalog = catalog

    def _spec(self, principal: Principal) -> Spec | None:
        deployed = self._catalog.deployed(principal.tenant.id)
        return None if deployed is None else deployed.reading

    def _named(self, principal: Principal, name: str) -> Named:
        """Raises Refused (404)."""
        spec = self._spec(principal)
        tenant = principal.tenant.id.bytes
        if spec is not None and name in spec.projections:
            return Named(tenant, "projection", name, spec.projections[name].by)
        declared = None
        if spec is not None and name.startswith(LIST_PREFIX):
            declared = spec.aggregate_types.get(name.removeprefix(LIST_PREFIX))
        if declared is not None and declared.listed is not None:
            return Named(tenant, "list", declared.name, declared.listed.by)
        known = () if spec is None else tuple(spec.projections)
        why = f"There is no projection {name[:64]!r}{nearest(name, known)}."
        raise Refused(Refusal("not_found", why, "name"))

    def asked(
        self, principal: Principal, names: Mapping[str, str | None], query: bytes
    ) -> tuple[Named, str | None, Asked]:
        """What a request asks for, by what its path has in place of `name` and `key`. Raises Refused."""
        named = self._named(principal, names["name"] or "")
        key = self._key(principal, named, names["key"] or "") if "key" in names else None
        return named, key, read_parameters(query, named.by)

    async def every(self, request: Request) -> Response:
        """How all stand, by name."""
        every = await self._standings(request.scope["sluice.principal"])
        body: dict[str, Any] = {"ok": True}
        for kind, member in (("projection", "projections"), ("list", "lists")):
            body[member] = [each.document for each in every if each.kind == kind]
        return response.json_response(200, encode(body))

    async def _standings(self, principal: Principal, named: Named | None = None) -> list[Stands]:
        """Of all, or of one. Raises Refused."""
        try:
            builds = await self._declarations.every(principal.tenant.id)
            if named is not None:
                builds = [each for each in builds if (each.kind, each.name) == (named.kind, named.name)]
            return await standings(self._reader.reading, builds)
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble

    async def list(self, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        """Its rows as a list, and how it stands; live where `Accept` asks for that."""
        named, _, asked = self.asked(principal, scope["path_params"], scope["query_string"])
        head = Head(scope)
        head_only = scope["method"] == "HEAD"
        if wanted_stream(head.joined(b"accept"), (SSE,)) == SSE:
            await self._live.serve(
                principal.handle, named, asked, None, head, receive, send, head_only=head_only
            )
            return
        rows = await self._rows(named, asked, head)
        stands = await self._standings(principal, named)
        told: dict[str, Any] = {"ok": True, **(stands[0].document if stands else {"name": named.name})}
        if rows is None:
            body = encode({**told, "items": [], "next": None})
        else:
            told.pop("position", None)
            body = b"%b,%b}" % (encode(told)[:-1], rows)
        await response.answer_read(send, response.ReadAnswer(body), head_only)

    async def _rows(self, named: Named, asked: Asked, head: Head) -> bytes | None:
        """A page; None while nothing serves and no position is asked for: the answer says how far the build
        is. Raises Refused."""
        try:
            build, rows = await self._reader.page(named, asked, head)
        except Refused as refused:
            if refused.refusal.code != "behind" or asked.after is not None or await self._serves(named):
                raise
            return None
        return await page_json(build, rows, asked.query)

    async def _serves(self, named: Named) -> bool:
        """Raises Refused."""
        try:
            return await self._reader.reading.serving(named.tenant, named.kind, named.name) is not None
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble

    async def row(self, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        """One row; live where `Accept` asks for that."""
        named, key, asked = self.asked(principal, scope["path_params"], scope["query_string"])
        assert key is not None
        head = Head(scope)
        head_only = scope["method"] == "HEAD"
        if wanted_stream(head.joined(b"accept"), (SSE,)) == SSE:
            await self._live.serve(
                principal.handle, named, asked, key, head, receive, send, head_only=head_only
            )
            return
        build, rows = await self._reader.row(named, key, asked, head)
        if not rows.rows:
            raise Refused(Refusal("not_found", f"There is no row {key[:64]!r}."))
        position = encode(position_text(build.p, rows.place))
        body = b'{"ok":true,%b,"position":%b}' % (item_json(rows.rows[0], asked.query.keep)[1:-1], position)
        await response.answer_read(send, response.ReadAnswer(body), head_only)

    def _key(self, principal: Principal, named: Named, key: str) -> str:
        """As rows have it. Raises Refused (422)."""
        spec = self._spec(principal)
        assert spec is not None
        if named.kind == "projection" and spec.projections[named.name].key_kind == "text":
            return key
        canonical = canonicalize(key, spec.singletons)
        if canonical is None:
            why = "Row keys are identifiers; this is not one."
            raise Refused(Refusal("invalid_identifier", why, "key"))
        return canonical
