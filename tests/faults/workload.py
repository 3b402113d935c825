"""What the clients of a run want: appends of every kind that the contract knows, so that each of its promises
is put to the test.

Owns: which operations are tried, on which streams, how many clients there are.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from uuid_utils import uuid7

from tests.faults.client import PATIENCE_S, Client
from tests.faults.cluster import Cluster
from tests.faults.history import AT_LEAST_ONE, History, Identity, Operation, StreamName, Verdict, now
from tests.faults.reading import Follower, Reader
from tests.faults.spec import CONFIG, ORDER, SINGLETONS
from tests.faults.webhooks import SENDERS, Provider
from tests.faults.wire import Caller

HOT_KEYS = 2
KEYS = 60
REPLAYABLE_MAX = 500
BATCH_EVENTS_MAX = 12
BURST = 6
HASTY_S = (0.005, 0.25)
"""Patience of a client that gives up quickly: its tries run beside each other."""
WRITERS, READERS, FOLLOWERS = 18, 4, 1
DRAIN_S = 8.0

Action = Callable[["Writer"], Awaitable[Any]]


class Places:
    """The streams of a run. Keys are the same for every tenant, so that a mix-up of tenants shows."""

    def __init__(self, rng: random.Random) -> None:
        made = [str(UUID(int=rng.getrandbits(128), version=4)) for _ in range(HOT_KEYS + KEYS)]
        self.hot = [(ORDER, key) for key in made[:HOT_KEYS]] + [(CONFIG, key) for key in SINGLETONS]
        self.many = [(ORDER, key) for key in made[HOT_KEYS:]]

    def some(self, rng: random.Random) -> tuple[str, str]:
        return rng.choice(self.hot if rng.random() < 0.5 else self.many)


class Workload:
    """All clients of a run, from `start` to `stop`."""

    def __init__(self, cluster: Cluster, history: History, seed: int) -> None:
        rng = random.Random(f"{seed}/places")
        self.places = Places(rng)
        self.replayable: deque[Operation] = deque(maxlen=REPLAYABLE_MAX)
        self.stopping = asyncio.Event()
        self.forgotten = 0.0
        """What was sent before that is not replayed."""
        self.think_s = (0.002, 0.04)
        self._clients: list[Writer | Reader | Provider | Follower] = []
        self._tasks: list[asyncio.Task[None]] = []
        for n in range(WRITERS):
            client = Client(f"w{n}", cluster, history, random.Random(f"{seed}/w{n}"))
            self._clients.append(Writer(client, self, n % len(cluster.tenants)))
        for n in range(READERS):
            client = Client(f"r{n}", cluster, history, random.Random(f"{seed}/r{n}"))
            self._clients.append(Reader(client, self.places, self.replayable, self.stopping))
        for n in range(SENDERS):
            client = Client(f"s{n}", cluster, history, random.Random(f"{seed}/s{n}"))
            self._clients.append(Provider(client, self.places, self.stopping))
        for n in range(FOLLOWERS):
            client = Client(f"f{n}", cluster, history, random.Random(f"{seed}/f{n}"))
            self._clients.append(Follower(client, self.places, self.stopping))

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(each.run()) for each in self._clients]

    @property
    def broken(self) -> BaseException | None:
        """What ended a client that should not have ended: a bug of the rig."""
        ended = (task for task in self._tasks if task.done() and not task.cancelled())
        return next((fault for task in ended if (fault := task.exception()) is not None), None)

    def forget(self, partitions: frozenset[int]) -> None:
        """What was told of these partitions is not promised any more."""
        self.forgotten = now()
        self.replayable.clear()
        for each in self._clients:
            tenants = each.client.cluster.tenants
            each.client.rewound |= partitions
            for stream in [one for one in each.client.known if tenants[one.tenant].partition in partitions]:
                del each.client.known[stream]

    async def stop(self) -> None:
        """Nothing new is begun; what is not settled is tried on for a while. Raises what broke a client."""
        self.stopping.set()
        for each in self._clients:
            each.client.giving_up_at = now() + DRAIN_S
        await asyncio.wait(self._tasks, timeout=DRAIN_S + PATIENCE_S[1] + 1)
        await self.end()
        if self.broken is not None:
            raise self.broken

    async def end(self) -> None:
        """At once."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in self._clients:
            each.client.caller.close()


