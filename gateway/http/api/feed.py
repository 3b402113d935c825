"""GET /_/feed: all committed events of a tenant in one order, from any position, filtered if asked.

Owns: how a request says what it wants, and the forms of the answer. Sees only pages of the outbox, so what
it sends is committed, in order and without a gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec.structs import replace

from gateway.admit.items import read_query, read_tag, with_tags
from gateway.aside import Aside
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Principal
from gateway.config import Config
from gateway.errors import Refusal
from gateway.events import Stream
from gateway.http import render, response
from gateway.http.api import cloud_events
from gateway.http.api.content_encoding import Gzip, Plain, accepts_gzip
from gateway.http.api.feed_order import actor_of, correlation_of, is_newest_first
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
from gateway.http.authentication import UNAUTHORIZED, narrowed
from gateway.http.declared import undeclared_name
from gateway.http.json_body import decoded
from gateway.http.key_watch import KeyWatch, Watched
from gateway.http.parameters import Parameters
from gateway.http.request import Head, Receive, Refused, Scope, Send, check_json_body, read_body
from gateway.http.unread import LARGE_BYTES
from gateway.items import Items
from gateway.postgres.errors import PostgresTrouble
from gateway.relay.channel import Chunk, Following, Form, Known
from gateway.relay.live import Live
from gateway.relay.outbox import PAGE_BYTES, Entry, Filter, LostPlace, Outbox, Page
from gateway.relay.position import START, Place, Position, decode, encode, encode_alone
from spec.model import Spec

# Enough that a statement's fixed cost is small beside its rows; a page or two are held in memory.
_EVENTS_A_PAGE = 500
_EVENTS_AT_ONCE = 50
_UNBOUNDED = 2**53
_BOOLEAN = (b"false", b"true")
_T = TypeVar("_T")
_HEARTBEAT_S = 15.0
# Between two looks at Postgres of a follower whose channel does not know yet where the partition ends.
_UNCOVERED_S = 0.25
WAIT_S_MAX = 60
FROM_BEGINNING, FROM_NOW = "beginning", "now"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request wants of the feed; `limit` is None where it names none. `after` is None for the newest
    events, which are `newest_first`, down to the seq `floor`. `holder` is the handle of its key. `live`
    passes what `wanted` does while all that is committed is `known`; None where they are one."""

    holder: str
    wanted: Filter
    after: Position | None
    limit: int | None
    wait_s: int
    live: Filter
    known: Known | None
    upcast: bool = False
    newest_first: bool = False
    floor: int = 1


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
        unreadable = check_json_body(Head(scope), self._body_bytes_max)
        if unreadable is not None:
            raise Refused(unreadable)
        body = await read_body(receive, self._body_bytes_max, self._body_timeout_s)
        value = await decoded(self._aside, principal, body)
        spec, salt = self._spec(principal, Parameters(scope["query_string"]))
        await self._feed(principal, scope, receive, send, _read(read_query(value, spec, salt)))

    async def feed(self, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        """In the form that `Accept` asks for. Raises Refused."""
        await self._feed(principal, scope, receive, send, ())

    async def _feed(
        self, principal: Principal, scope: Scope, receive: Receive, send: Send, items: Items
    ) -> None:
        head, head_only = Head(scope), scope["method"] == "HEAD"
        form = wanted_stream(head.joined(b"accept"), (SSE, NDJSON, cloud_events.BATCH))
        resumed = head.get(b"last-event-id") if form == SSE else None
        query = Parameters(scope["query_string"])
        deployed = self._catalog.deployed(principal.tenant.id)
        names = wanted(query, None if deployed is None or form == cloud_events.BATCH else deployed.spec)
        if form == cloud_events.BATCH and not names.nothing:
            raise Refused(Refusal("invalid_field", "CloudEvents have no place for aliases.", "aliases"))
        newest_first = is_newest_first(query, live=form == SSE)
        asked = await self._asked(principal, query, resumed, items, newest_first)
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
            await _batch(page, send, head_only)
        else:
            read = await self._named.told(principal.tenant.id.bytes, _answer(page), names)
            await response.answer_read(send, read, head_only)

    async def _asked(
        self,
        principal: Principal,
        query: Parameters,
        resumed: bytes | None,
        items: Items,
        newest_first: bool,
    ) -> Asked:
        limit = query.integer("limit", 0, 1, PAGE_EVENTS_MAX) or None
        wanted = self._wanted(principal, query, self._tagged(principal, query, items))
        wait_s = query.integer("wait", 0, 0, WAIT_S_MAX)
        floor = 1
        if resumed is not None:
            after: Position | None = _position(resumed.decode("latin-1"), "Last-Event-ID")
        else:
            after, floor = await self._between(wanted.tenant, query, newest_first)
        known = self._known(principal)
        live = wanted if known is None else known.canonical(wanted)
        known = None if live == wanted else known
        upcast = query.boolean("upcast")
        return Asked(principal.handle, wanted, after, limit, wait_s, live, known, upcast, newest_first, floor)

    async def _between(
        self, tenant: bytes, query: Parameters, newest_first: bool
    ) -> tuple[Position | None, int]:
        """Where reading begins, and newest first the seq where it ends. Raises Refused."""
        text, from_ms = query.text("after"), query.instant_ms("from_time")
        if from_ms is None:
            return None if newest_first and text is None else await self._after(tenant, text), 1
        if text is not None and not newest_first:
            why = "`from_time` and `after` are two places to begin at; send one of them."
            raise Refused(Refusal("invalid_field", why, "from_time"))
        try:
            place = await self._outbox.before_time(tenant, from_ms)
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble
        if newest_first:
            return None if text is None else await self._after(tenant, text), place.seq + 1
        return START.moved(self._outbox.partition(tenant), place), 1

    def _wanted(self, principal: Principal, query: Parameters, items: Items) -> Filter:
        """Raises Refused: among others where the spec declares no such type."""
        types, event_types = query.names("types"), query.names("event_types")
        only = principal.only
        if only is not None and not types <= only.all_types:
            raise Refused(narrowed(principal))
        spec, _ = self._spec(principal, query)
        if spec is not None:
            refusal = undeclared_name(
                spec,
                [(name, "types") for name in sorted(types)],
                [(name, "event_types") for name in sorted(event_types)],
            )
            if refusal is not None:
                raise Refused(refusal)
        return Filter(
            principal.tenant.id.bytes,
            types or (frozenset() if only is None else only.all_types),
            event_types,
            items,
            correlation_of(query),
            actor_of(query, spec),
            only if only is not None and (only.aggregates or only.events) else None,
        )

    def _spec(self, principal: Principal, query: Parameters) -> tuple[Spec | None, bytes]:
        """To whose names the request is held, if to any's, and what hashed tags are hashed with."""
        deployed = self._catalog.deployed(principal.tenant.id)
        if deployed is None:
            return None, b""
        return None if query.boolean("include_undeclared") else deployed.spec, deployed.salt

    def _tagged(self, principal: Principal, query: Parameters, items: Items) -> Items:
        """With `tags`, which are one item: where the body has items, each of them has to have these too."""
        text = query.text("tags")
        if text is None:
            return items
        spec, salt = self._spec(principal, query)
        tags = [_read(read_tag(tag, spec, salt, "tags")) for tag in text.split(",")]
        return with_tags(items, tags)

    def _known(self, principal: Principal) -> Known | None:
        deployed = self._catalog.deployed(principal.tenant.id)
        if deployed is None:
            return None
        types = deployed.spec.aggregate_types
        events = frozenset([name for each in types.values() for name in each.events])
        return Known(deployed.revision, frozenset(types), events)

    async def _after(self, tenant: bytes, text: str | None) -> Position:
        if text is None or text == FROM_BEGINNING:
            return START
        if text == FROM_NOW:
            try:
                return await self._outbox.end(tenant)
            except PostgresTrouble as trouble:
                raise Refused(unavailable()) from trouble
        return _position(text, "after")

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
            raise Refused(_invalid(str(lost))) from lost
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
        return _message(p, replace(entry, recorded=self._upcasts.one(entry.recorded)))

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
                        raise Refused(UNAUTHORIZED)
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
        form: Form[Any] = self._present_message if asked.upcast else _message
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
                await more(send, coded.head + await coded.alone(messages))
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
                body, place = await coded.alone(messages), page.position.at(p)
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
                    body = await coded.alone(_still_here(p, place))
        await send({"type": "http.response.body", "body": body + coded.end()})

    async def _several(
        self, chunks: Sequence[Chunk[Any]], coded: Plain, asked: Asked, names: Wanted, p: int
    ) -> bytes:
        """What is sent of them. Raises Refused."""
        if names.nothing:
            return await coded.several(chunks)
        entries = [entry for chunk in chunks for entry in chunk.items]
        page = await self._presented(asked, Page(p, tuple(entries), START, True))
        return await coded.alone(await self._messages(p, page.entries, names))

    async def _messages(self, p: int, entries: Sequence[Entry], names: Wanted) -> bytes:
        """Raises Refused."""
        if names.nothing:
            return b"".join([_message(p, each) for each in entries])
        lines = await self._lines(p, entries, names)
        return b"".join([_as_message(p, each, line) for each, line in zip(entries, lines, strict=True)])

    async def _lines(self, p: int, entries: Sequence[Entry], names: Wanted) -> list[bytes]:
        """Made a few at a time: appends meanwhile do not wait for all of them. Raises Refused."""
        made: list[tuple[Stream, bytes]] = []
        for first in range(0, len(entries), _EVENTS_AT_ONCE):
            few = entries[first : first + _EVENTS_AT_ONCE]
            made += [(each.recorded.stream, _event(p, each)) for each in few]
            await asyncio.sleep(0)
        if names.nothing or not made:
            return [in_one_line(event) for _, event in made]
        return [in_one_line(each) for each in await self._named.events(made[0][0].tenant, names, made)]

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
                        await more(send, b"".join([each + b"\n" for each in lines]))
                    if ahead is None:
                        break
                    del page
                    lines = None
                    await taken(send)
                    page = await ahead
                    if key.ended:
                        raise Refused(UNAUTHORIZED)
            await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()
            if ahead is not None and not ahead.cancel() and not ahead.cancelled():
                ahead.exception()  # nothing else looks at it

    async def _stream_page(self, asked: Asked, after: Position | None, most: int) -> Page:
        return await self._page(asked, after, min(most, _EVENTS_A_PAGE), STREAM_PAGE_BYTES)


def _answer(page: Page) -> response.ReadAnswer:
    body = b'{"ok":true,"events":[%b],"position":"%b","caught_up":%b}' % (
        b",".join(_events(page)),
        encode(page.position).encode(),
        _BOOLEAN[page.caught_up],
    )
    return response.ReadAnswer(body)


async def _batch(page: Page, send: Send, head_only: bool) -> None:
    """CloudEvents; a batch has no room for what a page says of itself, so headers say it."""
    events = []
    for first in range(0, len(page.entries), _EVENTS_AT_ONCE):
        few = page.entries[first : first + _EVENTS_AT_ONCE]
        events += [cloud_events.cloud_event(each.recorded, encode_alone(page.p, each.place)) for each in few]
        await asyncio.sleep(0)
    body = b"[%b]" % b",".join(events)
    if len(body) > LARGE_BYTES and not head_only:
        await response.require_room(send, len(body))
    headers = [
        (b"content-type", cloud_events.BATCH),
        (b"content-length", b"%d" % len(body)),
        *response.PRIVATE,
        (b"sluice-position", encode(page.position).encode()),
        (b"sluice-caught-up", _BOOLEAN[page.caught_up]),
        response.API_VERSION,
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head_only else body})


