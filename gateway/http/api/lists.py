"""GET and QUERY of /{type}: all aggregates of a type, filtered, in an order, by pages; live in
`live_rows.py`."""

from __future__ import annotations

from gateway.admit.address import undeclared_type
from gateway.aside import Aside
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Principal
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http import response
from gateway.http.api.follow import SSE, wanted_stream
from gateway.http.api.list_query import Asked, read_body_query, read_parameters
from gateway.http.api.live_rows import LiveRows
from gateway.http.api.named_answers import NamedAnswers, Wanted, wanted
from gateway.http.api.rows import Named, RowReader, page_json
from gateway.http.json_body import decoded
from gateway.http.parameters import Parameters
from gateway.http.request import Head, Receive, Refused, Scope, Send, check_json_body, read_body


class Lists:
    """GET and QUERY of /{type}, POST of /{type}/_query."""

    def __init__(
        self,
        reader: RowReader,
        live: LiveRows,
        catalog: Catalog,
        told: NamedAnswers,
        aside: Aside,
        config: Config,
    ) -> None:
        self._reader = reader
        self._live = live
        self._told = told
        self._catalog = catalog
        self._aside = aside
        self._body_bytes_max = config.body_bytes_max
        self._body_timeout_s = config.body_timeout_s

    def has_none(self, principal: Principal, aggregate_type: str) -> bool:
        """Whether the spec declares the type, but no list of it: then its path takes only appends."""
        deployed = self._catalog.deployed(principal.tenant.id)
        declared = None if deployed is None else deployed.reading.aggregate_types.get(aggregate_type)
        return declared is not None and declared.listed is None

    def named(self, principal: Principal, aggregate_type: str) -> Named:
        """Raises Refused: 404 for an unknown type, 422 for one without a list."""
        deployed = self._catalog.deployed(principal.tenant.id)
        declared = None if deployed is None else deployed.reading.aggregate_types.get(aggregate_type)
        if declared is None:
            raise Refused(undeclared_type(None if deployed is None else deployed.reading, aggregate_type))
        if declared.listed is None:
            why = f'{aggregate_type} has no list; declare one, as in `"list": {{"by": ["status"]}}`.'
            raise Refused(Refusal("not_listed", why, "type", listed=()))
        return Named(principal.tenant.id.bytes, "list", aggregate_type, declared.listed.by)

    async def get(
        self,
        principal: Principal,
        aggregate_type: str,
        head: Head,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """A page, by the query's parameters; live where `Accept` asks for that."""
        query, head_only = scope["query_string"], scope["method"] == "HEAD"
        if wanted_stream(head.joined(b"accept"), (SSE,)) == SSE:
            named, asked = self.followed(principal, aggregate_type, query)
            await self._live.serve(
                principal.handle, named, asked, None, head, receive, send, head_only=head_only
            )
        else:
            named = self.named(principal, aggregate_type)
            asked, names = read_parameters(query, named.by), self._names(principal, query)
            await self._answer(named, asked, names, head, send, head_only=head_only)

    def followed(self, principal: Principal, aggregate_type: str, query: bytes) -> tuple[Named, Asked]:
        """What a live list is asked for. Raises Refused."""
        named = self.named(principal, aggregate_type)
        asked = read_parameters(query, named.by)
        if not wanted(Parameters(query), None).nothing:
            why = "Live rows have no aliases; request a page for rows with aliases."
            raise Refused(Refusal("invalid_field", why, "aliases"))
        return named, asked

    async def query(
        self,
        principal: Principal,
        aggregate_type: str,
        head: Head,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """A page, by the body."""
        named = self.named(principal, aggregate_type)
        names = self._names(principal, scope["query_string"])
        asked = await self.asked(principal, named, head, receive)
        await self._answer(named, asked, names, head, send, head_only=False)

    async def asked(self, principal: Principal, named: Named, head: Head, receive: Receive) -> Asked:
        """What a body asks for. Raises Refused."""
        refusal = check_json_body(head, self._body_bytes_max)
        if refusal is not None:
            raise Refused(refusal)
        text = await read_body(receive, self._body_bytes_max, self._body_timeout_s)
        return read_body_query(await decoded(self._aside, principal, text), named.by)

    def _names(self, principal: Principal, query: bytes) -> Wanted:
        """Raises Refused."""
        deployed = self._catalog.deployed(principal.tenant.id)
        return wanted(Parameters(query), None if deployed is None else deployed.reading)

    async def _answer(
        self, named: Named, asked: Asked, names: Wanted, head: Head, send: Send, *, head_only: bool
    ) -> None:
        build, rows = await self._reader.page(named, asked, head)
        body = b'{"ok":true,%b}' % await page_json(build, rows, asked.query)
        read = await self._told.told(named.tenant, response.ReadAnswer(body), names, named.name)
        await response.answer_read(send, read, head_only)
