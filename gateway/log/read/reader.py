"""Committed events of streams: from Redis where it holds them, from Postgres where it does not.

Owns: what may be shown. An entry above the watermark is shown only once Postgres confirms it by its id, and
what was only found in Postgres once it is settled (settling.py), so a read sees every event that was
acknowledged before it, and nothing that may yet vanish.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct as Layout
from typing import Any, Final

from asyncpg.pgproto.pgproto import UUID

from gateway.appends import pack_event, unpack_event
from gateway.events import Page, Recorded, Stream, event_bytes
from gateway.log.entries import event_of, stream_entry
from gateway.log.epoch.partition import Partition
from gateway.log.epoch.settling import Settling
from gateway.log.postgres import Postgres
from gateway.log.read.cold import ColdReads
from gateway.log.read.ranges import VERSION_MAX, Here, Range
from gateway.log.redis.scripts import RedisTrouble, Scripts
from gateway.postgres.errors import PostgresTrouble
from gateway.telemetry.metrics import Metrics

logger = logging.getLogger("sluice.log")

_READS_A_CALL = 64
# A fill is one call of a script, which holds up everything else on that Redis.
_FILL_EVENTS_MAX = 1_000
_FILL_BYTES_MAX = 1024 * 1024
_FILLS_AT_ONCE = 4


class _Later:
    """In place of an answer: others of the call had so many events that this read waits for the next one."""


_LATER: Final = _Later()
_NOTHING: Final = (None,)
_RANGE: Final = Layout(">dddddB").pack
_Told = Callable[[Here | None], None]


class Reader:
    """One for each partition of this gateway: reads that wait together share one script call."""

    def __init__(
        self,
        partition: Partition,
        scripts: Scripts,
        postgres: Postgres,
        settling: Settling,
        metrics: Metrics,
        stream_tail: int,
    ) -> None:
        self._partition = partition
        self._scripts = scripts
        self._postgres = postgres
        self._settling = settling
        self._metrics = metrics
        self._stream_tail = stream_tail
        self._queue: deque[tuple[Range, _Told]] = deque()
        self._looks = 0
        self._work = asyncio.Event()
        self.cold = ColdReads(partition, postgres, settling, metrics, self._fill_soon)
        self._filling: dict[Stream, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()

    async def page(self, wanted: Range, *, trusted: bool) -> Page:
        """`trusted`: this gateway's knowledge of epochs is fresh, so Redis may be believed.

        Raises PostgresTrouble when Postgres is needed and can't answer.
        """
        here = await self._from_redis(wanted) if trusted and self._partition.in_redis else None
        if here is None or here.length == 0:
            self._metrics.reads_postgres.inc()
            page, rows = await self._from_postgres(wanted)
            if here is not None and page.length:
                self._fill_soon(wanted.stream, here, rows)
            return page
        missing = _missing(wanted, here)
        if missing is None:
            self._metrics.reads_redis.inc()
            return Page(here.length, here.events)
        self._metrics.reads_postgres.inc()
        older = await self._rows(missing)
        if wanted.newest_first:
            return Page(here.length, (here.events + older)[: wanted.limit])
        if here.events:
            self._fill_soon(wanted.stream, here)
        if older and older[-1].version < missing.last:
            return Page(here.length, older)
        left = wanted.bytes_max - sum([event_bytes(each.event) for each in older])
        return Page(here.length, (older + _first(here.events, left))[: wanted.limit])

    def look(self, wanted: Range, told: Callable[[Page | None], None]) -> None:
        """Without a task: `told` is called soon, with the page where Redis tells all of it, or Postgres of a
        short stream that Redis does not have; else with None, and then `page` may tell."""

        whole = wanted.is_whole
        if whole and self.cold.is_likely():
            self.cold.ask(wanted, None, told)
            return

        def seen(here: Here | None) -> None:
            if whole and here is not None:
                self.cold.note(here.length == 0)
            if whole and here is not None and here.length == 0:
                self.cold.ask(wanted, here, told)
            elif here is None or here.length == 0 or _missing(wanted, here) is not None:
                told(None)
            else:
                self._looks += 1
                told(Page(here.length, here.events))

        self._ask(wanted, seen)

    def _from_redis(self, wanted: Range) -> asyncio.Future[Here | None]:
        future: asyncio.Future[Here | None] = self._loop.create_future()
        self._ask(wanted, lambda here: None if future.done() else future.set_result(here))
        return future

    def _ask(self, wanted: Range, told: _Told) -> None:
        self._queue.append((wanted, told))
        self._work.set()

    async def version_at(self, stream: Stream, at_ms: int) -> int:
        """The last version recorded at or before a time; 0: none. Raises PostgresTrouble."""
        rows = await self._postgres.of(stream.tenant).fetch(
            "version_at", UUID(stream.tenant), stream.aggregate_type, stream.key, at_ms
        )
        return rows[0]["version"] if rows else 0

    async def event(self, tenant: bytes, event_id: bytes) -> Recorded | None:
        """An event of the tenant by its id. Raises PostgresTrouble."""
        rows = await self._postgres.of(tenant).fetch("event", UUID(tenant), UUID(event_id))
        if not rows:
            return None
        await self._settling.found(self._partition, rows[0]["seq"], event_id)
        stream = Stream(tenant, rows[0]["aggregate_type"], rows[0]["aggregate_id"])
        return Recorded(stream, rows[0]["version"], event_of(rows[0]))

    # -- the loop

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._queue:
                most = min(len(self._queue), _READS_A_CALL)
                batch = [self._queue.popleft() for _ in range(most)]
                try:
                    answers = await self._call([wanted for wanted, _ in batch])
                except PostgresTrouble:
                    answers = _NOTHING * most  # the caller asks it for the whole page, and learns why
                except Exception:
                    logger.exception("read_failed", extra={"partition": self._partition.number})
                    answers = _NOTHING * most
                self._tell(batch, answers)

    def _tell(self, batch: Sequence[tuple[Range, _Told]], answers: Sequence[Here | _Later | None]) -> None:
        later = []
        for asked, answer in zip(batch, answers, strict=True):
            if isinstance(answer, _Later):
                later.append(asked)
                continue
            try:
                asked[1](answer)
            except Exception:
                logger.exception("read_failed", extra={"partition": self._partition.number})
        self._queue.extendleft(reversed(later))
        if self._looks:  # counted together: a counter has a lock
            self._metrics.reads_redis.inc(self._looks)
            self._looks = 0

    async def _call(self, batch: Sequence[Range]) -> Sequence[Here | _Later | None]:
        partition = self._partition
        keys = partition.keys
        names = [keys.meta, keys.journal, keys.heads, *[keys.stream(wanted.stream) for wanted in batch]]
        ranges = b"".join(
            [
                _RANGE(each.first, each.last, each.limit, each.bytes_max, each.known, each.newest_first)
                for each in batch
            ]
        )
        args = (partition.epoch, partition.committed_seq, partition.committed_chain, ranges)
        try:
            reply = await self._scripts.run("read", names, args)
        except RedisTrouble as trouble:
            logger.info("read_from_postgres", extra={"partition": partition.number, "reason": str(trouble)})
            return _NOTHING * len(batch)
        if reply[0] == b"FENCED":
            partition.distrust()
            return _NOTHING * len(batch)
        return await self._without_doubt(batch, reply[2], reply[3:])

    async def _without_doubt(
        self, batch: Sequence[Range], as_of: bytes, replies: list[Any]
    ) -> Sequence[Here | _Later | None]:
        seqs = [int(seq) for each in replies if type(each) is list for seq in each[1][1::3]]
        confirmed: set[tuple[int, bytes]] = set()
        if seqs:
            rows = await self._postgres.fetch("confirm", self._partition.number, seqs)
            confirmed = {(row["seq"], row["id"].bytes) for row in rows}
            if confirmed:
                await self._settling.found(self._partition, *max(confirmed))
        return [_here(wanted, reply, confirmed, as_of) for wanted, reply in zip(batch, replies, strict=True)]

    # -- Postgres

    async def _from_postgres(self, wanted: Range) -> tuple[Page, Sequence[Any]]:
        """Length and events of one moment, and the rows that these were read from."""
        stream = wanted.stream
        rows = await self._postgres.of(stream.tenant).fetch(
            "stream_desc" if wanted.newest_first else "stream_asc",
            *_of_stream(wanted),
        )
        length = rows[0]["head"]
        if length:
            await self._settling.found(self._partition, rows[0]["head_seq"], rows[0]["head_id"].bytes)
        if rows[0]["version"] is None:
            return Page(length), ()
        return Page(length, tuple([Recorded(stream, row["version"], event_of(row)) for row in rows])), rows

    async def _rows(self, wanted: Range) -> tuple[Recorded, ...]:
        stream = wanted.stream
        rows = await self._postgres.of(stream.tenant).fetch(
            "page_desc" if wanted.newest_first else "page_asc",
            *_of_stream(wanted),
        )
        return tuple([Recorded(stream, row["version"], event_of(row)) for row in rows])

    # -- warming

    def _fill_soon(self, stream: Stream, here: Here, rows: Sequence[Any] = ()) -> None:
        """Fills a stream whose tail Redis holds in part, or not at all. Reads do not wait for it. `rows` were
        read from Postgres since then; where they are the whole tail, it is not read again."""
        most = self._fillable(here)
        if most == 0 or stream in self._filling or len(self._filling) >= _FILLS_AT_ONCE:
            return
        self._filling[stream] = self._loop.create_task(self._fill(stream, here, _tail(rows, most)))
        self._filling[stream].add_done_callback(lambda _: self._filling.pop(stream))

    def _fillable(self, here: Here) -> int:
        """How many events before those that are here belong to the stream's tail; bounded."""
        held = 0 if here.first is None else here.length - here.first + 1
        return min(max(self._stream_tail - held, 0), _FILL_EVENTS_MAX)

    async def _fill(self, stream: Stream, here: Here, rows: Sequence[Any]) -> None:
        """The moment of the read and the first version here guard against whatever happens meanwhile."""
        keys = self._partition.keys
        last = VERSION_MAX if here.first is None else here.first - 1
        try:
            wanted = Range(stream, 1, last, self._fillable(here), bytes_max=_FILL_BYTES_MAX)
            rows = rows or await self._postgres.of(stream.tenant).fetch("page_desc", *_of_stream(wanted))
            args: list[str | bytes | int] = [
                self._partition.epoch, here.as_of, "" if here.first is None else here.first,
            ]  # fmt: skip
            for version, seq, packed in reversed(_newest(rows)):
                args += (version, seq, packed)
            if rows:
                await self._scripts.run("fill", (keys.meta, keys.stream(stream), keys.heads), args)
        except (PostgresTrouble, RedisTrouble) as trouble:
            told = {"partition": self._partition.number, "reason": str(trouble)}
            logger.info("stream_not_filled", extra=told)


