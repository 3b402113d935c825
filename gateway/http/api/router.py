"""The ASGI application: who calls, which resource is meant, and the one place that answers refusals.

Owns: the order authentication → route → scope → rate limit. An aggregate's paths are taken apart here, on
the raw path; everything under /_/ is the system's own and goes to Starlette.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import msgspec

from gateway.catalog.model import CatalogUnavailable, Principal
from gateway.catalog.model import Scope as KeyScope
from gateway.errors import Refusal
from gateway.http import response
from gateway.http.api.aliases import Aliases, located
from gateway.http.api.appends import Appends, PathParams
from gateway.http.api.contents import Contents, of_content
from gateway.http.api.follow import NDJSON, SSE, Follow, wanted_stream
from gateway.http.api.lists import Lists
from gateway.http.api.named_answers import NamedAnswers, Wanted, wanted
from gateway.http.api.reads import Reads, Subject
from gateway.http.api.states import States
from gateway.http.authentication import Authenticator, narrowed, require_narrow
from gateway.http.correlation import correlation_id_of
from gateway.http.outcomes import unforeseen
from gateway.http.parameters import Parameters, require_declared
from gateway.http.request import ClientGone, Head, Receive, Refused, Send
from gateway.http.request import Scope as AsgiScope
from gateway.http.response import ReadAnswer
from gateway.http.routes import Found, find_aggregate, found_at
from gateway.names.aliases import SIGIL

logger = logging.getLogger("sluice.edge")

_SYSTEM = b"/_/"

_LISTS = {("GET", "/{type}"), ("QUERY", "/{type}"), ("POST", "/{type}/_query")}

RawHeaders = list[tuple[bytes, bytes]]
System = Callable[[AsgiScope, Receive, Send], Awaitable[None]]


class AggregateRouter:
    def __init__(
        self,
        callers: Authenticator,
        appends: Appends,
        reads: Reads,
        states: States,
        lists: Lists,
        contents: Contents,
        follow: Follow,
        aliases: Aliases,
        named: NamedAnswers,
        system: System,
    ) -> None:
        self._callers = callers
        self._aliases = aliases
        self._named = named
        self._follow = follow
        self._appends = appends
        self._reads = reads
        self._states = states
        self._lists = lists
        self._contents = contents
        self._system = system

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            await self._serve(scope, receive, send)
        except Refused as refused:
            await _answer(send, refused.refusal, refused.more)
        except CatalogUnavailable:
            await _answer(send, _no_catalog(scope))
        except ClientGone:
            return
        except asyncio.CancelledError:  # a shutdown that waits no longer; an append under way answers itself
            await _answer(send, _stopping(scope))
        except Exception:
            method, correlation_id = scope["method"], correlation_id_of(Head(scope))
            logger.exception("request_failed", extra={"method": method, "correlation_id": correlation_id})
            refusal = unforeseen(method if _may_append(scope) else "GET")
            await _answer(send, refusal, [(b"x-correlation-id", correlation_id.encode())])

    async def _serve(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if b"ticket=" in scope["query_string"]:
            await self._callers.redeem(scope)
        raw_path: bytes = scope["raw_path"].partition(b"?")[0]
        if raw_path.startswith(_SYSTEM):
            await self._system(scope, receive, send)
            return
        head = Head(scope)
        principal = await self._callers.principal(head)
        found = find_aggregate(raw_path)
        method: str = scope["method"]
        if found is None:
            await _no_path_of_ours(method, raw_path, send)
            return
        route, allow = found.path.routes.get("GET" if method == "HEAD" else method), found.path.allow
        aggregate_type = found.names.get("type") or ""
        contents = found.path.text == "/{type}" and of_content(method, scope["query_string"])
        if found.path.text == "/{type}" and not contents and self._lists.has_none(principal, aggregate_type):
            route, allow = (route if method == "POST" else None), "POST, OPTIONS"
        if route is None or route.scope is None:
            await response.allowed_only(send, method, allow)
            return
        with self._callers.served(head, principal, route.scope, receive) as counted:
            require_narrow(principal, route)
            require_declared(scope["query_string"], route.query)
            whole_type = contents or (route.method, route.path) in _LISTS
            if whole_type and principal.only is not None and aggregate_type not in principal.only.types:
                raise Refused(narrowed(principal))
            if contents:
                read = await self._contents.get(principal, aggregate_type, scope["query_string"])
                await response.answer_read(send, read, method == "HEAD")
            elif whole_type:
                await self._list(scope, principal, head, found, counted, send)
            elif route.method == "POST":
                await self._append(scope, principal, head, found, counted, send)
            else:
                await self._read(scope, principal, head, found, receive, send)

    async def _list(
        self,
        scope: AsgiScope,
        principal: Principal,
        head: Head,
        found: Found,
        receive: Receive,
        send: Send,
    ) -> None:
        aggregate_type = found.names["type"] or ""
        if scope["method"] in ("GET", "HEAD"):
            await self._lists.get(principal, aggregate_type, head, scope, receive, send)
        else:
            await self._lists.query(principal, aggregate_type, head, scope, receive, send)

    async def _append(
        self,
        scope: AsgiScope,
        principal: Principal,
        head: Head,
        found: Found,
        receive: Receive,
        send: Send,
    ) -> None:
        names = found.names
        aggregate_type, key = names["type"] or "", names.get("id")
        refused = None
        if key is not None and key.startswith(SIGIL):
            meant = await self._aliases.exact(principal, aggregate_type, key)
            key, refused = (meant, None) if isinstance(meant, str) else (None, meant)
            send = send if key is None else located(send, aggregate_type, key)
        event_type = names.get("event_type")
        headers = scope["headers"]
        if principal.only is not None:
            headers = self._narrowed(principal, aggregate_type, key, event_type, headers)
        path = PathParams(
            aggregate_type=aggregate_type,
            key=key,
            event_type=(names["event_type"] or "") if "event_type" in names else None,
            minting="id" not in names,
            refused=refused,
        )
        await self._appends.append(principal, head, headers, receive, send, path)

    def _narrowed(
        self,
        principal: Principal,
        aggregate_type: str,
        key: str | None,
        event_type: str | None,
        headers: RawHeaders,
    ) -> RawHeaders:
        """The headers of an append that a narrowed key may make: one that may not read the aggregate is not
        shown what it missed. Raises Refused."""
        only, canonical = principal.only, None if key is None else self._reads.canonical(principal, key)
        assert only is not None
        if not only.appends(aggregate_type, canonical, event_type):
            raise Refused(narrowed(principal))
        if canonical is not None and only.reads(aggregate_type, canonical):
            return headers
        others = [header for header in headers if header[0] != b"prefer"]
        return [*others, (b"prefer", b"return=minimal")]

    async def _read(
        self,
        scope: AsgiScope,
        principal: Principal,
        head: Head,
        found: Found,
        receive: Receive,
        send: Send,
    ) -> None:
        head_only = scope["method"] == "HEAD"
        aggregate_type, key = found.names["type"] or "", found.names["id"]
        if principal.only is not None and not principal.only.reads_any(aggregate_type):
            raise Refused(narrowed(principal))
        if key is not None and key.startswith(SIGIL):
            known = self._aliases.known(principal, aggregate_type, key)
            subject = known or await self._named_subject(principal, aggregate_type, key)
            keyless = b"keys=alias" in scope["query_string"]
            send = located(send, aggregate_type, key if keyless else subject.stream.key)
        else:
            subject = await self._reads.stored(principal, aggregate_type, key)
        if principal.only is not None and not principal.only.reads(aggregate_type, subject.stream.key):
            raise Refused(narrowed(principal))
        query = Parameters(scope["query_string"])
        match found.path.text:
            case "/{type}/{id}":
                if query.boolean("explain"):
                    subject = _explained(principal, subject)
                names = wanted(query, subject.deployed.reading)
                # An alias comes without an event, so the ETag does not tell whether the client has it.
                if_none_match = None if names.of(aggregate_type) else head.joined(b"if-none-match")
                read = await self._states.state(subject, query, if_none_match)
                read = await self._with_names(principal, subject, names, read)
            case "/{type}/{id}/length":
                read = await self._reads.length(subject, query)
            case "/{type}/{id}/aliases":
                read = await self._aliases.of(subject)
                read = await self._named.with_parent(subject.stream, read)
            case "/{type}/{id}/children":
                read = await self._aliases.children(subject, query)
            case "/{type}/{id}/events/{version}":
                names = wanted(query, subject.deployed.reading)
                read = await self._reads.event(subject, found.names["version"] or "", query)
                read = await self._with_names(principal, subject, names, read)
            case "/{type}/{id}/events":
                await self._events(principal, subject, query, head, receive, send, head_only)
                return
            case path:
                raise NotImplementedError(path)
        await response.answer_read(send, read, head_only)

    async def _named_subject(self, principal: Principal, aggregate_type: str, alias: str) -> Subject:
        """Raises Refused: a key that is for single aggregates does not learn which other names there are."""
        try:
            return await self._aliases.subject(principal, aggregate_type, alias)
        except Refused as refused:
            only, code = principal.only, refused.refusal.code
            if only is None or aggregate_type in only.types or code == "unavailable":
                raise
            raise Refused(narrowed(principal)) from refused

    async def _with_names(
        self,
        principal: Principal,
        subject: Subject,
        asked: Wanted,
        read: ReadAnswer,
    ) -> ReadAnswer:
        """With what is asked for of aliases, and of a child with its parent."""
        stream, spec = subject.stream, subject.deployed.reading
        read = await self._named.told(principal.tenant.id.bytes, read, asked, stream.aggregate_type)
        return await self._named.with_parent(stream, read) if spec.hash_ids is not None else read

    async def _events(
        self,
        principal: Principal,
        subject: Subject,
        query: Parameters,
        head: Head,
        receive: Receive,
        send: Send,
        head_only: bool,
    ) -> None:
        """A page, or a stream where `Accept` asks for one."""
        streamed, names = wanted_stream(head.joined(b"accept")), wanted(query, subject.deployed.reading)
        if streamed == SSE:
            await self._follow.sse(
                principal.handle, subject, query, names, head, receive, send, head_only=head_only
            )
        elif streamed == NDJSON:
            await self._follow.ndjson(subject, query, names, head, send, head_only=head_only)
        else:
            read = await self._reads.events(subject, query)
            read = await self._with_names(principal, subject, names, read)
            await response.answer_read(send, read, head_only)


def _explained(principal: Principal, subject: Subject) -> Subject:
    """Raises Refused (403)."""
    if principal.scope < KeyScope.ADMIN:
        why = f"This key has the scope {principal.scope.text}; `explain` needs admin."
        raise Refused(Refusal("forbidden", why, "explain"))
    return msgspec.structs.replace(subject, explained=True)


async def _answer(send: Send, refusal: Refusal, more: response.Headers | None = None) -> None:
    """The one answer of a request; one that has begun already breaks off, and its connection with it."""
    with contextlib.suppress(RuntimeError):
        await response.refuse(send, refusal, more or ())


async def _no_path_of_ours(method: str, raw_path: bytes, send: Send) -> None:
    if method != "OPTIONS" or raw_path != b"*":
        raise Refused(response.no_such_route())
    await response.allowed_only(
        send, method, "GET, HEAD, QUERY, POST, PUT, DELETE, OPTIONS"
    )  # of the server as a whole


def _may_append(scope: AsgiScope) -> bool:
    """Whether the answer has to say what becomes of an event: not of a query, whose body a POST has, too."""
    method, found = scope["method"], found_at(scope["raw_path"].partition(b"?")[0])
    route = None if found is None else found.path.routes.get(method)
    return method == "POST" and (route is None or route.scope in (None, KeyScope.WRITE))


def _no_catalog(scope: AsgiScope) -> Refusal:
    if _may_append(scope):
        return Refusal("not_committed", "The event will never appear: Postgres does not answer.")
    return Refusal("unavailable", "Postgres does not answer, so no key can be checked. Try again shortly.")


_APPEND_WITHIN = frozenset((b"/_/import", b"/_/deliveries/replay"))
"""Of these, some events may be committed before the others are."""


def _stopping(scope: AsgiScope) -> Refusal:
    if scope["raw_path"].partition(b"?")[0] in _APPEND_WITHIN:
        why = "This gateway is stopping. Send the request again: what is done by now is not done twice."
        return Refusal("outcome_unknown", why)
    if _may_append(scope):
        return Refusal("not_committed", "The event will never appear: this gateway is stopping.")
    return Refusal("unavailable", "This gateway is stopping. Try again shortly.")
