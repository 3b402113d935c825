"""GET /_/feed: all committed events of a tenant in one order, from any position, filtered if asked.

Owns: how a request says what it wants, and the forms of the answer. Sees pages of the outbox alone, so what
it sends is committed, in order and without a gap.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.catalog.model import Principal
from gateway.edge import cloud_events, render, respond
from gateway.edge.follow import NDJSON, in_one_line, more, start_stream, wanted_stream
from gateway.edge.parameters import Parameters
from gateway.edge.reads import PAGE_EVENTS_MAX
from gateway.edge.request import Head, Receive, Refused, Scope, Send
from gateway.errors import Refusal
from gateway.log.postgres import PostgresTrouble
from gateway.relay.outbox import PAGE_BYTES, Filter, LostPlace, Outbox, Page
from gateway.relay.position import START, Position, decode, encode, encode_alone

# Enough that a statement's fixed cost is small beside its rows; a page is held in memory.
_EVENTS_A_PAGE = 1000
_STREAM_PAGE_BYTES = 1024 * 1024
_UNBOUNDED = 2**53
_BOOLEAN = (b"false", b"true")
FROM_BEGINNING, FROM_NOW = "beginning", "now"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request wants of the feed; `limit` is None where it names none."""

    wanted: Filter
    after: Position
    limit: int | None


class Feed:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    async def feed(self, principal: Principal, scope: Scope, _receive: Receive, send: Send) -> None:
        """In the form that `Accept` asks for. Raises Refused."""
        head, head_only = Head(scope), scope["method"] == "HEAD"
        asked = await self._asked(principal, Parameters(scope["query_string"]))
        form = wanted_stream(head, (NDJSON, cloud_events.BATCH))
        if form == NDJSON and not head_only:
            await self._ndjson(asked, send)
            return
        page = await self._page(asked.wanted, asked.after, asked.limit or PAGE_EVENTS_MAX, PAGE_BYTES)
        if form == cloud_events.BATCH:
            await _batch(page, send, head_only)
        else:
            await _answer(page, send, head_only)

    async def _asked(self, principal: Principal, query: Parameters) -> Asked:
        limit = query.integer("limit", 0, 1, PAGE_EVENTS_MAX) or None
        wanted = Filter(principal.tenant.id.bytes, query.names("types"), query.names("event_types"))
        return Asked(wanted, await self._after(wanted.tenant, query.text("after")), limit)

    async def _after(self, tenant: bytes, text: str | None) -> Position:
        if text is None or text == FROM_BEGINNING:
            return START
        if text == FROM_NOW:
            try:
                return await self._outbox.end(tenant)
            except PostgresTrouble as trouble:
                raise Refused(_unavailable()) from trouble
        position = decode(text)
        if position is None:
            raise Refused(_invalid("Send one that the feed gave, as it was, or none."))
        return position

    async def _page(self, wanted: Filter, after: Position, limit: int, bytes_max: int) -> Page:
        try:
            return await self._outbox.page(wanted, after, limit, bytes_max)
        except LostPlace as lost:
            raise Refused(_invalid(str(lost))) from lost
        except PostgresTrouble as trouble:
            raise Refused(_unavailable()) from trouble

    # -- forms

    async def _ndjson(self, asked: Asked, send: Send) -> None:
        """An event a line, until all that is committed was sent, or `limit` of them."""
        left, after = asked.limit or _UNBOUNDED, asked.after
        page = await self._page(asked.wanted, after, min(left, _EVENTS_A_PAGE), _STREAM_PAGE_BYTES)
        await start_stream(send, NDJSON)
        while True:
            if page.entries:
                await more(send, b"".join([in_one_line(each) + b"\n" for each in _events(page)]))
            left, after = left - len(page.entries), page.position
            if page.caught_up or left == 0:
                break
            page = await self._page(asked.wanted, after, min(left, _EVENTS_A_PAGE), _STREAM_PAGE_BYTES)
        await send({"type": "http.response.body", "body": b""})


async def _answer(page: Page, send: Send, head_only: bool) -> None:
    body = b'{"ok":true,"events":[%b],"position":"%b","caught_up":%b}' % (
        b",".join(_events(page)),
        encode(page.position).encode(),
        _BOOLEAN[page.caught_up],
    )
    await respond.answer_read(send, body, head_only)


async def _batch(page: Page, send: Send, head_only: bool) -> None:
    """CloudEvents; a batch has no room for what a page says of itself, so headers say it."""
    events = [
        cloud_events.cloud_event(each.recorded, encode_alone(page.p, each.place)) for each in page.entries
    ]
    body = b"[%b]" % b",".join(events)
    headers = [
        (b"content-type", cloud_events.BATCH),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-cache, private"),
        (b"sluice-position", encode(page.position).encode()),
        (b"sluice-caught-up", _BOOLEAN[page.caught_up]),
        respond.API_VERSION,
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head_only else body})


def _events(page: Page) -> list[bytes]:
    return [render.fed_json(each.recorded, encode_alone(page.p, each.place)) for each in page.entries]


def _invalid(why: str) -> Refusal:
    return Refusal("invalid_position", f"`after` is no position in this feed. {why}", "after")


def _unavailable() -> Refusal:
    return Refusal("unavailable", "Postgres does not answer, and this read needs it. Try again shortly.")
