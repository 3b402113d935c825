"""What is being committed, on its way to whoever follows live: read once a gateway, however many follow.

Owns: per partition a tail that takes over what this gateway commits as it commits it, and reads from Postgres
what others did; per (tenant, filter) a channel that keeps the newest of it for its followers. A tail hands
on only what continues where it stands, so a channel has no gap; whoever is behind its oldest chunk reads
Postgres until it is not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from gateway.events import Recorded
from gateway.log.announcements import Announcements
from gateway.log.entries import Placed
from gateway.log.followers import Follower, Followers
from gateway.log.postgres import PostgresTrouble
from gateway.relay.gzipped import Part, Run
from gateway.relay.outbox import Entry, Filter, LostPlace, Outbox, event_bytes
from gateway.relay.position import MARK_BYTES, Place

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
# Then whoever appends has a turn: a write to a follower takes about as long as half an append.
_TOLD_AT_ONCE = 8
# What all channels together keep in memory, and each at least.
_KEPT_BYTES = 64 * 1024 * 1024
_KEPT_BYTES_LEAST = 128 * 1024
_EVENT_OVERHEAD_BYTES = 500
# Appends that a tail takes over between two looks; with more, it reads them from Postgres instead.
_PENDING_MAX = 5000
_EVENTS_A_READ = 1000
_AGAIN_S = 0.25


def round_s(told: int, crowd: bool) -> float:
    """From the begin of a round of which so many were told to that of the next."""
    a_follower_s = _ROUND_A_FOLLOWER_OF_A_CROWD_S if crowd else _ROUND_A_FOLLOWER_S
    return min(_ROUND_S + told * a_follower_s, _ROUND_MOST_S)


class Chunk:
    """Some events of a channel, in order; `end` is where whoever has them stands."""

    __slots__ = ("_form", "_gzipped", "_run", "after_seq", "end", "entries", "size")

    def __init__(self, after_seq: int, entries: Sequence[Entry], end: Place, run: Run | None = None) -> None:
        self.after_seq = after_seq
        self.entries = entries
        self.end = end
        self.size = sum(event_bytes(each) + _EVENT_OVERHEAD_BYTES for each in entries)
        self._form: bytes | None = None
        self._run = run
        self._gzipped: Part | None = None

    def form(self, make: Callable[[Sequence[Entry]], bytes]) -> bytes:
        """The events as they are sent, made once for all followers: `make` is the same for each."""
        if self._form is None:
            self._form = make(self.entries)
        return self._form

    def gzipped(self, make: Callable[[Sequence[Entry]], bytes]) -> Part:
        """The same, compressed once for all: of the channel's run."""
        if self._gzipped is None:
            self._gzipped = (self._run or Run()).part(self.form(make))
        return self._gzipped

    def behind(self, after: Place) -> Chunk:
        """What of it lies behind a place."""
        if after.seq <= self.after_seq:
            return self
        return Chunk(after.seq, [each for each in self.entries if each.place.seq > after.seq], self.end)


class Batch:
    """What was committed together, in order. Most of it is of few kinds: a filter is asked once a kind."""

    __slots__ = ("entries", "kinds")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.kinds = {_kind(each): each for each in entries}

    def passing(self, wanted: Filter) -> Sequence[Entry]:
        taken = {
            kind
            for kind, sample in self.kinds.items()
            if wanted.takes(sample.recorded.stream, sample.recorded.event.type)
        }
        if len(taken) == len(self.kinds):
            return self.entries
        return [each for each in self.entries if _kind(each) in taken] if taken else ()


def _kind(entry: Entry) -> tuple[bytes, str, str]:
    stream = entry.recorded.stream
    return stream.tenant, stream.aggregate_type, entry.recorded.event.type


