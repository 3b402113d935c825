"""Load over HTTP: what to send, and how a generator is run and heard. The generator is generator.py."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from tests.bench.cpu import CpuMeter
from tests.bench.measured import Measured, shares_us

LENGTH = "@@length@@"
"""In a header or body: how many requests its connection has sent to this path before, which is the length of
a stream that no other client appends to. As wide as what takes its place, so that Content-Length holds."""
SERIAL = "@@serial@@"
"""Likewise: a number that no other request has."""
BEGIN, END = "begin", "end"
"""What a generator says when measuring begins and ends; the result follows, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What to send. Connection n of N cycles through every Nth path from the nth on; with fewer paths than
    connections they share. Measuring begins after `warm_up_s`, and after as many requests as there are paths,
    and lasts `seconds`. `units` is how many of what is counted are in a request. After each request to the
    nth path, the nth of `get_paths` is asked for `gets` times; that counts as well. Without `first_pass`, the
    warm-up does not wait for each path to have been asked once. With `per_s`, so many requests a second are
    due, spread evenly over connections and time; one that is due while its connection still waits for an
    answer is sent after that, and its latency counts from when it was due. With `keys`, connection n shows
    the nth of them, around and around."""

    host: str
    port: int
    connections: int
    seconds: float
    warm_up_s: float
    paths: list[str]
    expected: tuple[int, ...]
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    units: int = 1
    gets: int = 0
    first_pass: bool = True
    per_s: float | None = None
    get_paths: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    def requests(self, connection: int) -> Iterator[bytes]:
        """What this connection sends, without end."""
        headers = {"Host": f"{self.host}:{self.port}", **self.headers}
        if self.keys:
            headers["Authorization"] = f"Bearer {self.keys[connection % len(self.keys)]}"
        whole = [request for n in self._own(connection) for request in self._requests_of(n, headers)]
        if not any(mark.encode() in whole[0] for mark in (LENGTH, SERIAL)):
            return itertools.cycle(whole)
        return _marked(whole, itertools.count(connection, self.connections))

    def _own(self, connection: int) -> Sequence[int]:
        return range(len(self.paths))[connection :: self.connections] or [connection % len(self.paths)]

    def _requests_of(self, n: int, headers: dict[str, str]) -> list[bytes]:
        gets = [_request("GET", self.get_paths[n], headers, "")] * self.gets if self.gets else []
        return [_request(self.method, self.paths[n], headers, self.body), *gets]


def _request(method: str, path: str, headers: dict[str, str], content: str) -> bytes:
    body = content.encode()
    if body:
        headers = {**headers, "Content-Length": str(len(body))}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _marked(requests: list[bytes], serials: Iterator[int]) -> Iterator[bytes]:
    length, serial = LENGTH.encode(), SERIAL.encode()
    for times in itertools.count():
        for request in requests:
            yield request.replace(length, b"%10d" % times).replace(serial, b"%010d" % next(serials))


async def drive(traffic: Traffic, cpu: CpuMeter) -> Measured:
    """What a generator measured, with what `cpu` metered meanwhile and at the end.

    Raises RuntimeError when the generator fails."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.generator", stdin=pipe, stdout=pipe
    )
    assert process.stdin
    assert process.stdout
    try:
        process.stdin.write(msgspec.json.encode(traffic))
        process.stdin.close()
        await _hear(process.stdout, BEGIN)
        cpu.start()
        await _hear(process.stdout, END)
        used_s, held_mb = cpu.stop(), cpu.memory_mb()
        told = msgspec.json.decode(await process.stdout.read(), type=Measured)
    except BaseException:
        if process.returncode is None:
            process.kill()
        raise
    finally:
        await process.wait()
    return replace(told, cpu_us={**shares_us(used_s, told.count), **told.cpu_us}, memory_mb=held_mb)


async def _hear(lines: asyncio.StreamReader, expected: str) -> None:
    line = (await lines.readline()).decode().strip()
    if line != expected:
        raise RuntimeError(f"the load generator ended before its {expected!r}; it says above why")
