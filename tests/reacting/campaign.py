"""Orders that imply and expire, carts with a saga: two gateways and a relay, killed at random; Redis killed
or emptied, Postgres restarted; with `clocks` the clocks of all three step by an hour meanwhile. Before that,
scenes in which a bad build shows whatever chance brings."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import asyncpg
import httpx

from gateway.catalog.migrate import migrate
from gateway.config import Config
from gateway.dev.service_process import ServiceProcess
from tests.faults.gateway_at import CLOCK, OFFSET
from tests.outgoing.stand import Gateway, RelayNode
from tests.reacting.bad import argv
from tests.reacting.checker import Acknowledged, Row, Violation, check, lateness
from tests.reacting.spec import ACTOR, DELAY_S, SPEC
from tests.support import warm
from tests.support.accounts import open_account
from tests.support.bugs import bugs_in
from tests.support.servers import Server, Servers, open_folder, servers_in

GATEWAYS, WRITERS = 2, 16
ANSWERED_S = 90.0
"""An append that is not acknowledged for so long is stuck."""
STUCK_S = 20.0
"""Beyond a lease of 3 s, which the last gateway that was killed holds."""
ASKED_S = 5.0
"""Beyond it, or at random, a reservation is not answered in time."""
CLOCKS_S = (-3_600, 0, 3_600)
FAULTS = ("gateway",) * 5 + ("relay", "redis", "redis", "postgres", "gateway stopped", "relay stopped")
STOPPED_S = (1.2 * Config.relay_lease_s, 2.5 * Config.relay_lease_s)
"""Past every lease: what was held has another owner when it continues."""
# By Postgres' own clock, a moment before the commit: gateways' clocks are wrong.
STAMPED = "ALTER TABLE outbox ADD COLUMN campaign_at timestamptz DEFAULT clock_timestamp()"
STORED = """
SELECT seq, id::text, causation_id::text AS causation, aggregate_type, aggregate_id AS key, type,
    extract(epoch FROM campaign_at)::float8 AS stored_s
FROM outbox ORDER BY p, seq
"""
FIRED = "SELECT 1 FROM outbox WHERE aggregate_type = 'order' AND aggregate_id = $1 AND type = 'had_expired'"
# Its row moves with the place behind the trigger: who dies now has taken the step for good.
WAITS = "SELECT 1 FROM saga WHERE waits_type = 'stock' AND waits_key = $1"
LEFT = """
SELECT (SELECT count(*) FROM schedule WHERE state = 'pending') AS timers,
    (SELECT count(*) FROM saga WHERE state = 'running') AS sagas