class Channel:
    """The newest events that pass one filter, in chunks: all of them from behind `start` to `end`."""

    def __init__(self, wanted: Filter, start: Place) -> None:
        self.wanted = wanted
        self.start_seq = start.seq
        self.end = start
        self.chunks: deque[Chunk] = deque()
        self.followers: set[Following] = set()
        self._run = Run()
        self._size = 0

    def add(self, batch: Batch, end: Place, keep_bytes: int) -> Chunk | None:
        """What passes of it, which is all that was committed up to `end`: followers are to be told."""
        passing = batch.passing(self.wanted)
        after_seq, self.end = self.end.seq, end
        if not passing:
            return None
        chunk = Chunk(after_seq, passing, end, self._run)
        self.chunks.append(chunk)
        self._size += chunk.size
        while self._size > keep_bytes:
            dropped = self.chunks.popleft()
            self._size -= dropped.size
            self.start_seq = dropped.end.seq
        return chunk

    def begin(self, start: Place) -> None:
        """Anew from here: what came before is not, or no more, all in this channel."""
        self.start_seq, self.end = start.seq, start
        self.chunks.clear()
        self._size = 0
        self.wake()

    def wake(self) -> None:
        for following in self.followers:
            following.wake()

    def take(self, after: Place) -> tuple[list[Chunk], Place] | None:
        """What lies behind a place, and where that leads; None where some of it is not here any more."""
        if after.seq < self.start_seq:
            return None
        if after.seq >= self.end.seq:
            return [], after
        taken = []
        for chunk in reversed(self.chunks):  # nearly always the newest alone, of thousands
            if chunk.end.seq <= after.seq:
                break
            taken.append(chunk.behind(after))
        taken.reverse()
        return taken, self.end


Hand = Callable[[Chunk], bool]
"""Sends what is in a chunk if that can be done at once, and says whether it was."""


