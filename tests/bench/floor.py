"""What each part costs by itself, in the same run: no gateway can be faster than these on this machine today.

floor/http        uvicorn with a callable that answers 201 at once; its generator column is the generator's
                  own cost, so 10^6 over it is the rate that the generator can't exceed
floor/sequence    the script that sequences, 64 appends a call, one call after another, each told that all
                  before it is committed
floor/commit      the statement that commits, 64 rows a call, one call after another

The calls are made ready between the measured spans, so that Python's share in them (`generator`) is what the
drivers take.
"""

from __future__ import annotations

import itertools
import time
from array import array
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from uuid_utils import uuid7

from gateway.appends import ANY_LENGTH, Append, make_append, make_retry, request_digest, salts_of
from gateway.config import Config
from gateway.events import Event, Stream
from gateway.log import postgres
from gateway.log.append.calls import CallHead, sequence_call
from gateway.log.entries import SequencedAppend, chain_over, commit_columns
from gateway.log.epoch.verify import Inspection
from gateway.log.redis import scripts
from gateway.log.redis.keys import PartitionKeys, partition_keys
from gateway.log.redis.servers import connect
from tests.bench import orders
from tests.bench.http_load import post
from tests.bench.measured import Measured, quantiles_ms, shares_us
from tests.bench.stand import Stand
from tests.bench.suite import Options, Scenario

BATCH = 64
"""About what forms by itself at 64 to 256 connections."""
CALLS_A_SPAN = 50
EPOCH = 1
TIMEOUT_S = 10.0


def scenarios(options: Options) -> list[Scenario]:
    bare = [
        Scenario(f"floor/http/{connections}", "request", (201,), partial(_http, options, connections))
        for connections in options.connections
    ]
    return [
        *bare,
        Scenario("floor/sequence", "append", (), partial(_sequence, options)),
        Scenario("floor/commit", "append", (), partial(_commit, options)),
    ]


async def _http(options: Options, connections: int, stand: Stand) -> Measured:
    with stand.bare() as served:
        paths = [orders.append_path(key) for key in orders.keys(options.streams)]
        return await post(options, connections, stand, served, paths, orders.append_body())


async def _sequence(options: Options, stand: Stand) -> Measured:
    async with connect(stand.servers.redis_url, TIMEOUT_S, 1) as redis:
        runner = scripts.Scripts(redis)
        keys = partition_keys(uuid4(), 0, EPOCH)
        await _install(runner, keys)
        calls = _SequenceCalls(runner, keys, appends(orders.keys(options.streams)))
        return await measure(calls.ready, options.seconds, stand)


async def _install(runner: scripts.Scripts, keys: PartitionKeys) -> None:
    """A partition whose first epoch begins empty, as gateway/log/epoch/verify.py makes one."""
    seen = Inspection.from_reply(
        await runner.run("inspect", (keys.meta, keys.journal, keys.heads), (EPOCH, 0))
    )
    reply = await runner.run(
        "install", (keys.meta, keys.heads), (EPOCH, seen.replid, 0, "", Config.identity_window)
    )
    assert reply[0] == b"OK", reply


class _SequenceCalls:
    """Calls of the script, each going on where the one before it ended."""

    def __init__(self, runner: scripts.Scripts, keys: PartitionKeys, appends: Iterator[Append]) -> None:
        self._runner = runner
        self._keys = keys
        self._appends = appends
        self._committed = (0, "")
        self._numbers = itertools.count(1)

    def ready(self) -> Callable[[], Awaitable[None]]:
        appends = list(itertools.islice(self._appends, BATCH))
        # The hint: when nothing was evicted yet, a stream that Redis does not have is empty.
        names, args = sequence_call(self._keys, self._head(), appends, [f"{EPOCH}.1:0"] * BATCH)
        return partial(self._call, names, args)

    async def _call(self, names: list[str], args: list[str | bytes | int]) -> None:
        head = self._head(next(self._numbers))
        reply = await self._runner.run("sequence", names, [*head, *args[len(head) :]])
        assert reply[0] == b"OK", reply
        assert all(type(version) is int for version in reply[7:]), reply
        self._committed = (int(reply[3]), reply[4].decode())
        if head.number % CALLS_A_SPAN == 0:
            keys = (self._keys.meta, self._keys.journal, self._keys.heads)
            await self._runner.run("evict", keys, (EPOCH, *self._committed, self._committed[0], 0, 0))

    def _head(self, number: int = 0) -> CallHead:
        """Continues where the call before ended, with all of it committed."""
        seq, chain = self._committed
        window, tail = Config.inflight_events_max, Config.stream_tail
        return CallHead(EPOCH, window, seq, chain, tail, seq, self._runner.caller, number)


