"""The forms in which pages of the feed are sent: JSON, server-sent events, CloudEvents."""

from __future__ import annotations

import asyncio

from gateway.http import render, response
from gateway.http.api import cloud_events
from gateway.http.api.follow import in_one_line
from gateway.http.request import Send
from gateway.http.unread import LARGE_BYTES
from gateway.relay.outbox import Entry, Page
from gateway.relay.position import START, Place, encode, encode_one, encode_place

EVENTS_AT_ONCE = 50
"""Made without a pause: appends meanwhile do not wait for all of a page."""

_BOOLEAN = (b"false", b"true")


def answer_of(page: Page) -> response.ReadAnswer:
    body = b'{"ok":true,"events":[%b],"position":"%b","caught_up":%b}' % (
        b",".join(_events(page)),
        encode(page.position).encode(),
        _BOOLEAN[page.caught_up],
    )
    return response.ReadAnswer(body)


async def send_batch(page: Page, send: Send, head_only: bool) -> None:
    """CloudEvents; a batch has no room for what a page says of itself, so headers say it."""
    events = []
    for first in range(0, len(page.entries), EVENTS_AT_ONCE):
        few = page.entries[first : first + EVENTS_AT_ONCE]
        events += [cloud_events.cloud_event(each.recorded, encode_one(page.p, each.place)) for each in few]
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
    return [event_of(page.p, each) for each in page.entries]


def event_of(p: int, entry: Entry) -> bytes:
    place = entry.place
    return render.fed_json(entry.recorded, encode_place(p, place.seq, place.mark))


def message_of(p: int, entry: Entry) -> bytes:
    return as_message(p, entry, in_one_line(event_of(p, entry)))


def as_message(p: int, entry: Entry, line: bytes) -> bytes:
    """As a server-sent event, `id:` being the position."""
    return b"id: %b\ndata: %b\n\n" % (encode_one(p, entry.place).encode(), line)


def still_here(p: int, place: Place) -> bytes:
    """A comment that keeps proxies from closing a quiet stream, with an id and no data: no event to a client,
    but it resumes behind what was filtered out meanwhile."""
    return b": still here\nid: %b\n\n" % encode(START.moved(p, place)).encode()