class Writer:
    """Has a stream of its own in one tenant, which it writes in order, and shares the others."""

    def __init__(self, client: Client, workload: Workload, tenant: int) -> None:
        self.client = client
        self.rng = client.rng
        self.tenant = tenant
        self.workload = workload
        self.own = StreamName(tenant, ORDER, str(UUID(int=client.rng.getrandbits(128), version=4)))
        self.spares = [Caller() for _ in range(BURST)]

    async def run(self) -> None:
        actions, weights = zip(*ACTIONS.items(), strict=True)
        try:
            while not self.workload.stopping.is_set():
                await self.rng.choices(actions, weights)[0](self)
                await asyncio.sleep(self.rng.uniform(*self.workload.think_s))
        finally:
            for each in self.spares:
                each.close()

    def somewhere(self) -> StreamName:
        return StreamName(self._some_tenant(), *self.workload.places.some(self.rng))

    def _some_tenant(self) -> int:
        return (
            self.tenant if self.rng.random() < 0.6 else self.rng.randrange(len(self.client.cluster.tenants))
        )

    def identified(self, identity: Identity, events: int = 1) -> dict[str, Any]:
        """What an operation bears of that identity."""
        more: dict[str, Any] = {"identity": identity}
        if identity is Identity.KEY:
            more["idempotency_key"] = f"{self.client.name}-{self.rng.getrandbits(64):x}"
        if identity is Identity.EVENTS:
            more["event_ids"] = tuple(str(uuid7()) for _ in range(events))
        return more

    def remember(self, done: Operation) -> None:
        known = done.verdict is Verdict.COMMITTED and done.tries[-1].sent > self.workload.forgotten
        if known and done.identity in (Identity.KEY, Identity.EVENTS):
            self.workload.replayable.append(done)


# -- what a writer does


async def steady(writer: Writer) -> None:
    """Its own stream, one after the other, each settled before the next."""
    client = writer.client
    identity = writer.rng.choice((Identity.KEY, Identity.KEY, Identity.EVENTS, Identity.ANSWERED))
    made = client.operation("steady", *writer.own, **writer.identified(identity))
    await client.settle(made)
    writer.remember(made)


async def plain(writer: Writer) -> None:
    """Anywhere, without any condition; without identity it is tried once."""
    client = writer.client
    identity = writer.rng.choice(list(Identity))
    made = client.operation("plain", *writer.somewhere(), **writer.identified(identity))
    await client.settle(made)
    writer.remember(made)


async def hasty(writer: Writer) -> None:
    """Gives up quickly and tries elsewhere, so that tries of one request meet."""
    client = writer.client
    stream = writer.somewhere()
    expected = client.known.get(stream) if writer.rng.random() < 0.5 else None
    identity = writer.rng.choice((Identity.KEY, Identity.EVENTS))
    made = client.operation("hasty", *stream, expected=expected, **writer.identified(identity))
    await client.settle(made, timeout_s=writer.rng.uniform(*HASTY_S))
    writer.remember(made)


async def race(writer: Writer) -> None:
    """At the length it knows, on a stream that others write too."""
    client, rng = writer.client, writer.rng
    stream = StreamName(writer._some_tenant(), *rng.choice(writer.workload.places.hot))
    if stream not in client.known:
        await plain_at(writer, stream)
    for _ in range(3):
        identity = rng.choice(list(Identity))
        made = client.operation(
            "race", *stream, expected=client.known.get(stream, 0), if_match=rng.random() < 0.3,
            **writer.identified(identity),
        )  # fmt: skip
        if await client.settle(made) is not Verdict.ABSENT:
            writer.remember(made)
            return


