# Made by deploy/synchronous.py from async_feed.py: change that one.
"""The feed as the client with plain calls reads it: pages, queries, and following it without an end."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Unpack

from gateway.client import answers, calls
from gateway.client.connection import (
    BATCH_WAIT_S,
    FOLLOW_READ_S,
    Following,
    chance,
)
from gateway.client.errors import Unavailable
from gateway.client.model import (
    Event,
    FeedPage,
)
from gateway.client.options import (
    FeedOptions,
)
from gateway.client.positions import SavedPosition
from gateway.client.retry import T
from gateway.client.sync_caller import Caller


class FeedReader(Caller):
    """The part of a client that reads the feed."""

    def feed(
        self, *, limit: int = calls.PAGE_EVENTS, wait_s: int = 0, **options: Unpack[FeedOptions]
    ) -> FeedPage:
        """One page of committed events; with `wait_s`, waits for the next event if none is left."""
        return self._carry_out(calls.feed(limit, wait_s, options))

    def query(
        self,
        items: Sequence[Mapping[str, object]],
        *,
        limit: int = calls.PAGE_EVENTS,
        wait_s: int = 0,
        **options: Unpack[FeedOptions],
    ) -> FeedPage:
        """One page of the events that a query matches: any of its items, each of which has `types` (the event
        has one of them), `tags` (the event has all of them), or both. To decide, read with a query, and
        append on the condition that no other event matches it after the page's `position`."""
        return self._carry_out(calls.query(items, limit, wait_s, options))

    def follow(
        self, saved: SavedPosition | None = None, **options: Unpack[FeedOptions]
    ) -> Generator[Event, None, None]:
        """Every committed event in order, without an end: from the saved position if there is one, else from
        `after`. Broken connections are replaced without a gap. An event counts as processed when the next one
        is requested; then its position is saved, at most once per second and at the end. After a crash,
        events since the saved position come again, with the same ids. Raises Refused if the service refuses
        the request, and what saving a position raises; waits during all other failures."""
        return self._follow(saved, options, answers.decode_event)

    def follow_json(
        self, saved: SavedPosition | None = None, **options: Unpack[FeedOptions]
    ) -> Generator[bytes, None, None]:
        """As `follow`, but each event is the JSON text of the feed."""
        return self._follow(saved, options, bytes)

    def follow_batches(
        self,
        saved: SavedPosition | None = None,
        *,
        limit: int = calls.PAGE_EVENTS,
        until_caught_up: bool = False,
        **options: Unpack[FeedOptions],
    ) -> Generator[FeedPage, None, None]:
        """As `follow`, in batches of up to `limit` events, to write many in one transaction: `caught_up`
        means that no further event exists now, `position` is to be stored with the results. A batch counts as
        processed when the next one is requested. The first batch that is caught up is yielded even if it is
        empty, and with `until_caught_up` it is the last one; later batches have events."""
        following = Following(options, saved, self._patience)
        if following.from_now:
            following.begin(self._now(following))
        was_caught_up = False
        try:
            while True:
                wait_s = BATCH_WAIT_S if was_caught_up else 0
                try:
                    page = self.feed(limit=limit, wait_s=wait_s, **following.page_options())
                except Unavailable:
                    time.sleep(following.pause_s(chance()))
                    continue
                if page.events or (page.caught_up and not was_caught_up):
                    yield page
                following.read(page.position)
                was_caught_up = page.caught_up
                if until_caught_up and was_caught_up:
                    return
        finally:
            following.end()

    def _follow(
        self, saved: SavedPosition | None, options: FeedOptions, decode: Callable[[bytes], T]
    ) -> Generator[T, None, None]:
        following = Following(options, saved, self._patience)
        if following.from_now:
            following.begin(self._now(following))
        try:
            while True:
                why = "the connection ended"
                try:
                    with self._pool.streamed(following.request(), FOLLOW_READ_S) as response:
                        if response.status != 200:
                            why = following.refused(response.answer())
                        else:
                            for received in response.parts():
                                for document in following.received(received):
                                    yield decode(document)
                                    following.processed()
                except OSError as trouble:  # the gateway or the network is away: connect again
                    if following.is_own(trouble):
                        raise
                    why = str(trouble) or type(trouble).__name__
                pause_s = following.pause_s(chance())
                self._retries.repeated("following the feed", why, pause_s)
                time.sleep(pause_s)
        finally:
            following.end()

    def _now(self, following: Following) -> str:
        """Behind all that is committed when it is found out."""
        while True:
            try:
                return (self.feed(limit=1, **following.options)).position
            except Unavailable:
                time.sleep(following.pause_s(chance()))
