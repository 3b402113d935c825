"""The feed: a whole backfill, the way from a 201 to a live follower, and what followers cost appends.

    python -m tests.bench.feed [--events 1000000] [--seconds 5] [--rounds 3] [--followers 100]

backfill      NDJSON of all events from the beginning: events a second, and the gateway's greatest memory
live/N        at half the rate of appends at 64 connections, from the 201 to the server-sent event of one
              follower, beside N - 1 others
followers/…   appends at 64 connections beside that many followers, in turns with none: of whom nothing passes
              the filter (quiet), and who get everything, as it is (all) or compressed (all_gzip)
sent/…        the bytes of that many followers who get everything as it is, from a server that does nothing
              else: what a gateway's followers/all can't go below
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import msgspec

from gateway.relay.live import round_s
from tests.bench import machine, orders, stored
from tests.bench.cpu import CpuMeter
from tests.bench.load import Traffic, drive
from tests.bench.measured import Measured, quantiles_ms, shares_us
from tests.bench.stand import SPRAY, Served, Stand, open_stand

CONNECTIONS = 64
STREAMS = 1000
READ_BYTES = 1024 * 1024
STEADY = 32
EVENT_BYTES = 737
SENT_PER_S = 14_000
"""About what is appended beside followers of everything."""


async def backfill(stand: Stand, events: int) -> str:
    template = await stand.template("backfill", lambda url: stored.fill(url, events, STREAMS))
    async with stand.gateway(template=template) as served:
        begun_kb = peak_kb(served)
        served.cpu.start()
        count, size, seconds = await asyncio.to_thread(read_all, served, stand.key)
        cpu = ", ".join(f"{name} {each:.1f}" for name, each in shares_us(served.cpu.stop(), count).items())
        if count != events:
            raise RuntimeError(f"{count} events came of {events}")
        return (
            f"{count:,} events ({size / count:.0f} B each) in {seconds:.1f} s: {count / seconds:,.0f}/s; "
            f"gateway at most {peak_kb(served) / 1024:.0f} MiB, before {begun_kb / 1024:.0f} MiB; "
            f"CPU in µs an event: {cpu}"
        )


def read_all(served: Served, key: str) -> tuple[int, int, float]:
    connection = http.client.HTTPConnection(served.host, served.port, timeout=60)
    headers = {"Authorization": f"Bearer {key}", "Accept": "application/x-ndjson"}
    begun = time.perf_counter()
    connection.request("GET", "/_/feed", headers=headers)
    response = connection.getresponse()
    count = size = 0
    while received := response.read1(READ_BYTES):
        count += received.count(b"\n")
        size += len(received)
    connection.close()
    return count, size, time.perf_counter() - begun


def peak_kb(served: Served) -> int:
    """The greatest resident set of the gateway so far."""
    lines = Path(f"/proc/{served.pids[0]}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


# ---- live ----


async def live(stand: Stand, seconds: float, others: int) -> str:
    """With so many `others` who are sent everything too."""
    async with stand.gateway() as served:
        rate = (await drive(_appends(stand, served, seconds), served.cpu)).per_s / 2
    async with stand.gateway() as served, _draining(served, stand.key, others, "after=now"):
        told: dict[str, float] = {}
        seen: dict[str, float] = {}
        following = asyncio.create_task(_follow(served, stand.key, seen))
        until = time.perf_counter() + seconds
        await asyncio.gather(
            *(_append_steadily(served, stand.key, n, STEADY / rate, until, told) for n in range(STEADY))
        )
        while not told.keys() <= seen.keys():
            await asyncio.sleep(0.01)
        following.cancel()
    late_s = [max(seen[event_id] - at, 0.0) for event_id, at in told.items()]
    shown = ", ".join(f"{name} {value:.1f} ms" for name, value in quantiles_ms(late_s).items())
    return f"{len(told):,} appends at {len(told) / seconds:,.0f}/s (asked for {rate:,.0f}/s): {shown}"


async def _append_steadily(
    served: Served, key: str, number: int, every_s: float, until: float, told: dict[str, float]
) -> None:
    reader, writer = await asyncio.open_connection(served.host, served.port)
    body = orders.append_body().encode()
    paths = [orders.append_path(each) for each in orders.keys(STREAMS)][number::STEADY]
    due, n = time.perf_counter() + every_s * number / STEADY, 0
    while due < until:
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        due, n = due + every_s, n + 1
        writer.write(
            b"POST %b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (paths[n % len(paths)].encode(), key.encode(), len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        answer = await reader.readexactly(length)
        at = time.perf_counter()
        if not head.startswith(b"HTTP/1.1 201"):
            raise RuntimeError(answer.decode())
        told[msgspec.json.decode(answer)["event_id"]] = at
    writer.close()


async def _follow(served: Served, key: str, seen: dict[str, float]) -> None:
    reader, writer = await asyncio.open_connection(served.host, served.port, limit=2**24)
    writer.write(
        b"GET /_/feed HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\nAccept: text/event-stream\r\n\r\n"
        % key.encode()
    )
    rest = b""
    while received := await reader.read(READ_BYTES):
        at = time.perf_counter()
        *parts, rest = (rest + received).split(b'data: {"id":"')
        for part in (*parts[1:], rest) if len(rest) >= 36 else parts[1:]:
            seen.setdefault(part[:36].decode(), at)
        rest = b'data: {"id":"' + rest


# ---- what followers cost ----


async def followers(stand: Stand, seconds: float, rounds: int, count: int, query: str, coding: str) -> str:
    """Rates with and without them, in turns, each on a gateway of its own. On one machine they take their own
    share of it, so the gateway's CPU time for an append tells more than the rates. The first of them is held
    to have come to see every event, and to all others came as many bytes, or about as many where what one
    of them is sent only to it is compressed only for it."""
    without, beside, came = [], [], 0
    for _ in range(rounds):
        async with stand.gateway() as served:
            without.append(await drive(_appends(stand, served, seconds), served.cpu))
        async with (
            stand.gateway() as served,
            _draining(served, stand.key, count, query, coding) as followers,
        ):
            cpu = CpuMeter({"gateway": served.pids, "followers": [followers.pid]})
            beside.append(await drive(_appends(stand, served, seconds), cpu))
            came += await _drained(served, followers, 0 if coding == "identity" else 0.5)
    change = _median(beside, _rate) / _median(without, _rate) - 1
    their_us = _median(beside, lambda each: each.cpu_us["followers"])
    return (
        f"{_told(beside)} beside them, {_told(without)} without ({change:+.0%} appends/s); they themselves "
        f"{their_us:.0f} µs an append; {came / rounds / 1e6:,.0f} MB sent to them a round"
    )


async def sent(stand: Stand, seconds: float, rounds: int, count: int) -> str:
    """CPU time, for an append, of a server that does nothing but send what followers of everything are sent,
    in rounds like a gateway's, and of those who receive it."""
    every_s = round_s(count, crowd=True)
    size, times = round(SENT_PER_S * every_s) * EVENT_BYTES, round(seconds / every_s)
    settings = {"FOLLOWERS": count, "BYTES": size, "S": every_s, "ROUNDS": times}
    shares = []
    for _ in range(rounds):
        with stand.bare(SPRAY, {f"SPRAY_{name}": str(value) for name, value in settings.items()}) as served:
            async with _draining(served, stand.key, count, "") as followers:
                cpu = CpuMeter({"server": served.pids, "followers": [followers.pid]})
                cpu.start()
                came = (await _came(followers))[0]
                shares.append(shares_us(cpu.stop(), came // count // EVENT_BYTES))
    server_us, their_us = (
        " ".join(f"{each[name]:.0f}" for each in shares) for name in ("server", "followers")
    )
    return f"{server_us} µs of the server's an append, {their_us} µs of theirs; {came / 1e6:,.0f} MB a round"


async def _drained(served: Served, followers: asyncio.subprocess.Process, apart: float) -> int:
    """How many bytes came to all of them, once all has come.

    Raises RuntimeError if to one came less than to another by more than that part of it, or not every event
    to the first, or none at all."""
    came, least, most, events = await _came(followers)
    connection = await asyncpg.connect(served.postgres_url)
    try:
        committed = await connection.fetchval("SELECT count(*) FROM outbox")
    finally:
        await connection.close()
    if least < most * (1 - apart) or events not in (0, committed) or (came > 0) != (events > 0):
        raise RuntimeError(f"{least} to {most} B came to a follower, and {events} events of {committed}")
    return came


async def _came(followers: asyncio.subprocess.Process) -> list[int]:
    """What drain.py says once nothing has come for a while."""
    assert followers.stdin
    assert followers.stdout
    followers.stdin.close()
    return [int(each) for each in (await followers.stdout.readline()).split()]


def _told(rounds: list[Measured]) -> str:
    rates = " ".join(f"{each.per_s:,.0f}" for each in rounds)
    gateway_us = _median(rounds, lambda each: each.cpu_us["gateway"])
    return f"{_median(rounds, _rate):,.0f} appends/s ({rates}), gateway {gateway_us:.0f} µs each,"


def _rate(measured: Measured) -> float:
    return measured.per_s


def _median(rounds: list[Measured], of: Callable[[Measured], float]) -> float:
    return statistics.median(map(of, rounds))


@asynccontextmanager
async def _draining(
    served: Served, key: str, count: int, query: str, coding: str = "identity"
) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.drain", served.host, str(served.port), key, str(count), query,
        coding, stdin=pipe, stdout=pipe,
    )  # fmt: skip
    assert process.stdout
    try:
        if (await process.stdout.readline()).strip() != b"ready":
            raise RuntimeError("the followers could not connect")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _appends(stand: Stand, served: Served, seconds: float) -> Traffic:
    return Traffic(
        host=served.host,
        port=served.port,
        connections=CONNECTIONS,
        seconds=seconds,
        warm_up_s=1.0,
        paths=[orders.append_path(key) for key in orders.keys(STREAMS)],
        expected=(201,),
        method="POST",
        headers={"Authorization": f"Bearer {stand.key}", "Content-Type": "application/json"},
        body=orders.append_body(),
    )


async def _main(options: argparse.Namespace) -> None:
    async with open_stand(1) as stand:
        for name, value in (await machine.describe(stand.servers)).items():
            print(f"{name}: {value}")
        if "backfill" in options.only:
            print(f"backfill: {await backfill(stand, options.events)}", flush=True)
        if "live" in options.only:
            for others in (0, options.followers):
                print(f"live/{others + 1}: {await live(stand, options.seconds, others)}", flush=True)
        for name, query, coding in (
            ("quiet", "types=nothing_of_the_kind&include_undeclared=true", "identity"),
            ("all", "after=now", "identity"),
            ("all_gzip", "after=now", "gzip"),
        ):
            if name in options.only:
                asked = options.seconds, options.rounds, options.followers
                told = await followers(stand, *asked, query, coding)
                print(f"followers/{name}/{options.followers}: {told}", flush=True)
        if "sent" in options.only:
            told = await sent(stand, options.seconds, options.rounds, options.followers)
            print(f"sent/{options.followers}: {told}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="tests.bench.feed")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--followers", type=int, default=100)
    parser.add_argument("--only", action="append")
    chosen = parser.parse_args()
    chosen.only = chosen.only or ["backfill", "live", "quiet", "all", "all_gzip", "sent"]
    asyncio.run(_main(chosen))
