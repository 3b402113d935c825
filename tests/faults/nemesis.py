"""The nemesis: one or two faults at a time, healed, and then how long it takes until everything works again.

Owns: which faults, in which order and for how long (by its seed), and what counts as recovered.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack

from tests.faults.client import Client
from tests.faults.cluster import Cluster
from tests.faults.cpu_wait import CpuWait
from tests.faults.gateway_at import GatewayAt
from tests.faults.history import Fault, History, Identity, Recovery, StreamName, Verdict, now
from tests.faults.injections import INJECTIONS, Injection, Scene
from tests.faults.spec import CONFIG, SINGLETONS
from tests.faults.wire import Caller

HOLD_LEAST_S = 0.05
CALM_S = (0.1, 0.8)
TWO_AT_ONCE = 0.4
GIVE_UP_S = 20.0
"""A partition that takes longer is stuck."""


class Nemesis:
    """`names` are the faults that may be injected; `forget` has clients forget
    what they know of partitions that were rewound."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        seed: int,
        names: Sequence[str],
        forget: Callable[[frozenset[int]], None],
    ) -> None:
        self._forget = forget
        self._cluster = cluster
        self._history = history
        self._rng = random.Random(f"{seed}/nemesis")
        self._deck = self._shuffled(
            [INJECTIONS[name] for name in names for _ in range(INJECTIONS[name].weight)]
        )
        self._probes = Client("probe", cluster, history, random.Random(f"{seed}/probe"))

    def _shuffled(self, injections: list[Injection]) -> Iterator[Injection]:
        """Each of them as often as its weight says before any of them again."""
        while True:
            self._rng.shuffle(injections)
            yield from list(injections)

    async def run(self, until: float) -> None:
        """Rounds of faults until that time; all is healed and recovered afterwards."""
        while now() < until:
            await self._round(until)
            await asyncio.sleep(self._rng.uniform(*CALM_S))

    async def _round(self, until: float) -> None:
        chosen = [next(self._deck)]
        if self._rng.random() < TWO_AT_ONCE:
            other = next(self._deck)
            if not other.touches & chosen[0].touches:
                chosen.append(other)
        # What concerns gateways is healed last: they start only where the servers are.
        chosen.sort(key=lambda each: "gateways" not in each.touches)
        faults: list[Fault] = []
        async with AsyncExitStack() as stack:
            for injection in chosen:
                scene = Scene(self._cluster, self._rng, self._history, self._forget)
                fault = Fault(injection.name, now(), splits=injection.splits)
                self._history.faults.append(fault)
                faults.append(fault)
                stack.callback(_note, fault, scene)
                await stack.enter_async_context(injection.inject(scene))
                await asyncio.sleep(self._rng.uniform(0, 0.3))
            if all(each.goes_on for each in chosen):
                await self.recovered(tuple(f"{each.name}, in force" for each in chosen))
            hold_s = self._rng.uniform(*max(each.hold_s for each in chosen))
            await asyncio.sleep(min(hold_s, max(until - now(), HOLD_LEAST_S)))
        for fault in faults:
            fault.ended = now()
        await self.recovered(tuple(fault.name for fault in faults))

    async def recovered(self, after: tuple[str, ...]) -> None:
        """Appends to every partition at every gateway, and notes how long that took from now on."""
        begun, waiting = now(), CpuWait.begin()
        self._probes.giving_up_at = begun + GIVE_UP_S
        tenant_in = {tenant.partition: n for n, tenant in enumerate(self._cluster.tenants)}
        stuck = await asyncio.gather(
            *(
                self._accepts(gateway, partition, tenant)
                for gateway in self._cluster.gateways
                if gateway.takes_appends
                for partition, tenant in tenant_in.items()
            )
        )
        took_s, starved_s = now() - begun, waiting.because_of_others_s()
        self._history.recoveries.append(Recovery(begun, after, took_s, tuple(filter(None, stuck)), starved_s))

    async def _accepts(self, gateway: GatewayAt, partition: int, tenant: int) -> str | None:
        """None once it did; else what is stuck."""
        probe = self._probes
        made = probe.operation(
            "probe", *StreamName(tenant, CONFIG, SINGLETONS[0]), identity=Identity.KEY,
            idempotency_key=f"probe-{self._rng.getrandbits(64):x}",
        )  # fmt: skip
        caller = Caller()
        try:
            while now() < (probe.giving_up_at or 0):
                await probe.attempt(made, gateway, timeout_s=GIVE_UP_S, caller=caller)
                if made.verdict is Verdict.COMMITTED:
                    return None
                await asyncio.sleep(0.02)
        finally:
            caller.close()
        return (
            f"partition {partition} at gateway {gateway.number}: {made.tries[-1].code or made.tries[-1].why}"
        )


def _note(fault: Fault, scene: Scene) -> None:
    fault.told = "; ".join(scene.told)
