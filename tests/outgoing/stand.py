"""The processes of a campaign: a Redis, a Postgres, two gateways, two relays; and who kills them.

Owns: what runs, and which gateway is alive as a load balancer would know it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import asyncpg

from gateway.catalog.migrate import migrate
from gateway.dev.process import Command
from gateway.dev.service_process import ServiceProcess
from tests.faults.gateway_at import ROOT, GatewayAt
from tests.outgoing.bad import argv
from tests.support import warm
from tests.support.accounts import Account, open_account
from tests.support.servers import Server, Servers, servers_in

GATEWAYS = RELAYS = 2
LEASE_S = "1"
"""Short: another relay takes over what a killed one held while the campaign lasts."""
KILL_EVERY_S = (0.4, 2.0)
DOWN_S = (0.0, 1.5)
STOPPED = 0.3
"""So many are stopped and continued, in place of killed: for longer than others wait for them."""
STOPPED_S = (1.2 * float(LEASE_S), 3 * float(LEASE_S))
STOP_S = 20.0
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class RelayNode:
    """`sluice relay`, its log in a file."""

    argv: tuple[str, ...]
    number: int
    settings: dict[str, str]
    folder: Path
    stop_signals = (signal.SIGTERM, STOP_S, signal.SIGKILL)

    @property
    def name(self) -> str:
        return f"relay {self.number}"

    def command(self) -> Command:
        log = self.folder / f"relay-{self.number}.log"
        return Command(self.argv, signal.SIGKILL, cwd=ROOT, env=self.settings, log=log)

    def ready(self, pid: int) -> bool:
        return True

    def failed(self) -> None:
        return


class Mortal(Protocol):
    @property
    def keeper(self) -> ServiceProcess: ...

    async def start(self) -> None: ...

    def kill(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Gateway(GatewayAt):
    """`died` is set from its end to its next start."""

    def __init__(self, argv: tuple[str, ...], number: int, settings: dict[str, str], folder: Path) -> None:
        super().__init__(number, argv, settings, folder)
        self.died = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        await super().start()
        self.died.clear()

    def kill(self) -> None:
        super().kill()
        self.died.set()

    def pause(self) -> None:
        """SIGSTOP: a load balancer does not notice."""
        self.server.pause()

    def resume(self) -> None:
        self.server.resume()


@dataclass(slots=True)
class Stand:
    """`tenant` is whose events are read; the neighbour's lie between them, in the same partition."""

    servers: Servers
    gateways: list[Gateway]
    relays: list[Server]
    tenant: Account
    neighbour: Account

    @property
    def mortals(self) -> list[Mortal]:
        return [*self.gateways, *self.relays]

    def gateway(self, rng: random.Random) -> Gateway:
        """One that is alive, if any is."""
        return rng.choice([each for each in self.gateways if each.serves] or self.gateways)

    async def living(self, rng: random.Random) -> Gateway:
        """One that is alive, as soon as any is."""
        while not any(each.serves for each in self.gateways):
            await asyncio.sleep(POLL_S)
        return self.gateway(rng)

    def dead(self) -> list[str]:
        """Names of processes that have ended by themselves."""
        for each in self.mortals:
            if each.keeper.pid is not None:
                each.keeper.tick()
        return [each.keeper.name for each in self.mortals if each.keeper.pid is None]


@asynccontextmanager
async def open_stand(
    folder: Path,
    build: str | None = None,
    argv_of: Callable[[str | None, str], tuple[str, ...]] = argv,
    *,
    relay_count: int = RELAYS,
    gateways_relay: bool = False,
) -> AsyncIterator[Stand]:
    """All of it runs, and every gateway answers. It ends at once. `build` names a bad one, which `argv_of`
    starts (bad.py). With `gateways_relay`, gateways do what relays do too."""
    servers = servers_in(folder)
    try:
        await servers.start()
        await migrate(servers.postgres_url, 1)
        at = open_stand_at(
            servers, folder, build, argv_of, relay_count=relay_count, gateways_relay=gateways_relay
        )
        async with at as stand:
            yield stand
    finally:
        servers.close()


