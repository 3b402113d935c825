"""The real scripts and statements against the model, step by step: two gateways whose steps interleave at
will, lost and late calls, lost answers, and a Redis that forgets, is set back or was tampered with.

After every step Postgres, Redis and what clients were told have to be what the model and the promises say.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.appends import ANY_LENGTH, AT_LEAST_ONE, Append, salts_of
from gateway.events import Page, Stream
from gateway.log import postgres
from gateway.log.append.direct import Direct
from gateway.log.append.identities import ClaimedByAnother, Original, look_up, receipt
from gateway.log.append.journal import CannotHelp, Journal
from gateway.log.append.pending import Pending
from gateway.log.commit_connection import CommitConnection, RefusedByPostgres
from gateway.log.entries import SequencedAppend
from gateway.log.epoch.chain import roll
from gateway.log.epoch.notices import EpochChanges
from gateway.log.epoch.partition import Partition
from gateway.log.epoch.redis_health import RedisHealth
from gateway.log.epoch.settling import Settling
from gateway.log.epoch.verify import Verifier
from gateway.log.postgres import DIRECT, REDIS
from gateway.log.read.ranges import Range
from gateway.log.read.reader import Reader
from gateway.log.redis import scripts
from gateway.log.redis.keys import PartitionKeys
from gateway.log.redis.servers import connect
from gateway.outcomes import Conflict
from gateway.telemetry.steps import unwatched
from tests.log import scripted
from tests.log.protocol_model import Call, Entry, PostgresModel, RedisModel, Swap
from tests.support.drive import Place, append, new_stream, new_tenant

P = 3
"""The partition that tests/log/scripted.py calls scripts on."""
WINDOW = 12
IDENTITY_WINDOW = 8
TAIL = 2
STEPS, EXAMPLES = 40, 40

Answers = tuple[list[int | bytes], list[Entry], tuple[int, str]]
"""Of a call: to each append, what was placed, and (q, h) before it."""

FAULTS = (
    "flush", "delete meta", "delete journal", "delete claims", "delete stream", "delete stream",
    "delete heads", "tear",
    "older epoch", "another life", "seal", "set back", "set back in one life", "set back in one life",
)  # fmt: skip
FATES = st.sampled_from(["answered"] * 5 + ["waiting", "looked up", "looked up", "lost", "late", "late"])
GATEWAYS = st.integers(0, 1)
STREAMS = st.integers(0, 2)


@dataclass(frozen=True, slots=True)
class Asked:
    stream: int
    count: int
    expected: int
    key: int | None
    body: int


ASKED = st.builds(
    Asked,
    stream=STREAMS,
    count=st.integers(1, 3),
    expected=st.sampled_from([ANY_LENGTH, ANY_LENGTH, ANY_LENGTH, AT_LEAST_ONE, 0, 1, 2, 3]),
    key=st.sampled_from([None, None, 0, 1, 2, 3]),
    body=st.sampled_from([0, 0, 0, 1]),
)


@dataclass(slots=True)
class Batch:
    """Looked up, not yet sequenced."""

    appends: list[Append]
    looked_up: int
    epoch: int


@dataclass(slots=True)
class Run:
    """Sequenced or judged directly, not yet known committed; what rests on it is answered if it is."""

    epoch: int
    before: tuple[int, str]
    entries: list[Entry]
    mode: str = REDIS
    resting: list[tuple[Append, Original | ClaimedByAnother | Conflict]] = field(default_factory=list)

    @property
    def after(self) -> tuple[int, str]:
        return self.entries[-1].last_seq, self.entries[-1].chain


@dataclass(slots=True)
class Gateway:
    """The parts of a gateway that touch its servers, and what it holds between two steps."""

    scripted: scripted.Partition
    partition: Partition
    verifier: Verifier
    connection: CommitConnection
    settling: Settling
    journal: Journal
    reader: Reader
    direct: Direct
    waiting: list[Append] = field(default_factory=list)
    batch: Batch | None = None
    runs: list[Run] = field(default_factory=list)
    late: list[Call] = field(default_factory=list)
    hints: dict[Stream, str] = field(default_factory=dict)

    def back(self, appends: list[Append]) -> None:
        self.waiting += [each for each in appends if each not in self.waiting]

    def call(self, appends: list[Append], looked_up: int, hints: list[str]) -> Call:
        partition = self.partition
        self.scripted.calls += 1
        told = partition.committed_seq, partition.committed_chain
        return Call(
            partition.epoch, self.scripted.scripts.caller, self.scripted.calls, told, looked_up, WINDOW,
            tuple(appends), tuple(hints),
        )  # fmt: skip


class Protocol(RuleBasedStateMachine):
    """Each example on a partition that was emptied."""

    place: Place

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.pg = PostgresModel(P)
        self.redis_model: RedisModel | None = None
        self.kept: RedisModel | None = None
        self.dumps: dict[bytes, bytes] = {}
        self.acknowledged: dict[bytes, tuple[Stream, int]] = {}
        self.refused: set[bytes] = set()
        self.epoch_seen = 0
        self.old_reads_in = 0

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(asyncio.wait_for(coroutine, 20))

    @initialize()
    def begin(self) -> None:
        self.run(self._begin())

    async def _begin(self) -> None:
        self.connection = await asyncpg.connect(self.place.postgres_url)
        await self.connection.execute(
            f"""TRUNCATE outbox, append_identity, quarantined_append, partition_mark, partition_trail;
            UPDATE partition_log SET epoch = 1, seq = 0, chain = '', mode = 'redis', owner = '', alarm = NULL,
                rewound = 0 WHERE p = {P}"""
        )
        self.redis = connect(self.place.redis_url, 5, 8)
        self.pool = await postgres.open_pool(self.place.postgres_url, 2, 5)
        self.reads = postgres.Postgres(self.pool)
        tenants = new_tenant(), new_tenant()
        self.streams = [new_stream(tenants[n % 2]) for n in range(3)]
        instance = uuid.uuid4()
        self.gateways = [self._gateway(instance, n) for n in range(2)]
        for each in self.gateways:
            await self._verify(each)

    def _gateway(self, instance: uuid.UUID, number: int) -> Gateway:
        partition = Partition(instance, P, RedisHealth(0, 0, asyncio.get_running_loop().time()))
        ours = scripts.Scripts(self.redis)
        telemetry = unwatched()
        metrics = telemetry.metrics
        connection = CommitConnection(self.place.postgres_url, 5)
        changes = EpochChanges(metrics, 1)
        settles = CommitConnection(self.place.postgres_url, 5)
        settling = Settling(settles, self.reads, dict.fromkeys((P,), partition), 5)
        return Gateway(
            scripted.Partition(self.redis, ours, instance=instance),
            partition,
            Verifier(ours, self.reads, settling, f"g{number}", IDENTITY_WINDOW, changes),
            connection,
            settling,
            Journal(ours, self.reads, settling, connection),
            Reader(partition, ours, self.reads, settling, metrics, TAIL),
            Direct(partition, self.reads, None, None, None, telemetry),  # type: ignore[arg-type]
        )

    def teardown(self) -> None:
        try:
            if hasattr(self, "connection"):
                self.run(self._settle_all())
        finally:
            with contextlib.suppress(AttributeError):
                self.run(self._close())
            self.runner.close()

    # -- requests

    @rule(g=GATEWAYS, asked=st.lists(ASKED, min_size=1, max_size=4), fate=FATES)
    def ask(self, g: int, asked: list[Asked], fate: str) -> None:
        """New requests, some of them under identities that are taken, or twice in one call; up to a step."""
        gateway = self.gateways[g]
        gateway.waiting += [
            append(self.streams[each.stream], each.count, expected=each.expected,
                   key=None if each.key is None else b"%d" % each.key, body=b"%d" % each.body)
            for each in asked
        ]  # fmt: skip
        if fate != "waiting":
            if not gateway.partition.open:
                self.verify(g)
            self.look_up(g)
            self.judge_directly(g)
        if fate not in ("waiting", "looked up"):
            self.sequence(g, fate)

    @rule(g=GATEWAYS)
    def look_up(self, g: int) -> None:
        gateway = self.gateways[g]
        if gateway.batch is None and gateway.partition.in_redis and gateway.waiting:
            self.run(self._look_up(gateway))

    async def _look_up(self, gateway: Gateway) -> None:
        batch, gateway.waiting = gateway.waiting[:5], gateway.waiting[5:]
        minted = [(each.stream.tenant, each.append_id) for each in batch]
        claims = await look_up(self.reads, P, [each.retry for each in batch], minted)
        assert (claims.epoch, claims.seq) == (self.pg.epoch, len(self.pg.rows))
        left = []
        for each in batch:
            verdict = claims.judge(each)
            assert verdict == self.pg.judged(each)
            match verdict:
                case Original():
                    await self._replayed(each, verdict)
                case ClaimedByAnother():
                    self._refuse(each)
                case None:
                    left.append(each)
        if claims.epoch != gateway.partition.epoch:
            gateway.partition.distrust()
            gateway.back(left)
        elif left:
            gateway.batch = Batch(left, claims.seq, claims.epoch)

    async def _replayed(self, asked: Append, original: Original) -> None:
        told = await receipt(self.reads, original, replayed=True)
        rows = self.pg.rows[original.first_seq - 1 : original.last_seq]
        assert told.event_ids == tuple(row[2] for row in rows)
        assert told.first_version == rows[0][1]
        for n, event_id in enumerate(told.event_ids):
            self.acknowledged[event_id] = asked.stream, told.first_version + n
        if told.event_ids[0] != asked.append_id:
            self._refuse(asked)  # its own ids never appear: the original's do

    def _refuse(self, asked: Append) -> None:
        self.refused |= {event.id for event in asked.events}

    # -- sequencing

    @rule(g=GATEWAYS, fate=st.sampled_from(["answered", "answered", "answered", "lost", "late"]))
    def sequence(self, g: int, fate: str) -> None:
        gateway = self.gateways[g]
        if gateway.batch is not None and gateway.partition.open:
            self.run(self._sequence(gateway, gateway.batch, fate))

    async def _sequence(self, gateway: Gateway, batch: Batch, fate: str) -> None:
        gateway.batch = None
        if batch.epoch != gateway.partition.epoch:
            gateway.back(batch.appends)
            return
        hints = [await self._hint(gateway, each.stream) for each in batch.appends]
        call = gateway.call(batch.appends, batch.looked_up, hints)
        if fate == "late":
            gateway.late.append(call)
            gateway.partition.distrust()
            gateway.back(batch.appends)
            return
        answers = await self._call(gateway, call)
        if fate == "lost" or answers is None:
            gateway.partition.distrust()
            gateway.back(batch.appends)
            return
        self._answered(gateway, call, answers)

    async def _hint(self, gateway: Gateway, stream: Stream) -> str:
        """What a gateway that met this stream cold has from Postgres, now or from before."""
        if stream in gateway.hints:
            return gateway.hints.pop(stream)
        found = self.redis_model
        return f"{gateway.partition.epoch}.{found.q if found else 0}:{self.pg.length(stream)}"

    @rule(g=GATEWAYS, stream=STREAMS)
    def meet_a_cold_stream(self, g: int, stream: int) -> None:
        """Remembers what Postgres says of it, for a later call."""
        gateway, model, which = self.gateways[g], self.redis_model, self.streams[stream]
        if model is None or model.closed(gateway.partition.epoch) is not None or model.heads is None:
            return
        if which not in model.heads:
            gateway.hints[which] = f"{model.epoch}.{model.q}:{self.pg.length(which)}"

    @rule(g=GATEWAYS, stream=STREAMS)
    def evict(self, g: int, stream: int) -> None:
        if self.gateways[g].partition.epoch:
            self.run(self._evict(self.gateways[g], self.streams[stream]))

    async def _evict(self, gateway: Gateway, stream: Stream) -> None:
        partition, keys = gateway.partition, gateway.partition.keys
        entries = await self.redis.xrevrange(keys.stream(stream), count=1)
        told = partition.committed_seq, partition.committed_chain
        reply = await gateway.scripted.scripts.run(
            "evict", (keys.meta, keys.journal, keys.heads, *keys.tags, keys.stream(stream)),
            (partition.epoch, *told, 0, 0, 1),
        )  # fmt: skip
        model = self.redis_model
        why = b"missing" if model is None else model.closed(partition.epoch)
        if model is None or why is not None:
            assert reply == [b"FENCED", why]
            return
        if not model.advance(told):
            assert reply == [b"FENCED", b"behind"]
            return
        last_seq = int(next(iter(entries[0][1]))) if entries else None
        goes = last_seq is not None and last_seq <= model.c
        assert reply[2] == goes
        if last_seq is not None and goes:
            model.evict(stream, last_seq)

    async def _call(self, gateway: Gateway, call: Call) -> Answers | None:
        """The script and the model do the same; None where both fence."""
        gateway.scripted.epoch = call.epoch
        reply = await gateway.scripted.sequence(
            *call.appends, hints=call.hints, window=call.window, told=call.told, looked_up=call.looked_up,
            number=call.number, caller=call.caller, tail=TAIL,
        )  # fmt: skip
        model = self.redis_model
        why = b"missing" if model is None else model.closed(call.epoch)
        if model is not None and why is None and model.calls.get(call.caller, 0) >= call.number:
            why = b"late"
        if model is None or why is not None:
            assert reply == [b"FENCED", why]
            return None
        model.calls[call.caller] = call.number
        if not model.advance(call.told):
            assert reply == [b"FENCED", b"behind"]
            return None
        if model.heads is None:
            model.torn = True
            assert reply == [b"FENCED", b"torn"]
            return None
        before = model.q, model.h
        answers, placed = model.sequence(call)
        assert reply[7:] == answers
        assert (int(reply[1]), reply[2].decode()) == before
        assert (int(reply[3]), reply[4].decode(), int(reply[5])) == (model.q, model.h, model.c)
        return answers, placed, before

    def _answered(self, gateway: Gateway, call: Call, told: Answers) -> None:
        answers, placed, before = told
        if placed:
            gateway.runs.append(Run(call.epoch, before, placed))
        model = self.redis_model
        assert model is not None
        settled = self.pg.epoch == call.epoch and self.pg.place == (model.q, model.h)
        for each, answer in zip(call.appends, answers, strict=True):
            if isinstance(answer, int):
                continue
            if answer[:1] in (b"C", b"M") and settled:  # else it would wait, and here be decided again
                self._refuse(each)
            else:
                gateway.back([each])

    @precondition(lambda self: any(each.late for each in self.gateways))
    @rule(g=GATEWAYS)
    def a_late_call_arrives(self, g: int) -> None:
        gateway = self.gateways[g]
        if gateway.late:
            self.run(self._call(gateway, gateway.late.pop(0)))

    # -- without Redis

    @rule(g=GATEWAYS, reached=st.booleans())
    def reach(self, g: int, reached: bool) -> None:
        """Redis is lost to a gateway, or steady again: what becomes of that, its next verification finds."""
        gateway = self.gateways[g]
        if reached:
            gateway.partition.reach.answered(self.runner.get_loop().time())
        else:
            gateway.partition.reach.failed()
            gateway.partition.reach.failed()
        self.verify(g)

    @rule(g=GATEWAYS)
    def judge_directly(self, g: int) -> None:
        gateway = self.gateways[g]
        if gateway.partition.open and gateway.partition.direct and gateway.waiting and not gateway.runs:
            self.run(self._judge_directly(gateway))

    async def _judge_directly(self, gateway: Gateway) -> None:
        """One look; the commit is a step of its own."""
        batch, gateway.waiting = gateway.waiting[:5], gateway.waiting[5:]
        loop = asyncio.get_running_loop()
        pendings = [Pending(each, n, 0, loop.create_future(), lambda _: None) for n, each in enumerate(batch)]
        for each in pendings:
            each.again = True
        placing = await gateway.direct._look(pendings)
        if placing is None:
            assert gateway.partition.epoch != self.pg.epoch
            gateway.partition.distrust()
            gateway.back(batch)
            return
        run = Run(gateway.partition.epoch, self.pg.place, [], DIRECT)
        for each, expected in zip(batch, self.pg.directly(batch), strict=True):
            verdict = placing.judge(each)
            if isinstance(expected, Entry):
                assert verdict == _placed([expected])[0]
                run.entries.append(expected)
                continue
            assert verdict == expected
            if run.entries:
                run.resting.append((each, expected))
            else:
                await self._told(each, expected)
        if run.entries:
            assert (placing.seq, placing.chain) == run.after
            gateway.runs.append(run)

    async def _told(self, asked: Append, verdict: Original | ClaimedByAnother | Conflict) -> None:
        if isinstance(verdict, Original):
            await self._replayed(asked, verdict)
        else:
            self._refuse(asked)

    # -- committing

    @rule(g=GATEWAYS, fate=st.sampled_from(["answered", "answered", "answered", "lost"]))
    def commit(self, g: int, fate: str) -> None:
        gateway = self.gateways[g]
        if gateway.runs:
            self.run(self._commit(gateway, gateway.runs[0], answered=fate == "answered"))

    async def _commit(self, gateway: Gateway, run: Run, *, answered: bool) -> None:
        outcome = self.pg.swap(run.epoch, run.before, run.entries, run.mode)
        try:
            swap = P, run.epoch, run.before, run.after, _placed(run.entries), run.mode
            held = await gateway.connection.swap(*swap)
            assert outcome is (Swap.HELD if held else Swap.FAILED)
        except RefusedByPostgres:
            assert outcome is Swap.REFUSED
            await self._quarantine(gateway)
            return
        if not answered:
            return
        if held:
            gateway.partition.known(*run.after)
        elif run.epoch == self.pg.epoch and len(self.pg.rows) < run.before[0]:
            return  # a hole: another gateway's
        gateway.runs.pop(0)
        for asked, verdict in run.resting:
            if self.pg.holds(run.entries[-1]):
                await self._told(asked, verdict)
            else:
                gateway.back([asked])
        for each in run.entries:
            if self.pg.holds(each):
                self._acknowledge(each)
            else:
                gateway.partition.distrust()
                gateway.back([each.append])

    def _acknowledge(self, entry: Entry) -> None:
        for n, event in enumerate(entry.append.events):
            self.acknowledged[event.id] = entry.append.stream, entry.first_version + n

    async def _quarantine(self, gateway: Gateway) -> None:
        """Its epoch ends, and all that was sequenced in it is decided again."""
        assert await self.reads.seal(P, self.pg.epoch, "", self.pg.mode) is not None
        self.pg.epoch += 1
        run = gateway.runs.pop(0)
        gateway.partition.distrust()
        gateway.back([each.append for each in run.entries] + [asked for asked, _ in run.resting])

    @rule(g=GATEWAYS)
    def help(self, g: int) -> None:
        """Commits from the journal whatever any gateway has sequenced."""
        if self.gateways[g].partition.open:
            self.run(self._help(self.gateways[g]))

    async def _help(self, gateway: Gateway) -> None:
        expected = self._helped(gateway.partition.epoch)
        try:
            await gateway.journal.commit(gateway.partition)
            assert expected
        except CannotHelp:
            assert not expected
            gateway.partition.distrust()

    def _helped(self, epoch: int) -> bool:
        """Whether it can; does it on the model."""
        model = self.redis_model
        if self.pg.epoch != epoch or model is None or model.closed(epoch) is not None:
            return False
        tail = sorted((seq, each) for seq, each in model.journal.items() if seq > len(self.pg.rows))
        whole = model.q <= len(self.pg.rows) or bool(tail)
        seq = len(self.pg.rows)
        for _, each in tail:
            whole &= each.first_seq == seq + 1
            seq = each.last_seq
        if not whole or self._one_by_one([each for _, each in tail]) is not Swap.HELD:
            self.pg.epoch += 1
            return False
        return True

    def _one_by_one(self, entries: list[Entry]) -> Swap:
        for each in entries:
            if self.pg.swap(self.pg.epoch, self.pg.place, [each]) is not Swap.HELD:
                return Swap.REFUSED
        return Swap.HELD

    @rule(g=GATEWAYS)
    def move_the_watermark(self, g: int) -> None:
        """A call without appends, by what this gateway knows committed."""
        gateway = self.gateways[g]
        if gateway.partition.open:
            gateway.partition.known(*self.pg.place)
            answers = self.run(self._call(gateway, gateway.call([], len(self.pg.rows), [])))
            gateway.partition.open = answers is not None

    # -- verifying

    @rule(g=GATEWAYS)
    def verify(self, g: int) -> None:
        self.run(self._verify(self.gateways[g]))

    async def _verify(self, gateway: Gateway) -> None:
        pg, partition = self.pg, gateway.partition
        partition.reach.heard(())
        steady = partition.reach.steady(asyncio.get_running_loop().time())
        back = pg.mode == DIRECT and partition.direct and steady
        await gateway.verifier.verify(partition)
        if pg.mode == DIRECT and not back:
            assert partition.direct
        elif pg.mode == REDIS and partition.reach.failing:
            pg.epoch, pg.mode = pg.epoch + 1, DIRECT
        else:
            self._verified_in_redis()
        assert (partition.open, partition.direct) == (True, pg.mode == DIRECT)
        assert (partition.epoch, partition.committed_seq) == (pg.epoch, len(pg.rows))

    def _verified_in_redis(self) -> None:
        model, pg = self.redis_model, self.pg
        goes_on = (
            model is not None
            and pg.mode == REDIS
            and model.closed(pg.epoch) is None
            and model.heads is not None
            and model.q >= len(pg.rows)
            and (not pg.rows or model.chain_at(len(pg.rows)) == pg.chain)
        )
        if not goes_on:
            pg.epoch += 1
            seq, chain = pg.place
            lengths = {each: pg.length(each) for each in self.streams}
            self.redis_model = RedisModel(
                pg.epoch, IDENTITY_WINDOW, seq, chain, seq, 0, at_c=chain, lengths=lengths
            )
            pg.mode = REDIS

    # -- reading

    @rule(g=GATEWAYS, stream=STREAMS)
    def read(self, g: int, stream: int) -> None:
        self.run(self._read(self.gateways[g], self.streams[stream]))

    async def _read(self, gateway: Gateway, stream: Stream) -> None:
        """Shows exactly what is committed, whatever Redis says."""
        if not gateway.partition.epoch:
            return
        trusted = gateway.partition.epoch == self.pg.epoch
        if trusted:
            gateway.partition.known(*self.pg.place)
        serving = asyncio.ensure_future(gateway.reader.run())
        page = await gateway.reader.page(Range(stream), trusted=trusted)
        await asyncio.gather(*gateway.reader._filling.values())
        shown = [(each.version, each.event.id) for each in page.events]
        committed = [row[1:3] for row in self.pg.rows if row[0] == stream]
        if shown == committed:
            for known in {len(shown), len(shown) // 2}:
                new = await gateway.reader.page(Range(stream, known + 1, known=known), trusted=trusted)
                assert new == Page(len(shown), page.events[known:])
            await asyncio.gather(*gateway.reader._filling.values())
        serving.cancel()
        assert shown == (committed[: len(shown)] if self.old_reads_in == self.pg.epoch else committed)
        assert page.length == len(shown)
        model = self.redis_model
        heard = model is not None and model.closed(gateway.partition.epoch) is None
        if model is not None and heard and trusted and gateway.partition.open:
            model.advance((gateway.partition.committed_seq, gateway.partition.committed_chain))
            if page.length and model.heads is not None and stream not in model.heads:
                model.heads[stream] = page.length  # it was filled

    # -- faults

    @rule(fault=st.sampled_from(FAULTS), stream=STREAMS)
    def fault(self, fault: str, stream: int) -> None:
        if self.redis_model is not None or fault == "seal":
            getattr(self, f"_{fault.replace(' ', '_')}")(stream)

    def _flush(self, _: int) -> None:
        """As FLUSHALL does, for these keys."""
        self.run(self._delete_all())
        self.redis_model = None

    def _delete_meta(self, _: int) -> None:
        self.run(self._redis("UNLINK", self._keys_now().meta))
        self.redis_model = None

    def _delete_journal(self, _: int) -> None:
        self.run(self._redis("UNLINK", self._keys_now().journal))
        self._model().journal.clear()

    def _delete_claims(self, _: int) -> None:
        self.run(self._redis("UNLINK", *self._keys_now().identities))
        self._model().claims = ({}, {})

    def _delete_stream(self, stream: int) -> None:
        self.run(self._redis("UNLINK", self._keys_now().stream(self.streams[stream])))

    def _delete_heads(self, _: int) -> None:
        self.run(self._redis("UNLINK", self._keys_now().heads))
        self._model().heads = None

    def _tear(self, _: int) -> None:
        """As a script does that fails between its writes."""
        self._model().torn = True
        self._edit("torn", "1")

    def _older_epoch(self, _: int) -> None:
        """The keys of that epoch went when it ended."""
        self._model().epoch -= 1
        self._edit("epoch", str(self._model().epoch))
        self._delete_heads(0)
        self._delete_journal(0)

    def _another_life(self, _: int) -> None:
        """A restart or promotion that kept everything: another replication id than the fence."""
        self._model().fence = False
        self._edit("fence", "0" * 40)

    def _seal(self, _: int) -> None:
        """A gateway ends the epoch and dies before it installs the next."""
        self.pg.epoch += 1
        self.run(self.connection.execute(f"UPDATE partition_log SET epoch = epoch + 1 WHERE p = {P}"))

    def _set_back(self, _: int) -> None:
        """Started again without its last writes."""
        if self.kept is not None:
            self._set_back_in_one_life(0)
            self._another_life(0)

    def _set_back_in_one_life(self, _: int) -> None:
        """As by a snapshot of its machine: nothing tells it from what it was but what it lacks, where a
        gateway knows that to be committed. Beyond the promises: while none does, reads may be old. All else
        holds."""
        if self.kept is not None:
            self.run(self._restore())
            self.redis_model = copy.deepcopy(self.kept)
            self.redis_model.lengths = None
            self.old_reads_in = self.pg.epoch

    @rule()
    def keep(self) -> None:
        """What there would be to come back to."""
        self.kept, self.dumps = copy.deepcopy(self.redis_model), self.run(self._dump())

    def _model(self) -> RedisModel:
        assert self.redis_model is not None
        return self.redis_model

    def _keys_now(self) -> PartitionKeys:
        return self.gateways[0].partition.keys_in(self._model().epoch)

    def _edit(self, name: str, value: str) -> None:
        self.run(self._redis("HSET", self.gateways[0].partition.keys_in(1).meta, name, value))

    async def _redis(self, *words: str) -> Any:
        return await self.redis.execute_command(*words)

    async def _keys(self) -> list[bytes]:
        prefix = f"sluice:1:{self.gateways[0].scripted.instance.hex}:*"
        return sorted([key async for key in self.redis.scan_iter(prefix, count=1000)])

    async def _delete_all(self) -> None:
        if keys := await self._keys():
            await self.redis.unlink(*keys)

    async def _dump(self) -> dict[bytes, bytes]:
        return {key: await self.redis.dump(key) for key in await self._keys()}

    async def _restore(self) -> None:
        await self._delete_all()
        for key, value in self.dumps.items():
            await self.redis.restore(key, 0, value)

    # -- the promises

    @invariant()
    def everything_is_as_promised(self) -> None:
        if hasattr(self, "connection"):
            self.run(self._check())

    async def _check(self) -> None:
        row = await self.connection.fetchrow("SELECT * FROM partition_log WHERE p = $1", P)
        rows = await self.connection.fetch("SELECT * FROM outbox WHERE p = $1 ORDER BY seq", P)
        assert (row["epoch"], row["mode"]) == (self.pg.epoch, self.pg.mode)
        assert (row["seq"], row["chain"]) == self.pg.place
        assert row["epoch"] >= self.epoch_seen
        self.epoch_seen = row["epoch"]
        assert [each["seq"] for each in rows] == list(range(1, row["seq"] + 1))
        assert roll("", rows, row["seq"]) == row["chain"]
        found = [
            (Stream(each["tenant"].bytes, each["aggregate_type"], each["aggregate_id"]), each["version"],
             each["id"].bytes)
            for each in rows
        ]  # fmt: skip
        assert found == [each[:3] for each in self.pg.rows]
        for stream in self.streams:
            versions = [version for where, version, _ in found if where == stream]
            assert versions == list(range(1, len(versions) + 1))
        claims = await self.connection.fetch("SELECT identity, seq, count, digest FROM append_identity")
        assert {each["identity"]: tuple(each)[1:] for each in claims} == self.pg.claims
        by_id = {event_id: (stream, version) for stream, version, event_id in found}
        assert self.acknowledged.items() <= by_id.items()
        assert not self.refused & by_id.keys()
        await self._check_redis(rows)

    async def _check_redis(self, rows: list[Any]) -> None:
        meta = await self.redis.hgetall(self.gateways[0].partition.keys_in(1).meta)
        model = self.redis_model
        assert bool(meta) == (model is not None)
        if model is None:
            return
        told = tuple(meta[name].decode() for name in (b"epoch", b"q", b"h", b"c", b"e"))
        assert told == (str(model.epoch), str(model.q), model.h, str(model.c), str(model.e))
        assert model.c <= len(rows)
        assert meta[b"ch"].decode() == roll("", rows, model.c)

    async def _settle_all(self) -> None:
        """Faults are over: whatever was asked for is settled, and the partition rests."""
        gateway = self.gateways[0]
        for each in self.gateways:
            each.runs.clear()
            each.hints.clear()
            each.partition.reach.answered(asyncio.get_running_loop().time())
        for _ in range(3):
            await self._verify(gateway)
            await self._help(gateway)
        await self._verify(gateway)
        last = append(self.streams[0])
        gateway.waiting, gateway.batch = [last], None
        await self._look_up(gateway)
        assert gateway.batch is not None
        await self._sequence(gateway, gateway.batch, "answered")
        if not gateway.runs:
            raise AssertionError("nothing is sequenced any more")
        await self._commit(gateway, gateway.runs[0], answered=True)
        assert last.append_id in self.acknowledged
        gateway.partition.known(*self.pg.place)
        await self._call(gateway, gateway.call([], len(self.pg.rows), []))
        await self._check()
        assert self.redis_model is not None
        assert self.pg.mode == REDIS
        assert self.redis_model.q == self.redis_model.c == len(self.pg.rows)

    async def _close(self) -> None:
        await self._delete_all()
        for each in self.gateways:
            await each.connection.close()
            await each.settling.close()
            await each.scripted.scripts.close()
        await self.redis.aclose()
        await self.pool.close()
        await self.connection.close()


def _placed(entries: list[Entry]) -> list[SequencedAppend]:
    return [
        SequencedAppend(
            each.append.stream, each.append.append_id, each.append.events, each.append.digests,
            each.append.chosen, each.append.request_digest, each.first_version, each.last_seq,
            salts=salts_of(each.append.packed),
        )
        for each in entries
    ]  # fmt: skip


@pytest.mark.timeout(600)  # a failure is made as short as it can be
def test_two_gateways_step_by_step_do_what_the_model_does(place: Place) -> None:
    class Here(Protocol):
        pass

    Here.place = place
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Here,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
