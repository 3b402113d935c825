"""Drives a Log without HTTP: builds appends, waits for conditions, and puts faults between its parts.

A fault wraps the real thing and decides when, or whether, its answer arrives; nothing is faked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import asyncpg
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from uuid_utils import uuid4, uuid7

from gateway.appends import ANY_LENGTH, Append, Appended, make_append, make_retry, request_digest
from gateway.events import Claim, Event, Spread, Stream
from gateway.log import postgres
from gateway.log.limits import Limits
from gateway.log.log import Log, PartitionWorkers
from gateway.log.redis.cluster import Cluster, open_redis
from gateway.log.redis.scripts import RedisTrouble
from gateway.outcomes import Outcome
from gateway.partitions import partition_of
from gateway.postgres.errors import PostgresTrouble
from gateway.tasks import ended

WITHIN_S = 40.0
"""For all that has to happen: on a busy machine whose disk stalls, and never reached where all is well."""
STALL_S = 3.0
"""By so much, what happens at once may be late there."""
ACTOR = "a0000000-0000-4000-a000-000000000001"
LIMITS = {
    "sequence_appends_max": 250,
    "sequence_bytes_max": 1 << 20,
    "commit_rows_max": 500,
    "inflight_events_max": 10_000,
    "queue_bytes_max": 256 << 20,
    "read_deadline_s": 5.0,
    "append_deadline_s": 10.0,
    "commit_timeout_s": 5.0,
    "journal_retention_s": 600.0,
    "identity_window": 20_000,
    "stream_tail": 256,
    "redis_bytes_max": None,
    "direct_after_s": 1.0,
    "redis_recovery_s": 1.0,
}


@dataclass(frozen=True, slots=True)
class Place:
    """The servers of one test: a migrated database of its own, and a Redis."""

    postgres_url: str
    redis_url: str

    def client(self) -> Redis | RedisCluster:
        """Behind the gateways' backs, and by other ways than theirs."""
        if "+cluster" not in self.redis_url:
            return Redis.from_url(self.redis_url, protocol=2)
        nodes = [each.split(":") for each in self.redis_url.partition("://")[2].split(",")]
        return RedisCluster(startup_nodes=[ClusterNode(host, port) for host, port in nodes], protocol=2)

    async def execute(self, statement: str, *args: object) -> str:
        connection = await asyncpg.connect(self.postgres_url)
        try:
            return await connection.execute(statement, *args)
        finally:
            await connection.close()

    async def committed(self) -> int:
        """Events in the outbox."""
        return int((await self.fetch("SELECT count(*) FROM outbox"))[0][0])

    async def fetch(self, statement: str, *args: object) -> list[Any]:
        connection = await asyncpg.connect(self.postgres_url)
        try:
            return await connection.fetch(statement, *args)
        finally:
            await connection.close()


# -- appends


def new_tenant() -> bytes:
    return uuid7().bytes


def new_stream(tenant: bytes | None = None, key: str | None = None) -> Stream:
    return Stream(tenant or new_tenant(), "order", key or str(uuid4()))


def event(event_id: bytes | None = None, payload: bytes = b'{"sku":"A-1"}', **changed: Any) -> Event:
    fields: dict[str, Any] = {
        "id": event_id or uuid7().bytes,
        "type": "was_placed",
        "actor_type": "user",
        "actor_id": ACTOR,
        "target_type": None,
        "target_id": None,
        "correlation_id": uuid7().bytes,
        "causation_id": None,
        "spec_rev": 1,
        "recorded_at_ms": time.time_ns() // 1_000_000,
        "extra": None,
        "payload": payload,
    }
    return Event(**fields | changed)


def append(
    stream: Stream,
    count: int = 1,
    *,
    expected: int = ANY_LENGTH,
    key: bytes | None = None,
    event_ids: tuple[bytes | None, ...] = (),
    body: bytes = b"body",
    events: tuple[Event, ...] | None = None,
    form: int | None = None,
) -> Append:
    """What the edge would make of a request. `event_ids` are the ids that the client chose, None where it
    left one out; the other ids are minted. Requests of equal path, `body` and `expected` are equal; one that
    names no identity of its own has no digest."""
    if events is None:
        chosen_or_not = event_ids or (None,) * count
        events = tuple(event(each, b'{"n":%d}' % n) for n, each in enumerate(chosen_or_not))
    chosen = tuple(each for each in event_ids if each is not None)
    body += b"".join(each or b"-" for each in event_ids)  # they are among a request's bytes
    digest = b""
    if key is not None or chosen:
        digest = request_digest(f"/{stream.aggregate_type}/{stream.key}", body, expected)
    return make_append(stream, events, expected, make_retry(stream.tenant, key, chosen, digest), form=form)


