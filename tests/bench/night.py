"""A night without Redis, and a Redis that refuses writes: how long no client can append.

    python -m tests.bench.night [--appends 4000000] [--refused-s 600] [--only night|refused]

Two gateways, and at each of them clients that append one event after the other, all night.

night     Redis is killed; then so many events are appended by bulk, all of one tenant; then it is back
refused   Redis answers reads and refuses writes (NOREPLICAS) for so long, under load; then it takes them

A gap is a time without any 201 at a gateway: the longest at either one. Fails where one after the return is
longer than 5 s.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import shlex
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic

import httpx
from redis.asyncio import Redis

from tests.bench import machine, orders
from tests.bench.bulk import STREAMS, client, send
from tests.bench.stand import Served, Stand, open_stand
from tests.faults.wire import Answer, Caller

GATEWAYS = 2
CLIENTS = 8
"""At each gateway, each with a stream of its own."""
GAP_S = 5.0
"""The promise, from the moment that Redis takes writes."""
PATIENCE_S = 30.0
BACK_WITHIN_S = 60.0
POLL_S = 0.05
REQUEST_LINES = 5_000
"""Its whole body is sent before its answer is read: a longer one would count as a client that has gone."""
REQUESTS = 2
"""At each gateway at a time."""
TOLD_EVERY = 100_000
PAUSE_S = 0.05
"""Of a client before its next append, where what is sent by bulk is the load."""
REPLICAS_THAT_THERE_ARE_NOT = 3


@dataclass(slots=True)
class Appends:
    """When each gateway acknowledged one, and what else it answered."""

    acknowledged: tuple[list[float], ...] = field(default_factory=lambda: tuple([] for _ in range(GATEWAYS)))
    others: dict[int, int] = field(default_factory=dict)

    def gap_s(self, begun: float, ended: float) -> float:
        """The longest time within that span in which one of the gateways acknowledged none."""
        return max(_longest(begun, times, ended) for times in self.acknowledged)

    def per_s(self, begun: float, ended: float) -> float:
        count = sum(begun <= at < ended for times in self.acknowledged for at in times)
        return count / (ended - begun)


def _longest(begun: float, times: Iterable[float], ended: float) -> float:
    within = [begun, *(at for at in times if begun < at < ended), ended]
    return max(after - before for before, after in itertools.pairwise(within))


@asynccontextmanager
async def appending(stand: Stand, gateways: list[Served], pause_s: float = 0.0) -> AsyncIterator[Appends]:
    made = Appends()
    headers = (("Authorization", f"Bearer {stand.key}"),)
    body = orders.append_body().encode()

    async def append(number: int, key: str) -> None:
        caller = Caller()
        try:
            while True:
                told = await caller.call(
                    gateways[number].port, "POST", orders.append_path(key), headers, body,
                    timeout_s=PATIENCE_S,
                )  # fmt: skip
                status = told.status if isinstance(told, Answer) else 0
                if status == 201:
                    made.acknowledged[number].append(monotonic())
                else:
                    made.others[status] = made.others.get(status, 0) + 1
                await asyncio.sleep(pause_s)
        finally:
            caller.close()

    keys = iter(orders.keys(GATEWAYS * CLIENTS))
    tasks = [
        asyncio.create_task(append(number, next(keys))) for number in range(GATEWAYS) for _ in range(CLIENTS)
    ]
    try:
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def night(stand: Stand, appends: int, around_s: float) -> float:
    """The longest gap from Redis' return on. `around_s`: before the fault and after the return."""
    redis = stand.servers.redis
    async with stand.apart(GATEWAYS) as gateways, appending(stand, gateways, PAUSE_S) as made:
        begun = monotonic()
        await asyncio.sleep(around_s)
        _tell("before", made, begun, monotonic())
        killed = monotonic()
        redis.kill()
        await _until_mode(gateways, "direct")
        direct = monotonic()
        await _bulk(stand, gateways, appends)
        _tell("beginning", made, killed, direct + 1)
        _tell(
            "direct",
            made,
            direct + 1,
            monotonic(),
            f", and {appends / (monotonic() - direct):,.0f}/s by bulk",
        )
        await redis.start()
        return await _back(gateways, made, around_s)


