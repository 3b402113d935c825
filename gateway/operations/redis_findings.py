"""Judges Redis by what its `INFO` and a trial of the scripts' commands tell. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.operations.findings import Finding, Promise, Verdict, ok_or

OLDEST: Final = (7, 0)
LUA_CVES: Final = "CVE-2025-49844, CVE-2025-46817, CVE-2025-46818, CVE-2025-46819"
LUA_FIXED: Final = {
    "redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
}
"""Branch → the first release in it with these closed; branches after the last have them closed."""
_FULL: Final = 0.9


def judge(
    info: Mapping[str, Any], appendfsync: str | None, trouble: str | None, *, as_cluster: bool = False
) -> list[Finding]:
    """`info` is all of INFO. `appendfsync` None: not to be seen by this user. `trouble`: why a gateway's
    commands don't work here, None if they do. `as_cluster`: the URL says that it is a node of one."""
    kind, version = server_version(info)
    policy, role = info.get("maxmemory_policy", "unknown"), info.get("role", "unknown")
    is_node = bool(int(info.get("cluster_enabled", 0)))
    return [
        _of("version", f"{kind} {'.'.join(map(str, version))}", version[:2] >= OLDEST,
            f"Sluice needs Redis {OLDEST[0]}.{OLDEST[1]} or newer, or Valkey"),
        judge_lua(kind, version),
        _of("role", f"{role}, {info.get('connected_slaves', 0)} replicas", as_cluster or role == "master",
            "SLUICE_REDIS_URL must lead to the primary: nothing can be sequenced on a replica"),
        _of("cluster", "a node of one" if is_node else "none", is_node == as_cluster,
            f"SLUICE_REDIS_URL must begin with redis{'+cluster' if is_node else ''}://, or with "
            f"rediss{'+cluster' if is_node else ''}://"),
        _of("maxmemory-policy", str(policy), policy == "noeviction",
            "what is sequenced and not committed may be dropped; gateways refuse to start"),
        _judge_memory(info),
        _judge_aof(info, appendfsync),
        _of("scripts and permissions", trouble or "all that a gateway needs", trouble is None,
            "gateways can't sequence: see the user's ACL in deploy/redis.conf"),
    ]  # fmt: skip


def judge_lua(kind: str, version: tuple[int, ...]) -> Finding:
    """Whether the known holes of the Lua interpreter are closed, as far as a version number tells."""
    fixed, branch = LUA_FIXED[kind], version[:2]
    patch = fixed.get((version[0], version[1]))
    closed = branch > max(fixed) or (patch is not None and version[2] >= patch)
    name, found = "Lua interpreter", f"{LUA_CVES} {'closed' if closed else 'open'}"
    if closed:
        return Finding("redis", name, "known holes closed")
    wanted = f"{branch[0]}.{branch[1]}.{patch}" if patch else "a release with them closed"
    means = (
        f"clients that run scripts can take the server over: {wanted}, or your distribution's patched package"
    )
    return Finding("redis", name, found, Verdict.WARNING, means)


def promises(infos: Sequence[Mapping[str, Any]], journal_retention_s: float) -> list[Promise]:
    """`infos` of each server that answers."""
    if not infos:
        return [Promise("appends can be sequenced", False, "Redis does not answer; none is lost")]
    holds = all(info.get("maxmemory_policy") == "noeviction" for info in infos)
    why = "Postgres decides; what Redis loses costs a moment" if holds else "it may drop what is on its way"
    keeps = f"for {journal_retention_s:g} s after a commit, as long as Redis keeps its memory"
    return [
        Promise("Redis may lose anything without the loss of an event", holds, why),
        Promise("what Postgres loses can be restored from the journal", journal_retention_s > 0, keeps),
    ]


def server_version(info: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
    """`valkey` or `redis`, and its version; Valkey tells the Redis version that it is compatible with too."""
    kind = "valkey" if "valkey_version" in info else "redis"
    found = re.match(r"([0-9]+)\.([0-9]+)\.([0-9]+)", str(info.get(f"{kind}_version", "")))
    return kind, tuple(map(int, found.groups())) if found else (0, 0, 0)


def _judge_memory(info: Mapping[str, Any]) -> Finding:
    most, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    if not most:
        means = "the kernel may end Redis when the machine runs out of memory"
        return Finding("redis", "maxmemory", "no limit", Verdict.WARNING, means)
    return ok_or(
        "redis", "maxmemory", f"{used / most:.0%} of {most >> 20} MiB used", used < most * _FULL,
        "when it is full, appends and reads use only Postgres, slower (direct mode)", Verdict.WARNING,
    )  # fmt: skip


def _judge_aof(info: Mapping[str, Any], appendfsync: str | None) -> Finding:
    on = bool(int(info.get("aof_enabled", 0)))
    found = f"on, {appendfsync or 'appendfsync not visible to this user'}" if on else "off"
    means = "after a restart every stream is read from Postgres again, and no lost commit can be restored"
    return ok_or("redis", "append-only file", found, on, means, Verdict.WARNING)


def _of(name: str, found: str, holds: bool, means: str) -> Finding:
    return ok_or("redis", name, found, holds, means)
