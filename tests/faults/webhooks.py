"""Webhooks on their two ways: providers that send deliveries with ids until each is answered, and receivers
of what subscriptions send out.

Owns: how a provider repeats, and what a receiver was given. A delivery is an operation like any other: its id
is its identity, and a 202 says that its event is committed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

from standardwebhooks import Webhook

from tests.faults.client import Client, record_delivery
from tests.faults.cluster import Cluster
from tests.faults.evidence import Row
from tests.faults.history import Identity, Operation, Try, Verdict, now
from tests.faults.reading import Streams
from tests.faults.spec import CONFIG, EVENT_TYPE, HOOK, HOOK_SECRET, ORDER
from tests.faults.wire import Answer, Caller
from tests.outgoing.checker import Arrival, Committed, Violation, Wanted, check_receiver
from tests.outgoing.readers import RETRY_S, Receiver
from tests.relay.receivers import SECRET, Delivery, web_receiver
from tests.relay.receivers import Answer as Told

SENDERS = 2
PAUSE_S = (0.02, 0.2)
AGAIN_S = (0.01, 0.3)
PATIENCE_S = (0.5, 6.0)
REPEATED = 0.2
"""So many deliveries are sent again although they were answered, as providers do."""
FAILING = 0.05
"""So much of what arrives is refused: enough for repeats, and no brake."""
QUIET_S = 12.0
"""Receivers who are given nothing for so long, and have not all, never will."""
SUBSCRIBING_S = 30.0
WANTED = (Wanted(), Wanted(types=frozenset((CONFIG,))))
"""Of the first tenants, a subscription each."""


class Provider:
    """Sends one delivery after the other; each again and again until it is answered."""

    def __init__(self, client: Client, places: Streams, stopping: asyncio.Event) -> None:
        self.client = client
        self._places = places
        self._stopping = stopping

    async def run(self) -> None:
        rng = self.client.rng
        while not self._stopping.is_set():
            tenant = rng.randrange(len(self.client.cluster.tenants))
            _, key = rng.choice(self._places.many)
            delivery = self.client.operation(
                "webhook", tenant, ORDER, key, identity=Identity.KEY,
                idempotency_key=f"{self.client.name}-{rng.getrandbits(64):x}",
            )  # fmt: skip
            body = {"op": f"{delivery.id}#0", "key": key, "s": "caf\u00e9"}
            delivery.payloads = (json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode(),)
            await self._deliver(delivery)
            await asyncio.sleep(rng.uniform(*PAUSE_S))

    async def _deliver(self, delivery: Operation) -> None:
        client, rng = self.client, self.client.rng
        gateway = client.pick()
        while True:
            await self.attempt(delivery, gateway.number, gateway.port, rng.uniform(*PATIENCE_S))
            settled = delivery.verdict is Verdict.COMMITTED
            if settled and rng.random() >= REPEATED:
                return
            if client.giving_up_at is not None and now() > client.giving_up_at:
                return
            await asyncio.sleep(rng.uniform(*AGAIN_S))
            gateway = client.pick(avoid=gateway.number)

    async def attempt(self, delivery: Operation, gateway: int, port: int, timeout_s: float) -> None:
        client, one = self.client, Try(gateway, now())
        delivery.tries.append(one)
        tenant = client.cluster.tenants[delivery.tenant]
        body = delivery.payloads[0]
        answer = await client.caller.call(
            port, "POST", f"/_/webhooks/{tenant.name}/{HOOK}",
            signed(body, delivery.idempotency_key or ""), body, timeout_s=timeout_s,
        )  # fmt: skip
        if not isinstance(answer, Answer):
            one.why, one.reached = answer.why, answer.reached
            return
        one.answered, one.status, told = now(), answer.status, json.loads(answer.body)
        record_delivery(one, told)
        if one.status not in (201, 504):
            client.history.odd.append(f"{delivery.id}: {answer.status} {told}")


def signed(body: bytes, delivery_id: str, secret: str = HOOK_SECRET) -> list[tuple[str, str]]:
    """Headers as the source of spec.py has them: no time in them, which a gateway's clock would judge."""
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return [("X-Hook-Signature", digest), ("X-Hook-Delivery", delivery_id)]