async def _commit(options: Options, stand: Stand) -> Measured:
    async with stand.database() as url:
        connection = await postgres.connect(url, TIMEOUT_S)
        try:
            row = postgres.PartitionRow(*await connection.fetchrow(postgres.SQL["partition"], 0))
            calls = CommitCalls(connection, 0, row, appends(orders.keys(options.streams)))
            return await measure(calls.ready, options.seconds, stand)
        finally:
            await connection.close()


class CommitCalls:
    """Commits of `batch` rows to partition `p`, each going on where the one before it ended. Streams have
    `length` events."""

    def __init__(
        self,
        connection: Any,
        p: int,
        row: postgres.PartitionRow,
        appends: Iterator[Append],
        length: int = 0,
        batch: int = BATCH,
    ) -> None:
        self._connection = connection
        self._p = p
        self._row = row
        self._length = length
        self._batch = batch
        self._appends = appends
        self._after = (row.seq, row.chain)
        self._lengths: dict[Stream, int] = {}

    def ready(self) -> Callable[[], Awaitable[None]]:
        before, chain = self._after
        appends = itertools.islice(self._appends, self._batch)
        run = [self._placed(append, before + n) for n, append in enumerate(appends, 1)]
        self._after = (before + self._batch, chain_over(chain, run))
        swap = (self._p, self._row.epoch, before, chain, *self._after)
        return partial(self._call, (*swap, *commit_columns(run), postgres.REDIS))

    def _placed(self, append: Append, seq: int) -> SequencedAppend:
        version = self._lengths[append.stream] = self._lengths.get(append.stream, self._length) + 1
        return SequencedAppend(
            append.stream,
            append.append_id,
            append.events,
            append.digests,
            append.chosen,
            append.request_digest,
            version,
            seq,
            salts=salts_of(append.packed),
        )

    async def _call(self, args: tuple[Any, ...]) -> None:
        rows = await self._connection.fetchval(postgres.SQL["commit"], *args)
        assert rows == self._batch, f"{rows} of {self._batch} rows were committed"


def appends(keys: Sequence[str], tenant: bytes | None = None) -> Iterator[Append]:
    """One event each, to one stream after another, without end; of some tenant."""
    tenant = tenant or uuid7().bytes
    body = orders.append_body().encode()
    for key in itertools.cycle(keys):
        event = Event(
            id=uuid7().bytes,
            type=orders.EVENT,
            actor_type=orders.ACTOR["type"],
            actor_id=orders.ACTOR["id"],
            target_type=None,
            target_id=None,
            correlation_id=uuid7().bytes,
            causation_id=None,
            spec_rev=1,
            recorded_at_ms=time.time_ns() // 1_000_000,
            extra=None,
            payload=orders.DATA.encode(),
        )
        digest = request_digest(orders.append_path(key), body, ANY_LENGTH)
        retry = make_retry(tenant, None, (), digest)
        yield make_append(Stream(tenant, orders.TYPE, key), (event,), ANY_LENGTH, retry)


async def measure(
    ready: Callable[[], Callable[[], Awaitable[None]]], seconds: float, stand: Stand
) -> Measured:
    """Call after call until they took `seconds` in all, after a warm-up of one span."""
    await _span([ready() for _ in range(CALLS_A_SPAN)])
    latencies_s = array("d")
    cpu = stand.cpu([])
    cpu.start()
    own_s = 0.0
    while sum(latencies_s) < seconds:
        calls = [ready() for _ in range(CALLS_A_SPAN)]
        begun = time.process_time()
        latencies_s.extend(await _span(calls))
        own_s += time.process_time() - begun
    used_s = {name: used for name, used in cpu.stop().items() if name != "gateway"}
    count = len(latencies_s) * BATCH
    return Measured(
        count=count,
        seconds=sum(latencies_s),
        latency_ms=quantiles_ms(latencies_s),
        answers={},
        unexpected=None,
        cpu_us=shares_us({**used_s, "generator": own_s}, count),
    )


async def _span(calls: Sequence[Callable[[], Awaitable[None]]]) -> list[float]:
    """How long each took, in seconds."""
    taken = []
    for call in calls:
        begun = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - begun)
    return taken
