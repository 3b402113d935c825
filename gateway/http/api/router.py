"""The ASGI application: who calls, which resource is meant, and the one place that answers refusals.

Owns: the order authentication → route → scope → rate limit. An aggregate's paths are taken apart here, on
the raw path; everything under /_/ is the system's own and goes to Starlette.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from gateway.admit.path import split
from gateway.catalog.model import CatalogUnavailable, Principal, Scope
from gateway.errors import Refusal
from gateway.http import response
from gateway.http.api.aliases import Aliases, located
from gateway.http.api.appends import Appends, PathParams, correlation_id_of
from gateway.http.api.follow import NDJSON, SSE, Follow, wanted_stream
from gateway.http.api.reads import Reads, Subject
from gateway.http.api.states import States
from gateway.http.authentication import Authenticator
from gateway.http.outcomes import unforeseen
from gateway.http.parameters import Parameters
from gateway.http.request import ClientGone, Head, Receive, Refused, Send
from gateway.http.request import Scope as AsgiScope
from gateway.names.aliases import SIGIL

logger = logging.getLogger("sluice.edge")

_SYSTEM = b"/_/"
_BULK = b"/_/bulk"
_READS = ("GET", "HEAD")
_READ_SUBRESOURCES = ("length", "events", "aliases")

Segments = tuple[str | None, ...]
System = Callable[[AsgiScope, Receive, Send], Awaitable[None]]


class AggregateRouter:
    def __init__(
        self,
        callers: Authenticator,
        appends: Appends,
        reads: Reads,
        states: States,
        follow: Follow,
        aliases: Aliases,
        system: System,
    ) -> None:
        self._callers = callers
        self._aliases = aliases
        self._follow = follow
        self._appends = appends
        self._reads = reads
        self._states = states
        self._system = system

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            await self._serve(scope, receive, send)
        except Refused as refused:
            await _refuse(scope, send, refused.refusal, refused.more)
        except CatalogUnavailable:
            await _refuse(scope, send, _no_catalog(scope["method"]))
        except ClientGone:
            return
        except asyncio.CancelledError:  # a shutdown that waits no longer; an append under way answers itself
            await _refuse(scope, send, _stopping(scope["method"]))
        except Exception:
            method, correlation_id = scope["method"], correlation_id_of(Head(scope))
            logger.exception("request_failed", extra={"method": method, "correlation_id": correlation_id})
            await _answer(send, unforeseen(method), [(b"x-correlation-id", correlation_id.encode())])

    async def _serve(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        raw_path: bytes = scope["raw_path"].partition(b"?")[0]
        if raw_path.startswith(_SYSTEM):
            await self._system(scope, receive, send)
            return
        head = Head(scope)
        principal = await self._callers.principal(head)
        segments = split(raw_path)
        method: str = scope["method"]
        count = 0 if segments is None else len(segments)
        if segments is None or count == 0 or count > 4:
            await _no_path_of_ours(method, raw_path, send)
            return
        if method == "POST":
            await self._post(scope, principal, head, segments, receive, send)
        elif method in _READS:
            await self._get(scope, principal, head, segments, receive, send)
        else:
            await _another_method(scope, segments, send)

    async def _post(
        self,
        scope: AsgiScope,
        principal: Principal,
        head: Head,
        segments: Segments,
        receive: Receive,
        send: Send,
    ) -> None:
        count = len(segments)
        if count > 3 or (count == 3 and segments[2] in _READ_SUBRESOURCES):
            await _another_method(scope, segments, send)
            return
        with self._callers.served(principal, Scope.WRITE, receive) as counting:
            await self._append(scope, principal, head, segments, counting, send)

    async def _append(
        self,
        scope: AsgiScope,
        principal: Principal,
        head: Head,
        segments: Segments,
        receive: Receive,
        send: Send,
    ) -> None:
        count = len(segments)
        aggregate_type = segments[0] or ""
        key = segments[1] if count > 1 else None
        refused = None
        if key is not None and key.startswith(SIGIL):
            meant = await self._aliases.exact(principal, aggregate_type, key)
            key, refused = (meant, None) if isinstance(meant, str) else (None, meant)
            send = send if key is None else located(send, aggregate_type, key)
        names = PathParams(
            aggregate_type=aggregate_type,
            key=key,
            event_type=(segments[2] or "") if count > 2 else None,
            minting=count == 1,
            refused=refused,
        )
        await self._appends.append(principal, head, scope["headers"], receive, send, names)

    async def _get(
        self,
        scope: AsgiScope,
        principal: Principal,
        head: Head,
        segments: Segments,
        receive: Receive,
        send: Send,
    ) -> None:
        count = len(segments)
        readable = count == 2 or (count == 3 and segments[2] in _READ_SUBRESOURCES)
        if not readable and not (count == 4 and segments[2] == "events"):
            await _another_method(scope, segments, send)
            return
        with self._callers.served(principal, Scope.READ, receive):
            await self._read(scope, principal, head, segments, receive, send)

    async def _read(
        self,
        scope: AsgiScope,
        principal: Principal,
        head: Head,
        segments: Segments,
        receive: Receive,
        send: Send,
    ) -> None:
        count = len(segments)
        head_only = scope["method"] == "HEAD"
        aggregate_type, key = segments[0] or "", segments[1]
        if key is not None and key.startswith(SIGIL):
            known = self._aliases.known(principal, aggregate_type, key)
            subject = known or await self._aliases.subject(principal, aggregate_type, key)
            send = located(send, aggregate_type, subject.stream.key)
        else:
            subject = await self._reads.stored(principal, aggregate_type, key)
        query = Parameters(scope["query_string"])
        if count == 2:
            read = await self._states.state(subject, query, head.joined(b"if-none-match"))
        elif count == 4:
            read = await self._reads.event(subject, segments[3] or "", query)
        elif segments[2] == "length":
            read = await self._reads.length(subject, query)
        elif segments[2] == "aliases":
            read = await self._aliases.of(subject)
        else:
            await self._events(principal.handle, subject, query, head, receive, send, head_only)
            return
        await response.answer_read(send, read, head_only)

    async def _events(
        self,
        holder: str,
        subject: Subject,
        query: Parameters,
        head: Head,
        receive: Receive,
        send: Send,
        head_only: bool,
    ) -> None:
        """A page, or a stream where `Accept` asks for one."""
        streamed = wanted_stream(head.joined(b"accept"))
        if streamed == SSE:
            await self._follow.sse(holder, subject, query, head, receive, send, head_only=head_only)
        elif streamed == NDJSON:
            await self._follow.ndjson(subject, query, head, send, head_only=head_only)
        else:
            await response.answer_read(send, await self._reads.events(subject, query), head_only)


async def _refuse(
    scope: AsgiScope, send: Send, refusal: Refusal, more: response.Headers | None = None
) -> None:
    await _answer(send, refusal, [*(more or ()), *_correlated(scope)])


async def _answer(send: Send, refusal: Refusal, more: response.Headers) -> None:
    """The one answer of a request; one that has begun already breaks off, and its connection with it."""
    with contextlib.suppress(RuntimeError):
        await response.refuse(send, refusal, more)


def _correlated(scope: AsgiScope) -> response.Headers:
    """What goes with every answer to an append."""
    raw_path: bytes = scope["raw_path"]
    if scope["method"] != "POST" or (raw_path.startswith(_SYSTEM) and raw_path != _BULK):
        return []
    return [(b"x-correlation-id", correlation_id_of(Head(scope)).encode())]


async def _another_method(scope: AsgiScope, segments: Segments, send: Send) -> None:
    """A method that the path does not have: 405; to OPTIONS, the ones that it has."""
    allowed = _allowed(segments)
    if allowed is None:
        raise Refused(response.no_such_route())
    await response.allowed_only(send, scope["method"], allowed, _correlated(scope))


def _allowed(segments: Segments) -> str | None:
    """The methods of a path, as `Allow` lists them; None where there is no such path."""
    match len(segments):
        case 1:
            return "POST, OPTIONS"
        case 2:
            return "GET, HEAD, POST, OPTIONS"
        case 3 if segments[2] not in _READ_SUBRESOURCES:
            return "POST, OPTIONS"
        case 4 if segments[2] != "events":
            return None
        case _:
            return "GET, HEAD, OPTIONS"


async def _no_path_of_ours(method: str, raw_path: bytes, send: Send) -> None:
    if method != "OPTIONS" or raw_path != b"*":
        raise Refused(response.no_such_route())
    await response.allowed_only(
        send, method, "GET, HEAD, POST, PUT, DELETE, OPTIONS"
    )  # of the server as a whole


def _no_catalog(method: str) -> Refusal:
    if method == "POST":
        return Refusal("not_committed", "The event will never appear: Postgres does not answer.")
    return Refusal("unavailable", "Postgres does not answer, so no key can be checked. Try again shortly.")


def _stopping(method: str) -> Refusal:
    if method == "POST":
        return Refusal("not_committed", "The event will never appear: this gateway is stopping.")
    return Refusal("unavailable", "This gateway is stopping. Try again shortly.")
