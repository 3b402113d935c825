from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import asyncpg
import pytest

from gateway.catalog import migrate as module
from gateway.catalog.migrate import Migration, NotPrepared, migrate, released, require_prepared
from gateway.catalog.model import CatalogError


async def test_a_first_run_makes_the_instance_and_its_partitions(empty_postgres_url: str) -> None:
    assert await migrate(empty_postgres_url, 4) == [migration.name for migration in released()]
    conn = await asyncpg.connect(empty_postgres_url)
    (instance,) = await conn.fetch("SELECT * FROM instance")
    rows = await conn.fetch("SELECT p, epoch, seq, chain, mode, owner FROM partition_log ORDER BY p")
    await require_prepared(conn)
    await conn.close()
    assert (instance["partitions"], instance["partition_rule"], instance["id"].version) == (
        4,
        "sha256-8/1",
        4,
    )
    assert [tuple(row) for row in rows] == [(p, 1, 0, "", "redis", "") for p in range(4)]


async def test_a_second_run_changes_nothing(empty_postgres_url: str) -> None:
    await migrate(empty_postgres_url, 4)
    conn = await asyncpg.connect(empty_postgres_url)
    before = await conn.fetch("SELECT * FROM instance")
    assert await migrate(empty_postgres_url, 4) == []
    assert await conn.fetch("SELECT * FROM instance") == before
    assert await conn.fetchval("SELECT count(*) FROM partition_log") == 4
    await conn.close()


async def test_names_of_stored_events_are_in_the_order_of_their_bytes(postgres_url: str) -> None:
    """Whatever the locale of the database: an index in a locale's order breaks when a library changes it."""
    conn = await asyncpg.connect(postgres_url)
    rows = await conn.fetch(
        "SELECT attname, collname FROM pg_index JOIN pg_attribute ON attrelid = indexrelid "
        "JOIN pg_collation c ON c.oid = attcollation WHERE indrelid = 'outbox'::regclass"
    )
    await conn.close()
    assert {tuple(row) for row in rows} == {("aggregate_type", "C"), ("aggregate_id", "C")}


async def test_the_kinds_of_targets_are_no_list_in_the_database(postgres_url: str) -> None:
    conn = await asyncpg.connect(postgres_url)
    checks = await conn.fetch(
        "SELECT pg_get_constraintdef(oid) AS written FROM pg_constraint "
        "WHERE conrelid = 'subscription'::regclass AND contype = 'c'"
    )
    await conn.close()
    assert not [written for (written,) in checks if "kind" in written]