def _events(page: Page) -> list[bytes]:
    return [_event(page.p, each) for each in page.entries]


def _event(p: int, entry: Entry) -> bytes:
    return render.fed_json(entry.recorded, encode_alone(p, entry.place))


def _message(p: int, entry: Entry) -> bytes:
    return _as_message(p, entry, in_one_line(_event(p, entry)))


def _as_message(p: int, entry: Entry, line: bytes) -> bytes:
    """As a server-sent event, `id:` being the position."""
    return b"id: %b\ndata: %b\n\n" % (encode_alone(p, entry.place).encode(), line)


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


def _still_here(p: int, place: Place) -> bytes:
    """A comment that keeps proxies from closing a quiet stream, with an id and no data: no event to a client,
    but it resumes behind what was filtered out meanwhile."""
    return b": still here\nid: %b\n\n" % encode(START.moved(p, place)).encode()


def _page_of(chunks: Sequence[Chunk[Entry]], before: Page, limit: int) -> Page:
    """The page that follows one, of what was committed meanwhile."""
    entries = tuple([entry for chunk in chunks for entry in chunk.items])
    if len(entries) > limit:
        entries = entries[:limit]
        return Page(before.p, entries, before.position.moved(before.p, entries[-1].place), False)
    return Page(before.p, entries, before.position.moved(before.p, chunks[-1].end), True)


def _read(found: _T | Refusal) -> _T:
    if isinstance(found, Refusal):
        raise Refused(found)
    return found


def _position(text: str, where: str) -> Position:
    position = decode(text)
    if position is None:
        raise Refused(_invalid("Send one that the feed gave, as it was, or none.", where))
    return position


def _invalid(why: str, where: str = "after") -> Refusal:
    return Refusal("invalid_position", f"`{where}` is not a position in this feed. {why}", where)
