"""GET /_/feed: all committed events of a tenant in one order, from any position, filtered if asked.

Owns: how pages follow each other until an answer is whole or a follower leaves. Sees only pages of the
outbox, so what it sends is committed, in order and without a gap. What a request wants is read by
feed_query.py, the forms of events are in feed_forms.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from gateway.admit.items import read_query
from gateway.aside import Aside
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Principal
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http import response
from gateway.http.api import cloud_events
from gateway.http.api.content_encoding import Gzip, Plain, accepts_gzip
from gateway.http.api.feed_forms import (
    EVENTS_AT_ONCE,
    answer_of,
    as_message,
    event_of,
    message_of,
    send_batch,
    still_here,
)
from gateway.http.api.feed_query import Asked, FeedQuery, invalid, is_newest_first, read
from gateway.http.api.follow import (
    NDJSON,
    SSE,
    STREAM_PAGE_BYTES,
    at_once,
    in_one_line,
    more,
    start_stream,
    stream_head,
    taken,
    until_gone,
    wanted_stream,
)
from gateway.http.api.live_bounds import LiveBounds
from gateway.http.api.named_answers import NamedAnswers, Wanted, wanted
from gateway.http.api.reads import PAGE_EVENTS_MAX, unavailable
from gateway.http.api.upcasts import Upcasts
from gateway.http.json_body import decoded
from gateway.http.key_watch import KeyWatch, Watched
from gateway.http.parameters import Parameters
from gateway.http.request import Head, Receive, Refused, Scope, Send, check_json_body, read_body
from gateway.items import Items
from gateway.postgres.errors import PostgresTrouble
from gateway.relay.channel import Chunk, Following, Form
from gateway.relay.live import Live
from gateway.relay.outbox import PAGE_BYTES, Entry, LostPlace, Outbox, Page
from gateway.relay.position import START, Place, Position

# Enough that a statement's fixed cost is small beside its rows; a page or two are held in memory.
_EVENTS_A_PAGE = 500
_UNBOUNDED = 2**53
_HEARTBEAT_S = 15.0
# Between two looks at Postgres of a follower whose channel does not know yet where the partition ends.
_UNCOVERED_S = 0.25


class Feed:
    def __init__(
        self,
        outbox: Outbox,
        live: Live,
        catalog: Catalog,
        upcasts: Upcasts,
        named: NamedAnswers,
        keys: KeyWatch,
        bounds: LiveBounds,
        aside: Aside,
        config: Config,
    ) -> None:
        self._outbox = outbox
        self._queries = FeedQuery(outbox, catalog)
        self._live = live
        self._catalog = catalog
        self._upcasts = upcasts
        self._named = named
        self._keys = keys
        self._bounds = bounds
        self._aside = aside
        self._offers_gzip = config.feed_gzip
        self._body_bytes_max = config.body_bytes_max
        self._body_timeout_s = config.body_timeout_s

    async def query(self, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        """The feed of what the items in the body match. Raises Refused."""
        head, query = Head(scope), Parameters(scope["query_string"])
        form, resumed = _form_and_place(head)
        wanted(query, None)
        self._queries.require_readable(principal, query, resumed, live=form == SSE)
        unreadable = check_json_body(head, self._body_bytes_max)
        if unreadable is not None:
            raise Refused(unreadable)
        body = await read_body(receive, self._body_bytes_max, self._body_timeout_s)
        value = await decoded(self._aside, principal, body)
        spec, salt = self._queries.spec(principal, query)
        await self._feed(principal, scope, receive, send, read(read_query(value, spec, salt)))

    async def feed(self, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        """In the form that `Accept` asks for. Raises Refused."""
        await self._feed(principal, scope, receive, send, ())

    async def require_followed(self, principal: Principal, query: Parameters) -> None:
        """Raises Refused as a live stream with this query would."""
        await self._queries.asked(principal, query, None, (), is_newest_first(query, live=True))

    async def _feed(
        self, principal: Principal, scope: Scope, receive: Receive, send: Send, items: Items
    ) -> None:
        head, head_only = Head(scope), scope["method"] == "HEAD"
        form, resumed = _form_and_place(head)
        query = Parameters(scope["query_string"])
        deployed = self._catalog.deployed(principal.tenant.id)
        names = wanted(query, None if deployed is None or form == cloud_events.BATCH else deployed.spec)
        if form == cloud_events.BATCH and not names.nothing:
            raise Refused(Refusal("invalid_field", "A CloudEvent cannot have aliases.", "aliases"))
        newest_first = is_newest_first(query, live=form == SSE)
        asked = await self._queries.asked(principal, query, resumed, items, newest_first)
        coding = self._coding(head)
        if head_only and form is not None and form != cloud_events.BATCH:
            await self._stream_page(asked, asked.after, 1)
            await stream_head(send, form, coding.headers if form == SSE else (response.BY_KEY,))
            return
        if form == SSE:
            await self._sse(asked, names, coding, head, receive, send)
            return
        if form == NDJSON:
            await self._ndjson(asked, names, head, receive, send)
            return
        if newest_first:
            page = await self._page(asked, asked.after, asked.limit or PAGE_EVENTS_MAX, PAGE_BYTES)
        else:
            page = await self._page_or_wait(asked, 0 if head_only else asked.wait_s, head, receive)
        if form == cloud_events.BATCH:
            await send_batch(page, send, head_only)
        else:
            read = await self._named.told(principal.tenant.id.bytes, answer_of(page), names)
            await response.answer_read(send, read, head_only)

    async def _page(self, asked: Asked, after: Position | None, limit: int, bytes_max: int) -> Page:
        """The next page in the order that is asked for. Raises Refused."""
        if asked.newest_first:
            reading = self._outbox.page_back(asked.wanted, after, limit, bytes_max, floor=asked.floor)
        else:
            whole = asked.limit is None
            reading = self._outbox.page(asked.wanted, after or START, limit, bytes_max, whole=whole)
        try:
            page = await reading
        except LostPlace as lost:
            raise Refused(invalid(str(lost))) from lost
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble
        return await self._presented(asked, page)

    async def _presented(self, asked: Asked, page: Page) -> Page:
        """The page with what was asked to see in the place of what was stored."""
        if not asked.upcast or not page.entries:
            return page
        events = await self._upcasts.all(asked.wanted.tenant, [each.recorded for each in page.entries])
        entries = [replace(each, recorded=seen) for each, seen in zip(page.entries, events, strict=True)]
        return replace(page, entries=tuple(entries))

    def _present_message(self, p: int, entry: Entry) -> bytes:
        return message_of(p, replace(entry, recorded=self._upcasts.one(entry.recorded)))

    async def _page_or_wait(self, asked: Asked, wait_s: float, head: Head, receive: Receive) -> Page:
        """The next page; where nothing is left to read, the first events that come within the time. Raises
        Refused, also where the key ends meanwhile."""
        limit = asked.limit or PAGE_EVENTS_MAX
        page = await self._page(asked, asked.after, limit, PAGE_BYTES)
        if page.entries or not page.caught_up or not wait_s:
            return page
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        with (
            self._bounds.follower_of(asked.holder, asked.live),
            self._live.following(asked.live, _as_it_is, asked.known) as following,
            self._keys.watching(head, following.wake) as key,
        ):
            gone = loop.create_task(until_gone(receive, following.wake))
            try:
                while not (gone.done() or self._live.stopping.is_set()):
                    if key.ended:
                        raise Refused(key.ended)
                    taken = following.take(page.position.at(page.p))
                    if taken is None:
                        page = await self._page(asked, page.position, limit, PAGE_BYTES)
                    elif taken[0]:
                        return await self._presented(asked, _page_of(taken[0], page, limit))
                    else:
                        page = Page(page.p, (), page.position.moved(page.p, taken[1]), True)
                    left_s = until - loop.time()
                    if page.entries or left_s <= 0:
                        return page
                    await following.wait(left_s if taken else min(left_s, _UNCOVERED_S))
            finally:
                gone.cancel()
        return page

    # -- forms

    def _coding(self, head: Head) -> type[Plain]:
        """Of server-sent events."""
        gzip = self._offers_gzip and accepts_gzip(head.joined(b"accept-encoding"))
        return Gzip if gzip else Plain

    async def _sse(
        self, asked: Asked, names: Wanted, coding: type[Plain], head: Head, receive: Receive, send: Send
    ) -> None:
        """What lies behind the position and then whatever is committed, until one side goes or the key
        ends."""
        page = await self._stream_page(asked, asked.after, _UNBOUNDED)
        p, place = page.p, page.position.at(page.p)
        form: Form[Any] = self._present_message if asked.upcast else message_of
        if not names.nothing:
            form = _as_it_is
        with (
            self._bounds.follower_of(asked.holder, asked.live),
            self._live.following(asked.live, form, asked.known) as following,
            self._keys.watching(head, following.wake) as key,
        ):
            gone = asyncio.get_running_loop().create_task(until_gone(receive, following.wake))
            try:
                messages = await self._messages(p, page.entries, names)
                await start_stream(send, SSE, coding.headers)
                coded = coding()
                await more(send, coded.head + await coded.for_one(messages))
                del page, messages
                await self._follow(asked, names, p, place, following, gone, key, coded, send)
            finally:
                gone.cancel()

    async def _follow(
        self,
        asked: Asked,
        names: Wanted,
        p: int,
        place: Place,
        following: Following[Any],
        gone: asyncio.Task[None],
        key: Watched,
        coded: Plain,
        send: Send,
    ) -> None:
        """Pages from Postgres while behind, then what the live channel has: messages as they are sent, or
        with names the events, whose aliases are looked up as they go out."""
        loop, send_now = asyncio.get_running_loop(), await at_once(send)
        body, sent_at = b"", loop.time()

        def hand(chunk: Chunk[bytes]) -> bool:
            nonlocal sent_at
            sent = send_now(coded.one(chunk))
            if sent:
                coded.sent(chunk)
                sent_at = loop.time()
            return sent

        while not (gone.done() or key.ended or self._live.stopping.is_set()):
            if body:
                await more(send, body)
                body, sent_at = b"", loop.time()
            await taken(send)
            found = following.take(place)
            if found is None:
                try:
                    page = await self._stream_page(asked, START.moved(p, place), _UNBOUNDED)
                    messages = await self._messages(p, page.entries, names)
                except Refused:
                    break  # the client resumes where it was, or is told then what is in the way
                body, place = await coded.for_one(messages), page.position.at(p)
                uncovered = page.caught_up and not body
                del page, messages
                if uncovered:
                    await following.wait(_UNCOVERED_S)
                continue
            chunks, place = _a_page_of(*found)
            try:
                body = await self._several(chunks, coded, asked, names, p)
            except Refused:
                break
            del chunks, found
            if not body:
                quiet_s = max(sent_at + _HEARTBEAT_S - loop.time(), 0)
                if names.nothing:
                    place = await following.handed(place, hand, quiet_s)
                else:
                    await following.wait(quiet_s)
                if loop.time() >= sent_at + _HEARTBEAT_S:
                    body = await coded.for_one(still_here(p, place))
        await send({"type": "http.response.body", "body": body + coded.end()})

    async def _several(
        self, chunks: Sequence[Chunk[Any]], coded: Plain, asked: Asked, names: Wanted, p: int
    ) -> bytes:
        """What is sent of them. Raises Refused."""
        if names.nothing:
            return await coded.several(chunks)
        entries = [entry for chunk in chunks for entry in chunk.items]
        page = await self._presented(asked, Page(p, tuple(entries), START, True))
        return await coded.for_one(await self._messages(p, page.entries, names))

    async def _messages(self, p: int, entries: Sequence[Entry], names: Wanted) -> bytes:
        """Raises Refused."""
        if names.nothing:
            return b"".join([message_of(p, each) for each in entries])
        lines = await self._lines(p, entries, names)
        return b"".join([as_message(p, each, line) for each, line in zip(entries, lines, strict=True)])

    async def _lines(self, p: int, entries: Sequence[Entry], names: Wanted) -> list[bytes]:
        """Made a few at a time: appends meanwhile do not wait for all of them. Raises Refused."""
        made: list[bytes] = []
        for first in range(0, len(entries), EVENTS_AT_ONCE):
            made += [event_of(p, each) for each in entries[first : first + EVENTS_AT_ONCE]]
            await asyncio.sleep(0)
        if made and not names.nothing:
            streams = [each.recorded.stream for each in entries]
            made = await self._named.events(streams[0].tenant, names, list(zip(streams, made, strict=True)))
        return [in_one_line(each) for each in made]

    async def _ndjson(self, asked: Asked, names: Wanted, head: Head, receive: Receive, send: Send) -> None:
        """An event a line, until all that is committed was sent, or `limit` of them; it breaks off where the
        key ends. Postgres is asked for the next page while one is sent."""
        left = asked.limit or _UNBOUNDED
        page = await self._stream_page(asked, asked.after, left)
        lines: list[bytes] | None = await self._lines(page.p, page.entries, names)
        await start_stream(send, NDJSON)
        loop = asyncio.get_running_loop()
        gone = loop.create_task(until_gone(receive))
        ahead: asyncio.Task[Page] | None = None
        try:
            with self._keys.watching(head) as key:
                while not gone.done():
                    left -= len(page.entries)
                    ahead = None
                    if left and not page.caught_up:
                        ahead = loop.create_task(self._stream_page(asked, page.position, left))
                    if lines is None:
                        lines = await self._lines(page.p, page.entries, names)
                    if lines:
                        await more(send, b"\n".join([*lines, b""]))
                    if ahead is None:
                        break
                    del page
                    lines = None
                    await taken(send)
                    page = await ahead
                    if key.ended:
                        raise Refused(key.ended)
            await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()
            if ahead is not None and not ahead.cancel() and not ahead.cancelled():
                ahead.exception()  # nothing else looks at it

    async def _stream_page(self, asked: Asked, after: Position | None, most: int) -> Page:
        return await self._page(asked, after, min(most, _EVENTS_A_PAGE), STREAM_PAGE_BYTES)


def _form_and_place(head: Head) -> tuple[bytes | None, bytes | None]:
    """The form that `Accept` asks for, and of server-sent events the `Last-Event-ID`."""
    form = wanted_stream(head.joined(b"accept"), (SSE, NDJSON, cloud_events.BATCH))
    return form, head.joined(b"last-event-id") if form == SSE else None


def _a_page_of(chunks: Sequence[Chunk[bytes]], end: Place) -> tuple[Sequence[Chunk[bytes]], Place]:
    """The first of them, a page at most or one, and where they lead."""
    size = 0
    for count, chunk in enumerate(chunks, 1):
        size += chunk.size
        if size >= STREAM_PAGE_BYTES and count < len(chunks):
            return chunks[:count], chunk.end
    return chunks, end


def _as_it_is(_p: int, entry: Entry) -> Entry:
    return entry


def _page_of(chunks: Sequence[Chunk[Entry]], before: Page, limit: int) -> Page:
    """The page that follows one, of what was committed meanwhile."""
    entries = tuple([entry for chunk in chunks for entry in chunk.items])
    if len(entries) > limit:
        entries = entries[:limit]
        return Page(before.p, entries, before.position.moved(before.p, entries[-1].place), False)
    return Page(before.p, entries, before.position.moved(before.p, chunks[-1].end), True)
