"""Redis goes away under load, and comes back: how many appends go on without it.

    python -m tests.bench.direct [--seconds 60] [--connections 64] [--streams 1000] [--pause]

before    with Redis, a sixth of the time
away      from a moment before Redis is killed (or stopped: --pause), the stall until direct mode included
back      from its return: seconds until appends take it again
after     with Redis again, a sixth of the time; its streams are cold
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import urllib.error
import urllib.request

from tests.bench import machine, orders
from tests.bench.load import Traffic, drive
from tests.bench.measured import Measured
from tests.bench.stand import Served, Stand, open_stand

BACK_WITHIN_S = 30.0
LEAD_S = 1.5
"""From the start of the load to the fault: measuring has begun by then, so that the stall is part of it."""


async def measure(stand: Stand, options: argparse.Namespace) -> None:
    redis, seconds = stand.servers.redis, options.seconds
    async with stand.gateway() as served:
        _tell("before", await _appends(stand, served, options, seconds / 6))
        away = asyncio.create_task(_appends(stand, served, options, seconds))
        await asyncio.sleep(LEAD_S)
        redis.pause() if options.pause else redis.kill()
        begun = time.monotonic()
        await _until_mode(served, "direct")
        stalled_s = time.monotonic() - begun
        _tell("away", await away, f"; direct after {stalled_s:.1f} s")
        redis.resume()
        await redis.start()
        begun = time.monotonic()
        await _until_mode(served, "redis")
        print(f"{'back':8} after {time.monotonic() - begun:.1f} s", flush=True)
        _tell("after", await _appends(stand, served, options, seconds / 6))


async def _appends(stand: Stand, served: Served, options: argparse.Namespace, seconds: float) -> Measured:
    traffic = Traffic(
        host=served.host,
        port=served.port,
        connections=options.connections,
        seconds=seconds,
        warm_up_s=0,
        first_pass=False,
        paths=[orders.append_path(key) for key in orders.keys(options.streams)],
        expected=(201,),
        method="POST",
        headers={"Authorization": f"Bearer {stand.key}", "Content-Type": "application/json"},
        body=orders.append_body(),
    )
    return await drive(traffic, stand.cpu(list(served.pids)))


async def _until_mode(served: Served, mode: str) -> None:
    """Raises TimeoutError when it does not come to that."""
    async with asyncio.timeout(BACK_WITHIN_S):
        while await asyncio.to_thread(_mode, served) != mode:
            await asyncio.sleep(0.05)


def _mode(served: Served) -> str | None:
    """How the gateway is ready; None when it is not."""
    try:
        with urllib.request.urlopen(f"http://{served.host}:{served.port}/_/health/ready", timeout=5) as told:
            return str(json.load(told)["mode"])
    except (urllib.error.URLError, TimeoutError):
        return None


def _tell(name: str, measured: Measured, more: str = "") -> None:
    latencies = ", ".join(f"{each} {ms:.1f} ms" for each, ms in measured.latency_ms.items())
    cpu = ", ".join(f"{each} {us:.0f}" for each, us in measured.cpu_us.items() if us > 0)
    answers = ", ".join(f"{count} × {status}" for status, count in measured.answers.items())
    rate = f"{measured.per_s:,.0f}/s for {measured.seconds:.0f} s"
    print(f"{name:8} {rate}: {latencies}; CPU in µs an append: {cpu}; {answers}{more}", flush=True)


async def _main(options: argparse.Namespace) -> None:
    async with open_stand(1) as stand:
        told = await machine.describe(stand.servers)
        print(", ".join(f"{name} {value}" for name, value in told.items()), flush=True)
        await measure(stand, options)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.direct",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=60, help="that Redis is away")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--pause", action="store_true", help="stop Redis instead of killing it")
    asyncio.run(_main(parser.parse_args(argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
