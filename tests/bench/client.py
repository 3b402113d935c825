"""What an append costs a program that uses `gateway.client`: CPU of its own process, by concurrent tasks.

    python -m tests.bench.client --url URL --key-file FILE [--tasks 1,10,50] [--appends 4000] [--limit-us N]

Beside it, plain sockets that send the same bytes and read the answers, and the client without asyncio in one
thread. With --limit-us it exits 1 where 50 tasks cost more. docs/benchmarks/client.md has figures.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.client import Actor, AsyncClient, Client
from gateway.client.calls import append
from gateway.client.connection import default_head
from gateway.client.http1 import address_of, request_bytes

ACTOR = Actor("user", "global")
EVENT = ("order", "was_placed")
DATA = {"total": 42.5, "currency": "EUR", "note": "x" * 200}
WARM_UP = 5
LIMITED_TASKS = 50


@dataclass(frozen=True, slots=True)
class Cost:
    name: str
    cpu_us: float
    rate: float

    def __str__(self) -> str:
        return f"{self.name:24} {self.cpu_us:8.0f} µs of CPU an append {self.rate:10,.0f} appends/s"


async def measured(name: str, tasks: int, appends: int, work: Callable[[str, int], Awaitable[None]]) -> Cost:
    """`work` appends to an aggregate, so many times."""
    keys = [str(uuid.uuid4()) for _ in range(tasks)]
    each = max(appends // tasks, 1)
    await asyncio.gather(*[work(key, WARM_UP) for key in keys])
    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*[work(key, each) for key in keys])
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Cost(name, cpu / (each * tasks) * 1e6, each * tasks / wall)


async def by_client(url: str, key: str, tasks: int, appends: int) -> Cost:
    async with AsyncClient(url, key) as client:

        async def work(aggregate: str, count: int) -> None:
            for _ in range(count):
                await client.append(EVENT[0], aggregate, EVENT[1], DATA, actor=ACTOR)

        return await measured(f"client, {tasks} tasks", tasks, appends, work)


async def by_sockets(url: str, key: str, tasks: int, appends: int) -> Cost:
    address, head = address_of(url), default_head(key)

    async def work(aggregate: str, count: int) -> None:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        for _ in range(count):
            call = append(EVENT[0], aggregate, EVENT[1], DATA, str(uuid.uuid4()), {"actor": ACTOR})
            writer.write(request_bytes(address, head, call.request))
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 201 "), answer
            length = answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
        writer.close()
        await writer.wait_closed()

    return await measured(f"plain sockets, {tasks}", tasks, appends, work)


def plainly(url: str, key: str, appends: int) -> Cost:
    with Client(url, key) as client:
        aggregate = str(uuid.uuid4())
        client.append(EVENT[0], aggregate, EVENT[1], DATA, actor=ACTOR)
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(appends):
            client.append(EVENT[0], aggregate, EVENT[1], DATA, actor=ACTOR)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Cost("client without asyncio", cpu / appends * 1e6, appends / wall)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.client")
    parser.add_argument("--url", required=True)
    parser.add_argument("--key-file", type=Path, required=True)
    parser.add_argument("--tasks", default="1,10,50,100")
    parser.add_argument("--appends", type=int, default=4000)
    parser.add_argument("--limit-us", type=float)
    asked = parser.parse_args(argv)
    key = asked.key_file.read_text().strip()
    costs = {}
    for tasks in map(int, asked.tasks.split(",")):
        costs[tasks] = asyncio.run(by_client(asked.url, key, tasks, asked.appends))
        print(
            costs[tasks], asyncio.run(by_sockets(asked.url, key, tasks, asked.appends)), sep="\n", flush=True
        )
    print(plainly(asked.url, key, max(asked.appends // 8, 1)))
    limited = costs.get(LIMITED_TASKS)
    if asked.limit_us is not None and (limited is None or limited.cpu_us > asked.limit_us):
        print(f"an append with {LIMITED_TASKS} tasks costs more than {asked.limit_us:g} µs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