async def plain_at(writer: Writer, stream: StreamName) -> Verdict:
    made = writer.client.operation("plain", *stream, **writer.identified(Identity.KEY))
    return await writer.client.settle(made)


async def batch(writer: Writer) -> None:
    client, rng = writer.client, writer.rng
    stream = writer.somewhere()
    events = rng.randint(2, BATCH_EVENTS_MAX)
    expected = client.known.get(stream) if rng.random() < 0.3 else None
    identity = rng.choice((Identity.NONE, Identity.KEY, Identity.EVENTS))
    made = client.operation(
        "batch", *stream, events=events, batch=True, expected=expected, **writer.identified(identity, events)
    )
    await client.settle(made)
    writer.remember(made)


async def create(writer: Writer) -> None:
    """The gateway mints the aggregate's key."""
    client, events = writer.client, writer.rng.randint(1, 3)
    made = client.operation(
        "create", writer.tenant, ORDER, None, events=events, batch=True, **writer.identified(Identity.KEY)
    )
    await client.settle(made)
    writer.remember(made)


async def burst(writer: Writer) -> None:
    """Several at once at one length of one stream, at one gateway or at all of them: one may win."""
    client, rng = writer.client, writer.rng
    stream = StreamName(writer._some_tenant(), *rng.choice(writer.workload.places.hot))
    expected, identity = client.known.get(stream, 0), rng.choice((Identity.NONE, Identity.KEY))
    made = [
        client.operation("burst", *stream, expected=expected, **writer.identified(identity))
        for _ in range(BURST if rng.random() < 0.7 or identity is Identity.NONE else 1)
    ]
    one_gateway = client.pick() if rng.random() < 0.6 else None
    await asyncio.gather(  # of only one, the same request several times
        *(
            client.attempt(made[n % len(made)], one_gateway or client.pick(), caller=caller)
            for n, caller in enumerate(writer.spares)
        )
    )
    for each in made:
        if identity is Identity.KEY and each.verdict is Verdict.UNKNOWN:
            await client.settle(each)
        writer.remember(each)


async def ahead(writer: Writer) -> None:
    """Refused for what is not there yet; then it is there. The refused ones must never appear."""
    client, rng = writer.client, writer.rng
    streams = [
        StreamName(writer.tenant, ORDER, str(UUID(int=rng.getrandbits(128), version=4)))
        for _ in writer.spares
    ]

    async def each(stream: StreamName, caller: Caller) -> None:
        refused = client.operation("ahead", *stream, expected=rng.choice((AT_LEAST_ONE, 1)))
        await client.attempt(refused, client.pick(), caller=caller)
        wanted = client.operation("plain", *stream)
        await client.attempt(wanted, client.pick(), caller=caller)

    await asyncio.gather(*map(each, streams[: rng.randint(1, BURST)], writer.spares))


async def replay(writer: Writer) -> None:
    """What was acknowledged before is sent again, at any gateway: the same receipt."""
    if writer.workload.replayable:
        done = writer.rng.choice(writer.workload.replayable)
        await writer.client.attempt(done, writer.client.pick())


async def steal(writer: Writer) -> None:
    """Another request under an identity that is taken: refused, whatever else is true of it."""
    client, rng = writer.client, writer.rng
    taken = [each for each in writer.workload.replayable if not each.batch]
    if not taken:
        return
    victim = rng.choice(taken)
    thief = client.operation(
        "steal", victim.tenant, victim.aggregate_type, victim.key, identity=victim.identity,
        idempotency_key=victim.idempotency_key, event_ids=victim.event_ids, stolen=True,
    )  # fmt: skip
    await client.attempt(thief, client.pick())


ACTIONS: dict[Action, float] = {
    steady: 4,
    plain: 2,
    hasty: 2.5,
    race: 3,
    batch: 1.5,
    create: 0.5,
    burst: 1,
    ahead: 1.5,
    replay: 1.5,
    steal: 0.5,
}
