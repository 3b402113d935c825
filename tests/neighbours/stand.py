"""A gateway as a process, its servers, a tenant to be hurt, and tenants that attack."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import resource
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from gateway.catalog.migrate import migrate
from tests.conftest import PARTITIONS
from tests.support.accounts import SPEC, Account, open_account
from tests.support.servers import open_folder, servers_in
from tests.support.serving import Child, child_serving

ROOT = Path(__file__).parents[2]
LIMIT_BYTES = 64 * 1024 * 1024
VICTIM_S = 120.0
ATTACKERS, ANOTHER = "127.0.0.1", "127.0.0.2"
"""The address that attacks come from, and one of which a gateway counts nothing else."""
USUAL_FILES = 1024
"""That a process may open unless more is set: a gateway asks for what it needs itself."""


@dataclass(slots=True)
class Stand:
    """`child` has served nothing yet: memory that one attack left behind would hide the next."""

    child: Child
    pool: asyncpg.Pool
    victim: Account

    @property
    def port(self) -> int:
        return self.child.served.port

    async def attacker(self, spec: dict[str, Any] | None = None) -> Account:
        """A new tenant: what one attack fills or breaks is no other's."""
        return await open_account(self.pool, spec or SPEC)


StartStand = Callable[[], AbstractAsyncContextManager[Stand]]


@asynccontextmanager
async def stands(**settings: str) -> AsyncIterator[StartStand]:
    """Starts gateways, one after the other, over the same servers."""
    with open_folder() as folder:
        servers = servers_in(folder)
        try:
            await servers.start()
            await migrate(servers.postgres_url, PARTITIONS)
            async with asyncpg.create_pool(servers.postgres_url, min_size=1, max_size=2) as pool:

                @asynccontextmanager
                async def start() -> AsyncIterator[Stand]:
                    urls = servers.postgres_url, servers.redis_url
                    async with contextlib.AsyncExitStack() as ending:
                        with _files(USUAL_FILES):
                            serving = child_serving(*urls, folder, **settings)
                            child = await ending.enter_async_context(serving)
                        yield Stand(child, pool, await open_account(pool))

                yield start
        finally:
            servers.close()


@contextlib.contextmanager
def _files(soft: int) -> Iterator[None]:
    """What is started meanwhile has this soft limit of open files."""
    earlier = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, earlier[1]), earlier[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, earlier)


# -- the victim


@dataclass(slots=True)
class Felt:
    """By the victim: seconds of each answer, and refusals in words."""

    seconds: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def at(self, part: float) -> float:
        """Seconds within which this part of all answers came."""
        ranked = sorted(self.seconds)
        return ranked[min(int(part * len(ranked)), len(ranked) - 1)] if ranked else float("inf")


@asynccontextmanager
async def victim(stand: Stand, address: str) -> AsyncIterator[Felt]:
    """Works from this address as long as this lasts; complete afterwards."""
    argv = [sys.executable, "-m", "tests.neighbours.victim", str(stand.port), stand.victim.admin, address]
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec(*argv, cwd=ROOT, limit=LIMIT_BYTES, **pipes)
    assert process.stdout is not None and process.stdin is not None
    felt = Felt()
    try:
        async with asyncio.timeout(VICTIM_S):
            assert await process.stdout.readline() == b"ready\n"
        yield felt
        process.stdin.close()
        async with asyncio.timeout(VICTIM_S):
            told = json.loads(await process.stdout.readline())
        felt.seconds, felt.refused = told["seconds"], told["refused"]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


# -- the gateway's memory


def rss_bytes(pid: int) -> int:
    return _status(pid, "VmRSS")


def forget_peak(pid: int) -> None:
    """From now on `peak_bytes` is of what comes."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    return _status(pid, "VmHWM")


def _status(pid: int, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024