async def test_timers_of_no_time_are_brought_within_those_that_can_be_listed(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(module, "released", lambda: released()[:44])
        await migrate(empty_postgres_url, 1)
    conn = await asyncpg.connect(empty_postgres_url)
    await conn.execute("INSERT INTO tenant (id, name, handle) VALUES (gen_random_uuid(), 'shop', 'shop')")
    for due in ("0044-01-01 UTC BC", "2030-01-01 UTC", "10000-01-01 UTC", "infinity"):
        await conn.execute(
            "INSERT INTO schedule (id, tenant, seq, mark, due_at, emit, cancel_on, correlation_id) "
            f"SELECT gen_random_uuid(), id, 1, '', timestamptz '{due}', '', '', id FROM tenant"
        )
    await migrate(empty_postgres_url, 1)
    found = await conn.fetch("SELECT due_at FROM schedule ORDER BY due_at")
    await conn.close()
    latest = datetime.max.replace(tzinfo=UTC)
    assert [due for (due,) in found] == [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(2030, 1, 1, tzinfo=UTC),
        latest,
        latest,
    ]


async def test_reasons_of_earlier_releases_and_of_their_gateways_get_their_code(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, parked = "Its position is lost: There is no event at this position.", "5 aggregates are parked."
    with monkeypatch.context() as before:
        before.setattr(module, "released", lambda: released()[:46])
        await migrate(empty_postgres_url, 1)
    conn = await asyncpg.connect(empty_postgres_url)
    await conn.execute("INSERT INTO tenant (id, name, handle) VALUES (gen_random_uuid(), 'shop', 'shop')")
    for name, state, why in (("a", "disabled", lost), ("b", "disabled", parked), ("c", "active", None)):
        await conn.execute(
            "INSERT INTO subscription (tenant, name, kind, declared, document, p, seq, mark, state, why) "
            "SELECT id, $1, 'pull', false, '{}', 0, 0, '', $2, $3 FROM tenant", name, state, why,
        )  # fmt: skip
    await migrate(empty_postgres_url, 1)

    async def codes(set_to: str, *args: object) -> list[str | None]:
        await conn.execute(f"UPDATE subscription SET moves = moves + 1, {set_to}", *args)
        return [code for (code,) in await conn.fetch("SELECT why_code FROM subscription ORDER BY name")]

    assert await codes("seq = 1") == ["position_lost", None, None]
    assert await codes("state = 'active', why = NULL") == [None] * 3
    assert await codes("state = 'disabled', why = $1", lost) == ["position_lost"] * 3
    assert await codes("state = state, why = why") == ["position_lost"] * 3
    assert await codes("why = $1", parked) == [None] * 3
    assert (
        await codes("why = 'As this release says it.', why_code = 'position_lost'") == ["position_lost"] * 3
    )
    await conn.close()


async def test_runs_at_once_wait_for_each_other(empty_postgres_url: str) -> None:
    runs = await asyncio.gather(*(migrate(empty_postgres_url, 3) for _ in range(4)))
    assert sorted(map(len, runs)) == [0, 0, 0, len(released())]


async def test_another_partition_count_is_refused_with_the_one_that_holds(empty_postgres_url: str) -> None:
    await migrate(empty_postgres_url, 4)
    with pytest.raises(CatalogError, match=r"prepared for 4 partitions, not 8.*set SLUICE_PARTITIONS=4"):
        await migrate(empty_postgres_url, 8)


async def test_an_edited_file_is_refused(empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await migrate(empty_postgres_url, 4)
    first, *others = released()
    edited = (Migration(1, first.name, first.sql + "-- mended\n"), *others)
    monkeypatch.setattr(module, "released", lambda: edited)
    with pytest.raises(CatalogError, match=r"0001_log differs from 0001_log as it was applied"):
        await migrate(empty_postgres_url, 4)


async def test_a_file_that_fails_leaves_nothing_of_itself(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Migration(len(released()) + 1, "0099_broken", "CREATE TABLE half (); SELECT 1 / 0")
    with monkeypatch.context() as patched:
        patched.setattr(module, "released", lambda: (*released(), broken))
        with pytest.raises(CatalogError, match="can't be prepared: division by zero"):
            await migrate(empty_postgres_url, 4)
    conn = await asyncpg.connect(empty_postgres_url)
    assert await conn.fetchval("SELECT to_regclass('half')") is None
    assert await conn.fetchval("SELECT max(version) FROM schema_version") == len(released())
    await conn.close()
    assert await migrate(empty_postgres_url, 4) == []


async def test_a_newer_database_is_refused_by_both(postgres_url: str) -> None:
    conn = await asyncpg.connect(postgres_url)
    await conn.execute("INSERT INTO schema_version VALUES (99, '0099_later', '')")
    with pytest.raises(NotPrepared, match="is at version 99"):
        await require_prepared(conn)
    await conn.close()
    with pytest.raises(CatalogError, match="is at version 99"):
        await migrate(postgres_url, 4)


async def test_an_unprepared_database_is_refused_with_what_to_run(empty_postgres_url: str) -> None:
    conn = await asyncpg.connect(empty_postgres_url)
    with pytest.raises(NotPrepared, match="run `sluice migrate`"):
        await require_prepared(conn)
    await conn.close()


async def test_an_older_database_is_refused_with_what_to_run(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = Migration(len(released()) + 1, "0099_later", "SELECT 1")
    monkeypatch.setattr(module, "released", lambda: (*released(), later))
    conn = await asyncpg.connect(postgres_url)
    with pytest.raises(NotPrepared, match="run `sluice migrate`"):
        await require_prepared(conn)
    await conn.close()


async def test_another_partition_rule_is_refused(postgres_url: str) -> None:
    conn = await asyncpg.connect(postgres_url)
    await conn.execute("UPDATE instance SET partition_rule = 'md5/9'")
    with pytest.raises(NotPrepared, match="by the rule md5/9, this release by sha256-8/1"):
        await require_prepared(conn)
    await conn.close()


async def test_a_postgres_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(CatalogError) as refused:
        await migrate("postgresql://sluice:s3cret@127.0.0.1:9/events", 4)
    assert "postgresql://sluice:***@127.0.0.1:9/events" in str(refused.value)
    assert "s3cret" not in str(refused.value)