async def refused(stand: Stand, seconds: float, around_s: float) -> float:
    """Likewise, of a Redis that refuses writes for so long."""
    async with (
        Redis.from_url(stand.servers.redis_url) as redis,
        stand.apart(GATEWAYS) as gateways,
        appending(stand, gateways) as made,
    ):
        begun = monotonic()
        await asyncio.sleep(around_s)
        _tell("before", made, begun, monotonic())
        refusing = monotonic()
        await redis.config_set("min-replicas-to-write", REPLICAS_THAT_THERE_ARE_NOT)
        await _until_mode(gateways, "direct")
        direct = monotonic()
        await asyncio.sleep(max(0.0, seconds - (direct - refusing)))
        _tell("beginning", made, refusing, direct + 1)
        _tell("refused", made, direct + 1, monotonic())
        await redis.config_set("min-replicas-to-write", 0)
        return await _back(gateways, made, around_s)


async def _back(gateways: list[Served], made: Appends, around_s: float) -> float:
    returned = monotonic()
    await _until_mode(gateways, "redis")
    used = monotonic()
    await asyncio.sleep(around_s)
    ended = monotonic()
    _tell("back", made, returned, ended, f"; used after {used - returned:.1f} s")
    if made.others:
        print(f"          other answers: {made.others}", flush=True)
    return made.gap_s(returned, ended)


async def _bulk(stand: Stand, gateways: list[Served], appends: int) -> None:
    """All lines are of one tenant, and so of one partition."""
    keys, wanted = orders.keys(STREAMS), iter(range(0, appends, REQUEST_LINES))
    done = 0

    async def sending(served: Served) -> None:
        nonlocal done
        async with client(served, stand) as sender:
            for at in wanted:
                lines = min(REQUEST_LINES, appends - at)
                appended = await send(sender, lines, keys)
                assert appended == lines, f"{appended} of {lines} lines were appended"
                done += lines
                if done % TOLD_EVERY == 0:
                    print(f"          {done:,} appended", file=sys.stderr, flush=True)

    await asyncio.gather(*map(sending, gateways * REQUESTS))


async def _until_mode(gateways: list[Served], mode: str) -> None:
    """Raises TimeoutError when it does not come to that."""
    async with asyncio.timeout(BACK_WITHIN_S), httpx.AsyncClient(timeout=PATIENCE_S) as asking:
        for served in gateways:
            while True:
                told = await asking.get(f"http://{served.host}:{served.port}/_/health/ready")
                if told.status_code == 200 and told.json()["mode"] == mode:
                    break
                await asyncio.sleep(POLL_S)


def _tell(name: str, made: Appends, begun: float, ended: float, more: str = "") -> None:
    gap, rate = made.gap_s(begun, ended), made.per_s(begun, ended)
    print(f"{name:9} {ended - begun:7.1f} s: {rate:,.0f}/s, longest gap {gap:.2f} s{more}", flush=True)


async def _main(asked: argparse.Namespace) -> int:
    print(shlex.join(["python", "-m", "tests.bench.night", *sys.argv[1:]]))
    gaps = []
    async with open_stand(1) as stand:
        told = await machine.describe(stand.servers)
        print(", ".join(f"{name} {value}" for name, value in told.items()), flush=True)
        if asked.only in (None, "night"):
            print(f"night: {asked.appends:,} appends without Redis", flush=True)
            gaps.append(await night(stand, asked.appends, asked.around_s))
        if asked.only in (None, "refused"):
            print(f"refused: Redis takes no writes for {asked.refused_s:g} s", flush=True)
            gaps.append(await refused(stand, asked.refused_s, asked.around_s))
    return 0 if max(gaps) <= GAP_S else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.night",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--appends", type=int, default=4_000_000)
    parser.add_argument("--refused-s", type=float, default=600)
    parser.add_argument("--around-s", type=float, default=20, help="before the fault and after the return")
    parser.add_argument("--only", choices=("night", "refused"), default=None)
    return asyncio.run(_main(parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
