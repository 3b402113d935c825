"""`sluice doctor`: looks at the settings that the promises rest on, and says what is promised with them.

Owns: the looks. What they mean is judged in postgres_findings, redis_findings, direct_findings,
follow_findings, reaction_findings, spec_findings and memory_findings.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from redis.exceptions import RedisError

from gateway.log.redis.cluster import Cluster
from gateway.log.redis.scripts import RedisTrouble
from gateway.log.redis.servers import Server
from gateway.log.watch import REACH_KEPT_S
from gateway.operations import (
    direct_findings,
    follow_findings,
    memory_findings,
    postgres_findings,
    reaction_findings,
    redis_findings,
    spec_findings,
)
from gateway.operations.findings import Diagnosis, Finding, Verdict
from gateway.operations.place import Place
from gateway.partitions import PARTITION_RULE
from gateway.relay.home import differs, homes
from gateway.telemetry.redact import reason
from spec.parse import parse_deployed

SPECS_S: Final = 10.0
"""For reading specs, which takes some milliseconds each."""
SPECS_AT_ONCE: Final = 20
"""Of at most 1 MiB each."""


async def diagnose(place: Place, journal_retention_s: float, memory_bytes_max: int | None) -> Diagnosis:
    """`memory_bytes_max`: what the workers of a gateway take at most, None without a limit. Raises
    PostgresTrouble; a Redis that does not answer is a finding."""
    server, apart_s = await _server(place)
    standbys = await _standbys(place)
    findings = postgres_findings.judge_server(server, standbys)
    contents, missing, unique = await _contents(place)
    findings += postgres_findings.judge_contents(contents, missing, unique)
    findings.append(postgres_findings.judge_clock(apart_s))
    findings.append(Finding("postgres", "instance", f"{place.instance.id}, rule {PARTITION_RULE}"))
    findings.append(await _home(place))
    findings.append(follow_findings.judge((await place.fetch("followers"))[0]))
    findings.append(spec_findings.judge(await _specs(place)))
    findings += reaction_findings.judge((await place.fetch("reactions"))[0])
    infos, of_redis = await _redis(place)
    findings += of_redis
    without_redis = await place.fetch("without_redis", REACH_KEPT_S)
    findings += direct_findings.judge(contents["partitions"], contents["direct"], without_redis)
    findings.append(memory_findings.judge(memory_bytes_max, memory_findings.memory_bytes()))
    promises = postgres_findings.promises(server, standbys)
    return Diagnosis(findings, promises + redis_findings.promises(infos, journal_retention_s))


async def _server(place: Place) -> tuple[Mapping[str, Any], float]:
    """The settings, and how far Postgres' clock is ahead of ours: its reading is put halfway of the query."""
    await place.fetch("server")  # connects, which takes longer than a query
    before = time.time()
    row = (await place.fetch("server"))[0]
    return row, row["clock_s"] - (before + time.time()) / 2


async def _home(place: Place) -> Finding:
    recorded, found = await homes(place.pool)
    why = None if recorded is None or found is None else differs(recorded, found)
    if why is None:
        return Finding("postgres", "adopted", "yes" if recorded else "no relay has delivered from here yet")
    return Finding(
        "postgres", "adopted", "no", Verdict.WARNING, f"{why}: nothing is delivered until `sluice adopt`"
    )


async def _specs(place: Place) -> spec_findings.Specs:
    """The newest revision of each tenant, as many as are read in SPECS_S."""
    found = spec_findings.Specs()
    until, after = time.monotonic() + SPECS_S, UUID(int=0)
    while rows := await place.fetch("deployed_specs", after, SPECS_AT_ONCE):
        for row in rows:
            if time.monotonic() > until:
                found.whole = False
                return found
            spec = await asyncio.to_thread(parse_deployed, row["document"])
            found.add(row["name"], row["revision"], spec)
        after = UUID(bytes=rows[-1]["tenant"].bytes)
    return found


async def _standbys(place: Place) -> Mapping[str, Any] | None:
    """None where this role can't see them: it then sees rows without their columns."""
    row = (await place.fetch("standbys"))[0]
    return row if row["visible"] else None


async def _contents(place: Place) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]], Sequence[str]]:
    needed = postgres_findings.NEEDED
    missing = await place.fetch("privileges", *(list(each) for each in zip(*needed, strict=True)))
    unique = [row["unique_on"] for row in await place.fetch("constraints")]
    return (await place.fetch("contents"))[0], missing, unique


async def _redis(place: Place) -> tuple[list[Mapping[str, Any]], list[Finding]]:
    """What INFO tells of each server that answers, and the findings on all of them."""
    try:
        servers = await place.scripts.servers.all()
    except (RedisError, OSError) as trouble:
        return [], [_away(trouble)]
    infos: list[Mapping[str, Any]] = []
    findings: list[Finding] = []
    for server in servers:
        info, found = await _one_redis(place, server)
        infos += [] if info is None else [info]
        findings += [replace(each, server=f"redis {server.name}".rstrip()) for each in found]
    return infos, findings


async def _one_redis(place: Place, server: Server) -> tuple[Mapping[str, Any] | None, list[Finding]]:
    try:
        info = await server.client.info("everything")
    except (RedisError, OSError) as trouble:
        return None, [_away(trouble)]
    as_cluster = isinstance(place.redis, Cluster)
    trouble_of_scripts = await _trial(place, server)
    judged = redis_findings.judge(info, await _appendfsync(server), trouble_of_scripts, as_cluster=as_cluster)
    return info, judged


def _away(trouble: BaseException) -> Finding:
    means = "until it does, appends use only Postgres (direct mode); nothing is lost"
    return Finding("redis", "answers", f"no: {reason(trouble)}", Verdict.FAULT, means)


async def _appendfsync(server: Server) -> str | None:
    try:
        return str((await server.client.config_get("appendfsync")).get("appendfsync"))
    except (RedisError, OSError):
        return None


async def _trial(place: Place, server: Server) -> str | None:
    """What hinders a gateway's scripts on a partition that is here, if there is one and anything does."""
    for p in range(place.instance.partitions):
        keys = place.keys(p, 0)
        try:
            if await place.scripts.server_of(keys.meta) is not server:
                continue
            return await place.scripts.hindrance(keys)
        except RedisTrouble as trouble:
            return str(trouble)
    return None