"""


@dataclass(slots=True)
class Result:
    seed: int
    events: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    late_s: list[float] = field(default_factory=list)
    """Of each firing, in order."""
    violations: list[Violation] = field(default_factory=list)


class Campaign:
    """`build` is a known-bad one (bad.py), or None."""

    def __init__(
        self,
        servers: Servers,
        folder: Path,
        seed: int,
        build: str | None,
        *,
        clocks: bool,
        faults: Sequence[str],
    ) -> None:
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("SLUICE_")}
        urls = {"SLUICE_POSTGRES_URL": servers.postgres_url, "SLUICE_REDIS_URL": servers.redis_url}
        settings = inherited | urls
        self._servers = servers
        self._chance = random.Random(seed)
        self._seed = seed
        self._faults = faults
        self._gateways = [
            Gateway(argv(build, "serve"), number, settings, folder) for number in range(GATEWAYS)
        ]
        self._clocks = [each.set_clock for each in self._gateways] if clocks else []
        if clocks:
            file = folder / "relay.clock"
            settings = settings | {"PYTHONPATH": str(CLOCK), "FAULTS_CLOCK_FILE": str(file)}
            self._clocks.append(lambda offset_s: _set(file, offset_s))
        node = RelayNode(argv(build, "relay"), 0, settings, folder)
        self._relay = Server(ServiceProcess(node, lambda _: None, warm.start))
        self._under_way: set[str] = set()
        self._acknowledged: list[Acknowledged] = []
        self._ended = False
        self.result = Result(seed)

    async def run(self, seconds: float) -> Result:
        await migrate(self._servers.postgres_url, 4)
        async with asyncpg.create_pool(self._servers.postgres_url, min_size=1, max_size=1) as pool:
            await pool.execute(STAMPED)
            headers = {"Authorization": f"Bearer {(await open_account(pool, SPEC)).write}"}
        try:
            self._step_clocks()
            await asyncio.gather(*(each.start() for each in (*self._gateways, self._relay)))
            async with httpx.AsyncClient(timeout=30, trust_env=False, headers=headers) as client:
                await self._scenes(client)
                await self._work(client, seconds)
            await self._settled()
        finally:
            for gateway in self._gateways:
                gateway.close()
            self._relay.kill()
        return self.result

    async def _work(self, client: httpx.AsyncClient, seconds: float) -> None:
        writing = [asyncio.create_task(self._write(client, number)) for number in range(WRITERS)]
        try:
            await self._break(seconds)
            self._ended = True
            await asyncio.gather(*writing)
        finally:
            for task in writing:
                task.cancel()

    # ---- scenes ----

    async def _scenes(self, client: httpx.AsyncClient) -> None:
        """What chance brings about seldom: an order that is paid in time; a firing whose gateway dies just
        behind its append; a reservation that is refused once those who asked for it have died. And one that
        is granted, which it does bring about."""
        chance = random.Random(f"{self._seed}/scenes")
        keys = [str(UUID(int=chance.getrandbits(128), version=4)) for _ in range(4)]
        paid, expiring, refused, granted = keys
        for event in ("was_placed", "was_paid"):
            await self._append(client, chance, "order", paid, event)
        await self._append(client, chance, "order", expiring, "was_placed")
        await self._until(FIRED, expiring)
        await self._die()
        for cart, answer in ((refused, "reservation_failed"), (granted, "was_reserved")):
            await self._append(client, chance, "cart", cart, "was_checked_out")
            await self._until(WAITS, cart)
            if cart == refused:
                await self._die()
            await self._append(client, chance, "stock", cart, answer)

    async def _until(self, statement: str, key: str) -> None:
        """Returns as soon as the statement finds a row."""
        connection = await asyncpg.connect(self._servers.postgres_url)
        until = time.monotonic() + STUCK_S
        try:
            while not await connection.fetchval(statement, key):
                if time.monotonic() > until:
                    self._violated("stuck", f"{key}: nothing in {STUCK_S:.0f} s by {statement}")
                    return
                await asyncio.sleep(0.02)
        finally:
            await connection.close()

    async def _die(self) -> None:
        """Both gateways at once; returns when both are back."""
        for gateway in self._gateways:
            gateway.kill()
        await asyncio.gather(*(each.start() for each in self._gateways))

    # ---- faults ----

    async def _break(self, seconds: float) -> None:
        """Each kind of fault once at a time, the first kind first. Returns when that time is over and all are
        back."""
        ends = time.monotonic() + seconds
        async with asyncio.TaskGroup() as under_way:
            while time.monotonic() < ends:
                await asyncio.sleep(self._chance.uniform(0.3, 1.5))
                self._step_clocks()
                fault = self._chance.choice(self._faults) if self.result.faults else self._faults[0]
                if fault not in self._under_way:
                    self._under_way.add(fault)
                    self.result.faults[fault] += 1
                    under_way.create_task(self._fault(fault))

    async def _fault(self, fault: str) -> None:
        match fault:
            case "gateway":
                victim = self._chance.choice(self._gateways)
                victim.kill()
                await asyncio.sleep(self._chance.uniform(0, 0.5))
                await victim.start()
            case "relay":
                await self._relay.restart()
            case "gateway stopped":
                await self._stopped(self._chance.choice(self._gateways).server)
            case "relay stopped":
                await self._stopped(self._relay)
            case "redis":
                if self._chance.random() < 0.5:
                    self._servers.redis.kill()
                else:
                    self._servers.wipe_redis()
                await self._servers.redis.start()
            case _:
                await self._servers.postgres.restart()
        self._under_way.discard(fault)

    async def _stopped(self, victim: Server) -> None:
        victim.pause()
        await asyncio.sleep(self._chance.uniform(*STOPPED_S))
        victim.resume()

    def _step_clocks(self) -> None:
        for set_clock in self._clocks:
            set_clock(self._chance.choice(CLOCKS_S))

    # ---- clients ----

    async def _write(self, client: httpx.AsyncClient, number: int) -> None:
        chance = random.Random(f"{self._seed}/{number}")
        while not self._ended:
            key = str(UUID(int=chance.getrandbits(128), version=4))
            if number % 2:
                await self._append(client, chance, "order", key, "was_placed")
                if chance.random() < 0.5:
                    await asyncio.sleep(chance.uniform(0, 2 * DELAY_S))
                    await self._append(client, chance, "order", key, "was_paid")
            else:
                await self._append(client, chance, "cart", key, "was_checked_out")
                await self._asked(client, chance, key)
                luck = chance.random()
                if luck < 0.8:
                    answer = "was_reserved" if luck < 0.6 else "reservation_failed"
                    await self._append(client, chance, "stock", key, answer)

    async def _asked(self, client: httpx.AsyncClient, chance: random.Random, key: str) -> None:
        """Returns once the saga asks for a reservation, or does not for a while."""
        until = time.monotonic() + ASKED_S
        while time.monotonic() < until:
            await asyncio.sleep(0.1)
            with contextlib.suppress(httpx.HTTPError):
                url = f"{chance.choice(self._gateways).url}/stock/{key}"
                if (await client.get(url)).status_code == 200:
                    return

    async def _append(
        self, client: httpx.AsyncClient, chance: random.Random, of: str, key: str, event: str
    ) -> None:
        """One request, until it is answered 201."""
        headers = {"Idempotency-Key": f"{of}-{key}-{event}"}
        body = {"data": {}, "metadata": {"actor": ACTOR}}
        until = time.monotonic() + ANSWERED_S
        while time.monotonic() < until:
            living = [each for each in self._gateways if each.serves]
            if not living:
                await asyncio.sleep(0.05)
                continue
            url = f"{chance.choice(living).url}/{of}/{key}/{event}"
            try:
                response = await client.post(url, json=body, headers=headers)
            except httpx.HTTPError:
                await asyncio.sleep(0.05)
                continue
            if response.status_code == 201:
                self._acknowledged.append(Acknowledged(of, key, event))
                return
            if response.status_code not in (429, 503, 504):
                self._violated("refused", f"{of} {key} {event}: {response.status_code} {response.text}")
                return
            await asyncio.sleep(0.05)
        self._violated("stuck", f"{of} {key} {event} was not acknowledged in {ANSWERED_S:.0f} s")

    # ---- at rest ----

    async def _settled(self) -> None:
        """Nothing may be pending any more after a while, and no more is appended then."""
        connection = await asyncpg.connect(self._servers.postgres_url)
        before, since = None, time.monotonic()
        try:
            while before is None or any(before) or time.monotonic() - since < DELAY_S + 1:
                left = tuple(await connection.fetchrow(LEFT))
                if left != before:
                    before, since = left, time.monotonic()
                if time.monotonic() - since > STUCK_S:
                    told = "{} timers pending, {} sagas running, and no change".format(*left)
                    self._violated("stuck", f"{told} for {STUCK_S:.0f} s")
                    break
                await asyncio.sleep(0.1)
            rows = [Row(**row) for row in await connection.fetch(STORED)]
        finally:
            await connection.close()
        for gateway in self._gateways:
            gateway.keeper.tick()
            if gateway.keeper.pid is None:
                self._violated("dead", f"{gateway.keeper.name} ended by itself")
        self.result.events.update(row.type for row in rows)
        self.result.late_s = lateness(rows, DELAY_S)
        self.result.violations += check(rows, self._acknowledged, DELAY_S)
        for line in bugs_in(self._servers.folder):
            self._violated("bug", line)

    def _violated(self, kind: str, told: str) -> None:
        self.result.violations.append(Violation(kind, told))


def _set(file: Path, offset_s: int) -> None:
    with file.open("r+b" if file.exists() else "wb") as clock:
        clock.write(OFFSET.pack(offset_s))


async def run_campaign(
    seconds: float,
    seed: int,
    build: str | None = None,
    *,
    clocks: bool = False,
    faults: Sequence[str] = FAULTS,
) -> Result:
    """Raises what the campaign itself fails at; a violation is a result."""
    with open_folder() as folder:
        servers = servers_in(folder)
        try:
            await servers.start()
            return await Campaign(servers, folder, seed, build, clocks=clocks, faults=faults).run(seconds)
        finally:
            servers.close()
