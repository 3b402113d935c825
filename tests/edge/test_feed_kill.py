"""Gateways killed at random while events are appended and followed: nothing is skipped, nothing twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from gateway.client import Actor, AsyncClient, Event, PositionFile
from gateway.config import Config
from tests.edge.accounts import Account
from tests.edge.calls import new_event_id, new_id
from tests.edge.serving import until_ready

ADA = Actor("user", "global")
WRITERS = 16
KILLS = 4
DEADLINE_S = 100.0


class Mortal:
    """A gateway process on one port, started again after each death. Connections wait meanwhile."""

    def __init__(self, config: Config, log_file: Path) -> None:
        self._log_file = log_file
        self._listening = socket.socket(proto=socket.IPPROTO_TCP)
        self._listening.bind(("127.0.0.1", 0))
        self._listening.listen(128)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._settings = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")},
            "SLUICE_POSTGRES_URL": config.postgres_url,
            "SLUICE_REDIS_URL": config.redis_url,
            "SLUICE_LISTEN_FD": str(self._listening.fileno()),
        }
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log_file.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gateway", "serve",
                env=self._settings,
                pass_fds=(self._listening.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                stderr=log,
            )  # fmt: skip
        await until_ready(self.url)

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def end(self) -> None:
        await self.kill()
        self._listening.close()


@pytest.fixture
async def gateways(own_config: Config, tmp_path: Path) -> AsyncIterator[tuple[Mortal, Mortal]]:
    pair = Mortal(own_config, tmp_path / "one.log"), Mortal(own_config, tmp_path / "two.log")
    try:
        await asyncio.gather(*(each.start() for each in pair))
        yield pair
    finally:
        await asyncio.gather(*(each.end() for each in pair))


async def write(sluice: AsyncClient, done: asyncio.Event) -> int:
    """How many events; each call of the client is repeated until it is answered."""
    count, key = 0, new_id()
    while not done.is_set():
        await sluice.append("order", key, "was_noted", count, actor=ADA)
        await sluice.append_many("order", key, [("was_cleared", {}), ("was_noted", count)], actor=ADA)
        await sluice.append("ticket", new_id(), "was_opened", {"n": count}, actor=ADA)
        count += 4
    return count


async def seen_by(events: AsyncGenerator[Event, None], seen: list[str], last: str) -> None:
    async with contextlib.aclosing(events) as closing:
        async for event in closing:
            seen.append(event.id)
            if event.id == last:
                return


async def seen_by_many(sluice: AsyncClient, saved: PositionFile, seen: list[str], last: str) -> None:
    """Each follower dies after a few hundred events, and the next one goes on where its position says."""
    while True:
        async with contextlib.aclosing(sluice.follow(saved)) as events:
            count = random.randrange(1, 300)
            async for event in events:
                seen.append(event.id)
                count -= 1
                if event.id == last:
                    return
                if count <= 0:
                    break


async def test_followers_of_dying_gateways_see_every_event_once_and_in_order(
    gateways: tuple[Mortal, Mortal], own_tenant: Account, own_outbox: asyncpg.Pool, tmp_path: Path
) -> None:
    one, two = gateways
    done, last = asyncio.Event(), new_event_id()
    everything: list[str] = []
    tickets: list[str] = []
    resumed: list[str] = []
    async with (
        asyncio.timeout(DEADLINE_S),
        AsyncClient(one.url, own_tenant.write) as first,
        AsyncClient(two.url, own_tenant.write) as second,
    ):
        following = asyncio.gather(
            seen_by(first.follow(), everything, last),
            seen_by(second.follow(types=["ticket"]), tickets, last),
            seen_by_many(second, PositionFile(tmp_path / "position"), resumed, last),
        )
        writing = asyncio.gather(*(write(first if n % 2 else second, done) for n in range(WRITERS)))
        for _ in range(KILLS):
            dying = random.choice(gateways)
            enough = len(everything) + random.randrange(50, 500)
            while len(everything) < enough:
                assert not following.done(), following.exception()
                await asyncio.sleep(0.01)
            await dying.kill()
            await dying.start()
        done.set()
        written = sum(await writing)
        await first.append("ticket", new_id(), "was_opened", {}, actor=ADA, event_id=last)
        await following
    rows = await own_outbox.fetch(
        "SELECT id, aggregate_type FROM outbox WHERE tenant = $1 ORDER BY p, seq", own_tenant.id
    )
    committed = [str(row["id"]) for row in rows]
    assert len(committed) == written + 1
    assert everything == committed
    assert tickets == [str(row["id"]) for row in rows if row["aggregate_type"] == "ticket"]
    # What a follower that died had not saved as processed came again.
    assert list(dict.fromkeys(resumed)) == committed
