"""Deliveries in parallel, many of them twice, while gateway and Redis are killed: each becomes one event.

    python -m tests.inbound.storm [DELIVERIES] [--duplicates 0.3] [--senders 32] [--kills 6]

Runs `sluice dev` in a folder of its own, sends until every delivery has its 202 as a patient provider does,
and compares what senders were told with what Postgres holds. Prints what it found; exits 1 where that is not
exactly one event a delivery.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import hmac
import itertools
import json
import os
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from tests.http.webhooks import declared
from tests.support.ports import free_port
from tests.support.servers import open_folder

SECRET = b"storm"
PATH = "/_/webhooks/main/github"
START_S = 120.0
DELIVERY_S = 120.0
PAUSE_S = 0.1
SPEC = declared(github={"provider": "github", "secrets": [SECRET.decode()]})


@dataclass(slots=True)
class Told:
    """What senders were told, by delivery id: (event id, whether it came before)."""

    answers: dict[str, list[tuple[str, bool]]] = field(default_factory=lambda: defaultdict(list))
    again: int = 0
    latencies_s: list[float] = field(default_factory=list)

    @property
    def settled(self) -> int:
        return len(self.latencies_s)


@dataclass(frozen=True, slots=True)
class Found:
    """What a storm came to. `wrong` has a sentence for each broken promise."""

    deliveries: int
    sent: int
    tried_again: int
    kills: int
    events: int
    quarantined: int
    seconds: float
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.sent:,} requests of {self.deliveries:,} deliveries, tried again {self.tried_again:,} "
                f"times, {self.kills} kills, {self.seconds:.1f} s",
                f"{self.events:,} events, {self.quarantined:,} in quarantine for other bytes",
                *(self.wrong or ("every delivery is exactly one event, and every 202 was kept",)),
            ]
        )


class Dev:
    """`sluice dev` in a folder: it starts again what dies."""

    def __init__(self, folder: Path, port: int) -> None:
        self._run = folder / "run"
        self.url = f"http://127.0.0.1:{port}"

    def kill(self, name: str) -> None:
        """SIGKILL to the gateway or to a server."""
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):
            for line in (self._run / f"{name}.pid").read_text().split():
                os.kill(int(line), signal.SIGKILL)

    @property
    def postgres_url(self) -> str:
        lines = (self._run / "env").read_text().splitlines()
        settings = dict(line.split("=", 1) for line in lines if "=" in line)
        return settings["SLUICE_POSTGRES_URL"].strip("'\"")


@asynccontextmanager
async def dev(folder: Path) -> AsyncIterator[Dev]:
    port = free_port()
    spec = folder / "spec.json"
    spec.write_text(json.dumps(SPEC))
    words = ("-m", "gateway", "dev", "--port", str(port), "--data", str(folder / "data"), "--spec", str(spec))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    with (folder / "dev.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, env=inherited, stdout=log, stderr=log, stdin=asyncio.subprocess.DEVNULL
        )
    running = Dev(folder / "data", port)
    try:
        await _ready(running, process)
        yield running
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _ready(running: Dev, process: asyncio.subprocess.Process) -> None:
    deadline = time.monotonic() + START_S
    async with httpx.AsyncClient(base_url=running.url, trust_env=False) as client:
        while True:
            assert process.returncode is None, "sluice dev ended"
            with suppress(httpx.HTTPError):
                if (await client.get("/_/health/ready")).status_code == 200:
                    return
            assert time.monotonic() < deadline, "sluice dev is not ready"
            await asyncio.sleep(PAUSE_S)


def body_of(delivery: str, variant: str = "") -> bytes:
    return json.dumps({"delivery": delivery, "variant": variant, "text": "x" * 200}).encode()


async def deliver(client: httpx.AsyncClient, delivery: str, body: bytes, told: Told) -> dict[str, Any]:
    """Sends until it is taken; the answer of the 202."""
    mac = hmac.new(SECRET, body, hashlib.sha256).hexdigest()
    headers = {"x-hub-signature-256": f"sha256={mac}", "x-github-delivery": delivery}
    began = time.monotonic()
    while True:
        with suppress(httpx.HTTPError):
            response = await client.post(PATH, content=body, headers=headers)
            if response.status_code == 202:
                told.latencies_s.append(time.monotonic() - began)
                return dict(response.json())
            assert response.status_code == 503, response.text
        assert time.monotonic() < began + DELIVERY_S, f"{delivery} was never taken"
        told.again += 1
        await asyncio.sleep(PAUSE_S)


async def _send_all(url: str, senders: int, plan: Iterator[str], told: Told) -> None:
    async def sender(client: httpx.AsyncClient) -> None:
        for delivery in plan:
            answer = await deliver(client, delivery, body_of(delivery), told)
            told.answers[delivery].append((answer["event_id"], answer["duplicate"]))

    limits = httpx.Limits(max_connections=senders, max_keepalive_connections=senders)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=15, trust_env=False) as client:
        await asyncio.gather(*(sender(client) for _ in range(senders)))


async def _kill(running: Dev, kills: int, sent: int, told: Told) -> None:
    """Gateway and Redis in turn, spread over the whole storm."""
    for number, name in zip(range(1, kills + 1), itertools.cycle(("gateway", "redis")), strict=False):
        while told.settled < sent * number / (kills + 1):
            await asyncio.sleep(0.01)
        running.kill(name)


async def storm(folder: Path, deliveries: int, duplicates: float, senders: int, kills: int) -> Found:
    """`deliveries` requests, of which the share `duplicates` repeats an earlier id."""
    unique = [f"d{n}" for n in range(round(deliveries * (1 - duplicates)))]
    numbers = random.Random(deliveries)
    repeated = [numbers.choice(unique) for _ in range(deliveries - len(unique))]
    plan = [*unique, *repeated]
    numbers.shuffle(plan)
    told, began = Told(), time.monotonic()
    async with dev(folder) as running:
        await asyncio.gather(
            _send_all(running.url, senders, iter(plan), told), _kill(running, kills, len(plan), told)
        )
        seconds = time.monotonic() - began
        forged = unique[: max(len(unique) // 100, 1)]
        async with httpx.AsyncClient(base_url=running.url, timeout=15, trust_env=False) as client:
            answers = [await deliver(client, each, body_of(each, "forged"), told) for each in forged]
        events, held = await _held(running.postgres_url)
    wrong = [*_wrong(unique, told, events), *_wrong_forged(forged, answers, held)]
    return Found(len(unique), len(plan), told.again, kills, len(events), len(held), seconds, tuple(wrong))


async def _held(postgres_url: str) -> tuple[list[tuple[str, str]], list[str]]:
    """(delivery, event id) of all events; the deliveries in quarantine."""
    connection = await asyncpg.connect(postgres_url)
    try:
        rows = await connection.fetch("SELECT id, payload FROM outbox WHERE aggregate_type = 'webhook_log'")
        held = await connection.fetch(
            "SELECT delivery_id FROM webhook_delivery WHERE verdict = 'quarantined'"
        )
    finally:
        await connection.close()
    events = [(json.loads(row["payload"])["delivery_id"], str(row["id"])) for row in rows]
    return events, [row["delivery_id"] for row in held]


def _wrong(unique: list[str], told: Told, events: list[tuple[str, str]]) -> Iterator[str]:
    of: dict[str, list[str]] = defaultdict(list)
    for delivery, event_id in events:
        of[delivery].append(event_id)
    for delivery in unique:
        if len(of[delivery]) != 1:
            yield f"{delivery} is {len(of[delivery])} events"
        ids = {event_id for event_id, _ in told.answers[delivery]}
        if ids != set(of[delivery]):
            yield f"{delivery} was told as {ids} and is {of[delivery]}"
        if sum(not duplicate for _, duplicate in told.answers[delivery]) > 1:
            yield f"{delivery} was told to be new twice"
    if len(of) != len(unique):
        yield f"there are events of {len(of)} deliveries, not of {len(unique)}"


def _wrong_forged(forged: list[str], answers: list[dict[str, Any]], held: list[str]) -> Iterator[str]:
    for delivery, answer in zip(forged, answers, strict=True):
        if answer.get("quarantined") is not True or held.count(delivery) != 1:
            times = held.count(delivery)
            yield f"{delivery} with other bytes was answered {answer}, {times} times in quarantine"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.inbound.storm", description=__doc__)
    parser.add_argument("deliveries", type=int, nargs="?", default=10_000)
    parser.add_argument("--duplicates", type=float, default=0.3)
    parser.add_argument("--senders", type=int, default=32)
    parser.add_argument("--kills", type=int, default=6)
    return parser.parse_args()


if __name__ == "__main__":
    wanted = _options()
    with open_folder() as place:
        found = asyncio.run(storm(place, wanted.deliveries, wanted.duplicates, wanted.senders, wanted.kills))
        print(found)
        sys.exit(bool(found.wrong))
