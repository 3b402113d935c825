"""The doctor says what is promised with the settings that are there, and where a promise is broken."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from redis.asyncio import Redis

from gateway.catalog.migrate import migrate
from gateway.operations import direct_findings, redis_findings
from gateway.operations.doctor import diagnose
from gateway.operations.findings import Diagnosis, Verdict
from gateway.operations.place import Place, open_place
from gateway.operations.postgres_findings import judge_clock, judge_server, promises
from gateway.postgres.errors import PostgresTrouble
from tests.conftest import PARTITIONS
from tests.support import drive
from tests.support.servers import Servers, open_folder, servers_in

GRANTS = Path(__file__).parents[2] / "deploy" / "postgres-grants.sql"
ACL = (
    "-@all +evalsha +script|load +info +time +hget +hmget +hset +hlen +hdel +hrandfield +xadd +xlen +xrange"
    " +xrevrange +xtrim +touch +object|idletime +del +unlink"
)

DURABLE = {
    "version_num": 160002,
    "version": "16.2",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "synchronous_standby_names": "",
    "wal_level": "replica",
    "autovacuum": "on",
    "track_counts": "on",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "read_only": "off",
    "data_checksums": "on",
    "role": "sluice",
    "in_recovery": False,
}
NO_STANDBY = {"connected": 0, "synchronous": 0}
HEALTHY = {
    "redis_version": "7.4.6",
    "role": "master",
    "connected_slaves": 1,
    "maxmemory_policy": "noeviction",
    "maxmemory": 100 << 20,
    "used_memory": 1 << 20,
    "aof_enabled": 1,
}


def verdicts(diagnosis: Diagnosis) -> dict[str, Verdict]:
    return {each.name: each.verdict for each in diagnosis.findings}


# -- on real servers


@pytest.fixture(scope="module")
async def durable() -> AsyncIterator[Servers]:
    with open_folder() as folder:
        pair = servers_in(folder, durable=True)
        with contextlib.closing(pair):
            await pair.start()
            await migrate(pair.postgres_url, PARTITIONS)
            yield pair


async def examined(servers: Servers, url: str | None = None, redis_url: str | None = None) -> Diagnosis:
    async with open_place(url or servers.postgres_url, redis_url or servers.redis_url, 2.0) as place:
        return await diagnose(place, 600.0, 1)


async def test_embedded_servers_keep_what_can_be_kept_on_one_machine(durable: Servers) -> None:
    diagnosis = await examined(durable)
    assert diagnosis.ok, diagnosis.findings
    kept = {each.promise: each.kept for each in diagnosis.promises}
    assert kept == {
        "an acknowledged event survives a crash of Postgres' machine": True,
        "a failover to a standby loses nothing": False,
        "Redis may lose anything without the loss of an event": True,
        "what Postgres loses can be restored from the journal": True,
    }
    names = set(verdicts(diagnosis))
    assert {
        "fsync",
        "privileges",
        "partitions",
        "unique indexes",
        "clock",
        "Lua interpreter",
        "role",
    } <= names


async def test_a_postgres_without_fsync_breaks_a_promise(place: Place) -> None:
    diagnosis = await diagnose(place, 600.0, 1)
    assert not diagnosis.ok
    assert [each.name for each in diagnosis.findings if each.verdict is Verdict.FAULT] == ["fsync"]
    assert not diagnosis.promises[0].kept
    assert diagnosis.promises[0].why == "off: fsync"


async def test_settings_of_the_role_count(durable: Servers) -> None:
    url = f"{durable.postgres_url}&synchronous_commit=off&statement_timeout=5s"
    diagnosis = await examined(durable, url)
    assert verdicts(diagnosis)["synchronous_commit"] is Verdict.FAULT
    assert verdicts(diagnosis)["statement_timeout, lock_timeout"] is Verdict.FAULT
    assert not diagnosis.promises[0].kept


async def test_what_waits_for_a_person_is_a_fault(home: drive.Place, place: Place) -> None:
    await home.execute("UPDATE partition_log SET alarm = 'lost' WHERE p < 2")
    await home.execute("DELETE FROM partition_log WHERE p = 5")
    await home.execute("ALTER TABLE outbox DROP CONSTRAINT outbox_p_seq_key")
    diagnosis = await diagnose(place, 600.0, 1)
    found = {each.name: each.found for each in diagnosis.findings if each.verdict is Verdict.FAULT}
    assert found["halted partitions"] == "2"
    assert found["partitions"] == "15 of 16"
    assert found["unique indexes"] == "not outbox(p, seq)"


async def test_the_grants_that_are_shipped_are_enough_and_their_lack_is_named(durable: Servers) -> None:
    admin = await asyncpg.connect(durable.postgres_url)
    try:
        await admin.execute("CREATE ROLE sluice_gateway LOGIN")
        await admin.execute("GRANT USAGE ON SCHEMA public TO sluice_gateway")
        url = durable.postgres_url.replace("sluice@", "sluice_gateway@")
        await admin.execute("GRANT SELECT ON schema_version, instance TO sluice_gateway")
        with pytest.raises(Exception, match="permission denied"):
            await examined(durable, url)
        grants = [line for line in GRANTS.read_text().splitlines() if not line.startswith("\\")]
        await admin.execute("\n".join(grants))
        diagnosis = await examined(durable, url)
        assert diagnosis.ok, diagnosis.findings
        async with open_place(url, durable.redis_url, 2.0) as gateways:
            with pytest.raises(PostgresTrouble, match="permission denied"):
                await gateways.fetch("rewind", 0, 1, 0, 2, "a gateway", "given up", 0)
            told = ("repair", "a gateway", "mended", 0)
            assert await gateways.fetch("finish_repair", 0, 1, 0, 1, *told)
        await admin.execute("REVOKE UPDATE (alarm) ON partition_log FROM sluice_gateway")
        await admin.execute("REVOKE INSERT ON append_identity FROM sluice_gateway")
        lacking = {each.name: each.found for each in (await examined(durable, url)).findings}
        assert lacking["privileges"] == "not INSERT on append_identity, UPDATE on partition_log.alarm"
    finally:
        await admin.execute("DROP OWNED BY sluice_gateway; DROP ROLE sluice_gateway")
        await admin.close()


async def test_a_redis_user_without_a_command_is_named(durable: Servers) -> None:
    async with Redis.from_url(durable.redis_url) as admin:
        socket = durable.redis_url.removeprefix("unix://")
        url = f"unix://gateway:secret@{socket}"
        await admin.execute_command(
            "ACL", "SETUSER", "gateway", "on", ">secret", "~sluice:1:*", *ACL.split(), "+client|setname"
        )
        assert verdicts(await examined(durable, redis_url=url))["scripts and permissions"] is Verdict.OK
        await admin.execute_command("ACL", "SETUSER", "gateway", "-xtrim", "-hget")
        found = {each.name: each for each in (await examined(durable, redis_url=url)).findings}
        assert found["scripts and permissions"].verdict is Verdict.FAULT
        told = found["scripts and permissions"].found
        assert "HGET: " in told
        assert "XTRIM: " in told
        assert "HSET" not in told
        assert "not visible" in found["append-only file"].found
        assert not [key async for key in admin.scan_iter(match="sluice:1:*:0:*")]


async def test_a_redis_that_may_drop_keys_or_does_not_answer_is_a_fault(durable: Servers) -> None:
    async with Redis.from_url(durable.redis_url) as admin:
        await admin.config_set("maxmemory-policy", "allkeys-lru")
        try:
            diagnosis = await examined(durable)
        finally:
            await admin.config_set("maxmemory-policy", "noeviction")
    assert verdicts(diagnosis)["maxmemory-policy"] is Verdict.FAULT
    assert {each.promise: each.kept for each in diagnosis.promises}[
        "Redis may lose anything without the loss of an event"
    ] is False
    away = await examined(durable, redis_url="unix:///tmp/no-such-redis.sock")
    assert verdicts(away)["answers"] is Verdict.FAULT
    assert away.promises[-1].why == "Redis does not answer; none is lost"


async def test_gateways_that_miss_redis_are_named_with_what_they_keep_in_direct_mode(
    home: drive.Place, place: Place
) -> None:
    async def told() -> dict[str, str]:
        found = (await diagnose(place, 600.0, 1)).findings
        return {each.name: f"{each.verdict} {each.server}: {each.found}" for each in found}

    well = await drive.open_gateway(home)
    await drive.until(lambda: well.log.mode == "redis")
    before = await told()
    assert before["direct mode"] == "ok gateways: none of the partitions"
    assert "reaches Redis" not in before
    cut_off = await drive.open_gateway(drive.Place(home.postgres_url, "redis://127.0.0.1:1"))
    try:
        await drive.until(lambda: cut_off.log.mode == well.log.mode == "direct")
        here = await told()
        assert here["direct mode"] == f"warning gateways: all {PARTITIONS} partitions"
        assert re.fullmatch(
            rf"warning gateway {re.escape(socket.gethostname())}:{os.getpid()}: "
            rf"no, all {PARTITIONS} partitions, since 20\d\d-\d\d-\d\dT[\d:]+Z \(\d+ s\)",
            here["reaches Redis"],
        )
        (first,) = await home.fetch("SELECT since, seen FROM redis_unreachable")

        async def said_again() -> bool:
            (row,) = await home.fetch("SELECT since, seen FROM redis_unreachable")
            assert row["since"] == first["since"]
            return bool(row["seen"] > first["seen"])

        await drive.until(said_again)
    finally:
        await cut_off.close()
    await drive.until(lambda: well.log.mode == "redis")
    assert (await told())["direct mode"] == before["direct mode"]
    assert "reaches Redis" not in await told()
    await well.close()


# -- judgements


@pytest.mark.parametrize(
    ("changed", "name", "verdict"),
    [
        ({}, "fsync", Verdict.OK),
        ({"version_num": 130015}, "version", Verdict.FAULT),
        ({"in_recovery": True}, "takes writes", Verdict.FAULT),
        ({"read_only": "on"}, "takes writes", Verdict.FAULT),
        ({"full_page_writes": "off"}, "full_page_writes", Verdict.FAULT),
        ({"synchronous_commit": "off"}, "synchronous_commit", Verdict.FAULT),
        ({"synchronous_commit": "local"}, "synchronous_commit", Verdict.OK),
        ({"lock_timeout": "1s"}, "statement_timeout, lock_timeout", Verdict.FAULT),
        ({"wal_level": "minimal"}, "wal_level", Verdict.WARNING),
        ({"autovacuum": "off"}, "autovacuum", Verdict.WARNING),
        ({"track_counts": "off"}, "autovacuum", Verdict.WARNING),
        ({"data_checksums": "off"}, "data_checksums", Verdict.WARNING),
        ({"synchronous_standby_names": "ANY 1 (b)"}, "synchronous_standby_names", Verdict.WARNING),
    ],
)
def test_each_setting_of_postgres_is_judged(changed: dict[str, Any], name: str, verdict: Verdict) -> None:
    found = {each.name: each for each in judge_server(DURABLE | changed, NO_STANDBY)}
    assert found[name].verdict is verdict
    assert bool(found[name].means) is (verdict is not Verdict.OK)


@pytest.mark.parametrize(
    ("changed", "standbys", "kept"),
    [
        ({}, NO_STANDBY, False),
        ({"synchronous_standby_names": "b"}, {"connected": 1, "synchronous": 1}, True),
        ({"synchronous_standby_names": "b"}, None, True),
        ({"synchronous_standby_names": "b"}, {"connected": 1, "synchronous": 0}, False),
        (
            {"synchronous_standby_names": "b", "synchronous_commit": "remote_apply"},
            {"connected": 1, "synchronous": 1},
            True,
        ),
        (
            {"synchronous_standby_names": "b", "synchronous_commit": "remote_write"},
            {"connected": 1, "synchronous": 1},
            False,
        ),
        (
            {"synchronous_standby_names": "b", "synchronous_commit": "local"},
            {"connected": 1, "synchronous": 1},
            False,
        ),
    ],
)
def test_a_failover_loses_nothing_only_if_every_commit_waits_for_a_standby(
    changed: dict[str, Any], standbys: dict[str, int] | None, kept: bool
) -> None:
    assert promises(DURABLE | changed, standbys)[1].kept is kept


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        ({"redis_version": "6.2.20"}, Verdict.OK),
        ({"redis_version": "7.0.15"}, Verdict.WARNING),
        ({"redis_version": "7.2.10"}, Verdict.WARNING),
        ({"redis_version": "7.2.11"}, Verdict.OK),
        ({"redis_version": "8.2.1"}, Verdict.WARNING),
        ({"redis_version": "8.4.0"}, Verdict.OK),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.3"}, Verdict.WARNING),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.4"}, Verdict.OK),
        ({"redis_version": "7.2.4", "valkey_version": "9.0.0"}, Verdict.OK),
        ({"redis_version": "nonsense"}, Verdict.WARNING),
    ],
)
def test_the_holes_of_the_lua_interpreter_are_judged_by_the_version(
    version: dict[str, str], verdict: Verdict
) -> None:
    assert redis_findings.judge_lua(*redis_findings.server_version(version)).verdict is verdict


@pytest.mark.parametrize(
    ("changed", "name", "verdict"),
    [
        ({}, "version", Verdict.OK),
        ({"redis_version": "6.2.20"}, "version", Verdict.FAULT),
        ({"role": "slave"}, "role", Verdict.FAULT),
        ({"maxmemory_policy": "volatile-ttl"}, "maxmemory-policy", Verdict.FAULT),
        ({"maxmemory": 0}, "maxmemory", Verdict.WARNING),
        ({"used_memory": 95 << 20}, "maxmemory", Verdict.WARNING),
        ({"aof_enabled": 0}, "append-only file", Verdict.WARNING),
    ],
)
def test_each_setting_of_redis_is_judged(changed: dict[str, Any], name: str, verdict: Verdict) -> None:
    found = {each.name: each for each in redis_findings.judge(HEALTHY | changed, "everysec", None)}
    assert found[name].verdict is verdict


@pytest.mark.parametrize(
    ("some", "found"),
    [
        ([4], "partitions 4 of 16"),
        ([7, 3, 8, 9, 15], "partitions 3, 7-9, 15 of 16"),
        (range(16), "all 16 partitions"),
    ],
)
def test_partitions_are_named_in_runs(some: list[int], found: str) -> None:
    assert direct_findings.told(16, some) == found


def test_a_clock_that_is_off_is_a_warning_and_no_more() -> None:
    assert judge_clock(0.2).verdict is Verdict.OK
    assert judge_clock(-3.0).verdict is Verdict.WARNING
    assert judge_clock(-3.0).found == "-3.000 s from this machine's"
