"""First reads of short streams that Redis does not have: many of them by one statement of Postgres.

Owns: how they are read together, and when streams are so rarely in Redis that it is not asked for them.
Postgres has every event that was acknowledged, so what it tells is never older than what Redis would.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, Final

import msgspec
from asyncpg.pgproto.pgproto import UUID

from gateway.events import Event, Joined, Page, Recorded, Stream, revised
from gateway.log.entries import event_of
from gateway.log.epoch.partition import Partition
from gateway.log.epoch.settling import Settling
from gateway.log.postgres import Postgres
from gateway.log.read.ranges import Here, Narrow, Range
from gateway.postgres.errors import PostgresTrouble
from gateway.telemetry.metrics import Metrics

logger = logging.getLogger("sluice.log")

COLD_READS: Final = 2
"""Of a partition: while Postgres answers one, what the other told is handed on."""
_AT_A_TIME: Final = 64
_BESIDE: Final = 32
"""So many wait before a second statement begins beside one: two small ones cost both sides more than one."""
_EVENTS_MAX: Final = 32
_BYTES_MAX: Final = 64 * 1024
"""Of one stream: with more, it is read by itself."""
_NARROW_BYTES_MAX: Final = _BYTES_MAX // _EVENTS_MAX
"""Of one event in the narrow form: with a longer one, a stream is read in the whole form."""
_MISSES: Final = 64
"""So many streams in a row were not in Redis: then those that follow are not looked for there."""
_LOOK_EVERY: Final = 256
"""But each so many-th is, and put there: streams that are read again and again get there, and it is
noticed."""

_Told = Callable[[Page | None], None]
_Fill = Callable[[Stream, Here, Sequence[Any]], None]
_NO_ID: Final = bytes(16)
_ID, _TEXT, _ZERO, _NONE = repeat(_NO_ID), repeat(""), repeat(0), repeat(None)
"""The same of all events: what the narrow form leaves out."""
_NO_MORE: Final = ("", "", None, None, UUID(_NO_ID), None, None)
"""Metadata of an event of which they are not wanted."""
_AGAIN: Final = Page(-1)
"""In place of a page: the stream is read once more, in the whole form."""


class _Asked(msgspec.Struct, frozen=True, gc=False):
    """`here` is what Redis said of the stream; None where it was not asked."""

    wanted: Range
    here: Here | None
    told: _Told

    @property
    def narrow(self) -> bool:
        """What Redis is to have is read whole."""
        return self.wanted.narrow is not None and self.here is None


class ColdReads:
    """One for each partition. `fill` puts a stream into Redis."""

    def __init__(
        self, partition: Partition, postgres: Postgres, settling: Settling, metrics: Metrics, fill: _Fill
    ) -> None:
        self._partition = partition
        self._postgres = postgres
        self._settling = settling
        self._metrics = metrics
        self._fill = fill
        self._narrow: deque[_Asked] = deque()
        self._whole: deque[_Asked] = deque()
        self._turns = [(self._narrow, self._narrow_pages), (self._whole, self._pages)]
        self._work = asyncio.Event()
        self._under_way = 0
        self._misses = 0
        self._passed = 0

    def note(self, miss: bool) -> None:
        """Whether a stream that was read from its beginning was not in Redis."""
        self._misses = self._misses + 1 if miss else 0

    def is_likely(self) -> bool:
        """Whether the next stream is to be read without a look at Redis."""
        if self._misses < _MISSES:
            return False
        self._passed = (self._passed + 1) % _LOOK_EVERY
        return self._passed != 0

    def ask(self, wanted: Range, here: Here | None, told: _Told) -> None:
        """`told` is called soon; with None where the stream is empty, longer than fits, or Postgres is
        away."""
        asked = _Asked(wanted, here, told)
        (self._narrow if asked.narrow else self._whole).append(asked)
        self._wake()

    def _wake(self) -> None:
        """While a statement is under way, reads wait for its end, or until they are many."""
        if len(self._narrow) + len(self._whole) >= (_BESIDE if self._under_way else 1):
            self._work.set()
        else:
            self._work.clear()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._work.wait()
            if not self._work.is_set():
                continue  # the other loop took them
            queue, pages_of = turn = next(each for each in self._turns if each[0])
            if turn is self._turns[0]:  # neither form waits for more than a statement of the other
                self._turns.reverse()
            asked = [queue.popleft() for _ in range(min(len(queue), _AT_A_TIME))]
            pages = await self._read(asked, pages_of)
            # The other loop sends its statement first: Postgres runs it while these answers are made.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self._tell(asked, pages)

    async def _read(self, asked: Sequence[_Asked], pages_of: Any) -> Sequence[Page | None]:
        try:
            pages: list[Page | None] = await pages_of(asked)
        except PostgresTrouble:
            return [None] * len(asked)
        except Exception:
            logger.exception("read_failed", extra={"partition": self._partition.number})
            return [None] * len(asked)
        self._metrics.reads_postgres.inc(len(pages) - pages.count(None) - pages.count(_AGAIN))
        return pages

    async def _fetch(self, name: str, *args: object) -> list[Any]:
        """One statement, which is under way meanwhile."""
        self._under_way += 1
        self._wake()
        try:
            return await self._postgres.fetch(name, *args)
        finally:
            self._under_way -= 1
            self._wake()

    def _tell(self, asked: Sequence[_Asked], pages: Sequence[Page | None]) -> None:
        for each, page in zip(asked, pages, strict=True):
            if page is _AGAIN:
                self.ask(msgspec.structs.replace(each.wanted, narrow=None), None, each.told)
                continue
            try:
                each.told(page)
            except Exception:
                logger.exception("read_failed", extra={"partition": self._partition.number})

    async def _pages(self, asked: Sequence[_Asked]) -> list[Page | None]:
        streams = [each.wanted.stream for each in asked]
        rows = await self._fetch("streams", *_columns(streams), _EVENTS_MAX, _BYTES_MAX)
        found: list[list[Any]] = [[] for _ in asked]
        for row in rows:
            found[row["n"] - 1].append(row)
        heads = [(each[0]["head_seq"], each[0]["head_id"].bytes) for each in found if each[0]["head"]]
        if heads:
            await self._settling.found(self._partition, *max(heads))
        pages: list[Page | None] = []
        for each, of in zip(asked, found, strict=True):
            length, stream = of[0]["head"], each.wanted.stream
            whole = length == len(of) <= each.wanted.limit and of[0]["version"] is not None
            events = tuple([Recorded(stream, row["version"], event_of(row)) for row in of]) if whole else ()
            pages.append(Page(length, events) if whole else None)
            if whole and each.here is not None:
                self._fill(stream, each.here, of)
        return pages

    async def _narrow_pages(self, asked: Sequence[_Asked]) -> list[Page | None]:
        streams = [each.wanted.stream for each in asked]
        enough = {each.wanted.narrow or Narrow(): None for each in asked}
        metadata = frozenset[str]().union(*[each.metadata for each in enough])
        apart = metadata.union(*[each.apart for each in enough])
        known, rewinds = self._partition.committed_seq, self._partition.rewinds
        rows = await self._fetch(
            "streams_narrow", *_columns(streams), _EVENTS_MAX + 1, _NARROW_BYTES_MAX,
            list(apart), list(metadata), known,
        )  # fmt: skip
        if self._partition.rewinds != rewinds:
            raise PostgresTrouble("events that were known to be committed were given up meanwhile")
        heads = [(row["seq"], row["id"].bytes) for row in rows if row["id"] is not None]
        if heads:
            await self._settling.found(self._partition, *max(heads))
        pages: list[Page | None] = [None] * len(asked)
        for row in rows:
            place = row["n"] - 1
            pages[place] = _narrow_page(asked[place].wanted, metadata, row)
        return pages


def _narrow_page(wanted: Range, whole: frozenset[str], row: Any) -> Page | None:
    _, count, head, _, _, first_at_ms, last_at_ms, data, types, times, revisions, of_whole = row
    if not 0 < count <= min(_EVENTS_MAX, wanted.limit):
        return None
    if data is None or count != head:
        return _AGAIN
    if types is None:
        return Page(count, (), Joined(count, first_at_ms, last_at_ms, data))
    payloads = data.split(b"\0")
    if len(payloads) != count:
        return _AGAIN
    if of_whole is None:
        events = list(
            map(Event, _ID, types, _TEXT, _TEXT, _NONE, _NONE, _ID, _NONE, _ZERO, times, _NONE, payloads)
        )
    else:
        more = iter(of_whole)
        events = [
            _event(of_type, at_ms, payload, next(more) if of_type in whole else _NO_MORE)
            for of_type, at_ms, payload in zip(types, times, payloads, strict=True)
        ]
    if revisions is not None:
        events = [revised(event, of or 1) for event, of in zip(events, revisions, strict=True)]
    return Page(count, tuple(map(Recorded, repeat(wanted.stream), range(1, count + 1), events)))


def _event(of_type: str, at_ms: int, payload: bytes | None, more: Sequence[Any]) -> Event:
    actor_type, actor_id, target_type, target_id, correlation, causation, extra = more
    return Event(
        _NO_ID, of_type, actor_type, actor_id, target_type, target_id, correlation.bytes,
        None if causation is None else causation.bytes, 0, at_ms, extra, payload,
    )  # fmt: skip


def _columns(streams: Sequence[Stream]) -> tuple[str, str, str]:
    """As texts with a line for each stream: asyncpg looks at each item of an array twice."""
    return (
        "\n".join([stream.tenant.hex() for stream in streams]),
        "\n".join([stream.aggregate_type for stream in streams]),
        "\n".join([stream.key for stream in streams]),
    )
