"""Writers on some long streams and many short ones, through two gateways, while handlers and upcasters are
deployed again and again, gateways are killed and Redis is lost; all states that are read meanwhile are held
against folds of what is committed.

Between two stretches of it Postgres falls back to a copy that lacks what was committed since, with the kept
states that it had: a cache may be anything.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import httpx

from gateway.catalog import specs
from tests.outgoing.stand import Gateway, Killer, Stand, open_stand
from tests.states.bad import argv
from tests.states.checker import History, Read, Variant, Violation, check, committed, spec_of
from tests.support.bugs import bugs_in
from tests.support.calls import ACTOR, new_id
from tests.support.servers import open_folder

WRITERS, READERS = 4, 8
LONG, SHORT = 3, 100
LONG_EVENTS_MAX = 3_000
"""A stream of so many has had its time; another one takes its place."""
PAUSE_S = (0.0, 0.1)
STRETCH_S = 8.0
DEPLOY_EVERY_S = (0.1, 0.8)
LOSE_EVERY_S = (1.0, 4.0)
STEPS_MAX = 12
FACTORS = 4
"""So few that handlers come back which were deployed before."""
QUERIES = (
    "", "", "?synchronous=true", "?consistency=strong",
    "?at_length={}", "?at_length={}", "?at_length={}&consistency=strong",
)  # fmt: skip


@dataclass(slots=True)
class Result:
    seed: int
    committed: int = 0
    reads: int = 0
    refused: int = 0
    deployed: int = 0
    kept: int = 0
    kills: int = 0
    redis_lost: int = 0
    histories_lost: int = 0
    violations: list[Violation] = field(default_factory=list)


class Campaign:
    """`faults`: gateways are killed and Redis is lost."""

    def __init__(self, stand: Stand, seed: int, *, faults: bool = True) -> None:
        self._stand = stand
        self._faults = faults
        self._rng = random.Random(f"{seed}/states")
        self._long = [new_id() for _ in range(LONG)]
        self._short = [new_id() for _ in range(SHORT)]
        self._lengths: dict[str, int] = {}
        """Of streams, for certain."""
        self._variant = Variant(1, ())
        self._reads: list[Read] = []
        self._ended = self._fell_back = False
        self._headers = {"authorization": f"Bearer {stand.tenant.admin}"}
        self.result = Result(seed)

    async def run(self, seconds: float) -> Result:
        """Stretches of at most STRETCH_S; behind each second one Postgres loses it."""
        async with httpx.AsyncClient(headers=self._headers, timeout=15, trust_env=False) as client:
            await self._deploy(client)
            left, stretch = seconds, 0
            while left > 0:
                await self._stretch(client, min(STRETCH_S, left), stretch)
                left, stretch = left - STRETCH_S, stretch + 1
                if left > 0:
                    await (self._copy() if stretch % 2 else self._fall_back())
                self._fell_back = stretch % 2 == 0
        return self.result

    async def _stretch(self, client: httpx.AsyncClient, seconds: float, number: int) -> None:
        self._ended = False
        async with asyncio.TaskGroup() as group:
            for each in range(WRITERS):
                group.create_task(self._write(client, random.Random(self._rng.random() + each)))
            for each in range(READERS):
                group.create_task(self._read_on(client, random.Random(self._rng.random() + each)))
            group.create_task(self._deploy_on(client, STRETCH_S / 3 if self._fell_back else 0.0))
            if self._faults:
                group.create_task(self._lose_redis())
                killer = Killer(self._stand, self.result.seed * 1000 + number)
                await killer.run(seconds)
                self.result.kills += killer.kills["gateway"]
            else:
                await asyncio.sleep(seconds)
            self._ended = True
        await self._look_at_all(client)
        await self._check()

    async def _check(self) -> None:
        conn = await asyncpg.connect(self._stand.servers.postgres_url)
        history = await committed(conn, self._stand.tenant.id)
        await conn.close()
        self._check_lengths(history)
        self.result.violations += check(history, self._reads)
        for line in bugs_in(self._stand.servers.folder):
            self._violated("bug", line)
        self.result.reads += len(self._reads)
        self.result.committed = sum(map(len, history.events.values()))
        self.result.kept = max(self.result.kept, history.kept)
        self._reads.clear()

    def _check_lengths(self, history: History) -> None:
        for key, length in self._lengths.items():
            if len(history.events.get(key, ())) < length:
                self._violated("lost", f"{key} had {length}, has {len(history.events.get(key, ()))}")

    # -- at work

    async def _write(self, client: httpx.AsyncClient, rng: random.Random) -> None:
        while not self._ended:
            if rng.random() < 0.5:
                slot = rng.randrange(LONG)
                if self._lengths.get(self._long[slot], 0) > LONG_EVENTS_MAX:
                    self._long[slot] = new_id()
                await self._append(client, rng, self._long[slot], rng.randrange(50, 300))
            else:
                await self._append(client, rng, rng.choice(self._short), rng.randrange(1, 4))
            await asyncio.sleep(rng.uniform(*PAUSE_S))

    async def _append(self, client: httpx.AsyncClient, rng: random.Random, key: str, count: int) -> None:
        gateway = await self._stand.living(rng)
        body = {"events": [_event(rng) for _ in range(count)], "metadata": {"actor": ACTOR}}
        try:
            response = await client.post(f"{gateway.url}/counter/{key}", json=body)
        except httpx.TransportError:
            return
        if response.status_code == 201:
            self._lengths[key] = max(self._lengths.get(key, 0), response.json()["length"])
        elif response.status_code not in (503, 504):
            self._violated("append", f"{response.status_code} {response.text}")

    async def _read_on(self, client: httpx.AsyncClient, rng: random.Random) -> None:
        while not self._ended:
            if self._lengths:
                known = [key for key in self._long if key in self._lengths]
                key = rng.choice(known if known and rng.random() < 0.7 else [*self._lengths])
                await self._read(client, await self._stand.living(rng), key, rng.choice(QUERIES), rng)
            await asyncio.sleep(rng.uniform(*PAUSE_S))

    async def _read(
        self, client: httpx.AsyncClient, gateway: Gateway, key: str, query: str, rng: random.Random
    ) -> None:
        exact, least = "at_length" in query, self._lengths[key]
        if exact:
            least = rng.randrange(1, least + 1)
        path = f"/counter/{key}{query.format(least)}"
        try:
            response = await client.get(gateway.url + path)
        except httpx.TransportError:
            return
        if response.status_code == 200:
            told, (length, spec) = response.json(), _etag(response.headers["etag"])
            if told["metadata"]["length"] != length:
                self._violated("length", f"{path}: {told['metadata']} under {length}")
            self._reads.append(Read(path, key, spec, length, told["data"], least, exact))
        elif response.status_code in (503, 504):
            self.result.refused += 1
        else:
            self._violated("read", f"{path}: {response.status_code} {response.text}")

    async def _look_at_all(self, client: httpx.AsyncClient) -> None:
        """At rest, each stream by each gateway."""
        keys = [key for key in (*self._long, *self._short[:3]) if key in self._lengths]
        async with asyncio.TaskGroup() as group:
            for gateway in self._stand.gateways:
                for key in keys:
                    for query in ("", "?at_length={}"):
                        group.create_task(self._read(client, gateway, key, query, self._rng))

    # -- what changes, and what is lost

    async def _deploy_on(self, client: httpx.AsyncClient, first_s: float) -> None:
        pause_s = first_s
        while not self._ended:
            await asyncio.sleep(pause_s)
            pause_s = self._rng.uniform(*DEPLOY_EVERY_S)
            factor, steps = self._variant
            match self._rng.randrange(4):
                case 0 if len(steps) < STEPS_MAX:
                    steps = (*steps, self._rng.randrange(1, FACTORS))
                case 1 if steps:
                    n = self._rng.randrange(len(steps))
                    steps = (*steps[:n], self._rng.randrange(1, FACTORS), *steps[n + 1 :])
                case _:
                    factor = self._rng.randrange(1, FACTORS + 1)
            self._variant = Variant(factor, steps)
            await self._deploy(client)

    async def _deploy(self, client: httpx.AsyncClient) -> None:
        """May be in vain: what was deployed, Postgres says."""
        gateway = await self._stand.living(self._rng)
        try:
            response = await client.put(f"{gateway.url}/_/spec?force=true", json=spec_of(self._variant))
        except httpx.TransportError:
            return
        if response.status_code == 200:
            self.result.deployed += 1
        elif response.status_code not in (503, 504):
            self._violated("deployment", f"{response.status_code} {response.text}")

    async def _deploy_behind(self) -> None:
        """What was deployed last, before any gateway can make stale states of other handlers again."""
        async with asyncpg.create_pool(self._stand.servers.postgres_url, min_size=0, max_size=1) as pool:
            document = json.dumps(spec_of(self._variant)).encode()
            done = await specs.deploy(pool, UUID(self._stand.tenant.id), document, {}, force=True)
        assert isinstance(done, specs.Accepted), done

    async def _lose_redis(self) -> None:
        while not self._ended:
            await asyncio.sleep(self._rng.uniform(*LOSE_EVERY_S))
            if self._ended:
                return
            if self._rng.random() < 0.5:
                self._stand.servers.wipe_redis()
                await self._stand.servers.redis.start()
            else:
                await self._stand.servers.redis.restart()
            self.result.redis_lost += 1

    async def _copy(self) -> None:
        """Postgres is down meanwhile."""
        servers = self._stand.servers
        servers.postgres.kill()
        shutil.rmtree(self._copied, ignore_errors=True)
        subprocess.run(["cp", "-a", servers.postgres_server.data, self._copied], check=True)
        await servers.postgres.start()

    async def _fall_back(self) -> None:
        """To the copy, with the kept states of what is lost; Redis and all gateways forget it too."""
        servers = self._stand.servers
        for gateway in self._stand.gateways:
            gateway.kill()
        conn = await asyncpg.connect(servers.postgres_url)
        kept = await conn.fetch("SELECT * FROM kept_state")
        await conn.close()
        servers.wipe_redis()
        servers.postgres.kill()
        shutil.rmtree(servers.postgres_server.data)
        subprocess.run(["cp", "-a", self._copied, servers.postgres_server.data], check=True)
        await asyncio.gather(servers.redis.start(), servers.postgres.start())
        conn = await asyncpg.connect(servers.postgres_url)
        await conn.execute("DELETE FROM kept_state")
        await conn.copy_records_to_table("kept_state", records=[tuple(row) for row in kept])
        rows = await conn.fetch("SELECT aggregate_id, max(version) AS length FROM outbox GROUP BY 1")
        await conn.close()
        await self._deploy_behind()
        self._lengths = {row["aggregate_id"]: row["length"] for row in rows}
        await asyncio.gather(*(gateway.start() for gateway in self._stand.gateways))
        self.result.histories_lost += 1

    @property
    def _copied(self) -> Path:
        return self._stand.servers.postgres_server.data.with_name("copied")

    def _violated(self, kind: str, told: str) -> None:
        self.result.violations.append(Violation(kind, told))


def _event(rng: random.Random) -> dict[str, Any]:
    if rng.random() < 0.2:
        return {"type": "was_moved", "data": {"way": rng.randrange(100)}}
    n = rng.randrange(1000)
    return {"type": "was_added", "data": {"n": n, "group": n % 7}}


def _etag(text: str) -> tuple[int, int]:
    """The length, and the revision of the spec."""
    length, revision = text.strip('"').split(".")[:2]
    return int(length), int(revision.removeprefix("r"))


async def run_campaign(seconds: float, seed: int, build: str | None = None) -> Result:
    """Raises what the campaign itself fails at; a violation is a result."""
    with open_folder() as folder:
        async with open_stand(Path(folder), build, argv, relay_count=0) as stand:
            return await Campaign(stand, seed).run(seconds)
