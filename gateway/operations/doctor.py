"""`sluice doctor`: looks at the settings that the promises rest on, and says what is promised with them.

Owns: the looks. What they mean is judged in postgres_findings and redis_findings.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import RedisError

from gateway.log.partition import PARTITION_RULE
from gateway.log.scripts import RedisTrouble
from gateway.operations import postgres_findings, redis_findings
from gateway.operations.findings import Diagnosis, Finding, Verdict
from gateway.operations.place import Place
from gateway.telemetry.redact import reason


async def diagnose(place: Place, journal_keep_s: float) -> Diagnosis:
    """Raises PostgresTrouble; a Redis that does not answer is a finding."""
    server, apart_s = await _server(place)
    standbys = await _standbys(place)
    findings = postgres_findings.judge_server(server, standbys)
    findings += postgres_findings.judge_contents(*await _contents(place))
    findings.append(postgres_findings.judge_clock(apart_s))
    findings.append(Finding("postgres", "instance", f"{place.instance.id}, rule {PARTITION_RULE}"))
    info, of_redis = await _redis(place)
    findings += of_redis
    promises = postgres_findings.promises(server, standbys)
    return Diagnosis(findings, promises + redis_findings.promises(info, journal_keep_s))


async def _server(place: Place) -> tuple[Mapping[str, Any], float]:
    """The settings, and how far Postgres' clock is ahead of ours: its reading is put halfway of the query."""
    await place.fetch("server")  # connects, which takes longer than a query
    before = time.time()
    row = (await place.fetch("server"))[0]
    return row, row["clock_s"] - (before + time.time()) / 2


async def _standbys(place: Place) -> Mapping[str, Any] | None:
    """None where this role can't see them: it then sees rows without their columns."""
    row = (await place.fetch("standbys"))[0]
    return row if row["visible"] else None


async def _contents(place: Place) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]], Sequence[str]]:
    needed = postgres_findings.NEEDED
    missing = await place.fetch("privileges", *(list(each) for each in zip(*needed, strict=True)))
    unique = [row["unique_on"] for row in await place.fetch("constraints")]
    return (await place.fetch("contents"))[0], missing, unique


async def _redis(place: Place) -> tuple[Mapping[str, Any] | None, list[Finding]]:
    try:
        info = await place.redis.info("everything")
    except (RedisError, OSError) as trouble:
        means = "nothing can be sequenced until it does; nothing is lost"
        return None, [Finding("redis", "answers", f"no: {reason(trouble)}", Verdict.FAULT, means)]
    return info, redis_findings.judge(info, await _appendfsync(place), await _trial(place))


async def _appendfsync(place: Place) -> str | None:
    try:
        return str((await place.redis.config_get("appendfsync")).get("appendfsync"))
    except (RedisError, OSError):
        return None


async def _trial(place: Place) -> str | None:
    """What hinders a gateway's scripts, if anything does."""
    keys = place.keys(0, 0)
    try:
        wrong = await place.scripts.run("probe", (keys.meta, f"{keys.prefix}h", f"{keys.prefix}s"), ())
    except RedisTrouble as trouble:
        return str(trouble)
    return "; ".join(each.decode() for each in wrong) or None
