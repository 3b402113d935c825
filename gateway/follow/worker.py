"""One tenant's followers, kept in step: events read once for all that stand at one place, folded by each, and
written with their places in one transaction (commit.py).

Owns: in which order builds go on, when one serves, and what becomes of a transaction that failed. The lease
only keeps a second worker of the tenant from trying: places are moved by compare-and-swap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

import asyncpg
from asyncpg.pgproto.pgproto import UUID

from gateway.follow.commit import Followed, Overtaken, commit
from gateway.follow.database import fetch
from gateway.follow.drafts import OPEN_OF_CACHE
from gateway.follow.events import Events, Page
from gateway.follow.model import Build, Changes, TooMuch, build_of
from gateway.follow.output import Output
from gateway.follow.pace import Pace, rest_s
from gateway.follow.recent import end_of
from gateway.follow.row_cache import RowCache
from gateway.follow.threads import LIGHT_EVENTS, has_long
from gateway.relay.position import Place
from gateway.tasks import ended, set_within

logger = logging.getLogger("sluice.follow")

BUILDS_MAX: Final = 4
"""Builds of a tenant that go on at once; others wait for their turn."""

CACHE_BYTES: Final = 56 * 1024 * 1024
"""Rows and states that all workers of a process hold together: they share it in equal parts."""

AHEAD_EVERY_S: Final = 0.025
"""How often what was committed meanwhile is folded, where they rest so long: while it is in the processor's
cache."""

MOVE_EVERY: Final = 10_000
"""Positions of other tenants only, behind which a place is written down all the same."""

AT_ONCE_S: Final = 0.2
"""How long builds that are behind go on before those that are not have their turn."""


class Worker:
    """Of one tenant. `output_of` makes a build's output, None where this process can't read its definition;
    `moved` is called behind each transaction, `passed` where it asks for no event any more that it was
    handed."""

    def __init__(
        self,
        tenant: bytes,
        pool: asyncpg.Pool,
        events: Events,
        output_of: Callable[[Build], Awaitable[Output | None]],
        moved: Callable[[bytes], None],
        busy: Callable[[], bool],
        pressed: Callable[[], bool] = lambda: False,
        cache_bytes: Callable[[], int] = lambda: CACHE_BYTES,
        passed: Callable[[], None] = lambda: None,
    ) -> None:
        self.tenant = tenant
        self._pool = pool
        self._events = events
        self._output_of = output_of
        self._moved = moved
        self._busy = busy
        self._pressed = pressed
        self._cache_bytes = cache_bytes
        self._passed = passed
        self._pace = Pace(busy)
        self._followed: dict[int, Followed] = {}
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._back_at = float("-inf")  # when builds that are behind have their next turn
        self._stale = True
        self.at_work = False  # and looks for events itself
        self._left = self._head = self._folded = self._ahead = 0
        self._loop = asyncio.get_running_loop()

    def wake(self, head: int) -> None:
        """There may be events to fold, up to this seq of the partition."""
        self._head = head
        self._wake.set()

    def hurry(self) -> None:
        """A reader waits for its own write: serving builds do not rest before the next page."""
        self._hurry.set()

    def changed(self) -> None:
        """Builds were made, paused or dropped."""
        self._stale = True
        self._wake.set()

    def share(self) -> None:
        """Limits the memory of rows and states to this worker's share."""
        every = self._followed.values()
        each_bytes = self._cache_bytes() // max(sum(1 + each.output.holds_states for each in every), 1)
        for each in every:
            each.rows.bound(each_bytes - each_bytes // OPEN_OF_CACHE)
            each.output.bound(each_bytes)

    @property
    def seq(self) -> int:
        """Of the place that lies furthest back."""
        return min((each.place.seq for each in self._followed.values()), default=0)

    async def run(self) -> None:
        """Until cancelled. Raises PostgresTrouble, LostPlace."""
        while True:
            self._wake.clear()
            self.at_work = True
            if self._stale:
                await self._read()
            try:
                more = await self.step()
            except Overtaken:
                self._followed.clear()
                self._stale = True
                continue
            if not more:
                self.at_work = False
                await self._wake.wait()

    async def step(self) -> bool:
        """One page for the builds that are furthest, one for those that are furthest back; whether there is
        more to do. Raises Overtaken."""
        at_work = self._at_work()
        if not at_work:
            return False
        places = sorted({each.place.seq for each in at_work})
        front = [each for each in at_work if each.place.seq == places[-1]]
        began = self._loop.time()
        more = await self._advance(front, None)
        if more and len(places) == 1 and all(each.build.state == "building" for each in front):
            await asyncio.sleep(self._pace.build_rest_s(self._loop.time() - began, self._left))
        elif not more and self._folded > LIGHT_EVENTS and self._busy():
            pressed = self._pressed()
            until = self._loop.time() + rest_s(self._loop.time() - began, pressed=pressed)
            if pressed and all(each.build.state == "serving" for each in front):
                await self._fold_ahead(front, until)
            await self._pause(until - self._loop.time())
            more = True  # likely
        if len(places) == 1:
            return more
        if self._loop.time() >= self._back_at:
            await self._advance_back(at_work, places)
        elif not more:
            await self._until_woken(self._back_at)
        return True

    async def _advance_back(self, at_work: Sequence[Followed], places: Sequence[int]) -> None:
        """A page for those that are furthest back; then they rest, and those that are ahead go on."""
        back = [each for each in at_work if each.place.seq == places[0]]
        limit = min(
            (each.place for each in at_work if each.place.seq > places[0]), key=lambda place: place.seq
        )
        began = self._loop.time()
        await self._advance(back, limit)
        now = self._loop.time()
        gap = max(each.place.seq for each in at_work) - back[0].place.seq
        self._back_at = now + self._pace.build_rest_s(now - began, gap)

    async def _pause(self, seconds: float) -> None:
        """Or until a reader waits."""
        if seconds > 0:
            await set_within(self._hurry, seconds)
        self._hurry.clear()

    async def _fold_ahead(self, group: Sequence[Followed], until: float) -> None:
        """While these rest, folds what this gateway commits, as long as their outputs can; ends early where a
        reader waits. Raises Overtaken where their rows become too long to be held together."""
        p = group[0].build.p
        while all(each.output.can_fold_ahead for each in group):
            seconds = min(until - self._loop.time(), AHEAD_EVERY_S)
            if seconds <= 0 or self._stale or await set_within(self._hurry, seconds):
                return
            appends = self._events.appends_here(p, group[0].place)
            if not appends:
                continue
            if has_long(appends):
                return
            mine = [each for each in appends if each.stream.tenant == self.tenant]
            try:
                for each in group:
                    await each.output.fold_ahead(mine, each.rows)
            except TooMuch:
                raise Overtaken from None
            self._ahead += sum([len(each.events) for each in mine])
            for each in group:
                each.place = end_of(appends[-1])
            self._passed()

    async def _until_woken(self, at: float) -> None:
        """Or until then."""
        self.at_work = False
        await set_within(self._wake, at - self._loop.time())
        self.at_work = True

    def _at_work(self) -> list[Followed]:
        building = 0
        found = []
        for each in sorted(self._followed.values(), key=lambda each: each.build.id):
            if not each.build.at_work:
                continue
            if each.build.state == "building":
                building += 1
                if building > BUILDS_MAX:
                    continue
            found.append(each)
        return found

    async def _read(self) -> None:
        """The builds as they are in Postgres now; what is unchanged keeps its rows."""
        self._stale = False
        known, self._followed = self._followed, {}
        for row in await fetch(self._pool, "every", UUID(self.tenant)):
            build = build_of(row)
            before = known.get(build.id)
            if before is not None and before.build.moves == build.moves:
                self._followed[build.id] = replace(before, build=build)
                continue
            output = await self._output_of(build) if build.at_work else None
            if output is not None:
                rows = RowCache(self._pool, build.id, 0, empty=build.place.seq == 0)
                self._followed[build.id] = Followed(build, output, rows, build.place, build.rate)
        self.share()

    async def _advance(self, group: Sequence[Followed], limit: Place | None) -> bool:
        """By a page, or by some where more is left, no further than `limit`; whether there is more to read.
        While a page is folded, the next one is read, and the one before is written."""
        until = self._loop.time() + AT_ONCE_S
        self._folded, self._ahead = self._ahead, 0
        reading: asyncio.Task[Page] | None = None
        writing: asyncio.Task[None] | None = None
        try:
            while True:
                began = self._loop.time()
                page = await (reading or self._page(group, group[0].place, limit))
                self._left = page.head - page.reached.seq
                self._folded += len(page.events)
                if not self._is_worth_writing(group, page):
                    break
                at_end = page.caught_up or (limit is not None and page.reached.seq >= limit.seq)
                at_end = at_end or self._turn_is_over(group, until)
                if not at_end:
                    reading = self._loop.create_task(self._page(group, page.reached, limit))
                    reading.add_done_callback(_retrieved)
                if writing is not None and any(each.output.reads_back for each in group):
                    await writing
                changes, folded = await self._fold(group, page)
                if folded is not page:  # what is read follows on the whole page
                    if reading is not None:
                        await ended([reading])
                    page, reading, at_end = folded, None, True
                for each, change in zip(group, changes, strict=True):
                    each.place = page.reached
                    each.rows.write({put.key: put.row for put in change.puts})
                if writing is not None:
                    await writing
                writing = self._loop.create_task(self._commit(group, page, changes, began))
                if at_end:
                    break
                if any(change.rest is not None for change in changes):
                    await writing
        finally:
            if reading is not None:
                await ended([reading])
            if writing is not None:
                await writing
        for each in group:
            each.place = page.reached
        return not page.caught_up

    async def _fold(self, group: Sequence[Followed], page: Page) -> tuple[list[Changes], Page]:
        """What the page does, or as many of its first appends as can be held at once. A follower that reads
        what it wrote folds last, and once: it finds no page too much."""
        in_order = sorted(group, key=lambda each: each.output.reads_back)
        ahead = any(each.output.is_ahead for each in group)
        while True:
            try:
                changes = {
                    each.build.id: await each.output.fold(page.events, page.reached, each.rows)
                    for each in in_order
                }
            except TooMuch:
                if ahead:
                    raise Overtaken from None
                page = page.first_half()
                continue
            return [changes[each.build.id] for each in group], page

    async def _page(self, group: Sequence[Followed], after: Place, limit: Place | None) -> Page:
        types: Collection[str] = frozenset().union(*(each.output.types for each in group))
        p = group[0].build.p
        if limit is None and all(each.build.state == "serving" for each in group):
            handed = await self._events.committed_here(self.tenant, p, after, types, self._head)
            if handed is not None:
                return handed
        page = await self._events.page(self.tenant, p, after, types)
        return page if limit is None else page.up_to(limit)

    def _turn_is_over(self, group: Sequence[Followed], until: float) -> bool:
        """Whether other builds, those who append, or a change of the builds wait for the end of this turn."""
        waited_for = self._stale or self._busy() or len(group) < len(self._at_work())
        return waited_for and self._loop.time() > until

    def _is_worth_writing(self, group: Sequence[Followed], page: Page) -> bool:
        """Whether there are events, or a build serves from here on, or many of other tenants' lie behind."""
        far = page.reached.seq - group[0].build.place.seq >= MOVE_EVERY
        ahead = any(each.output.is_ahead for each in group)
        return bool(page.events) or ahead or far or bool(self._would_serve(group, page))

    async def _commit(
        self, group: Sequence[Followed], page: Page, changes: Sequence[Changes], began: float
    ) -> None:
        serving = self._would_serve(group, page)
        await commit(self._pool, list(zip(group, changes, strict=True)), page, serving, began)
        if serving:
            self._stale = True
        self._moved(self.tenant)

    def _would_serve(self, group: Sequence[Followed], page: Page) -> list[Followed]:
        """The builds of the group that have caught up with what serves now, and with all that is
        committed."""
        found = []
        for each in group:
            if each.build.state != "building":
                continue
            before = [
                other.build for other in self._followed.values()
                if other.build.state == "serving"
                and (other.build.kind, other.build.name) == (each.build.kind, each.build.name)
            ]  # fmt: skip
            furthest = max((max(other.place.seq, 0) for other in before), default=0)
            if page.reached.seq >= furthest and (page.caught_up or (before and page.reached.seq == furthest)):
                found.append(each)
        return found


def _retrieved(reading: asyncio.Task[Page]) -> None:
    """A page that is not waited for any more may have failed too."""
    if not reading.cancelled():
        reading.exception()