def _of_stream(wanted: Range) -> tuple[object, ...]:
    """What page.sql and stream.sql take."""
    stream = wanted.stream
    return (
        UUID(stream.tenant), stream.aggregate_type, stream.key, wanted.first, wanted.last, wanted.limit,
        wanted.bytes_max,
    )  # fmt: skip


def _first(events: tuple[Recorded, ...], bytes_max: int) -> tuple[Recorded, ...]:
    """As many as a page may begin that has so many bytes left."""
    for count, each in enumerate(events):
        if bytes_max <= 0:
            return events[:count]
        bytes_max -= event_bytes(each.event)
    return events


def _tail(rows: Sequence[Any], most: int) -> Sequence[Any]:
    """The newest `most` events of a stream, newest first, or all; none where the rows lack some of these."""
    newest = sorted(rows, key=lambda row: -row["version"])
    if not newest or newest[0]["version"] != newest[0]["head"]:
        return ()
    return newest[:most] if len(newest) >= most or newest[-1]["version"] == 1 else ()


def _newest(rows: Sequence[Any]) -> list[tuple[int, int, bytes]]:
    """Version, seq and packed event of the first rows, as many as one fill may carry and one at least."""
    events: list[tuple[int, int, bytes]] = []
    size = 0
    for row in rows:
        packed = pack_event(event_of(row))
        size += len(packed)
        if events and size > _FILL_BYTES_MAX:
            break
        events.append((row["version"], row["seq"], packed))
    return events


