"""New commits on their way to live followers: each gateway reads them once, for any number of followers.

Owns: per partition a tail that takes over what this gateway commits as it commits it, and reads from Postgres
what others did; per (tenant, filter) a channel that keeps the newest of it for its followers. A tail hands
on only what continues where it stands, so a channel has no gap; a follower behind its oldest chunk reads
Postgres until it is not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from time import perf_counter
from typing import Any

from gateway.events import Recorded, event_bytes
from gateway.log.entries import SequencedAppend
from gateway.log.read.followers import Followers
from gateway.log.redis.announcements import Announcements
from gateway.postgres.errors import PostgresTrouble
from gateway.relay.channel import Batch, Channel, Following, Form, Known, T
from gateway.relay.outbox import Entry, Filter, LostPlace, Outbox
from gateway.relay.position import MARK_BYTES, Place
from gateway.tasks import set_within

logger = logging.getLogger("sluice.relay")

# What is committed elsewhere and not announced is found by looking.
POLL_S = 0.25
# Followers are told in rounds: the more there are, the fewer, so that they can't take the gateway from the
# appends. 100 are told of a commit within about 30 ms.
_ROUND_S = 0.002
_ROUND_A_FOLLOWER_S = 0.0003
_ROUND_MOST_S = 0.25
# A write costs the appends about as much, however many events it holds. Where commits carry a crowd of
# appends, the gateway has all it can do, and 100 are told within about 100 ms.
_CROWD = 16
_ROUND_A_FOLLOWER_OF_A_CROWD_S = 0.0009
# Then appends have a turn. More turns cost more than they give: after each, the processor's caches
# hold other things.
_TELLING_S = 0.002
# What all channels together keep in memory: each as much as any other.
KEPT_BYTES = 64 * 1024 * 1024
# Appends that a tail takes over between two looks, and their bytes; with more, it reads them from Postgres
# instead, a page at a time.
_PENDING_MAX = 5000
PENDING_BYTES_MAX = 4 * 1024 * 1024
_EVENTS_A_READ = 1000
_AGAIN_S = 0.25


def round_s(told: int, crowd: bool) -> float:
    """From the begin of a round of which so many were told to that of the next."""
    a_follower_s = _ROUND_A_FOLLOWER_OF_A_CROWD_S if crowd else _ROUND_A_FOLLOWER_S
    return min(_ROUND_S + told * a_follower_s, _ROUND_MOST_S)


class Live:
    """All live followers of this gateway."""

    def __init__(
        self, outbox: Outbox, followers: Followers, announcements: Announcements, stopping: asyncio.Event
    ) -> None:
        self.stopping = stopping
        self._outbox = outbox
        self._followers = followers
        self._announcements = announcements
        self._tails: dict[int, _Tail] = {}

    @property
    def count(self) -> int:
        return sum(tail.count for tail in self._tails.values())

    @contextmanager
    def following(self, wanted: Filter, form: Form[T], known: Known | None = None) -> Iterator[Following[T]]:
        """A follower of the events that pass, told of each commit from now on. Those of one form, which is
        then the same function, share what is made. `known`: the filter is canonical, by this spec."""
        p = self._outbox.partition(wanted.tenant)
        tail = self._tails.get(p)
        if tail is None:
            tail = self._tails[p] = _Tail(p, self._outbox, self._keep_bytes, self._share_again)
            tail.start(self._followers, self._announcements, self.stopping)
        try:
            with tail.following(wanted, form, known) as following:
                yield following
        finally:
            if not tail.channels and self._tails.get(p) is tail:
                del self._tails[p]
                tail.stop()

    def _keep_bytes(self) -> int:
        channels = sum(len(tail.channels) for tail in self._tails.values())
        return KEPT_BYTES // max(channels, 1)

    def _share_again(self) -> None:
        """With one channel more."""
        keep_bytes = self._keep_bytes()
        for tail in self._tails.values():
            for channel in tail.channels.values():
                channel.keep(keep_bytes)


class _Tail:
    """The end of one partition, as long as it has followers."""

    def __init__(
        self, p: int, outbox: Outbox, keep_bytes: Callable[[], int], share_again: Callable[[], None]
    ) -> None:
        self._p = p
        self._loop = asyncio.get_running_loop()
        self._outbox = outbox
        self._keep_bytes = keep_bytes
        self._share_again = share_again
        self._forms: dict[Form[Any], Callable[[Entry], Any]] = {}  # for this partition
        self.channels: dict[tuple[Filter, Form[Any], int | None], Channel[Any]] = {}
        self._end: Place | None = None
        self._pending: deque[SequencedAppend] = deque()
        self._pending_bytes = 0
        self._gathers = False  # it is about to
        self._reads = False  # what others committed, or where the partition ends
        # Of this round.
        self._commits = 0
        self._appends = 0
        self._look = asyncio.Event()
        self._elsewhere = True  # something may have been committed that was not handed over here
        self._ends = ExitStack()
        self._stopped = False

    @property
    def count(self) -> int:
        return sum(len(channel.followers) for channel in self.channels.values())

    # -- life

    def start(self, followers: Followers, announcements: Announcements, stopping: asyncio.Event) -> None:
        self._ends.enter_context(followers.tapped(self._p, self._committed_here))
        self._ends.enter_context(announcements.hearing(self._committed_elsewhere))
        for work in (self._run(), self._let_go(stopping)):
            self._ends.callback(self._loop.create_task(work).cancel)

    def stop(self) -> None:
        self._stopped = True  # a wait in asyncpg may swallow the cancellation, before Python 3.12
        self._ends.close()

    async def _let_go(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        for channel in self.channels.values():
            channel.wake()

    @contextmanager
    def following(self, wanted: Filter, form: Form[T], known: Known | None) -> Iterator[Following[T]]:
        of = wanted, form, None if known is None else known.revision
        channel = self.channels.get(of)
        if channel is None:
            # Until the tail has found where the partition ends, no follower's place is covered.
            made = self._forms.setdefault(form, partial(form, self._p))
            channel = Channel(wanted, made, self._end or _NOWHERE, known)
            self.channels[of] = channel
            self._share_again()
        try:
            with Following(channel) as following:
                yield following
        finally:
            if not channel.followers:
                self.channels.pop(of, None)

    # -- who tells of commits

    def _committed_here(self, placed: Sequence[SequencedAppend]) -> None:
        self._commits += 1
        self._appends += len(placed)
        self._pending_bytes += sum([event_bytes(event) for each in placed for event in each.events])
        if len(self._pending) < _PENDING_MAX and self._pending_bytes < PENDING_BYTES_MAX:
            self._pending.extend(placed)
        else:
            self._pending.clear()
            self._pending_bytes = 0
            self._elsewhere = True
        if not self._gathers:
            self._gathers = True
            self._loop.call_soon(self._gather_soon)
        self._look.set()

    def _gather_soon(self) -> None:
        """What was committed, while it is fresh, but behind the answers to those who appended it."""
        self._gathers = False
        if self._end is not None and not self._reads and not self._stopped:
            self._gather(self._end)

    def _committed_elsewhere(self, p: int | None) -> None:
        if p is None or p == self._p:
            self._elsewhere = True
            self._look.set()

    # -- the loop

    async def _run(self) -> None:
        while not self._stopped:
            begun = self._loop.time()
            crowd = self._appends > _CROWD * self._commits
            self._appends = self._commits = 0
            try:
                told = await self._take()
            except (PostgresTrouble, LostPlace) as trouble:
                logger.info("live_tail_read_failed", extra={"partition": self._p, "reason": str(trouble)})
                if isinstance(trouble, LostPlace):
                    self._begin_again()
                await asyncio.sleep(_AGAIN_S)
                continue
            except Exception:  # a bug: followers read what it kept from them from Postgres
                logger.exception("live_failed")
                self._begin_again()
                await asyncio.sleep(_AGAIN_S)
                continue
            await asyncio.sleep(begun + round_s(told, crowd) - self._loop.time())
            if not self._look.is_set() and not await set_within(self._look, POLL_S):
                self._elsewhere = True
            self._look.clear()

    def _begin_again(self) -> None:
        """Postgres has lost what was committed: followers read there, and are told that it has."""
        self._end, self._elsewhere = None, True
        for channel in self.channels.values():
            channel.begin(_NOWHERE)
            for following in channel.followers:
                following.doubt()

    async def _take(self) -> int:
        """Hands on what was committed since; returns how many followers were told."""
        if self._end is None:
            end = await self._outbox.end_of(self._p)
            self._end = end
            for channel in self.channels.values():
                channel.begin(end)
        self._gather(self._end)
        told = await self._tell()
        if not self._elsewhere:
            return told
        self._elsewhere = False
        self._reads = True
        try:
            while True:
                tenants, tags = self._tenants(), self._tags()
                read = await self._outbox.stretch_of(self._p, tenants, self._end, _EVENTS_A_READ)
                self._add(await self._outbox.tagged(read.entries, tags), tenants, tags, read.reached)
                told += await self._tell()
                if read.caught_up:
                    return told
        finally:
            self._reads = False

    def _gather(self, end: Place) -> None:
        """What this gateway committed, as far as it continues where the tail stands."""
        if not self._pending:
            return
        pending, self._pending, self._pending_bytes = self._pending, deque(), 0
        tenants, tags = self._tenants(), self._tags()
        entries: list[Entry] = []
        for placed in pending:
            if placed.first_seq != end.seq + 1:
                self._elsewhere = True
                if placed.last_seq <= end.seq:
                    continue  # read from Postgres already, or Postgres has lost what was read
                break
            placed_entries = _entries(placed)
            end = placed_entries[-1].place
            if placed.stream.tenant in tenants:
                entries += placed_entries
        self._add(entries, tenants, tags, end)

    def _tenants(self) -> set[bytes]:
        return {channel.wanted.tenant for channel in self.channels.values()}

    def _tags(self) -> set[tuple[bytes, str]]:
        """Those that any channel's items name, each with its tenant."""
        return {tag for channel in self.channels.values() for tag in channel.tags}

    def _add(
        self, entries: Sequence[Entry], tenants: Collection[bytes], tags: set[tuple[bytes, str]], end: Place
    ) -> None:
        """To every channel what is committed up to `end`; `entries` hold all of these tenants, with these
        tags."""
        self._end = end
        batch = Batch(entries)
        for channel in self.channels.values():
            # It came while Postgres was read for the others.
            if channel.wanted.tenant not in tenants or not channel.tags <= tags:
                channel.begin(end)
            elif channel.end.seq < end.seq:
                try:
                    channel.add(batch, end)
                except Exception:  # a bug: the channel's followers read these events from Postgres
                    logger.exception("live_failed")
                    channel.begin(end)

    async def _tell(self) -> int:
        """Everybody of what was added; returns how many followers were told. A channel after the other: what
        is put together for one is given up before that of the next is made."""
        told, begun = 0, perf_counter()
        for channel in list(self.channels.values()):
            if not (chunks := channel.close(self._keep_bytes())):
                continue
            for following in list(channel.followers):
                told += 1
                for chunk in chunks:
                    following.tell(chunk)
                    if perf_counter() - begun > _TELLING_S:
                        await asyncio.sleep(0)
                        begun = perf_counter()
        return told


_NOWHERE = Place(2**62, bytes(MARK_BYTES))


def _entries(placed: SequencedAppend) -> list[Entry]:
    if len(placed.events) == 1:  # as nearly always
        place = Place(placed.last_seq, placed.digests[:MARK_BYTES])
        tags = placed.tags[0] if placed.tags else ()
        return [Entry(place, Recorded(placed.stream, placed.first_version, placed.events[0]), tags)]
    each_tags = placed.tags or ((),) * len(placed.events)
    return [
        Entry(Place(seq, digest[:MARK_BYTES]), Recorded(stream, version, event), tags)
        for (seq, (_, digest)), (stream, version), event, tags in zip(
            placed.rows(), placed.places(), placed.events, each_tags, strict=True
        )
    ]
