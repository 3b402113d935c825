"""Writers that reserve one item: by a rule, and by a check in the client with `previous_length` and retries.

    python -m tests.bench.reserve [--writers 50] [--seconds 5] [--rounds 3]

plain      appends of the same event to one stream, no rule and no check
rule       the gateway judges `available >= quantity`
retries    the client knows length and stock, checks, appends with `previous_length`; a 409 tells it the
           events that it missed, from which it continues

By turns, each on a fresh database. Told are reservations a second, requests for each, and milliseconds from
the first try of one to its 201.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import uvloop

from gateway.dev.prepare import bundled_spec
from tests.bench import orders
from tests.bench.http_load import deploy, fill
from tests.bench.stand import Served, Stand, open_stand

STOCK = 10**9
PATH = "/item/" + orders.keys(1)[0]
_RULES = [{"require": {"gte": ["@.available", "$.data.quantity"]}, "error": "Only {@.available} are left."}]
_QUANTITY = {
    "type": "object",
    "properties": {"quantity": {"type": "integer", "minimum": 1}},
    "required": ["quantity"],
}


@dataclass(slots=True)
class Tally:
    reserved: int = 0
    requests: int = 0
    taken_s: list[float] = field(default_factory=list)


class Connection:
    """One request at a time."""

    def __init__(self, served: Served, key: str) -> None:
        self._served = served
        self._head = (
            f"Host: {served.host}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        )

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self._served.host, self._served.port)

    async def post(self, body: str) -> tuple[int, dict[str, Any]]:
        head = f"POST {PATH}/was_reserved HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        self._writer.write((head + body).encode())
        told = await self._reader.readuntil(b"\r\n\r\n")
        size = int(told.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        answer = await self._reader.readexactly(size)
        return int(told[9:12]), json.loads(answer)

    def close(self) -> None:
        self._writer.close()


def _body(previous_length: int | None) -> str:
    metadata: dict[str, Any] = {"actor": orders.ACTOR}
    if previous_length is not None:
        metadata["previous_length"] = previous_length
    return json.dumps({"data": {"quantity": 1}, "metadata": metadata})


async def _once(connection: Connection, tally: Tally, until: float) -> None:
    """Reserves without a look."""
    body = _body(None)
    while (begun := time.perf_counter()) < until:
        status, answer = await connection.post(body)
        if status != 201:
            raise RuntimeError(f"{status} {answer}")
        tally.requests += 1
        tally.reserved += 1
        tally.taken_s.append(time.perf_counter() - begun)


async def _again(connection: Connection, tally: Tally, until: float) -> None:
    """Reserves by what it knows of the stream."""
    length, available = 1, STOCK
    while (begun := time.perf_counter()) < until:
        while available >= 1 and time.perf_counter() < until:
            status, answer = await connection.post(_body(length))
            tally.requests += 1
            if status == 201:
                length, available = answer["length"], available - 1
                tally.reserved += 1
                tally.taken_s.append(time.perf_counter() - begun)
                break
            if status != 409:
                raise RuntimeError(f"{status} {answer}")
            missed = answer.get("missed", ())
            # Too many are not told. A client would read the state; here each event is one reservation.
            available -= sum(each["data"]["quantity"] for each in missed) or answer["length"] - length
            length = answer["length"]


KINDS: dict[str, tuple[bool, Callable[[Connection, Tally, float], Awaitable[None]]]] = {
    "plain": (False, _once),
    "rule": (True, _once),
    "retries": (False, _again),
}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.bench.reserve", description=__doc__.partition("\n")[0])
    parser.add_argument("--writers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args(argv)
    uvloop.run(_measure(asked.writers, asked.seconds, asked.rounds))
    return 0


async def _measure(writers: int, seconds: float, rounds: int) -> None:
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    async with open_stand(1) as stand:
        for _ in range(rounds):
            for kind, (ruled, work) in KINDS.items():
                async with stand.gateway() as served:
                    rates[kind].append(await _round(stand, served, kind, ruled, work, writers, seconds))
    plain = statistics.median(rates["plain"])
    for kind, each in rates.items():
        rate = statistics.median(each)
        print(f"{kind}: median {rate:,.0f}/s, {rate / plain:.2f} of plain")


async def _round(
    stand: Stand,
    served: Served,
    kind: str,
    ruled: bool,
    work: Callable[[Connection, Tally, float], Awaitable[None]],
    writers: int,
    seconds: float,
) -> float:
    deploy(served, stand.key, _spec(ruled))
    actor = json.dumps(orders.ACTOR)
    stock = f'{{"data":{{"quantity":{STOCK}}},"metadata":{{"actor":{actor}}}}}'
    fill(served, stand.key, [f"{PATH}/was_stocked"], stock)
    tally, connections = Tally(), [Connection(served, stand.key) for _ in range(writers)]
    for each in connections:
        await each.open()
    begun = time.perf_counter()
    await asyncio.gather(*(work(each, tally, begun + seconds) for each in connections))
    rate = tally.reserved / (time.perf_counter() - begun)
    for each in connections:
        each.close()
    taken = sorted(tally.taken_s)
    p50, p99 = (1000 * taken[int(len(taken) * share)] for share in (0.5, 0.99))
    each_took = tally.requests / tally.reserved
    print(
        f"{kind}: {rate:,.0f}/s, {each_took:.1f} requests each, p50 {p50:.1f} ms, p99 {p99:.1f} ms",
        flush=True,
    )
    return rate


def _spec(ruled: bool) -> bytes:
    document = json.loads(bundled_spec())
    events = {
        "was_stocked": {
            "schema": _QUANTITY,
            "handler": {"increment": {"target": "available", "value": "$.data.quantity"}},
        },
        "was_reserved": {
            "schema": _QUANTITY,
            "handler": {"decrement": {"target": "available", "value": "$.data.quantity"}},
            **({"rules": _RULES} if ruled else {}),
        },
    }
    document["spec"]["aggregate_types"]["item"] = {"events": events}
    return json.dumps(document).encode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