@asynccontextmanager
async def open_stand_at(
    servers: Servers,
    folder: Path,
    build: str | None = None,
    argv_of: Callable[[str | None, str], tuple[str, ...]] = argv,
    *,
    relay_count: int = RELAYS,
    gateways_relay: bool = False,
) -> AsyncIterator[Stand]:
    """The same at servers that run, whose database is migrated."""
    gateways: list[Gateway] = []
    relays: list[Server] = []
    try:
        async with asyncpg.create_pool(servers.postgres_url, min_size=0, max_size=2) as pool:
            tenant, neighbour = await open_account(pool), await open_account(pool)
        settings = _settings(servers)
        for number in range(GATEWAYS):
            own = settings | {"SLUICE_RELAY": "on" if gateways_relay else "off"}
            gateways.append(Gateway(argv_of(build, "serve"), number, own, folder))
        for number in range(relay_count):
            node = RelayNode(argv_of(build, "relay"), number, settings, folder)
            relays.append(Server(ServiceProcess(node, lambda _: None, warm.start)))
        await asyncio.gather(*(each.start() for each in (*gateways, *relays)))
        yield Stand(servers, gateways, relays, tenant, neighbour)
    finally:
        for gateway in gateways:
            gateway.close()
        for relay in relays:
            relay.kill()


def _settings(servers: Servers) -> dict[str, str]:
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("SLUICE_")}
    return inherited | {
        "SLUICE_POSTGRES_URL": servers.postgres_url,
        "SLUICE_REDIS_URL": servers.redis_url,
        "SLUICE_ALLOW_PRIVATE_TARGETS": "on",
        "SLUICE_RELAY_LEASE_S": LEASE_S,
    }


class Killer:
    """Kills gateways and relays in turns at random moments, one of a kind at a time; a while later it starts
    again. Some it stops instead, past every lease, and they continue as what they were."""

    def __init__(self, stand: Stand, seed: int) -> None:
        self._rng = random.Random(f"{seed}/killer")
        kinds: dict[str, Sequence[Mortal]] = {"gateway": stand.gateways, "relay": stand.relays}
        self._kinds = {kind: each for kind, each in kinds.items() if each}
        self._whole = dict.fromkeys(self._kinds, True)
        self.kills = dict.fromkeys(self._kinds, 0)
        self.stops = dict.fromkeys(self._kinds, 0)

    async def run(self, seconds: float) -> None:
        """Returns when that time is over and all are back."""
        loop = asyncio.get_running_loop()
        until, kinds = loop.time() + seconds, itertools.cycle(self._kinds)
        async with asyncio.TaskGroup() as coming_back:
            while True:
                await asyncio.sleep(min(self._rng.uniform(*KILL_EVERY_S), max(until - loop.time(), 0)))
                if loop.time() >= until:
                    return
                kind = next(kinds)
                victim, down_s = self._rng.choice(self._kinds[kind]), self._rng.uniform(*DOWN_S)
                if not self._whole[kind]:
                    continue
                self._whole[kind] = False
                if self.kills[kind] and self._rng.random() < STOPPED:
                    victim.pause()
                    self.stops[kind] += 1
                    coming_back.create_task(self._on(kind, victim, self._rng.uniform(*STOPPED_S)))
                else:
                    victim.kill()
                    self.kills[kind] += 1
                    coming_back.create_task(self._again(kind, victim, down_s))

    async def _again(self, kind: str, victim: Mortal, down_s: float) -> None:
        await asyncio.sleep(down_s)
        await victim.start()
        self._whole[kind] = True

    async def _on(self, kind: str, victim: Mortal, stopped_s: float) -> None:
        await asyncio.sleep(stopped_s)
        victim.resume()
        self._whole[kind] = True
