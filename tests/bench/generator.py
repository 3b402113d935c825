"""The load generator: N connections on one thread, in a process of its own.

    python -m tests.bench.generator < traffic.json

A closed loop: each connection sends its next request as soon as the last one is answered. A server that
stalls is therefore asked less often while it does: read the rate beside the latencies. At a given rate, each
request has its time, and its latency counts from then, however late a stall lets it be sent. As little as
possible is done a request: its bytes are made before the start, and of an answer only the status and
Content-Length are looked at.
"""

from __future__ import annotations

import asyncio
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import cast

import msgspec
import uvloop

from tests.bench.load import BEGIN, END, Traffic
from tests.bench.measured import Measured, quantiles_ms, shares_us

WARM_UP_MOST_S = 30.0
DRAIN_MOST_S = 30.0
"""A request that has no answer by then counts as lost; an append's deadline is 10 s."""
POLL_S = 0.01


FRONT_BYTES = 96
"""Of an answer: what comes before its Content-Length, and that, of most servers."""
FRONTS_MAX = 10_000

_LENGTHS: dict[bytes, int] = {}
"""Content-Length by the first bytes of an answer, which then need not be read line by line."""


async def generate(traffic: Traffic, say: Callable[[str], None]) -> Measured:
    """Connect all, start together, stop together. Says BEGIN and END of what is measured.

    Raises OSError when it can't connect.
    """
    loop = asyncio.get_running_loop()
    tally = _Tally({b"%d" % status for status in traffic.expected})
    every_s = traffic.connections / traffic.per_s if traffic.per_s else 0.0
    connections = []
    for number in range(traffic.connections):
        make = partial(_Connection, tally, traffic.requests(number), every_s)
        connections.append((await loop.create_connection(make, traffic.host, traffic.port))[1])
    for number, connection in enumerate(connections):
        connection.start(every_s * number / len(connections))
    await _warm_up(traffic, tally)
    say(BEGIN)
    cpu_begun, begun, total = time.process_time(), tally.begin(), tally.total
    await _closed(tally, traffic.seconds)
    await _first_measured(tally)
    count, seconds = (tally.total - total) * traffic.units, time.perf_counter() - begun
    cpu_s = time.process_time() - cpu_begun
    tally.stopping = True
    say(END)
    if not await _closed(tally, DRAIN_MOST_S):
        tally.unanswered(f"no answer within {DRAIN_MOST_S:g} s")
    return Measured(
        count=count,
        seconds=seconds,
        latency_ms=quantiles_ms(tally.latencies_s),
        answers={status.decode(): number for status, number in tally.answers.items()},
        unexpected=tally.unexpected,
        cpu_us=shares_us({"generator": cpu_s}, count),
    )


async def _warm_up(traffic: Traffic, tally: _Tally) -> None:
    least = len(traffic.paths) if traffic.first_pass else 0
    began = time.perf_counter()
    while (waited := time.perf_counter() - began) < WARM_UP_MOST_S:
        if (waited >= traffic.warm_up_s and tally.total >= least) or tally.closed.is_set():
            return
        await asyncio.sleep(POLL_S)


async def _first_measured(tally: _Tally) -> None:
    """Where the disk stalled for as long as was to be measured, that is what is measured: never nothing."""
    began = time.perf_counter()
    while not tally.latencies_s and not tally.closed.is_set() and time.perf_counter() - began < DRAIN_MOST_S:
        await asyncio.sleep(POLL_S)


async def _closed(tally: _Tally, timeout_s: float) -> bool:
    """Whether all connections are closed, at once or within that time."""
    try:
        await asyncio.wait_for(tally.closed.wait(), timeout_s)
    except TimeoutError:
        return False
    return True


