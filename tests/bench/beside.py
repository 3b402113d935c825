"""Two ways by turns, slice by slice, each with servers of its own: what the second costs, of the first.

    python -m tests.bench.beside kept|key|projected|ruled|webhook [--slices 60] [--seconds 1]
        [--connections 64] [--streams 1000]
    python -m tests.bench.beside append|hot|key|events|ruled|state|webhook --before CHECKOUT

kept          appends by a gateway that keeps no states, and by one that does
key           appends, and appends with an Idempotency-Key each
projected     appends, and appends that a projection of two increments follows
ruled         appends, and appends that two rules judge
webhook       appends of 1 KB, and signed webhooks of that size, to 64 streams

With --before, one row is sent to the gateway of an earlier checkout, which has a .venv, and to this one.

Other work on the machine lasts for seconds or minutes, so slices of a second meet both ways alike: ratios
are those of two slices that follow each other, told are their medians and the values between which half of
them lie. What a gateway does after its slice is not metered: give projections slices of some seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from gateway.dev.gateway_process import COMMAND
from tests.bench import kept, orders, projected, read, rules, webhooks
from tests.bench.cpu import CpuMeter, family
from tests.bench.http_load import deploy, fill, usual_headers
from tests.bench.load import SERIAL, Traffic, drive
from tests.bench.machine import CORES, confine, gateway_cores
from tests.bench.measured import Measured
from tests.bench.stand import Served, open_stand
from tests.bench.suite import USUAL_CONNECTIONS

WARM_UP_S = 0.25


HELD = Path(__file__).with_name("held.py")
STOP_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One of the two: what is sent, and to what gateway. `checkout`: that of a release in place of ours."""

    name: str
    paths: Sequence[str]
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    with_key: bool = True
    status: int = 201
    command: tuple[str, ...] = COMMAND
    checkout: Path | None = None
    prepare: Callable[[Served, str], Awaitable[None]] | None = None
    """Takes the gateway and an admin key."""


def _append(streams: int) -> Way:
    paths = [orders.append_path(key) for key in orders.keys(streams)]
    return Way(name="append", paths=paths, body=orders.append_body())


def _key(streams: int) -> Way:
    return replace(_append(streams), name="key", headers={"Idempotency-Key": f"bench-{SERIAL}"})


def _ruled(streams: int) -> Way:
    async def declare(served: Served, key: str) -> None:
        rules.declare(served, key, orders.TYPE)

    return replace(_append(streams), name="ruled", prepare=declare)


def _kept(streams: int) -> tuple[Way, Way]:
    append = _append(streams)
    return replace(append, name="without", command=kept.WITHOUT), replace(append, name="kept")


def _webhook(_: int) -> tuple[Way, Way]:
    keys, text = orders.keys(webhooks.SOURCES_MAX), webhooks.body()

    async def declare(served: Served, key: str) -> None:
        deploy(served, key, webhooks.spec_of(keys))

    plain = Way(
        name="plain", paths=list(map(webhooks.append_path, keys)), body=webhooks.plain_body(), prepare=declare
    )
    sources = [webhooks.source_path(number) for number in range(len(keys))]
    return plain, Way(
        name="webhook", paths=sources, body=text, headers=webhooks.signed_headers(text), with_key=False,
        status=202, prepare=declare,
    )  # fmt: skip


def _read(part: str) -> Way:
    aggregates = [f"/{orders.TYPE}/{key}" for key in orders.keys(read.STREAMS)]

    async def fill_all(served: Served, key: str) -> None:
        fill(served, key, aggregates, orders.batch_body(10))

    return Way(name="read", paths=[each + part for each in aggregates], status=200, prepare=fill_all)


PAIRS: MappingProxyType[str, Callable[[int], tuple[Way, Way]]] = MappingProxyType(
    {
        "kept": _kept,
        "key": lambda streams: (_append(streams), _key(streams)),
        "projected": lambda streams: (
            _append(streams),
            replace(_append(streams), name="projected", prepare=_project),
        ),
        "ruled": lambda streams: (_append(streams), _ruled(streams)),
        "webhook": _webhook,
    }
)
ROWS: MappingProxyType[str, Callable[[int], Way]] = MappingProxyType(
    {
        "append": _append,
        "hot": lambda _: replace(_append(1), paths=[orders.append_path(orders.SINGLETON)]),
        "key": _key,
        "events": lambda _: _read("/events"),
        "ruled": _ruled,
        "state": lambda _: _read(""),
        "webhook": lambda streams: _webhook(streams)[1],
    }
)


