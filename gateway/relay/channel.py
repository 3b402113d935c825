"""A channel: the newest events that pass one filter, in one form, kept once for all followers of it.

Owns: what a chunk holds, which followers have what, and when one has to read Postgres. Must not know where
events come from: a tail of live.py adds them.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from gateway.log.read.followers import Follower
from gateway.relay.gzipped import Part, Run
from gateway.relay.outbox import Entry, Filter, entry_bytes
from gateway.relay.position import Place

logger = logging.getLogger("sluice.relay")

# What one write hands to a follower: one that is slow holds so much, or an event that is larger.
_CHUNK_BYTES = 256 * 1024
_EVENT_OVERHEAD_BYTES = 500
_MESSAGE_OVERHEAD_BYTES = 100

T = TypeVar("T")
"""What followers of a channel are sent of an event."""

Form = Callable[[int, Entry], T]
"""Makes it of an event of a partition."""


class Known(msgspec.Struct, frozen=True, gc=False):
    """The names that a revision of a tenant's spec declares."""

    revision: int
    types: frozenset[str]
    event_types: frozenset[str]

    def canonical(self, wanted: Filter) -> Filter:
        """The filter without names that are not declared: the same passes, as long as nothing else is
        committed. The system's own names stay."""
        types, event_types = _among(wanted.types, self.types), wanted.event_types
        if not any(name[:1] == "_" for name in types):  # no spec declares what happens to the system's own
            event_types = _among(event_types, self.event_types)
        return msgspec.structs.replace(wanted, types=types, event_types=event_types)

    def knows(self, aggregate_type: str, event_type: str) -> bool:
        return aggregate_type[0] == "_" or (aggregate_type in self.types and event_type in self.event_types)


def _among(names: frozenset[str], known: frozenset[str]) -> frozenset[str]:
    """None are all: where none is left, a name that nothing has."""
    return frozenset([name for name in names if name in known or name[:1] == "_"] or (names and [""]))


class Chunk(Generic[T]):
    """Some events of a channel, in order; `end` is the position of a follower that has them."""

    __slots__ = ("_gzipped", "_run", "_whole", "after_seq", "end", "items", "seqs", "size")

    def __init__(
        self, after_seq: int, seqs: Sequence[int], items: Sequence[T], end: Place, run: Run | None = None
    ) -> None:
        self.after_seq = after_seq
        self.seqs = seqs
        self.items = items
        self.end = end
        self.size = sum(map(_size, items))
        self._whole: bytes | None = None
        self._run = run
        self._gzipped: Part | None = None

    def whole(self: Chunk[bytes]) -> bytes:
        """All of it as it is sent, put together once for all followers."""
        if self._whole is None:
            self._whole = b"".join(self.items)
        return self._whole

    def gzipped(self: Chunk[bytes]) -> Part:
        """The same, compressed once for all: of the channel's run."""
        if self._gzipped is None:
            self._gzipped = (self._run or Run()).part(self.whole())
        return self._gzipped

    def behind(self, after: Place) -> Chunk[T]:
        """What of it lies behind a place."""
        if after.seq <= self.after_seq:
            return self
        first = bisect_right(self.seqs, after.seq)
        return Chunk(after.seq, self.seqs[first:], self.items[first:], self.end)


def _size(item: object) -> int:
    """In memory, about: a message is kept by itself, among the others of its chunk, and compressed with
    them."""
    if isinstance(item, bytes):
        return 3 * len(item) + _MESSAGE_OVERHEAD_BYTES
    assert isinstance(item, Entry)
    return entry_bytes(item) + _EVENT_OVERHEAD_BYTES


class Batch:
    """What was committed together, in order. Most of it is of few kinds: a filter is asked once a kind. What
    is made of an event is made once for all channels of a form."""

    __slots__ = ("_kinds", "_made", "_passing")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._kinds: dict[tuple[bytes, str, str], list[Entry]] = {}
        for each in entries:
            self._kinds.setdefault(_kind(each), []).append(each)
        self._made: dict[Hashable, dict[int, Any]] = {}
        self._passing: dict[Hashable, tuple[list[Place], list[Any]]] = {}

    def has_others(self, tenant: bytes, known: Known) -> bool:
        """Than such as are known, of this tenant."""
        return any(kind[0] == tenant and not known.knows(kind[1], kind[2]) for kind in self._kinds)

    def passing(self, wanted: Filter, form: Callable[[Entry], T]) -> tuple[Sequence[Place], Sequence[T]]:
        """The places of what passes, and what is made of it."""
        taken = frozenset(
            [
                kind
                for kind, (sample, *_) in self._kinds.items()
                if wanted.takes(sample.recorded.stream, sample.recorded.event.type)
            ]
        )
        if not taken:
            return (), ()
        found = self._passing.get((taken, wanted.narrowed, form))
        if found is None:
            entries = [each for kind in taken for each in self._kinds[kind]]
            if len(taken) > 1:
                entries.sort(key=_seq)
            if any(wanted.narrowed):
                entries = [each for each in entries if wanted.picks(each)]
            made = self._made.setdefault(form, {})
            for each in entries:
                if each.place.seq not in made:
                    made[each.place.seq] = form(each)
            found = [each.place for each in entries], [made[each.place.seq] for each in entries]
            self._passing[taken, wanted.narrowed, form] = found
        return found


def _seq(entry: Entry) -> int:
    return entry.place.seq


def _kind(entry: Entry) -> tuple[bytes, str, str]:
    stream = entry.recorded.stream
    return stream.tenant, stream.aggregate_type, entry.recorded.event.type


