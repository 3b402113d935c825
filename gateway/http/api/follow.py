"""GET /{type}/{id}/events as a stream: NDJSON to the end of what there is, SSE and then live.

Owns: the framing of both, and when a follower has gone. Sees only the log's pages, so whatever it sends is
committed, in order and without a gap: the next page begins where the last one ended.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from gateway.admit.preconditions import LENGTH_MAX
from gateway.errors import Refusal
from gateway.events import Page
from gateway.http import render, response
from gateway.http.api.live_bounds import LiveBounds
from gateway.http.api.named_answers import NamedAnswers, Wanted
from gateway.http.api.reads import (
    PAGE_EVENTS_MAX,
    Subject,
    is_strong,
    never_written,
    read_range,
    unavailable,
    wait_for_length,
)
from gateway.http.api.upcasts import Upcasts
from gateway.http.asgi_extension import AT_ONCE
from gateway.http.key_watch import KeyWatch, Watched
from gateway.http.parameters import Parameters
from gateway.http.request import Head, Message, Receive, Refused, Send
from gateway.log.log import Log
from gateway.log.read.ranges import VERSION_MAX, Range
from gateway.postgres.errors import PostgresTrouble

NDJSON = b"application/x-ndjson"
SSE = b"text/event-stream"
Headers = Sequence[tuple[bytes, bytes]]

_EVENTS_A_PAGE = 500
STREAM_PAGE_BYTES = 256 * 1024
"""Each connection that is slow to read holds a page: so many bytes of events, and one event more."""
LIKED_MAX = 64
"""Media types or codings of a header that are read: it may have 60,000."""
# A comment now and then keeps proxies from closing a quiet stream, and finds out who has gone.
_HEARTBEAT_S = 15.0
_NOTICED_S = 0.5
_CR, _LF = b"\r\n"  # numbers: to look for one in bytes takes a fifth of the time of looking for bytes
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
_WEIGHT = re.compile(rb"(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")


def followed(subject: Subject, query: Parameters) -> tuple[int, bool]:
    """The version where a live stream begins, and whether its data are of the present revision. Raises
    Refused."""
    first = read_range(subject, query, PAGE_EVENTS_MAX).first
    query.choice("order", ("asc",), "asc")
    is_strong(query)
    return first, query.boolean("upcast")


def wanted_stream(accept: bytes | None, offered: Sequence[bytes] = (SSE, NDJSON)) -> bytes | None:
    """The media type beside JSON that `Accept` asks for, if it asks for one and likes JSON no better; the
    first where it likes several alike."""
    if accept is None or accept in (b"*/*", b"application/json"):
        return None
    likes = dict(map(weighed, accept.split(b",", LIKED_MAX)))
    best = max(offered, key=lambda each: likes.get(each, 0.0))
    liked = likes.get(best, 0.0)
    return best if liked and liked >= likes.get(b"application/json", 0.0) else None


def weighed(part: bytes) -> tuple[bytes, float]:
    """A media type or a coding, and how well it is liked: 0 is not at all (RFC 9110 section 12.4.2)."""
    media, *parameters = part.lower().split(b";")
    for parameter in parameters:
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"q" and _WEIGHT.fullmatch(value.strip()):
            return media.strip(), float(value)
    return media.strip(), 1.0


class Follow:
    def __init__(
        self,
        log: Log,
        upcasts: Upcasts,
        named: NamedAnswers,
        keys: KeyWatch,
        bounds: LiveBounds,
        stopping: asyncio.Event,
    ) -> None:
        self._log = log
        self._upcasts = upcasts
        self._named = named
        self._keys = keys
        self._bounds = bounds
        self._stopping = stopping

    async def ndjson(
        self,
        subject: Subject,
        query: Parameters,
        names: Wanted,
        head: Head,
        send: Send,
        *,
        head_only: bool,
    ) -> None:
        """The events asked for, one a line, to where the stream ends now; without a `limit`, all of them. It
        breaks off where its key ends: its reader must not take what there is for all."""
        wanted, strong = read_range(subject, query, VERSION_MAX), is_strong(query)
        upcast = query.boolean("upcast")
        await wait_for_length(self._log, subject, query)
        page = await self._page(wanted, strong, upcast)
        if page.length == 0 and not subject.singleton:
            raise Refused(never_written(subject))
        if head_only:
            await stream_head(send, NDJSON)
            return
        lines = await self._lines(page, names)
        await start_stream(send, NDJSON)
        with self._keys.watching(head) as key:
            while page.events:
                await more(send, b"".join([each + b"\n" for each in lines]))
                rest = _rest(wanted, page)
                if rest is None:
                    break
                del page, lines
                await taken(send)
                wanted, page = rest, await self._page(rest, strong, upcast)
                if key.ended:
                    raise Refused(key.ended)
                lines = await self._lines(page, names)
        await send({"type": "http.response.body", "body": b""})

    async def sse(
        self,
        holder: str,
        subject: Subject,
        query: Parameters,
        names: Wanted,
        head: Head,
        receive: Receive,
        send: Send,
        *,
        head_only: bool,
    ) -> None:
        """From `from`, or after `Last-Event-ID`, and then whatever comes, until one side goes or the key
        ends: no `limit` ends it, but one that can't be read is refused. `holder` is the handle of the key."""
        following, upcast = followed(subject, query)
        resumed = head.joined(b"last-event-id")
        if resumed is not None:
            following = _resumed(resumed) + 1
        await wait_for_length(self._log, subject, query)
        page = await self._page(Range(subject.stream, following), upcast=upcast)
        if page.length == 0 and not subject.singleton:
            raise Refused(never_written(subject))
        if head_only:
            await stream_head(send, SSE)
            return
        with self._bounds.follower(holder), self._log.followers.follow(subject.stream) as follower:
            body = await self._sse_events(page, names)
            await start_stream(send, SSE)
            if page.events:
                await more(send, body)
                following = page.events[-1].version + 1
            behind = following <= page.length
            del page, body
            gone = asyncio.get_running_loop().create_task(until_gone(receive, follower.wake))
            try:
                with self._keys.watching(head, follower.wake) as key:
                    await self._live(
                        subject, following, behind, follower.wait, gone, key, send, upcast, names
                    )
            finally:
                gone.cancel()

    async def _live(
        self,
        subject: Subject,
        following: int,
        behind: bool,
        wait: Callable[[float], Awaitable[None]],
        gone: asyncio.Task[None],
        key: Watched,
        send: Send,
        upcast: bool,
        names: Wanted,
    ) -> None:
        """From version `following`; `behind` says that the stream is known to have it."""
        loop = asyncio.get_running_loop()
        quiet_since = loop.time()
        while not (gone.done() or key.ended or self._stopping.is_set()):
            await taken(send)
            if not behind:
                await wait(self._log.followers.look_every_s(subject.stream.tenant))
            try:
                page = await self._page(Range(subject.stream, following), upcast=upcast)
                body = await self._sse_events(page, names)
            except Refused:
                # Neither Redis nor Postgres answers: end here; the client resumes where it was.
                break
            if page.events:
                await more(send, body)
                following = page.events[-1].version + 1
                quiet_since = loop.time()
            elif loop.time() - quiet_since > _HEARTBEAT_S:
                await more(send, b": still here\n\n")
                quiet_since = loop.time()
            behind = bool(page.events) and following <= page.length
            del page, body
        await send({"type": "http.response.body", "body": b""})

    async def _page(self, wanted: Range, strong: bool = False, upcast: bool = False) -> Page:
        """At most `_EVENTS_A_PAGE` of them, and `STREAM_PAGE_BYTES`."""
        wanted = replace(wanted, limit=min(wanted.limit, _EVENTS_A_PAGE), bytes_max=STREAM_PAGE_BYTES)
        try:
            page = await self._log.page(wanted, strong=strong)
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble
        if not upcast:
            return page
        return replace(page, events=await self._upcasts.all(wanted.stream.tenant, page.events))

    async def _lines(self, page: Page, names: Wanted) -> list[bytes]:
        """The JSON of its events, each in a line. Raises Refused."""
        if not page.events:
            return []
        made = [(each.stream, render.event_json(each)) for each in page.events]
        events = await self._named.events(page.events[0].stream.tenant, names, made)
        return [in_one_line(each) for each in events]

    async def _sse_events(self, page: Page, names: Wanted) -> bytes:
        lines = await self._lines(page, names)
        return b"".join(
            [
                b"id: %d\ndata: %b\n\n" % (each.version, line)
                for each, line in zip(page.events, lines, strict=True)
            ]
        )