def unique_value(text: str) -> bytes:
    """As the edge hashes values; any 32 bytes do."""
    return sha256(text.encode()).digest()


def claiming(stream: Stream, text: str | None) -> Append:
    """One event that claims a unique value for its aggregate, or releases the one that it has."""
    claim = Claim(0, "email", b"", None if text is None else unique_value(text))
    retry = make_retry(stream.tenant, None, (), b"")
    events = (event(None, b"{}"),)
    return make_append(stream, events, ANY_LENGTH, retry, claims=(claim,), claim_paths=("data",))


def tagged(stream: Stream, tags: tuple[str, ...]) -> Append:
    """One event that has these declared tags."""
    retry = make_retry(stream.tenant, None, (), b"")
    return make_append(stream, (event(None, b"{}"),), ANY_LENGTH, retry, (tags,))


def append_to_all(
    order: Sequence[Stream],
    expected: Mapping[Stream, int] | None = None,
    *,
    key: bytes | None = None,
    body: bytes = b"body",
) -> Append:
    """One append of an event to each of these, in this order; a stream may come again. With one stream it is
    a batch like any other."""
    streams, asked = tuple(dict.fromkeys(order)), expected or {}
    events = tuple(event(None, b'{"n":%d}' % n) for n in range(len(order)))
    lengths = [asked.get(each, ANY_LENGTH) for each in streams]
    digest = b"" if key is None else request_digest("/_/append", body, ANY_LENGTH)
    retry = make_retry(order[0].tenant, key, (), digest)
    if len(streams) == 1:
        return make_append(streams[0], events, lengths[0], retry)
    spread = Spread(streams, tuple(streams.index(each) for each in order))
    return make_append(streams[0], events, lengths[0], retry, (), spread, tuple(lengths[1:]))


async def appended(log: Log, *appends: Append) -> list[Appended]:
    """Hands them over in order and asserts that every one is committed."""
    outcomes = await asyncio.gather(*(log.append(each) for each in appends))
    assert all(type(each) is Appended for each in outcomes), outcomes
    return outcomes  # type: ignore[return-value]


def ids(of: Append) -> tuple[bytes, ...]:
    return tuple(each.id for each in of.events)


# -- gateways

DRAIN_S = 1
"""What a test held back until its end is not waited for; what it waits for it has awaited by then."""


@dataclass(slots=True)
class Gateway:
    """What one gateway process holds open."""

    log: Log
    pool: asyncpg.Pool
    redis: Redis | Cluster

    async def close(self) -> None:
        await self.log.stop(DRAIN_S)
        await self.redis.aclose()
        await asyncio.wait_for(self.pool.close(), WITHIN_S)


async def open_gateway(place: Place, redis_timeout_s: float = 2, **limits: float | None) -> Gateway:
    pool = await postgres.open_pool(place.postgres_url, 4, 5)
    redis = open_redis(place.redis_url, redis_timeout_s, 64)
    instance = await postgres.Postgres(pool).instance()
    log = Log(redis, pool, place.postgres_url, instance, Limits(**LIMITS | limits))  # type: ignore[arg-type]
    await log.start()
    return Gateway(log, pool, redis)


def lane(log: Log, stream: Stream) -> PartitionWorkers:
    return log._lane_of[stream.tenant]


def sent_or_gathering(workers: PartitionWorkers) -> bool:
    """Whether its next call has been made, or waits for more appends to take along."""
    return workers.sequencer.waiting == (0, 0) or not workers.sequencer._pace._gathered.is_set()


def partition_number(log: Log, stream: Stream) -> int:
    return partition_of(stream.tenant, log.instance.partitions)


async def opened(log: Log, stream: Stream) -> None:
    """Returns once the stream's partition is open."""
    await until(lambda: lane(log, stream).partition.open)


async def ready(log: Log) -> bool:
    """Whether an append would commit now."""
    return await log.ready() is None


def time_is_up(log: Log, stream: Stream) -> None:
    """For all that waits on the stream's partition: it is answered with what is known by now."""
    for pending in lane(log, stream).sequencer.outstanding:
        pending.deadline = 0.0


async def crash(log: Log) -> None:
    """All that the gateway was doing stops where it is; nothing is settled, nothing told."""
    await ended(log._tasks)
    for each in log._lanes:
        each.connection.drop()
        for pending in each.sequencer.outstanding:
            assert isinstance(pending.waiter, asyncio.Future)
            pending.waiter.cancel()
    log._help_connection.drop()


async def until(holds: Callable[[], Any], within_s: float = WITHIN_S) -> None:
    """Returns once the condition holds; it may be a coroutine function. Fails when it never does."""
    deadline = time.monotonic() + within_s
    while True:
        held = holds()
        if asyncio.iscoroutine(held):
            held = await held
        if held:
            return
        assert time.monotonic() < deadline, f"does not hold after {within_s:g} s"
        await asyncio.sleep(0.005)


