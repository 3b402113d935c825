"""What an append pays for being counted: `python -m tests.telemetry.cost [appends a batch]`.

All that stands between the socket and the commit on behalf of the metrics, with nothing else around it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Awaitable, Callable

from prometheus_client import CollectorRegistry

from gateway.http.asgi_extension import EXTENSION, WHOLE
from gateway.http.metrics import MetricsMiddleware
from gateway.http.request import Message, Receive, Scope, Send
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.steps import Telemetry

ROUNDS = 20_000
ANSWER: Message = {
    "type": WHOLE,
    "status": 201,
    "head": b"x-correlation-id: 0197f3a0-0000-7000-8000-000000000000\r\n",
    "body": b"",
}
SCOPE: Scope = {"method": "POST", "extensions": {EXTENSION: {}}}


def drop(_message: Message) -> Awaitable[None]:
    return _DONE


async def receive() -> Message:
    return ANSWER


def answer(_scope: Scope, _receive: Receive, send: Send) -> Awaitable[None]:
    send(ANSWER)
    return _DONE


class _Done:
    def __await__(self) -> object:  # never awaited
        raise AssertionError


_DONE: Awaitable[None] = _Done()  # type: ignore[assignment]


def main(appends: int) -> None:
    metrics = Metrics(CollectorRegistry())
    telemetry = Telemetry(metrics)
    counted = MetricsMiddleware(answer, metrics)

    def batch() -> None:
        with telemetry.sequencing.of(3, appends, ()):
            pass
        metrics.cold_streams.inc(appends)
        with telemetry.committing.of(3, appends, ()):
            pass
        metrics.swaps_succeeded.inc()
        metrics.committed(appends, appends, 0.002)

    batch_us = timed(batch)
    request_us = timed(lambda: counted(SCOPE, receive, drop)) - timed(lambda: answer(SCOPE, receive, drop))
    print(f"a batch {batch_us:.2f} µs, a request {request_us:.2f} µs")
    print(f"an append in a batch of {appends}: {request_us + batch_us / appends:.2f} µs")


def timed(call: Callable[[], object]) -> float:
    """Microseconds a call, the best of five runs: what disturbs only adds."""
    best = float("inf")
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(ROUNDS):
            call()
        best = min(best, time.perf_counter() - begun)
    return best / ROUNDS * 1e6


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.telemetry.cost", description=__doc__)
    parser.add_argument("appends", type=int, nargs="?", default=30, help="appends a batch (30)")
    main(parser.parse_args().appends)
