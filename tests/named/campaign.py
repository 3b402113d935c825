"""Rounds of files that are sent and changed, and of projects that are added to, until the time is over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from gateway.catalog.migrate import migrate
from tests.named.bad import argv
from tests.named.checker import Violation, check_blocks, check_numbers
from tests.named.files import SECRET, SOURCE, Files
from tests.named.projects import Projects
from tests.named.sending import Sender
from tests.outgoing.stand import Gateway
from tests.support.accounts import Account, open_account
from tests.support.records import source_of_units
from tests.support.servers import Servers, open_folder, servers_in

_MADE = {"events": {"was_made": {"schema": True}}}
FILES_SPEC: dict[str, Any] = {
    "aggregate_types": {
        "unit": {
            "identity": {"content": {"text": "$.data.text"}, "context": {"name": "$.data.name"}},
            "events": {"was_seen": {"schema": True}},
        }
    },
    "agent_types": ["user", "webhook"],
    "singletons": ["xliff_webhook"],
    "webhooks": {SOURCE: source_of_units(SECRET)},
}
PROJECTS_SPEC: dict[str, Any] = {
    "aggregate_types": {"project": _MADE, "character": _MADE, "timeline": _MADE},
    "agent_types": ["user"],
    "public_ids": {
        "projects": {"type": "project", "key": "$.data.key"},
        "member": {"character": "$.data.project_id", "timeline": "$.data.project_id"},
    },
}


@dataclass(frozen=True, slots=True)
class Size:
    files: int = 20
    units: int = 6
    senders: int = 40
    projects: int = 50
    writers: int = 40
    members: int = 3


@dataclass(frozen=True, slots=True)
class Result:
    seed: int
    rounds: int
    units: int
    events: int
    members: int
    requests: int
    deployed: dict[int, int]
    violations: Sequence[Violation]


async def run_campaign(seconds: float, seed: int, build: str | None) -> Result:
    """With servers of its own."""
    with open_folder() as folder:
        servers = servers_in(folder)
        with contextlib.closing(servers):
            await servers.start()
            return await run_at(servers, folder, seconds, seed, build)


async def run_at(
    servers: Servers, folder: Path, seconds: float, seed: int, build: str | None, size: Size | None = None
) -> Result:
    """One round at least."""
    size = size or Size()
    await migrate(servers.postgres_url, 4)
    settings = {name: text for name, text in os.environ.items() if not name.startswith("SLUICE_")}
    settings |= {"SLUICE_POSTGRES_URL": servers.postgres_url, "SLUICE_REDIS_URL": servers.redis_url}
    gateways = [Gateway(argv(build, "serve"), number, settings, folder) for number in range(2)]
    ends = time.monotonic() + seconds
    async with asyncpg.create_pool(servers.postgres_url, min_size=1, max_size=2) as pool:
        try:
            for each in gateways:
                await each.start()
            return await _rounds(pool, [each.url for each in gateways], ends, seed, size)
        finally:
            for each in gateways:
                each.close()


async def _rounds(pool: asyncpg.Pool, urls: Sequence[str], ends: float, seed: int, size: Size) -> Result:
    chance, found, rounds = random.Random(seed), list[Violation](), 0
    translating, writing = await open_account(pool, FILES_SPEC), await open_account(pool, PROJECTS_SPEC)
    async with _client(translating) as one, _client(writing) as other:
        sender, to_projects = Sender(one, urls), Sender(other, urls)
        await sender.until_known("unit")
        await to_projects.until_known("project")
        files = Files(sender, translating.id, translating.name, chance)
        projects = Projects(to_projects, chance)
        events: list[dict[str, Any]] = []
        while (rounds == 0 or time.monotonic() < ends) and not found:
            rounds += 1
            files.add(size.files if rounds == 1 else 1, size.units)
            await files.send(size.senders)
            files.change()
            await files.rename(pool)
            await files.send(size.senders)
            events = await _feed(sender)
            found += check_blocks(files.histories, await files.exported(), events, files.first_keys)
            await projects.make(size.projects if rounds == 1 else 1)
            await projects.write(size.writers, size.members)
            writing_on = projects.write(size.writers, size.members)
            await asyncio.gather(writing_on, projects.deploy(PROJECTS_SPEC))
            found += check_numbers(projects.members, await projects.aliases())
        harms = [Violation("answer", each) for each in (*sender.harms, *to_projects.harms)]
    return Result(
        seed, rounds, len(files.histories), len(events), sum(map(len, projects.members.values())),
        sender.requests + to_projects.requests, projects.deployed, [*harms, *found],
    )  # fmt: skip


def _client(of: Account) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {of.admin}"}
    return httpx.AsyncClient(timeout=60, trust_env=False, headers=headers)


async def _feed(sender: Sender) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    after = "beginning"
    while True:
        page = (await sender.get("/_/feed", after=after)).json()
        events += page["events"]
        after = page["position"]
        if page["caught_up"]:
            return events