async def seal(place: Place, log: Log, stream: Stream) -> None:
    """Ends the epoch as a verifying gateway does, and waits until this one has opened the next."""
    partition = lane(log, stream).partition
    before = partition.epoch
    await place.execute("UPDATE partition_log SET epoch = epoch + 1 WHERE p = $1", partition.number)
    await until(lambda: partition.open and partition.epoch > before)


async def wipe_partition(log: Log, stream: Stream) -> None:
    """As FLUSHALL does, for one partition; until this gateway has opened it again."""
    partition = lane(log, stream).partition
    epoch = partition.epoch
    redis = log._scripts.servers.client
    pattern = f"sluice:1:{log.instance.id.hex}:{{{partition.number}}}:*"
    await redis.eval("return redis.call('DEL', unpack(redis.call('KEYS', ARGV[1])))", 0, pattern)
    await until(lambda: partition.epoch > epoch and partition.open)


# -- faults

Proceed = Callable[[], Awaitable[Any]]
Around = Callable[..., Awaitable[Any]]


def interpose(target: object, method: str, around: Around) -> None:
    """From now on `around(proceed, *args)` stands in front of the method; `proceed()` is the real call."""
    real = getattr(target, method)

    async def call(*args: Any, **kwargs: Any) -> Any:
        return await around(lambda: real(*args, **kwargs), *args, **kwargs)

    setattr(target, method, call)


class Gate:
    """Where a call is held until the test lets it go on."""

    def __init__(self) -> None:
        self._arrived = asyncio.Event()
        self._open = asyncio.Event()

    async def arrived(self, within_s: float = WITHIN_S) -> None:
        async with asyncio.timeout(within_s):
            await self._arrived.wait()

    async def hold(self) -> None:
        self._arrived.set()
        await self._open.wait()

    def open(self) -> None:
        self._open.set()


def hold_commits(log: Log, stream: Stream) -> Gate:
    """The gateway's own commits of the partition wait before they are sent."""
    return _hold(lane(log, stream).connection, "swap")


def hold_help(log: Log) -> Gate:
    """The gateway's commits on others' behalf wait before they are sent."""
    return _hold(log._help_connection, "swap")


def hold_settling(log: Log) -> Gate:
    """What settles what the gateway found waits before it is sent."""
    return _hold(log._settling._connection, "settle")


def hold_script(log: Log, name: str) -> Gate:
    """The gateway's calls of one script wait before they are sent."""
    return _hold(log._scripts, "run", name)


def hold_fetch(log: Log, name: str) -> Gate:
    """The gateway's statements of one name wait before they are sent."""
    return _hold(log._postgres, "fetch", name)


def hold_reads(log: Log, name: str) -> Gate:
    """The same of statements on the connections for reads."""
    return _hold(log._reads, "fetch", name)


def _hold(target: object, method: str, only: str | None = None) -> Gate:
    """Calls of the method wait before they are made; with `only`, those whose first argument it is."""
    gate = Gate()

    async def around(proceed: Proceed, *args: Any) -> Any:
        if only is None or args[0] == only:
            await gate.hold()
        return await proceed()

    interpose(target, method, around)
    return gate


def lose_replies(log: Log, name: str, times: int = 1, *, run: bool = True) -> None:
    """The next calls of a script are carried out and their replies lost; with `run=False` the calls are."""
    left = times

    async def around(proceed: Proceed, called: str, *args: Any) -> Any:
        nonlocal left
        if called != name or left == 0:
            return await proceed()
        left -= 1
        if run:
            await proceed()
        raise RedisTrouble("the reply was lost")

    interpose(log._scripts, "run", around)


def lose_commit_replies(connection: object, times: int = 1, *, run: bool = True) -> None:
    """The next commits are carried out and their answers lost; with `run=False` the commits are."""
    left = times

    async def around(proceed: Proceed, *args: Any) -> Any:
        nonlocal left
        if left == 0:
            return await proceed()
        left -= 1
        if run:
            await proceed()
        raise PostgresTrouble("the answer was lost")

    interpose(connection, "swap", around)


def lose_fetches(log: Log, name: str, times: int) -> None:
    """The next statements of that name are not sent."""
    left = times

    async def around(proceed: Proceed, called: str, *args: Any) -> Any:
        nonlocal left
        if called == name and left:
            left -= 1
            raise PostgresTrouble("no answer")
        return await proceed()

    interpose(log._postgres, "fetch", around)


def tally(outcomes: list[Outcome]) -> dict[str, int]:
    counted: dict[str, int] = {}
    for outcome in outcomes:
        name = type(outcome).__name__
        counted[name] = counted.get(name, 0) + 1
    return counted