class Channel(Generic[T]):
    """The newest events that pass one filter, in one form, in chunks: all of them from behind `start` to
    `end`. What was committed behind that waits for the next chunk. Where followers named more than the
    filter does, none of it was `known`: where such an event is committed, they read Postgres."""

    def __init__(
        self, wanted: Filter, form: Callable[[Entry], T], start: Place, known: Known | None = None
    ) -> None:
        self.wanted = wanted
        self.tags = {(wanted.tenant, tag) for item in wanted.items for tag in item.tags}
        self._known = known
        self._form = form
        self.start_seq = start.seq
        self.end = start
        self.chunks: deque[Chunk[T]] = deque()
        self.followers: set[Following[T]] = set()
        self._run = Run()
        self._size = 0
        self._reached = start
        self._places: list[Place] = []
        self._items: list[T] = []

    def add(self, batch: Batch, end: Place) -> None:
        """What passes of it, which is all that was committed behind the last one up to `end`. Its form is
        made here, a few events at a time, while they are in the processor's caches: those of a whole round
        would keep appends waiting."""
        if self._known is not None and batch.has_others(self.wanted.tenant, self._known):
            self.begin(end)
            return
        places, items = batch.passing(self.wanted, self._form)
        self._places += places
        self._items += items
        self._reached = end

    def close(self, keep_bytes: int) -> list[Chunk[T]]:
        """What was added, if anything was, in chunks of `_CHUNK_BYTES`: followers are to be told."""
        after_seq, self.end = self.end.seq, self._reached
        places, items = self._places, self._items
        if not items:
            return []
        self._places, self._items = [], []
        made, begin = [], 0
        for until in _cuts(items):
            end = self.end if until == len(items) else places[until - 1]
            seqs = [each.seq for each in places[begin:until]]
            made.append(Chunk(after_seq, seqs, items[begin:until], end, self._run))
            after_seq, begin = end.seq, until
        self.chunks += made
        self._size += sum([chunk.size for chunk in made])
        self.keep(keep_bytes)
        return made

    def keep(self, keep_bytes: int) -> None:
        """The newest of it, so many bytes."""
        while self._size > keep_bytes:
            dropped = self.chunks.popleft()
            self._size -= dropped.size
            self.start_seq = dropped.end.seq

    def begin(self, start: Place) -> None:
        """Again from here: what came before is not, or no more, all in this channel."""
        self.start_seq, self.end, self._reached = start.seq, start, start
        self.chunks.clear()
        self._places, self._items = [], []
        self._size = 0
        self.wake()

    def wake(self) -> None:
        for following in self.followers:
            following.wake()

    def take(self, after: Place) -> tuple[list[Chunk[T]], Place] | None:
        """What lies behind a place, and where that leads; None where some of it is not here any more."""
        if after.seq < self.start_seq:
            return None
        if after.seq >= self.end.seq:
            return [], after
        taken = []
        for chunk in reversed(self.chunks):  # nearly always only the newest, of thousands
            if chunk.end.seq <= after.seq:
                break
            taken.append(chunk.behind(after))
        taken.reverse()
        return taken, self.end


def _cuts(items: Sequence[object]) -> Iterator[int]:
    """How many of them are in the first chunk, in the first two, and so on."""
    size = 0
    for count, item in enumerate(items):
        length = len(item) if isinstance(item, bytes) else _size(item)
        if size and size + length > _CHUNK_BYTES:
            yield count
            size = 0
        size += length
    yield len(items)


Hand = Callable[[Chunk[T]], bool]
"""Sends what is in a chunk if that can be done at once, and says whether it was."""


class Following(Generic[T]):
    """One follower of a channel. While it has all that there is and its connection takes what is new at once,
    that is handed to it: no task is woken."""

    def __init__(self, channel: Channel[T]) -> None:
        self._channel = channel
        self._follower = Follower()
        self._hand: Hand[T] | None = None
        self._place = channel.end
        self._doubted = False
        self.wait = self._follower.wait

    def __enter__(self) -> Following[T]:
        self._channel.followers.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.followers.discard(self)

    def take(self, after: Place) -> tuple[list[Chunk[T]], Place] | None:
        """What lies behind a place, and where that leads; None where Postgres has to be asked."""
        if self._doubted:
            self._doubted = False
            return None
        return self._channel.take(after)

    async def handed(self, place: Place, hand: Hand[T], timeout_s: float) -> Place:
        """Hands over what comes behind `place`, where `take` has just found nothing, until the time is up,
        `hand` does not take it, or `wake` is called; returns how far that led."""
        self._place, self._hand = place, hand
        try:
            await self._follower.wait(timeout_s)
        finally:
            self._hand = None
        return self._place

    def tell(self, chunk: Chunk[T]) -> None:
        """Of what is new in the channel."""
        if self._hand is None:
            self._follower.wake()
        elif chunk.end.seq > self._place.seq:
            try:
                sent = self._hand(chunk.behind(self._place))
            except (
                Exception
            ):  # a bug: the follower's own task sends it instead; other followers are not held up
                logger.exception("live_failed")
                sent = False
            if sent:
                self._place = chunk.end
            else:
                self.wake()

    def doubt(self) -> None:
        """Where it stands may be no more: it is to ask Postgres, however much of it is committed again."""
        self._doubted = True

    def wake(self) -> None:
        """It continues by itself, from where it is."""
        self._hand = None
        self._follower.wake()