class _Tally:
    """What the connections were answered; told by each of them."""

    def __init__(self, expected: set[bytes]) -> None:
        self.total = 0
        self.answers: Counter[bytes] = Counter()
        self.unexpected: str | None = None
        self.latencies_s = array("d")
        self.stopping = False
        self.closed = asyncio.Event()
        self._open = 0
        self._expected = expected
        self._begun = inf

    def begin(self) -> float:
        """From now on latencies count: not those of requests under way, which the warm-up slowed down."""
        self._begun = time.perf_counter()
        return self._begun

    def answered(self, status: bytes, sent: float, now: float, answer: bytes) -> None:
        self.total += 1
        self.answers[status] += 1
        if sent >= self._begun:
            self.latencies_s.append(now - sent)
        if status not in self._expected:
            self.unexpected = self.unexpected or answer.decode(errors="replace")

    def opened(self) -> None:
        self._open += 1

    def ended(self, lost: str | None) -> None:
        """`lost`: why it did not end in order."""
        self._open -= 1
        if not self._open:
            self.closed.set()
        if lost is not None:
            self.answers[b"lost"] += 1
            self.unexpected = self.unexpected or lost

    def unanswered(self, why: str) -> None:
        self.answers[b"lost"] += self._open
        self.unexpected = self.unexpected or why


class _Connection(asyncio.Protocol):
    def __init__(self, tally: _Tally, requests: Iterator[bytes], every_s: float) -> None:
        self._tally = tally
        self._requests = requests
        self._every_s = every_s
        self._received = b""
        self._due = 0.0
        self._sent = 0.0
        self._done = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is of no class of asyncio's
        self._tally.opened()

    def start(self, after_s: float) -> None:
        """The first request; those of a closed loop all at once."""
        self._due = time.perf_counter() + after_s
        self._wait(after_s)

    def _wait(self, wait_s: float) -> None:
        if wait_s > 0:
            asyncio.get_running_loop().call_later(wait_s, self._on_time)
        else:
            self._send(self._due)

    def _on_time(self) -> None:
        """Timers are as coarse as a millisecond, which is no latency of the server's."""
        self._send(time.perf_counter())

    def _send(self, counted_from: float) -> None:
        if self._tally.stopping:
            self._done = True
            self._transport.close()
            return
        self._sent = counted_from
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        if self._received:
            data = self._received + data
        status = status_of(data)
        if status is None:
            self._received = data
            return
        self._received = b""
        now = time.perf_counter()
        self._tally.answered(status, self._sent, now, data)
        self._due = self._due + self._every_s if self._every_s else now
        self._wait(self._due - now)

    def connection_lost(self, error: Exception | None) -> None:
        why = None if self._done else f"a connection ended early: {error or 'closed by the server'}"
        self._tally.ended(why)


def status_of(data: bytes) -> bytes | None:
    """The status of a whole answer; None when there is more to come. Raises ValueError for what can't be the
    one answer to the one request that is under way."""
    head_end = data.find(b"\r\n\r\n")
    if head_end < 0:
        return None
    length = _LENGTHS.get(data[:FRONT_BYTES])
    if length is None:
        length = _content_length(data[: head_end + 2])
    left = head_end + 4 + length - len(data)
    if left < 0:
        raise ValueError("bytes after an answer")
    return None if left else data[9:12]


def _content_length(head: bytes) -> int:
    """Of a header, each line with its CR LF. Remembered where answers that begin alike have the same."""
    at = head.lower().find(b"\r\ncontent-length:")
    if at < 0:
        raise ValueError("an answer without Content-Length")
    end = head.find(b"\r\n", at + 2)
    length = int(head[at + 17 : end])
    if end < FRONT_BYTES and len(_LENGTHS) < FRONTS_MAX:
        _LENGTHS[head[:FRONT_BYTES]] = length
    return length


if __name__ == "__main__":
    wanted = msgspec.json.decode(sys.stdin.buffer.read(), type=Traffic)
    measured = uvloop.run(generate(wanted, partial(print, flush=True)))
    sys.stdout.buffer.write(msgspec.json.encode(measured))
