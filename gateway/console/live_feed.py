"""The feed as a person reads it: one look a second; where more came than a person reads, the newest events,
and the number that were left out before them.

So an open page costs the gateway one look a second, whatever the rate of commits, and viewers of one filter
share the looks at the newest events. Programs follow `GET /_/feed`, which leaves nothing out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from gateway.console.api import Answer, Api, read_rows
from gateway.http.api.follow import SSE, more, taken, until_gone
from gateway.http.request import Receive, Send
from gateway.relay.position import decode

LOOK_S: Final = 1.0
"""Between the begins of two looks of one viewer, at least: a table that changes more often is not read."""
LOOK_ROWS: Final = 20
"""Events of one look, about a screen. With more, it shows the first, what is left out, and the newest."""
QUIET_S: Final = 15
"""How long a look waits for an event; then a comment keeps proxies from closing the stream."""
DATA_CHARS_MAX: Final = 120
"""Of an event's data in its row."""
SESSION_S: Final = 15.0
"""Between two looks whether the viewer is still signed in: each is a query."""
FILTERS: Final = ("types", "event_types", "tags", "correlation_id")

Event = Mapping[str, Any]
"""As the feed gives it."""


class Gap(NamedTuple):
    """Events that are not shown: behind the position `after`, before the event whose position is `before`.
    `up_to`: as many places, of which other tenants and other events than the filter's may have some."""

    after: str
    before: str
    up_to: int


class Look(NamedTuple):
    """What to show below what is shown: the gap, then events. `position`: behind the last of them; `ahead`:
    more is committed than was shown."""

    events: Sequence[Event]
    gap: Gap | None
    position: str
    ahead: bool


def following(page: Mapping[str, Any]) -> Look:
    """Of a page of the events behind the viewer's position."""
    return Look(page["events"], None, page["position"], bool(page["events"]) and not page["caught_up"])


def newest(page: Mapping[str, Any], position: str) -> Look:
    """Of a page of the newest events, the newest first: those behind the viewer's position."""
    seq = place_of(position)
    events = [each for each in reversed(page["events"]) if place_of(each["position"]) > seq]
    if not events:
        return Look((), None, position, False)
    first, last = events[0]["position"], events[-1]["position"]
    left_out = place_of(first) - seq - 1
    reaches = len(events) < len(page["events"]) or page["caught_up"] or not left_out
    gap = None if reaches else Gap(position, first, left_out)
    return Look(events, gap, last, gap is not None)


def place_of(position: str) -> int:
    """The place in its tenant's partition that a position of the feed stands behind; 0: the beginning."""
    found = decode(position)
    return sum(place.seq for _, place in found.places) if found else 0


class Newest:
    """The newest events that pass a filter, read once for all who look at them."""

    def __init__(self) -> None:
        self._began = float("-inf")
        self._reading: asyncio.Future[Answer] | None = None

    async def read(self, api: Api, asked: Mapping[str, str], since: float) -> tuple[float, Answer]:
        """A page that was begun after `since`, and when."""
        if self._reading is None or self._began <= since:
            self._began = asyncio.get_running_loop().time()
            query: dict[str, str | int] = {**asked, "order": "desc", "limit": LOOK_ROWS}
            self._reading = asyncio.ensure_future(api.get("/_/feed", query, read=read_rows))
        began = self._began
        return began, await asyncio.shield(self._reading)


class LiveFeed:
    """`follower` counts a viewer of a key, by its handle, and raises Refused (429)."""

    def __init__(
        self, follower: Callable[[str], AbstractContextManager[None]], stopping: asyncio.Event
    ) -> None:
        self._follower = follower
        self._stopping = stopping
        self._newest: WeakValueDictionary[tuple[str, frozenset[tuple[str, str]]], Newest] = (
            WeakValueDictionary()
        )

    async def stream(
        self,
        api: Api,
        holder: str,
        query: Mapping[str, str],
        resumed: str | None,
        headers: Sequence[tuple[bytes, bytes]],
        receive: Receive,
        send: Send,
        signed_in: Callable[[], Awaitable[bool]],
    ) -> None:
        """Server-sent events until the viewer goes or signs out, or the gateway stops: `look` has what is to
        be shown, `trouble` why nothing is shown for now, `refused` why nothing will be."""
        asked = {name: query[name] for name in FILTERS if query.get(name)}
        shared = self._newest.setdefault((holder, frozenset(asked.items())), Newest())
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        ends = [loop.create_task(until_gone(receive, gone.set)), loop.create_task(self._stopping.wait())]
        try:
            with self._follower(holder):
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                viewer = _Viewer(api, asked, resumed or query.get("after") or "now", shared, gone)
                checked = loop.time()
                while not (gone.is_set() or self._stopping.is_set()):
                    begun = loop.time()
                    message, ended = await viewer.look()
                    if loop.time() >= checked + SESSION_S:
                        checked = loop.time()
                        if not await signed_in():
                            message, ended = _message("refused", {"error": SIGNED_OUT}), True
                    await more(send, message)
                    if ended:
                        break
                    await taken(send)
                    pause_s = begun + LOOK_S - loop.time()
                    if not viewer.jumps and pause_s > 0:
                        await asyncio.wait(ends, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                await send({"type": "http.response.body", "body": b""})
        finally:
            for each in ends:
                each.cancel()


class _Viewer:
    """One page that is open, and where it stands."""

    def __init__(
        self, api: Api, asked: Mapping[str, str], position: str, shared: Newest, gone: asyncio.Event
    ) -> None:
        self._api = api
        self._asked = asked
        self._position = position
        self._shared = shared
        self._gone = gone
        self._seen = float("-inf")
        self._ahead = False
        self._wait_s = 0
        self.jumps = False
        """The next look is due at once: it leads from the first events of a crowd to its last."""

    async def look(self) -> tuple[bytes, bool]:
        """What to send, and whether it is the end."""
        was_ahead = self._ahead
        if was_ahead:
            self._seen, answer = await self._shared.read(self._api, self._asked, self._seen)
        else:
            behind: dict[str, str | int] = {"after": self._position, "limit": LOOK_ROWS, "wait": self._wait_s}
            asked = {**self._asked, **behind}
            answer = await self._api.get("/_/feed", asked, gone=self._gone, read=read_rows)
            self._seen = asyncio.get_running_loop().time()
        self.jumps = False
        if not answer.done:
            ended = answer.status not in (429, 503)
            return _message("refused" if ended else "trouble", {"error": answer.error}), ended
        found = newest(answer.body, self._position) if was_ahead else following(answer.body)
        self._wait_s = QUIET_S
        self._position, self._ahead = found.position, found.ahead
        self.jumps = found.ahead and not was_ahead
        return _shown(found), False


def _shown(look: Look) -> bytes:
    rows = [
        {
            **{name: each[name] for name in ("id", "type", "aggregate_type", "key", "version", "position")},
            "actor": each["metadata"]["actor"]["type"],
            "data": msgspec.json.encode(each["data"]).decode()[:DATA_CHARS_MAX],
        }
        for each in look.events
    ]
    position = b"id: %b\n" % look.position.encode()
    if not rows:
        return b": quiet\n" + position + b"\n"
    return position + _message("look", {"gap": look.gap and look.gap._asdict(), "rows": rows})


def _message(kind: str, data: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(data))


SIGNED_OUT: Final = "Your session has ended. Sign in again."
HEADERS: Final = ((b"content-type", SSE), (b"cache-control", b"no-store"))
