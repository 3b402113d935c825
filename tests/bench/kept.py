"""What kept states cost the appends behind which they are written, and what they take in Postgres.

    python -m tests.bench.kept [--seconds 6] [--rounds 3] [--streams 1,50,1000]

By turns, each on a fresh database: the gateway, and one that keeps no states, at 64 connections. Told are
appends a second, the CPU of an append, and the bytes of what is kept beside those of the events.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Sequence
from types import MappingProxyType

import asyncpg

from gateway.dev.gateway_process import COMMAND
from tests.bench import orders
from tests.bench.http_load import post
from tests.bench.measured import Measured
from tests.bench.stand import Stand, open_stand
from tests.bench.suite import USUAL_CONNECTIONS, Options

WITHOUT = (sys.executable, "-m", "tests.bench.kept", "serve-without")
BUILDS = MappingProxyType({"with": COMMAND, "without": WITHOUT})
_SIZES = """
SELECT (SELECT count(*) FROM kept_state) AS states, pg_total_relation_size('kept_state') AS kept,
    (SELECT count(*) FROM outbox) AS events, pg_total_relation_size('outbox') AS outbox
"""


def main(argv: Sequence[str]) -> int:
    if list(argv) == ["serve-without"]:
        _serve_without()
    parser = argparse.ArgumentParser(prog="tests.bench.kept", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", default="1,50,1000")
    asked = parser.parse_args(argv)
    streams = [int(each) for each in asked.streams.split(",")]
    asyncio.run(_measure(asked.seconds, asked.rounds, streams))
    return 0


def _serve_without() -> None:
    from gateway.__main__ import main as sluice
    from gateway.aggregates.keeper import Keeper

    Keeper._committed = lambda self, placed: None  # type: ignore[method-assign]
    sys.argv = ["sluice", "serve"]
    sluice()


async def _measure(seconds: float, rounds: int, streams: Sequence[int]) -> None:
    async with open_stand(1) as stand:
        for count in streams:
            found: dict[str, list[Measured]] = {name: [] for name in BUILDS}
            for _ in range(rounds):
                for name in BUILDS:
                    found[name].append(await _round(stand, name, count, seconds))
            rate = {name: statistics.median([each.per_s for each in of]) for name, of in found.items()}
            cpu = {
                name: statistics.median([sum(each.cpu_us.values()) for each in of])
                for name, of in found.items()
            }
            told = ", ".join(f"{name} {rate[name]:,.0f}/s {cpu[name]:.1f} µs" for name in BUILDS)
            rates, costs = rate["with"] / rate["without"], cpu["with"] / cpu["without"]
            print(
                f"{count} streams, medians: {told}; rate {rates:.3f}, CPU {costs:.3f} of without", flush=True
            )


async def _round(stand: Stand, name: str, streams: int, seconds: float) -> Measured:
    options = Options(seconds, (USUAL_CONNECTIONS,), streams, 1, 1, (), None, ())
    paths = [orders.append_path(key) for key in orders.keys(streams)]
    async with stand.gateway(command=BUILDS[name]) as served:
        measured = await post(options, USUAL_CONNECTIONS, stand, served, paths, orders.append_body())
        connection = await asyncpg.connect(served.postgres_url)
        sizes = await connection.fetchrow(_SIZES)
        await connection.close()
    cpu = {part: round(us, 1) for part, us in measured.cpu_us.items()}
    print(f"{streams} streams, {name}: {measured.per_s:,.0f}/s {cpu} {dict(sizes)}", flush=True)
    return measured


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
