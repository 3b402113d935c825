"""What a scene plays on: gateway A, which ends or stands still at a point; B, which is well; servers,
clients, and a check of everything that was promised.

Owns: the two gateways' processes, and what counts as having come through.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import asyncpg

from gateway.appends import Append
from gateway.dev.postgres_server import SOCKET_NAME as POSTGRES_SOCKET
from gateway.events import Event, Stream
from gateway.log.append.calls import CallHead, sequence_call
from gateway.log.redis.keys import PartitionKeys, partition_keys
from gateway.log.redis.scripts import Scripts
from tests.failpoints.forked import Forked, Nursery
from tests.failpoints.points import all_points
from tests.faults.checker import RECOVERY_S, check
from tests.faults.client import Client
from tests.faults.cluster import Cluster
from tests.faults.evidence import gather, read_meta
from tests.faults.history import History, Identity, Operation, StreamName, Try, Verdict, never, now
from tests.faults.link import Link
from tests.faults.spec import CONFIG, ORDER, SINGLETONS
from tests.faults.wire import Answer, Caller
from tests.support import drive

PATIENCE_S = 12.0
"""Of a client, and for a scene to get where it wants."""
SETTINGS = {
    "SLUICE_APPEND_DEADLINE_S": "6",
    "SLUICE_REDIS_TIMEOUT_S": "1",
    "SLUICE_INFLIGHT_EVENTS_MAX": "20",
    "SLUICE_SHUTDOWN_GRACE_S": "1",
    "SLUICE_REDIS_RECOVERY_S": "1",
}


class Stage:
    """Everything of one run; `begin` and `end` go round each case."""

    def __init__(self, cluster: Cluster, nursery: Nursery, a: Forked, b: Forked) -> None:
        self.cluster = cluster
        self.a, self.b = a, b
        self.sent: list[tuple[Operation, asyncio.Task[Try], Caller]] = []
        self.refused_rows = False
        self.redis_link = Link(cluster.redis.sockets[0])
        self.postgres_link = Link(cluster.servers.postgres_server.socket_folder / POSTGRES_SOCKET)
        self._nursery = nursery
        self._history = History()
        self._rng = random.Random("failpoints")
        self.client = Client("c", cluster, self._history, self._rng)
        self._loop = asyncio.get_running_loop()
        self._how: tuple[int, signal.Signals] = (-1, signal.SIGKILL)
        self._numbers = 0
        self.points = all_points()

    # -- a run, and each case of it

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path) -> AsyncIterator[Self]:
        cluster = await Cluster.prepare(folder, 1)
        a, b = Forked(0, folder), Forked(1, folder)
        async with Nursery.open(a, b) as nursery:
            stage = cls(cluster, nursery, a, b)
            try:
                await stage.redis_link.open()
                await stage.postgres_link.open()
                await stage._start_b()
                yield stage
            finally:
                await nursery.end()
                for link in (stage.redis_link, stage.postgres_link):
                    await link.close()
                for each in (a, b):
                    each.socket.close()
                await cluster.close()

    def begin(self, target: int = -1, at_target: signal.Signals = signal.SIGKILL) -> None:
        """The next A does that at that point, once it is armed."""
        self.a.clear()  # a point of the case before would end every wait until the next A is forked
        self._how = (target, at_target)
        self.refused_rows = False

    async def end(self, *, retries: bool) -> list[str]:
        """What became of the case: every promise that was broken. A is dead afterwards."""
        self.a.disarm()
        if self.a.fired and self._how[1] is signal.SIGKILL:
            await drive.until(lambda: not self.a.alive)
        self.b.signal(signal.SIGCONT)
        for link in (self.redis_link, self.postgres_link):
            link.heal()
        if retries:
            await asyncio.gather(*(self._settle(made) for made, *_ in self.sent))
        broken = [await self._accepts(self.b)]
        self.a.signal(signal.SIGCONT)
        await asyncio.gather(*(task for _, task, _ in self.sent))
        if self.a.alive:
            broken.append(await self._accepts(self.a))
        broken.append(await self._rests())
        await self.a.kill()
        for *_, caller in self.sent:
            caller.close()
        self.sent.clear()
        evidence = await gather(self.cluster, with_redis=True)
        found = check(self._history, evidence)
        broken += [
            f"{kind}: {told}" for kind, told in found if not (self.refused_rows and kind == "quarantine")
        ]
        if self.refused_rows:
            await self.execute("DELETE FROM quarantined_append")
        return [each for each in broken if each is not None]

    async def _start_b(self) -> None:
        await self._fork(self.b, -1)
        await self.until(lambda: self._ready(self.b))

    async def _fork(self, gateway: Forked, target: int, at: signal.Signals = signal.SIGKILL) -> None:
        redis, postgres = self.cluster.servers.redis_url, self.cluster.postgres_url
        if gateway is self.a:
            redis = f"redis://127.0.0.1:{self.redis_link.port}"
            postgres = f"postgresql://sluice@127.0.0.1:{self.postgres_link.port}/sluice?sslmode=disable"
        env = SETTINGS | {"SLUICE_REDIS_URL": redis, "SLUICE_POSTGRES_URL": postgres}
        await self._nursery.fork(gateway, env, target, at)

    # -- what scenes do

    async def start_a(self, *, armed: bool = False) -> None:
        """Until it is ready, or stopped at its point."""
        await self._fork(self.a, *self._how)
        if armed:
            self.a.arm()
        await self.until(lambda: self._ready(self.a))

    def send(self, made: Operation) -> None:
        """To A; the answer is not awaited yet."""
        caller = Caller()
        task = self._loop.create_task(self.client.attempt(made, self.a, timeout_s=PATIENCE_S, caller=caller))
        self.sent.append((made, task, caller))

    def operation(self, stream: StreamName | None = None, *, events: int = 1, **more: Any) -> Operation:
        """A new one, on a new stream unless one is named, under a key."""
        self._numbers += 1
        stream = stream or self.stream()
        more = {"identity": Identity.KEY, "idempotency_key": f"k{self._numbers}"} | more
        return self.client.operation("scene", *stream, events=events, batch=events > 1, **more)

    def stolen(self, made: Operation) -> Operation:
        """Another one under its key: it has to be refused."""
        stream = StreamName(made.tenant, made.aggregate_type, made.key)
        identity = {"identity": Identity.KEY, "idempotency_key": made.idempotency_key}
        return self.client.operation("scene", *stream, stolen=True, **identity)

    def plain(self, stream: StreamName | None = None, **more: Any) -> Operation:
        """Without a key: it is tried once."""
        return self.client.operation("scene", *(stream or self.stream()), **more)

    def stream(self) -> StreamName:
        self._numbers += 1
        return StreamName(0, ORDER, f"a0000000-0000-4000-a000-{self._numbers:012x}")

    async def at_b(self, made: Operation) -> Operation:
        """Committed there."""
        await self._settle(made)
        assert made.verdict is Verdict.COMMITTED, made
        return made

    async def answered(self) -> None:
        """Until every request has its answer, or A was stopped."""
        await self.until(lambda: all(task.done() for _, task, _ in self.sent))

    async def until(self, holds: Callable[[], Any]) -> None:
        """Or until A was stopped."""

        async def holds_or_fired() -> bool:
            if self.a.fired:
                return True
            held = holds()
            return bool(await held if isinstance(held, Awaitable) else held)

        await drive.until(holds_or_fired, PATIENCE_S)

    @asynccontextmanager
    async def row_locked(self) -> AsyncIterator[asyncpg.Connection]:
        """No commit can end meanwhile."""
        connection = await asyncpg.connect(self.cluster.postgres_url)
        try:
            async with connection.transaction():
                await connection.execute("SELECT FROM partition_log WHERE p = 0 FOR UPDATE")
                yield connection
        finally:
            await connection.close()

    async def commits_wait(self, count: int) -> None:
        """For the row."""
        waiting = "SELECT count(*) >= $1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        await self.until(lambda: self.value(waiting, count))

    async def value(self, statement: str, *args: object) -> Any:
        connection = await asyncpg.connect(self.cluster.postgres_url)
        try:
            return await connection.fetchval(statement, *args)
        finally:
            await connection.close()

    async def execute(self, statements: str) -> None:
        connection = await asyncpg.connect(self.cluster.postgres_url)
        try:
            await connection.execute(statements)
        finally:
            await connection.close()

    async def redis(self, *words: str | bytes | int) -> Any:
        return await self.cluster.redis.call(0, *words)

    async def keys(self) -> PartitionKeys:
        epoch = await self.value("SELECT epoch FROM partition_log WHERE p = 0")
        instance = await self.value("SELECT id FROM instance")
        return partition_keys(instance, 0, epoch)

    async def uncommitted(self) -> int:
        """Events sequenced and not yet marked as committed."""
        async with self.cluster.redis.client(0) as client:
            meta = await read_meta(client, self.cluster, 0)
        return 0 if meta is None else meta.q - meta.c

    async def sequence_and_die(self, *made: Operation) -> None:
        """As a gateway does that dies before it commits: it is unknown what became of the requests."""
        keys = await self.keys()
        row = await self.value("SELECT (epoch, seq, chain) FROM partition_log WHERE p = 0")
        appends: list[Append] = []
        for each in made:
            each.tries.append(Try(2, now(), why="died"))
            stream = Stream(self.cluster.tenants[each.tenant].id, each.aggregate_type, each.key or "")
            events: tuple[Event, ...] = tuple(drive.event(payload=payload) for payload in each.payloads)
            appends.append(drive.append(stream, events=events))
        async with self.cluster.redis.client(0) as client:
            scripts = Scripts(client)
            head = CallHead(row[0], 1000, row[1], row[2], 256, row[1], scripts.caller, 1)
            names, args = sequence_call(keys, head, appends, [f"{row[0]}.{row[1]}:0"] * len(appends))
            reply = await scripts.run("sequence", names, args)
            await scripts.close()
        assert reply[7:] == [1] * len(appends), reply

    async def start_a_halted(self) -> None:
        """On a Postgres that lost commits: it says so and never opens the partition."""
        await self._fork(self.a, *self._how)
        self.a.arm()
        await self.until(lambda: self.value("SELECT alarm IS NOT NULL FROM partition_log WHERE p = 0"))

    def aside(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self._loop.create_task(coroutine)

    def passes(self, function: str, what: str, side: str = "before") -> bool:
        """Whether A has come to that wait, or behind it ("after"), since it was armed."""
        passed = self.a.passed()
        return any(
            point.number in passed
            for point in self.points
            if (point.function, point.what, point.side) == (function, what, side)
        )

    @asynccontextmanager
    async def lost(self) -> AsyncIterator[None]:
        """Postgres without its last commit, which B made and Redis saw; it is found again afterwards."""
        before = await self.value("SELECT (seq, chain) FROM partition_log WHERE p = 0")
        await self.at_b(self.operation())
        await self.until(self.resting)
        self.b.signal(signal.SIGSTOP)
        assert await self.resting(), "What Redis has not seen committed, A commits again, without an alarm."
        await self.execute(f"""
            CREATE TABLE lost_rows AS SELECT * FROM outbox WHERE seq > {before[0]};
            CREATE TABLE lost_claims AS SELECT * FROM append_identity WHERE seq > {before[0]};
            CREATE TABLE lost_place AS SELECT * FROM partition_log;
            DELETE FROM outbox WHERE seq > {before[0]};
            DELETE FROM append_identity WHERE seq > {before[0]};
            UPDATE partition_log SET seq = {before[0]}, chain = '{before[1]}'
        """)
        try:
            yield
        finally:
            await self.execute("""
                INSERT INTO outbox SELECT * FROM lost_rows;
                INSERT INTO append_identity SELECT * FROM lost_claims;
                UPDATE partition_log l SET seq = b.seq, chain = b.chain, alarm = NULL FROM lost_place b;
                DROP TABLE lost_rows, lost_claims, lost_place
            """)

    @asynccontextmanager
    async def refused(self, after: int) -> AsyncIterator[None]:
        """An operator wrote into the outbox by hand, so many positions after what is committed."""
        self.refused_rows = True
        await self.execute(f"""
            INSERT INTO outbox SELECT l.seq + {after}, 1, recorded_at, gen_random_uuid(), tenant,
                correlation_id, causation_id, o.p, spec_rev, append_id, digest, 'order', 'by hand', type,
                actor_type, actor_id, target_type, target_id, extra, payload
            FROM outbox o, partition_log l LIMIT 1
        """)
        try:
            yield
        finally:
            await self.execute("DELETE FROM outbox WHERE aggregate_id = 'by hand'")

    async def resting(self) -> bool:
        """Redis and Postgres stand at the same place."""
        row = await self.value("SELECT (epoch, seq) FROM partition_log WHERE p = 0")
        async with self.cluster.redis.client(0) as client:
            meta = await read_meta(client, self.cluster, 0)
        return meta is not None and (meta.epoch, meta.q, meta.c) == (row[0], row[1], row[1])

    # -- how a case ends

    async def _settle(self, made: Operation) -> None:
        caller, until = Caller(), self._loop.time() + PATIENCE_S
        try:
            while made.verdict is Verdict.UNKNOWN or not made.tries or all(map(never, made.tries)):
                if made.identity is not Identity.KEY and made.tries:
                    return
                one = await self.client.attempt(made, self.b, timeout_s=PATIENCE_S, caller=caller)
                if 400 <= one.status < 500 or self._loop.time() > until:
                    return
                await asyncio.sleep(0.01)
        finally:
            caller.close()

    async def _accepts(self, gateway: Forked) -> str | None:
        """None where it commits within the promised time; else what it says."""
        made = self.operation(StreamName(0, CONFIG, SINGLETONS[0]))
        caller, until = Caller(), self._loop.time() + RECOVERY_S
        try:
            while made.verdict is not Verdict.COMMITTED:
                left_s = until - self._loop.time()
                if left_s <= 0:
                    return f"stuck: gateway {gateway.number}: {made.tries[-1]}\n{gateway.log_tail()}"
                await self.client.attempt(made, gateway, timeout_s=left_s, caller=caller)
        finally:
            caller.close()
        return None

    async def _rests(self) -> str | None:
        try:
            await drive.until(self.resting, RECOVERY_S)
        except AssertionError:
            return f"stuck: q = c not within {RECOVERY_S:g} s"
        return None

    async def _ready(self, gateway: Forked) -> bool:
        caller = Caller()
        told = await caller.call(gateway.port, "GET", "/_/health/ready", (), timeout_s=1)
        caller.close()
        return isinstance(told, Answer) and told.status == 200