class Steady(Receiver):
    """A receiver that does not judge the time of a signature: the signer's clock is wrong now and then."""

    def signed(self, delivery: Delivery) -> bool:
        at = datetime.fromtimestamp(math.floor(float(delivery.headers["webhook-timestamp"])), UTC)
        expected = Webhook(SECRET).sign(delivery.id, at, delivery.body.decode())
        return expected in delivery.headers["webhook-signature"].split(" ")

    def answer(self, delivery: Delivery) -> Told:
        accepted = self._rng.random() >= FAILING
        event_id = json.loads(delivery.body)["id"]
        self.arrivals.append(Arrival(delivery.id, event_id, delivery.body, accepted, self.signed(delivery)))
        if accepted:
            self.accepted.add(event_id)
        return Told() if accepted else Told(self._rng.choice((500, 503)))


class Receivers:
    """Of a run: receiver n has the subscription of tenant n."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._all = [Steady(f"webhook of tenant {n}", each, seed) for n, each in enumerate(WANTED)]

    async def subscribe(self, closing: AsyncExitStack) -> None:
        for number, receiver in enumerate(self._all):
            server = await closing.enter_async_context(web_receiver())
            server.answer = receiver.answer
            named = {"types": sorted(receiver.wanted.types)} if receiver.wanted.types else {}
            document = {
                "filter": named,
                "start": "beginning",
                "target": {"type": "webhook", "url": server.url, "secret": SECRET, "retry_s": RETRY_S},
            }
            await self._put(self._cluster.tenants[number].admin, json.dumps(document).encode())

    async def _put(self, key: str, document: bytes) -> None:
        caller, told = Caller(), None
        until = now() + SUBSCRIBING_S
        headers = [("Authorization", f"Bearer {key}")]
        while now() < until:
            port = self._cluster.gateways[0].port
            told = await caller.call(port, "PUT", "/_/subscriptions/out", headers, document, timeout_s=10)
            if isinstance(told, Answer) and told.status < 300:
                caller.close()
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"the subscription was refused: {told}")

    async def until_all(self, rows: Sequence[Row]) -> None:
        """Returns once nothing more has to come, or nothing has come for too long."""
        wanted = {
            each.name: {row.id for row in each.wanted.of(self._of(n, rows))} for n, each in self._each()
        }
        got, at = -1, now()
        while now() - at < QUIET_S and any(wanted[each.name] - each.accepted for _, each in self._each()):
            arrived = sum(len(each.arrivals) for _, each in self._each())
            if arrived != got:
                got, at = arrived, now()
            await asyncio.sleep(0.05)

    def found(self, rows: Sequence[Row], *, whole: bool, but: frozenset[int]) -> list[Violation]:
        """What is wrong with what was given, where `rows` are committed. Unless it is `whole`, more is to
        come. Of partitions `but` nothing is said."""
        violations: list[Violation] = []
        for number, each in self._each():
            if self._cluster.tenants[number].partition not in but:
                told = check_receiver(each.name, each.wanted.of(self._of(number, rows)), list(each.arrivals))
                violations += [one for one in told if whole or one.kind != "lost"]
        return violations

    def _each(self) -> Sequence[tuple[int, Steady]]:
        return list(enumerate(self._all))

    @staticmethod
    def _of(tenant: int, rows: Sequence[Row]) -> list[Committed]:
        return [
            Committed(
                row.seq, row.event_id, row.stream.aggregate_type, row.stream.key, row.version, EVENT_TYPE
            )
            for row in rows
            if row.stream.tenant == tenant
        ]


@asynccontextmanager
async def receivers(cluster: Cluster, seed: int) -> AsyncIterator[Receivers]:
    """At work inside, each with its subscription from the beginning."""
    made = Receivers(cluster, seed)
    async with AsyncExitStack() as closing:
        await made.subscribe(closing)
        yield made