class Following:
    """One follower of a channel. While it has all that there is and its connection takes what is new at once,
    that is handed to it: no task is woken."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._follower = Follower()
        self._hand: Hand | None = None
        self._place = channel.end
        self.take = channel.take
        self.wait = self._follower.wait

    def __enter__(self) -> Following:
        self._channel.followers.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.followers.discard(self)

    async def handed(self, place: Place, hand: Hand, timeout_s: float) -> Place:
        """Hands over what comes behind `place`, where `take` has just found nothing, until the time is up,
        `hand` does not take it, or `wake` is called; returns how far that led."""
        self._place, self._hand = place, hand
        try:
            await self._follower.wait(timeout_s)
        finally:
            self._hand = None
        return self._place

    def tell(self, chunk: Chunk) -> None:
        """Of what is new in the channel."""
        if self._hand is None:
            self._follower.wake()
        elif chunk.end.seq > self._place.seq:
            try:
                sent = self._hand(chunk.behind(self._place))
            except Exception:  # a bug: its own task meets it too, and has words for it; the others go on
                sent = False
            if sent:
                self._place = chunk.end
            else:
                self.wake()

    def wake(self) -> None:
        """It goes on by itself, from where it is."""
        self._hand = None
        self._follower.wake()


class Live:
    """Everyone who follows live in this gateway."""

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
    def following(self, wanted: Filter) -> Iterator[Following]:
        """A follower of the events that pass, told of each commit from now on."""
        p = self._outbox.partition(wanted.tenant)
        tail = self._tails.get(p)
        if tail is None:
            tail = self._tails[p] = _Tail(p, self._outbox, self._keep_bytes)
            tail.start(self._followers, self._announcements, self.stopping)
        try:
            with tail.following(wanted) as following:
                yield following
        finally:
            if not tail.channels and self._tails.get(p) is tail:
                del self._tails[p]
                tail.stop()

    def _keep_bytes(self) -> int:
        channels = sum(len(tail.channels) for tail in self._tails.values())
        return max(_KEPT_BYTES // max(channels, 1), _KEPT_BYTES_LEAST)


class _Tail:
    """The end of one partition, as long as somebody follows it."""

    def __init__(self, p: int, outbox: Outbox, keep_bytes: Callable[[], int]) -> None:
        self._p = p
        self._outbox = outbox
        self._keep_bytes = keep_bytes
        self.channels: dict[Filter, Channel] = {}
        self._end: Place | None = None
        self._pending: deque[Placed] = deque()
        self._commits = 0  # that brought what is pending
        self._crowd = False
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
        loop = asyncio.get_running_loop()
        for work in (self._run(), self._let_go(stopping)):
            self._ends.callback(loop.create_task(work).cancel)

    def stop(self) -> None:
        self._stopped = True  # a wait in asyncpg may swallow the cancellation, before Python 3.12
        self._ends.close()

    async def _let_go(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        for channel in self.channels.values():
            channel.wake()

    @contextmanager
    def following(self, wanted: Filter) -> Iterator[Following]:
        channel = self.channels.get(wanted)
        if channel is None:
            # Until the tail has found where the partition ends, nobody's place is covered.
            channel = self.channels[wanted] = Channel(wanted, self._end or _NOWHERE)
        try:
            with Following(channel) as following:
                yield following
        finally:
            if not channel.followers:
                self.channels.pop(wanted, None)

    # -- who tells of commits

    def _committed_here(self, placed: Sequence[Placed]) -> None:
        self._commits += 1
        if len(self._pending) < _PENDING_MAX:
            self._pending.extend(placed)
        else:
            self._pending.clear()
            self._elsewhere = True
        self._look.set()

    def _committed_elsewhere(self, p: int | None) -> None:
        if p is None or p == self._p:
            self._elsewhere = True
            self._look.set()

    # -- the loop

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopped:
            begun = loop.time()
            try:
                told = await self._take()
            except (PostgresTrouble, LostPlace) as trouble:
                logger.info("live_unread", extra={"partition": self._p, "why": str(trouble)})
                if isinstance(trouble, LostPlace):
                    self._begin_anew()
                await asyncio.sleep(_AGAIN_S)
                continue
            await asyncio.sleep(begun + round_s(told, self._crowd) - loop.time())
            if not self._look.is_set():
                await self._next_look()
            self._look.clear()

    async def _next_look(self) -> None:
        try:
            async with asyncio.timeout(POLL_S):
                await self._look.wait()
        except TimeoutError:
            self._elsewhere = True

    def _begin_anew(self) -> None:
        """Postgres has lost what was committed: whoever follows reads there, and is told that it has."""
        self._end, self._elsewhere = None, True
        for channel in self.channels.values():
            channel.begin(_NOWHERE)

    async def _take(self) -> int:
        """Hands on what was committed since; returns how many followers were told."""
        end = self._end
        if end is None:
            end = self._end = await self._outbox.end_of(self._p)
            for channel in self.channels.values():
                channel.begin(end)
        told = await self._deliver(*self._committed(end))
        if not self._elsewhere:
            return told
        self._elsewhere = False
        while True:
            assert self._end is not None
            tenants = self._tenants()
            read = await self._outbox.stretch_of(self._p, tenants, self._end, _EVENTS_A_READ)
            told += await self._deliver(read.entries, tenants, read.reached)
            if read.caught_up:
                return told

    def _committed(self, end: Place) -> tuple[Sequence[Entry], Collection[bytes], Place]:
        """What this gateway committed, as far as it continues where the tail stands; of which tenants; and
        where it ends."""
        pending, self._pending = self._pending, deque()
        commits, self._commits = self._commits, 0
        self._crowd = len(pending) > _CROWD * commits
        tenants = self._tenants()
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
        return entries, tenants, end

    def _tenants(self) -> set[bytes]:
        return {channel.wanted.tenant for channel in self.channels.values()}

    async def _deliver(self, entries: Sequence[Entry], tenants: Collection[bytes], end: Place) -> int:
        """To every channel what is committed up to `end`; `entries` hold all of these tenants. Returns how
        many followers were told."""
        self._end = end
        batch, keep_bytes, told = Batch(entries), self._keep_bytes(), 0
        new: list[tuple[Following, Chunk]] = []
        for channel in self.channels.values():
            if channel.wanted.tenant not in tenants:  # it came while Postgres was read for the others
                channel.begin(end)
            elif channel.end.seq < end.seq and (chunk := channel.add(batch, end, keep_bytes)):
                new += [(following, chunk) for following in channel.followers]
        for told, (following, chunk) in enumerate(new, 1):
            following.tell(chunk)
            if told % _TOLD_AT_ONCE == 0:
                await asyncio.sleep(0)
        return told


_NOWHERE = Place(2**62, bytes(MARK_BYTES))


def _entries(placed: Placed) -> list[Entry]:
    if len(placed.events) == 1:  # as nearly always
        place = Place(placed.last_seq, placed.digests[:MARK_BYTES])
        return [Entry(place, Recorded(placed.stream, placed.first_version, placed.events[0]))]
    return [
        Entry(Place(seq, digest[:MARK_BYTES]), Recorded(placed.stream, version, event))
        for (seq, (version, digest)), event in zip(placed.rows(), placed.events, strict=True)
    ]
