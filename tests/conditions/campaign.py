"""A campaign: clients at work at two gateways, while these and Redis are killed; then the check of all that
they were told against the committed feed."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import httpx

from gateway.catalog.migrate import migrate
from tests.conditions.bad import argv
from tests.conditions.checker import History
from tests.conditions.writers import SPEC, Clients
from tests.outgoing.stand import Gateway
from tests.support.accounts import open_account
from tests.support.bugs import bugs_in
from tests.support.servers import Servers

WRITERS = 40
SETTINGS = {
    "SLUICE_RELAY": "off",
    "SLUICE_DIRECT_AFTER_S": "0.3",
    "SLUICE_REDIS_RECOVERY_S": "1",
    "SLUICE_APPEND_DEADLINE_S": "4",
}


@dataclass(slots=True)
class Result:
    events: int
    answers: Counter[str]
    faults: Counter[str]
    races: int
    pages: int
    harms: list[str] = field(default_factory=list)


async def run_campaign(
    servers: Servers, folder: Path, seconds: float, seed: int, build: str | None = None
) -> Result:
    """With one race first. `build`: a known-bad one (bad.py)."""
    await migrate(servers.postgres_url, 1)
    async with asyncpg.create_pool(servers.postgres_url, min_size=1, max_size=1) as pool:
        account = await open_account(pool, SPEC)
    chance = random.Random(seed)
    settings = {name: text for name, text in os.environ.items() if not name.startswith("SLUICE_")}
    settings |= SETTINGS | {
        "SLUICE_POSTGRES_URL": servers.postgres_url,
        "SLUICE_REDIS_URL": servers.redis_url,
        # Below what an empty one takes: then streams are evicted all the time.
        **({"SLUICE_REDIS_BYTES_MAX": "1048576"} if seed % 2 else {}),
    }
    gateways = [Gateway(argv(build, "serve"), number, settings, folder) for number in range(2)]
    try:
        await asyncio.gather(*(each.start() for each in gateways))
        headers = {"authorization": f"Bearer {account.admin}"}
        async with httpx.AsyncClient(timeout=30, trust_env=False, headers=headers) as client:
            clients = Clients(client, gateways, random.Random(f"{seed}/clients"))
            faults = await _work(clients, servers, chance, seconds)
            rows = await clients.feed()
    finally:
        for gateway in gateways:
            gateway.close()
    history = History(rows, clients.told, clients.heard, clients.pages, clients.lengths)
    harms = history.check()
    if [row.id for row in rows] != await _stored(servers.postgres_url):
        harms.append("lost: the feed is not what is stored")
    harms += [f"bug: {line}" for line in bugs_in(folder)]
    answers = Counter(f"{told.status} {told.body.get('code', '')}".strip() for told in clients.told)
    return Result(len(rows), answers, faults, clients.races, len(clients.pages), harms)


async def _work(clients: Clients, servers: Servers, chance: random.Random, seconds: float) -> Counter[str]:
    await clients.race()
    async with asyncio.TaskGroup() as group:
        for _ in range(WRITERS):
            group.create_task(clients.write())
        group.create_task(clients.race_on())
        group.create_task(clients.follow())
        try:
            faults = await _disturb(servers, clients.gateways, chance, seconds)
        finally:
            clients.ended = True
    return faults


async def _disturb(
    servers: Servers, gateways: list[Gateway], chance: random.Random, seconds: float
) -> Counter[str]:
    """Returns when that time is over and all are back."""
    faults, ends = Counter[str](), time.monotonic() + seconds
    while True:
        await asyncio.sleep(chance.uniform(0.2, 1.0))
        if time.monotonic() > ends:
            return faults
        fault = chance.choice(("gateway", "gateway", "redis", "redis away", "redis paused", "redis wiped"))
        faults[fault] += 1
        down_s = chance.uniform(0, 1.5)
        match fault:
            case "gateway":
                victim = chance.choice(gateways)
                victim.kill()
                await asyncio.sleep(down_s / 3)
                await victim.start()
            case "redis":
                await servers.redis.restart()
            case "redis away":  # long enough for direct mode, as a rule
                servers.redis.kill()
                await asyncio.sleep(0.5 + down_s)
                await servers.redis.start()
            case "redis paused":
                servers.redis.pause()
                await asyncio.sleep(down_s)
                servers.redis.resume()
            case "redis wiped":  # all tags and streams are cold
                servers.wipe_redis()
                await servers.redis.start()


async def _stored(postgres_url: str) -> list[str]:
    connection = await asyncpg.connect(postgres_url)
    try:
        query = "SELECT id::text FROM outbox WHERE aggregate_type = 'box' ORDER BY p, seq"
        return [row["id"] for row in await connection.fetch(query)]
    finally:
        await connection.close()
