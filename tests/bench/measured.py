"""What a measurement comes to: the value that the drivers make and the report shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One scenario in one round.

    `count` units (appends, reads, requests) were completed in `seconds`. `latency_ms` is by quantile, of
    requests, or of calls where the scenario sends none; empty when nothing was completed. `answers` counts
    every answer by its status, those of the warm-up too; `lost` is a connection that ended. `unexpected` is
    the first answer other than the expected one. `cpu_us` is a unit's share of each process, and `memory_mb`
    what each holds at the end, where the system tells.
    """

    count: int
    seconds: float
    latency_ms: dict[str, float]
    answers: dict[str, int]
    unexpected: str | None
    cpu_us: dict[str, float]
    memory_mb: dict[str, float] = field(default_factory=dict)

    @property
    def per_s(self) -> float:
        return self.count / self.seconds


def nothing(why: str) -> Measured:
    """Where it can't be measured."""
    return Measured(count=0, seconds=1, latency_ms={}, answers={}, unexpected=why, cpu_us={})


def quantiles_ms(latencies_s: Iterable[float]) -> dict[str, float]:
    """By nearest rank: each is a latency that did occur."""
    ranked = sorted(latencies_s)
    if not ranked:
        return {}
    last = len(ranked) - 1
    return {name: ranked[min(last, int(part * len(ranked)))] * 1e3 for name, part in QUANTILES.items()}


def shares_us(used_s: dict[str, float], count: int) -> dict[str, float]:
    """Seconds of CPU to microseconds a unit; empty when there was none."""
    return {name: seconds / count * 1e6 for name, seconds in used_s.items()} if count else {}
