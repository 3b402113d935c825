"""Judges Postgres' settings by what the promises rest on. Pure.

Source: docs/guarantees.md, "What it rests on", and Postgres' documentation of `synchronous_commit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.operations.findings import Finding, Promise, Verdict, ok_or

OLDEST: Final = 14
CLOCK_APART_MAX_S: Final = 1.0
"""More, and `recorded_at` and `?at=` surprise people; nothing else reads a clock."""
_FAILOVER_SAFE: Final = ("on", "remote_apply")
_CRASH_SAFE: Final = (*_FAILOVER_SAFE, "remote_write", "local")
_READ: Final = (
    "instance", "schema_version", "partition_log", "partition_mark", "partition_trail", "outbox",
    "append_identity", "event_tag", "unique_claim", "tenant", "api_key", "spec_revision", "spec_closing",
    "catalog_reader", "catalog_clock", "redis_unreachable", "instance_home", "followed", "follower",
    "follower_row", "follower_source",
)  # fmt: skip
_GROWING: Final = (
    "outbox", "append_identity", "event_tag", "unique_claim", "quarantined_append", "partition_mark",
    "partition_trail", "spec_revision", "spec_closing", "catalog_reader", "redis_unreachable",
)  # fmt: skip
NEEDED: Final = (
    *((table, "", "SELECT") for table in _READ),
    *((table, "", "INSERT") for table in _GROWING),
    *(("partition_log", column, "UPDATE") for column in ("epoch", "seq", "chain", "mode", "owner", "alarm")),
    ("api_key", "last_used_at", "UPDATE"),
    ("unique_claim", "", "DELETE"),
    ("catalog_clock", "revision", "UPDATE"),
    ("instance_home", "system_id", "INSERT"),
    ("instance_home", "timeline", "UPDATE"),
)  # fmt: skip
"""Tables, columns and privileges of a gateway: deploy/postgres-grants.sql grants the same."""
UNIQUE: Final = (
    "outbox(id, tenant)",
    "outbox(p, seq)",
    "outbox(tenant, aggregate_type, aggregate_id, version)",
    "append_identity(tenant, identity)",
    "event_tag(tag, seq)",
    "unique_claim(value)",
    "partition_log(p)",
)


def judge_server(server: Mapping[str, Any], standbys: Mapping[str, Any] | None) -> list[Finding]:
    """`server` and `standbys` are rows of the statements of these names; None: not to be seen."""
    version_ok = server["version_num"] >= OLDEST * 10_000
    names, role = server["synchronous_standby_names"], server["role"]
    commit = server["synchronous_commit"]
    writes = not server["in_recovery"] and server["read_only"] == "off"
    limits = f"{server['statement_timeout']}, {server['lock_timeout']}"
    return [
        _of("version", server["version"], version_ok, f"Sluice needs PostgreSQL {OLDEST} or newer"),
        _of("takes writes", "yes" if writes else "no", writes, "a replica, or read-only: nothing can commit"),
        _of("fsync", server["fsync"], server["fsync"] == "on", "a power cut corrupts what was acknowledged"),
        _of(
            "full_page_writes", server["full_page_writes"], server["full_page_writes"] == "on",
            "a power cut in the middle of a write corrupts what was acknowledged",
        ),
        _of(
            "synchronous_commit", f"{commit} (as {role})", commit in _CRASH_SAFE,
            "the last acknowledged events are lost in a crash",
        ),
        _warn(
            "synchronous_standby_names", names or "none", _standby_ready(server, standbys) or not names,
            "no synchronous standby is connected: commits wait for one",
        ),
        Finding("postgres", "standbys", _told_standbys(standbys)),
        _warn(
            "wal_level", server["wal_level"], server["wal_level"] != "minimal",
            "neither a standby nor a restore to a point in time is possible",
        ),
        _of(
            "statement_timeout, lock_timeout", limits, limits == "0, 0",
            f"a commit that is cancelled may have happened: ALTER ROLE {role} SET statement_timeout = 0, "
            "lock_timeout = 0",
        ),
        _warn(
            "autovacuum", server["autovacuum"], server["autovacuum"] == server["track_counts"] == "on",
            "each commit leaves a dead row behind, and commits become slower and slower",
        ),
        _warn(
            "data_checksums", server["data_checksums"], server["data_checksums"] == "on",
            "only `sluice audit` detects data that the disk corrupted",
        ),
    ]  # fmt: skip


def judge_contents(
    contents: Mapping[str, Any], missing: Sequence[Mapping[str, Any]], unique: Sequence[str]
) -> list[Finding]:
    """Whether the database is what a gateway expects: `missing` privileges, `unique` indexes as they are."""
    partitions, rows = contents["partitions"], contents["partition_rows"]
    complete = (rows, contents["lowest"], contents["highest"]) == (partitions, 0, partitions - 1)
    absent = [each for each in UNIQUE if each not in unique]
    refused = sorted({f"{row['privilege']} on {_place(row)}" for row in missing})
    held = contents["halted"]
    catalog = f"{contents['tenants']} tenants, {contents['keys']} keys, {contents['specs']} spec revisions"
    return [
        _of("partitions", f"{rows} of {partitions}", complete, "partition_log lacks rows: was it edited?"),
        _of(
            "halted partitions", str(held), held == 0,
            "Postgres has lost commits: `sluice repair`, or `sluice rewind`",
        ),
        _of("unique indexes", "all" if not absent else f"not {'; '.join(absent)}", not absent,
            "duplicates could be stored"),
        _of("privileges", "all" if not refused else f"not {', '.join(refused)}", not refused,
            "a gateway with this role can't work: deploy/postgres-grants.sql"),
        _of("catalog", catalog, contents["clock"] is not None, "the catalog's clock is missing"),
    ]  # fmt: skip


def judge_clock(apart_s: float) -> Finding:
    """`apart_s`: how far Postgres' clock is ahead of this machine's."""
    return _warn(
        "clock", f"{apart_s:+.3f} s from this machine's", abs(apart_s) <= CLOCK_APART_MAX_S,
        "`recorded_at` is off by as much; no decision rests on a clock",
    )  # fmt: skip


def promises(server: Mapping[str, Any], standbys: Mapping[str, Any] | None) -> list[Promise]:
    unsafe = [name for name in ("fsync", "full_page_writes") if server[name] != "on"]
    if server["synchronous_commit"] not in _CRASH_SAFE:
        unsafe.append("synchronous_commit")
    crash = "fsync, full_page_writes and synchronous_commit are on"
    return [
        Promise(
            "an acknowledged event survives a crash of Postgres' machine",
            not unsafe,
            crash if not unsafe else f"off: {', '.join(unsafe)}",
        ),
        Promise("a failover to a standby loses nothing", *_failover(server, standbys)),
    ]


def _failover(server: Mapping[str, Any], standbys: Mapping[str, Any] | None) -> tuple[bool, str]:
    names, commit = server["synchronous_standby_names"], server["synchronous_commit"]
    if not names:
        return False, "no synchronous standby; Sluice detects a loss and halts until an operator decides"
    if commit not in _FAILOVER_SAFE:
        return (
            False,
            f"synchronous_commit is {commit}: a commit does not wait until the standby has stored it",
        )
    if not _standby_ready(server, standbys):
        return False, "no synchronous standby is connected"
    return True, f"every commit waits for {names}"


def _standby_ready(server: Mapping[str, Any], standbys: Mapping[str, Any] | None) -> bool:
    """Also where it can't be seen."""
    return bool(server["synchronous_standby_names"]) and (standbys is None or standbys["synchronous"] > 0)


def _told_standbys(standbys: Mapping[str, Any] | None) -> str:
    if standbys is None:
        return "this role can't see them"
    return f"{standbys['connected']} connected, {standbys['synchronous']} synchronous"


def _place(row: Mapping[str, Any]) -> str:
    return f"{row['tab']}.{row['col']}" if row["col"] else str(row["tab"])


def _of(name: str, found: str, holds: bool, means: str) -> Finding:
    return ok_or("postgres", name, found, holds, means)


def _warn(name: str, found: str, holds: bool, means: str) -> Finding:
    return ok_or("postgres", name, found, holds, means, Verdict.WARNING)
