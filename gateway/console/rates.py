"""What a gateway did in the last hour, sampled from its metrics and kept in memory."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

EVERY_S: Final = 10.0
KEPT: Final = 360
"""Samples: an hour."""
_NAMES: Final = frozenset(
    (
        "sluice_appends_total",
        "sluice_reads_total",
        "sluice_http_responses_total",
        "sluice_append_wait_seconds_bucket",
        "sluice_backend_up",
        "sluice_direct_mode",
        "sluice_partitions",
    )
)

Labels = tuple[tuple[str, str], ...]
Counts = Mapping[tuple[str, Labels], float]


class Rate(NamedTuple):
    """Per second, and quantiles in milliseconds (None: nothing happened), of the time up to `at` (Unix)."""

    at: float
    appends: float
    reads: float
    conflicts: float
    refusals: float
    p50_ms: float | None
    p99_ms: float | None


class Rates:
    def __init__(self, metrics: Metrics) -> None:
        self._registry = metrics.registry
        self._last: tuple[float, float, Counts] | None = None
        self.rates: deque[Rate] = deque(maxlen=KEPT)
        self.counts: Counts = {}
        """As they were counted last."""

    def look(self) -> None:
        """Reads gauges as they are now; rates stay those of the last sample."""
        self.counts = dict(self._counted())

    @asynccontextmanager
    async def sampled(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            self.sample()
            await asyncio.sleep(EVERY_S)

    def sample(self) -> None:
        now, mono, counts = time.time(), time.monotonic(), dict(self._counted())
        if self._last is not None:
            passed = max(mono - self._last[1], 0.001)
            self.rates.append(_rate(now, passed, self._last[2], counts))
        self._last, self.counts = (now, mono, counts), counts

    def _counted(self) -> Iterator[tuple[tuple[str, Labels], float]]:
        for metric in self._registry.collect():
            for each in metric.samples:
                if each.name in _NAMES:
                    yield (each.name, tuple(sorted(each.labels.items()))), each.value

    def gauge(self, name: str) -> dict[Labels, float]:
        """By labels, as read last."""
        return {labels: value for (each, labels), value in self.counts.items() if each == name}


def _rate(at: float, passed_s: float, before: Counts, now: Counts) -> Rate:
    def more(name: str, wanted: Mapping[str, tuple[str, ...]] | None = None) -> float:
        total = 0.0
        for (each, labels), value in now.items():
            found = dict(labels)
            if each == name and all(found.get(label) in among for label, among in (wanted or {}).items()):
                total += value - before.get((each, labels), 0.0)
        return total / passed_s

    refused = tuple(str(status) for status in range(400, 600))
    waits = sorted(
        (float(dict(labels)["le"]), value - before.get((name, labels), 0.0))
        for (name, labels), value in now.items()
        if name == "sluice_append_wait_seconds_bucket"
    )
    return Rate(
        at,
        more("sluice_appends_total", {"outcome": ("committed",)}),
        more("sluice_http_responses_total", {"method": ("GET", "HEAD"), "status": ("200", "304")}),
        more("sluice_appends_total", {"outcome": ("conflict",)}),
        more("sluice_http_responses_total", {"status": refused}),
        _quantile(waits, 0.5),
        _quantile(waits, 0.99),
    )


def _quantile(buckets: list[tuple[float, float]], q: float) -> float | None:
    """In milliseconds, the upper bound of the bucket that it lies in."""
    total = buckets[-1][1] if buckets else 0.0
    if total <= 0:
        return None
    bound = next(le for le, count in buckets if count >= q * total)
    return None if bound == float("inf") else bound * 1000
