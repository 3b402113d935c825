"""Relays killed at random while a receiver fails at random: nothing is missed, nothing out of order."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.config import Config
from tests.edge.calls import new_id
from tests.relay.conftest import Bench, until
from tests.relay.receivers import SECRET, Answer, Delivery, WebReceiver, web_receiver

RELAYS = 2
WRITE_S = 8.0
LEASE_S = 1.0


class Relays:
    """`sluice relay` as processes that die and are started again."""

    def __init__(self, config: Config, log: Path) -> None:
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")},
            "SLUICE_POSTGRES_URL": config.postgres_url,
            "SLUICE_REDIS_URL": config.redis_url,
            "SLUICE_ALLOW_PRIVATE_TARGETS": "on",
            "SLUICE_RELAY_LEASE_S": str(LEASE_S),
        }
        self._log = log
        self._running: list[asyncio.subprocess.Process] = []
        self.kills = 0

    async def start(self) -> None:
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gateway", "relay", env=self._environ, stderr=log,
                stdin=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        self._running.append(process)

    async def kill_one(self) -> None:
        process = self._running.pop(random.randrange(len(self._running)))
        process.send_signal(signal.SIGKILL)
        await process.wait()
        self.kills += 1

    async def end(self) -> None:
        """In order, by SIGTERM."""
        for process in self._running:
            process.terminate()
        for process in self._running:
            # One that was just started may not listen to it yet.
            ended = await asyncio.wait_for(process.wait(), 20)
            assert ended in (0, -signal.SIGTERM), self._log.read_text()


@asynccontextmanager
async def relays(config: Config, log: Path) -> AsyncIterator[Relays]:
    made = Relays(config, log)
    for _ in range(RELAYS):
        await made.start()
    try:
        yield made
    finally:
        await made.end()


@pytest.mark.slow
async def test_relays_are_killed_and_a_receiver_fails_and_every_event_arrives_in_order(
    bench: Bench, config: Config, receiver: WebReceiver, tmp_path: Path
) -> None:
    def sometimes(_: Delivery) -> Answer:
        return Answer(500) if random.random() < 0.2 else Answer()

    async with web_receiver() as filtered:
        receiver.answer = filtered.answer = sometimes
        for name, there, wanted in (
            ("all", receiver, {}),
            ("cleared", filtered, {"event_types": ["was_cleared"]}),
        ):
            target = {"type": "webhook", "url": there.url, "secret": SECRET, "retry_s": [0.2] * 50}
            await bench.put(name, target, **wanted)
        keys = [new_id() for _ in range(20)]
        async with relays(config, tmp_path / "relays.log") as running:
            killing = asyncio.create_task(kill(running))
            appended = await write(bench, keys)
            await killing
            count = sum(map(len, appended.values()))
            await until(lambda: len({each.id for each in receiver.accepted}) >= count, 60)
            cleared = sum(len([each for each in lane if each == "was_cleared"]) for lane in appended.values())
            await until(lambda: len({each.id for each in filtered.accepted}) >= cleared, 60)
        assert running.kills >= 4
    assert count > 100
    check(receiver, {key: list(range(1, len(lane) + 1)) for key, lane in appended.items()})
    only = {
        key: [version for version, each in enumerate(lane, 1) if each == "was_cleared"]
        for key, lane in appended.items()
    }
    check(filtered, {key: lane for key, lane in only.items() if lane})


async def kill(running: Relays) -> None:
    until_s = time.monotonic() + WRITE_S
    while time.monotonic() < until_s:
        await asyncio.sleep(random.uniform(0.8, 1.6))
        await running.kill_one()
        await running.start()


async def write(bench: Bench, keys: list[str]) -> dict[str, list[str]]:
    """The event types of each aggregate, in order."""
    appended: dict[str, list[str]] = {key: [] for key in keys}
    until_s = time.monotonic() + WRITE_S
    while time.monotonic() < until_s:
        some = random.sample(keys, 5)
        event_type = random.choice(["was_noted", "was_cleared"])
        await bench.append(some, 1, event_type)
        for key in some:
            appended[key].append(event_type)
        await asyncio.sleep(0.02)
    return appended


def check(receiver: WebReceiver, wanted: dict[str, list[int]]) -> None:
    """First deliveries of each aggregate are in order and without gaps; each event has one id."""
    firsts: dict[str, list[int]] = {}
    ids: dict[tuple[str, int], set[str]] = {}
    for each in receiver.accepted:
        event = each.event
        lane = firsts.setdefault(event["key"], [])
        if event["version"] not in lane:
            lane.append(event["version"])
        ids.setdefault((event["key"], event["version"]), set()).add(each.id)
    assert firsts == {key: lane for key, lane in wanted.items() if lane}
    assert all(len(each) == 1 for each in ids.values())