def _here(wanted: Range, reply: Any, confirmed: set[tuple[int, bytes]], as_of: bytes) -> Here | _Later:
    if type(reply) is int:
        return Here(reply, (), as_of)
    if reply is None:
        return _LATER
    head, doubt, entries, grounded = reply
    length = int(head)
    # Newest first, as long as Postgres does not know them; all below the first it knows are committed.
    for version, seq, event_id in zip(doubt[::3], doubt[1::3], doubt[2::3], strict=True):
        if (int(seq), event_id) in confirmed:
            break
        length = int(version) - 1
    else:
        if not grounded:
            # What comes before the first entry here was never here, or was deleted uncommitted.
            length = 0
    events, size = [], 0
    for entry in entries:
        version, _, packed = stream_entry(entry)
        if version <= length:
            events.append(Recorded(wanted.stream, version, unpack_event(packed)))
            size += len(packed)
    return Here(length, tuple(events), as_of, size)


def _missing(wanted: Range, here: Here) -> Range | None:
    """The part of the range that Redis does not hold: always the older one, since it keeps suffixes."""
    last = min(wanted.last, here.length)
    if wanted.limit == 0 or wanted.first > last:
        return None
    stream, first, limit = wanted.stream, wanted.first, wanted.limit
    if wanted.newest_first:
        oldest = here.events[-1].version if here.events else last + 1
        left, left_bytes = limit - len(here.events), wanted.bytes_max - here.bytes
        if left <= 0 or left_bytes <= 0 or oldest <= first:
            return None
        return Range(stream, first, oldest - 1, left, True, bytes_max=left_bytes)
    oldest = here.events[0].version if here.events else last + 1
    return Range(stream, first, oldest - 1, limit, bytes_max=wanted.bytes_max) if oldest > first else None