def _rest(wanted: Range, page: Page) -> Range | None:
    """What is left of a range after a page of it; nothing beyond the length that the stream had then."""
    left, reached = wanted.limit - len(page.events), page.events[-1].version
    if wanted.newest_first:
        return replace(wanted, last=reached - 1, limit=left) if left and reached > 1 else None
    last = min(wanted.last, page.length)
    return replace(wanted, first=reached + 1, last=last, limit=left) if left and reached < last else None


def in_one_line(event: bytes) -> bytes:
    """An event's JSON on one line: line breaks can stand between tokens only, and become blanks."""
    return event.translate(_ONE_LINE) if _LF in event or _CR in event else event


def _resumed(value: bytes) -> int:
    if not value.isdigit() or len(value) > 19 or int(value) > LENGTH_MAX:
        raise Refused(
            Refusal("invalid_field", "Last-Event-ID must be the version of an event.", "Last-Event-ID")
        )
    return min(int(value), VERSION_MAX)


async def until_gone(receive: Receive, wake: Callable[[], None] = lambda: None) -> None:
    """Returns, and calls `wake`, once the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
    wake()


async def rest(pause_s: float, over: Callable[[], bool]) -> None:
    """Of those of a crowd who were woken at once, each waits for another time: for `pause_s` on average, or
    until it is `over`."""
    left_s = random.uniform(0, 2 * pause_s)  # noqa: S311
    while left_s > 0 and not over():
        await asyncio.sleep(min(left_s, _NOTICED_S))
        left_s -= _NOTICED_S


async def start_stream(send: Send, media_type: bytes, vary: Headers = (response.BY_KEY,)) -> None:
    """`vary` says what the answer depends on, and how it is coded."""
    headers = [(b"content-type", media_type), response.NOT_KEPT, response.API_VERSION, *vary]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def stream_head(send: Send, media_type: bytes, vary: Headers = (response.BY_KEY,)) -> None:
    """The whole answer to a HEAD."""
    await start_stream(send, media_type, vary)
    await send({"type": "http.response.body", "body": b""})


async def more(send: Send, body: bytes) -> None:
    """Writes it behind what the client has taken. The next part is to be made behind `taken`."""
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def taken(send: Send) -> None:
    """Returns once the client has taken most of what was written. A caller that waits holds none of it: what
    a client does not read is in its write buffer, which is counted (unread.py), and not a second time
    here."""
    await more(send, b"")


async def at_once(send: Send) -> Callable[[bytes], bool]:
    """What sends a part of a stream that has started, without waiting, and says whether it did: not while the
    client is slow to read."""
    message: Message = {"type": AT_ONCE}
    await send(message)
    function: Callable[[bytes], bool] = message.get("function", _never)
    return function


def _never(_body: bytes) -> bool:
    return False