async def _project(served: Served, key: str) -> None:
    await projected.begin(served, key, 1)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.bench.beside", description=__doc__.partition("\n")[0])
    parser.add_argument("name", choices=sorted({*PAIRS, *ROWS}))
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    parser.add_argument("--slices", type=int, default=60, help="of each way (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=USUAL_CONNECTIONS)
    parser.add_argument("--streams", type=int, default=1000)
    asked = parser.parse_args(argv)
    found = (PAIRS if asked.before is None else ROWS).get(asked.name)
    if found is None:
        parser.error(f"{asked.name} is measured {'only' if asked.before is None else 'not'} with --before")
    ways = found(asked.streams)
    if isinstance(ways, Way):
        ways = replace(ways, name="before", checkout=asked.before.resolve()), replace(ways, name="now")
    print(told(asked.name, ways, asyncio.run(_measure(ways, asked.slices, asked.seconds, asked.connections))))
    return 0


@asynccontextmanager
async def _serving(way: Way) -> AsyncIterator[tuple[Served, str]]:
    """Its gateway, and an admin key."""
    if way.checkout is None:
        async with open_stand(1) as stand, stand.gateway(command=way.command) as served:
            yield served, stand.key
        return
    process = subprocess.Popen(
        [way.checkout / ".venv/bin/python", "-P", HELD], cwd=way.checkout, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(way.checkout)},
    )  # fmt: skip
    with process:
        assert process.stdout
        assert process.stdin
        held = json.loads(await asyncio.to_thread(process.stdout.readline))
        yield (
            Served(held["host"], held["port"], CpuMeter(held["pids"]), tuple(held["pids"]["gateway"])),
            held["key"],
        )
        process.stdin.close()
        process.wait(STOP_S)


async def _measure(
    ways: tuple[Way, Way], slices: int, seconds: float, connections: int
) -> list[tuple[Measured, Measured]]:
    async with AsyncExitStack() as ends:
        drives, gateways = [], list[int]()
        for way in ways:
            served, key = await ends.enter_async_context(_serving(way))
            if way.prepare is not None:
                await way.prepare(served, key)
            traffic = Traffic(
                host=served.host, port=served.port, connections=connections, seconds=seconds,
                warm_up_s=WARM_UP_S, paths=list(way.paths), expected=(way.status,), body=way.body,
                method="POST" if way.body else "GET",
                headers=(usual_headers(key) if way.with_key else {}) | way.headers, first_pass=False,
            )  # fmt: skip
            drives.append((traffic, served.cpu))
            gateways += family(served.pids)
        for pid in gateways:  # the second stand has put the first gateway among all else
            confine(gateway_cores(1) or CORES, pid)
        found = []
        for number in range(slices):
            turn = drives if number % 2 else drives[::-1]
            slices_of = [_checked(await drive(_numbered(traffic, number), cpu)) for traffic, cpu in turn]
            first, second = slices_of if number % 2 else slices_of[::-1]
            found.append((first, second))
        return found


def _numbered(traffic: Traffic, number: int) -> Traffic:
    """A slice of its own: serial numbers begin again with each generator."""
    return replace(
        traffic,
        headers={name: value.replace("bench-", f"b{number}-") for name, value in traffic.headers.items()},
    )


def _checked(measured: Measured) -> Measured:
    """Raises RuntimeError where something else was answered than was expected."""
    if measured.unexpected is not None or not measured.count:
        raise RuntimeError(f"not measured: {measured.unexpected}")
    return measured


def told(name: str, ways: tuple[Way, Way], found: Sequence[tuple[Measured, Measured]]) -> str:
    """Medians of both ways, and of the ratios of their slices."""
    lines = [f"{name}, {len(found)} slices of each"]
    for number, way in enumerate(ways):
        of = [each[number] for each in found]
        cpu = {part: statistics.median([each.cpu_us.get(part, 0) for each in of]) for part in of[0].cpu_us}
        parts = ", ".join(f"{part} {us:.1f}" for part, us in cpu.items())
        lines.append(
            f"{way.name}: {statistics.median([each.per_s for each in of]):,.0f}/s; CPU in µs: {parts}"
        )
    ratios = {
        "rate": [second.per_s / first.per_s for first, second in found],
        "gateway": [second.cpu_us["gateway"] / first.cpu_us["gateway"] for first, second in found],
        "CPU of all servers": [_servers_us(second) / _servers_us(first) for first, second in found],
    }
    for what, each in ratios.items():
        low, middle, high = statistics.quantiles(each, n=4)
        half = f"(half of the slices {low:.3f} to {high:.3f})"
        lines.append(f"{ways[1].name}, of {ways[0].name}: {what} {middle:.3f} {half}")
    return "\n".join(lines)


def _servers_us(measured: Measured) -> float:
    return sum(us for part, us in measured.cpu_us.items() if part != "generator")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
