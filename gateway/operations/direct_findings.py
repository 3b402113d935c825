"""Judges whether appends go through Redis or directly, and which gateways keep them from Redis. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from itertools import pairwise
from typing import Any

from gateway.operations.findings import Finding, Verdict


def judge(partitions: int, direct: Sequence[int], missing: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Of so many partitions, `direct` are in direct mode; `missing`: rows of without_redis.sql."""
    return [_judge_mode(partitions, direct, missing), *(_judge_gateway(partitions, row) for row in missing)]


def _judge_mode(partitions: int, direct: Sequence[int], missing: Sequence[Mapping[str, Any]]) -> Finding:
    if not direct:
        return Finding("gateways", "direct mode", "none of the partitions")
    keeps = (
        "the gateways named below reach it" if missing else "Redis has been back for SLUICE_REDIS_RECOVERY_S"
    )
    means = f"appends there use only Postgres, slower and with every guarantee kept, until {keeps}"
    return Finding("gateways", "direct mode", told(partitions, direct), Verdict.WARNING, means)


def _judge_gateway(partitions: int, row: Mapping[str, Any]) -> Finding:
    """A gateway calls itself host:pid:instance; a person needs the first two."""
    since = row["since"].astimezone(UTC)
    found = (
        f"no, {told(partitions, row['partitions'])}, since {since:%Y-%m-%dT%H:%M:%SZ} ({row['for_s']:.0f} s)"
    )
    means = (
        "until it reaches Redis, no gateway takes these partitions back to Redis: check its network and its "
        "address and password of Redis, or stop it"
    )
    who = row["gateway"].rpartition(":")[0] or row["gateway"]
    return Finding(f"gateway {who}", "reaches Redis", found, Verdict.WARNING, means)


def told(partitions: int, some: Iterable[int]) -> str:
    """Numbers of partitions, in order, runs of them as '3-7'."""
    numbers = sorted(some)
    if len(numbers) == partitions:
        return f"all {partitions} partitions"
    begins = [numbers[0], *(b for a, b in pairwise(numbers) if b != a + 1)]
    ends = [*(a for a, b in pairwise(numbers) if b != a + 1), numbers[-1]]
    runs = (f"{a}-{b}" if a != b else str(a) for a, b in zip(begins, ends, strict=True))
    return f"partitions {', '.join(runs)} of {partitions}"
