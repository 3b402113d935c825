"""What a gateway did in the last hour, sampled from its metrics and kept in memory."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict, deque
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
        "sluice_catalog_age_seconds",
    )
)
_FAMILIES: Final = frozenset([name.removesuffix("_total").removesuffix("_bucket") for name in _NAMES])
"""Of the others no sample is made: there may be thousands."""
_OF: Final = {"sluice_backend_up": "server", "sluice_partitions": "state", "sluice_direct_mode": "partition"}
"""The label that tells a gauge's values apart."""

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


class Figures(NamedTuple):
    """What memory knows of this gateway. `up`: whether each server answers; `unconfirmed_s`: since Postgres
    last confirmed the keys; `direct`: partitions that bypass Redis; `partitions`: how many, by state."""

    up: Mapping[str, bool]
    unconfirmed_s: float
    direct: int
    partitions: Mapping[str, int]
    rates: tuple[Rate, ...]

    @property
    def last(self) -> Rate | None:
        return self.rates[-1] if self.rates else None

    @property
    def series(self) -> str:
        """Columns for the chart, as JSON."""
        columns = [
            [round(getattr(each, name), 2) for each in self.rates] for name in ("at", "appends", "reads")
        ]
        return json.dumps([*columns, [each.p99_ms for each in self.rates]])


class Rates:
    def __init__(self, metrics: Metrics) -> None:
        self._registry = metrics.registry
        self._last: tuple[float, float, Counts] | None = None
        self._rates: deque[Rate] = deque(maxlen=KEPT)

    def look(self) -> Figures:
        """Gauges as they are now, and the rates up to the last sample."""
        gauges: dict[str, dict[str, float]] = defaultdict(dict)
        for (name, labels), value in self._counted():
            gauges[name][dict(labels).get(_OF.get(name, ""), "")] = value
        return Figures(
            {server: value > 0 for server, value in gauges["sluice_backend_up"].items()},
            gauges["sluice_catalog_age_seconds"].get("", 0.0),
            sum(value > 0 for value in gauges["sluice_direct_mode"].values()),
            {state: int(value) for state, value in gauges["sluice_partitions"].items()},
            tuple(self._rates),
        )

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
            self._rates.append(_rate(now, passed, self._last[2], counts))
        self._last = now, mono, counts

    def _counted(self) -> Iterator[tuple[tuple[str, Labels], float]]:
        for metric in self._registry.collect():
            for each in metric.samples if metric.name in _FAMILIES else ():
                if each.name in _NAMES:
                    yield (each.name, tuple(sorted(each.labels.items()))), each.value


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
