"""Bulk appends: lines a second, and the most memory that the gateway ever held.

    python -m tests.bench.bulk [--lines 1000000]

Requests of 100,000 lines each, the most that one may have, over one connection: to 1,000 streams by turns,
each line with data of 300 bytes. Every receipt is counted. The suite (python -m tests.bench bulk) sends
requests of 10,000 lines, for so many seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import shlex
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import httpx

from gateway.http.api.bulk import LINES_MAX
from tests.bench import orders
from tests.bench.machine import describe
from tests.bench.measured import Measured, quantiles_ms, shares_us
from tests.bench.stand import Served, Stand, open_stand
from tests.bench.suite import Options, Scenario

STREAMS = 1000
PIECE_LINES = 200
SUITE_LINES = 10_000
"""A request. As its time is that of all its lines, latencies tell nothing but that."""
TIMEOUT_S = 600.0
_APPENDED = b'"status":201'


def scenarios(options: Options) -> list[Scenario]:
    return [Scenario("bulk/1", "line", (), partial(_measure, options))]


async def _measure(options: Options, stand: Stand) -> Measured:
    keys = orders.keys(options.streams)
    taken_s: list[float] = []
    async with stand.gateway() as served, client(served, stand) as sender:
        await all_appended(sender, len(keys), keys)
        served.cpu.start()
        own_s = time.process_time()
        while sum(taken_s) < options.seconds:
            begun = time.perf_counter()
            await all_appended(sender, SUITE_LINES, keys)
            taken_s.append(time.perf_counter() - begun)
        own_s = time.process_time() - own_s
        used_s, held_mb = served.cpu.stop(), served.cpu.memory_mb()
    count = len(taken_s) * SUITE_LINES
    return Measured(
        count=count,
        seconds=sum(taken_s),
        latency_ms=quantiles_ms(taken_s),
        answers={},
        unexpected=None,
        cpu_us=shares_us({**used_s, "generator": own_s}, count),
        memory_mb=held_mb,
    )


async def all_appended(sender: httpx.AsyncClient, lines: int, keys: list[str]) -> None:
    """Raises RuntimeError when a line is not."""
    appended = await send(sender, lines, keys)
    if appended != lines:
        raise RuntimeError(f"{appended} of {lines} lines of bulk were appended")


def client(served: Served, stand: Stand) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {stand.key}", "Content-Type": "application/x-ndjson"}
    url = f"http://{served.host}:{served.port}"
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT_S)


async def pieces(count: int, keys: list[str]) -> AsyncIterator[bytes]:
    """A request's body, of `count` lines."""
    each = itertools.cycle(
        [
            f'{{"aggregate_type":"{orders.TYPE}","key":"{key}","type":"{orders.EVENT}",{_REST}\n'.encode()
            for key in keys
        ]
    )
    for begun in range(0, count, PIECE_LINES):
        yield b"".join(itertools.islice(each, min(PIECE_LINES, count - begun)))


_REST = orders.append_body()[1:]


async def send(sender: httpx.AsyncClient, count: int, keys: list[str]) -> int:
    """How many of so many lines were appended."""
    appended, rest = 0, b""
    async with sender.stream("POST", "/_/bulk", content=pieces(count, keys)) as response:
        assert response.status_code == 200, await response.aread()
        async for received in response.aiter_raw():
            answer = rest + received
            appended += answer.count(_APPENDED)
            rest = answer[1 - len(_APPENDED) :]  # one that is cut in two is found in the next piece
    return appended


def most_mb(pid: int) -> float:
    """The most memory that the process ever held."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+([0-9]+) kB", status)
    assert found
    return int(found[1]) / 1024


async def run(lines: int, command: str) -> int:
    keys = orders.keys(STREAMS)
    async with open_stand(1) as stand, stand.gateway() as served:
        machine = await describe(stand.servers)
        (pid,) = served.pids
        at_rest_mb = most_mb(pid)
        begun, appended = time.perf_counter(), 0
        async with client(served, stand) as sender:
            for at in range(0, lines, LINES_MAX):
                appended += await send(sender, min(LINES_MAX, lines - at), keys)
                print(f"{at + LINES_MAX:,}: {most_mb(pid):.0f} MB", file=sys.stderr, flush=True)
        seconds = time.perf_counter() - begun
        print(f"{command} {datetime.now(UTC).isoformat(timespec='seconds')}")
        for name, value in machine.items():
            print(f"{name}: {value}")
        print(f"{appended:,} of {lines:,} lines appended, {appended / seconds:,.0f}/s")
        print(f"gateway: {at_rest_mb:.0f} MB at rest, {most_mb(pid):.0f} MB at most")
    return 0 if appended == lines else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bulk", description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    given = parser.parse_args()
    sys.exit(asyncio.run(run(given.lines, shlex.join(["python", "-m", "tests.bench.bulk", *sys.argv[1:]]))))
