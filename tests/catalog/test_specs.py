from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from gateway.catalog import specs, tenants
from gateway.catalog.model import Tenant
from gateway.catalog.specs import Accepted, Conflict, Conflicts, RevisionMismatch
from gateway.log.postgres import open_pool
from spec.changes import Removal
from spec.errors import Faults
from spec.parse import parse
from tests.catalog.documents import ORDERS, accepted, document, store, with_an_id

KEY = "a0000000-0000-4000-a000-000000000001"


async def revisions(conn: asyncpg.Connection) -> list[int]:
    return [
        row["revision"] for row in await conn.fetch("SELECT revision FROM spec_revision ORDER BY revision")
    ]


async def test_a_first_spec_is_revision_one(conn: asyncpg.Connection, tenant: Tenant) -> None:
    assert await specs.current_revision(conn, tenant.id) == 0
    assert await specs.deploy(conn, tenant.id, ORDERS, {}) == Accepted(1, changed=True)
    stored = await specs.stored(conn, tenant.id)
    assert stored is not None
    assert (stored.revision, stored.document) == (1, ORDERS)


async def test_the_same_document_again_writes_nothing(conn: asyncpg.Connection, tenant: Tenant) -> None:
    await accepted(conn, tenant.id, ORDERS)
    clock = await conn.fetchval("SELECT revision FROM catalog_clock")
    spaced = json.dumps(json.loads(ORDERS), indent=4).encode()
    for same in (ORDERS, spaced):
        assert await specs.deploy(conn, tenant.id, same, {}) == Accepted(1, changed=False)
    assert await conn.fetchval("SELECT revision FROM catalog_clock") == clock
    assert await revisions(conn) == [1]


async def test_another_document_is_the_next_revision_and_moves_the_clock(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    await accepted(conn, tenant.id, ORDERS)
    clock = await conn.fetchval("SELECT revision FROM catalog_clock")
    more = document(
        {"order": ["was_placed", "was_shipped", "was_lost"], "invoice": ["was_sent"]}, ("stripe_webhook",)
    )
    assert await accepted(conn, tenant.id, more) == 2
    assert await conn.fetchval("SELECT revision FROM catalog_clock") == clock + 1


async def test_faults_are_returned_and_nothing_is_written(conn: asyncpg.Connection, tenant: Tenant) -> None:
    faults = await specs.deploy(conn, tenant.id, b'{"agent_types": 1}', {})
    assert isinstance(faults, Faults)
    assert {fault.code for fault in faults} == {"missing_key", "wrong_type"}
    assert await revisions(conn) == []


async def test_an_expected_revision_must_be_the_deployed_one(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    assert await specs.deploy(conn, tenant.id, ORDERS, {}, expect_revision=1) == RevisionMismatch(0)
    assert await accepted(conn, tenant.id, ORDERS, expect_revision=0) == 1
    assert await specs.deploy(conn, tenant.id, ORDERS, {}, expect_revision=0) == RevisionMismatch(1)
    assert await revisions(conn) == [1]


async def test_of_two_deployments_that_expect_the_same_one_wins(pool: asyncpg.Pool, tenant: Tenant) -> None:
    await accepted(pool, tenant.id, ORDERS)
    others = [
        document({"order": ["was_placed", "was_shipped"], "invoice": ["was_sent"], name: []})
        for name in "abc"
    ]
    outcomes = await asyncio.gather(
        *(specs.deploy(pool, tenant.id, other, {}, force=True, expect_revision=1) for other in others)
    )
    assert sorted(map(str, outcomes)) == [
        "Accepted(revision=2, changed=True, notices=())",
        "RevisionMismatch(current=2)",
        "RevisionMismatch(current=2)",
    ]


async def test_what_nothing_is_stored_of_is_removed(conn: asyncpg.Connection, tenant: Tenant) -> None:
    await accepted(conn, tenant.id, ORDERS)
    await store(conn, tenant.id, "order", KEY, "was_placed")
    assert await accepted(conn, tenant.id, document({"order": ["was_placed"]})) == 2
    assert await conn.fetchval("SELECT count(*) FROM spec_closing") == 0


async def test_everything_in_the_way_is_listed_and_nothing_changes(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    await accepted(conn, tenant.id, ORDERS)
    await store(conn, tenant.id, "order", KEY, "was_shipped")
    await store(conn, tenant.id, "invoice", KEY, "was_sent")
    await store(conn, tenant.id, "order", "stripe_webhook", "was_placed")
    assert await specs.deploy(conn, tenant.id, document({"order": ["was_placed"]}), {}) == Conflicts(
        1,
        (
            Conflict(
                "/aggregate_types/order/events/was_shipped", "Aggregate type order has was_shipped events."
            ),
            Conflict("/aggregate_types/invoice", "Aggregate type invoice has events."),
            Conflict("/singletons/0", "Singleton stripe_webhook has a stream."),
        ),
    )
    assert await revisions(conn) == [1]
    assert await conn.fetchval("SELECT count(*) FROM spec_closing") == 0


async def test_force_removes_what_is_stored_all_the_same(conn: asyncpg.Connection, tenant: Tenant) -> None:
    await accepted(conn, tenant.id, ORDERS)
    await store(conn, tenant.id, "invoice", KEY, "was_sent")
    assert await accepted(conn, tenant.id, document({"order": ["was_placed"]}), force=True) == 2


async def test_a_singleton_of_a_type_that_is_no_longer_declared_is_in_the_way_too(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    await accepted(conn, tenant.id, ORDERS)
    await store(conn, tenant.id, "invoice", "stripe_webhook", "was_sent")
    without_type = document({"order": ["was_placed", "was_shipped"]}, ("stripe_webhook",))
    await accepted(conn, tenant.id, without_type, force=True)
    outcome = await specs.deploy(conn, tenant.id, document({"order": ["was_placed", "was_shipped"]}), {})
    assert outcome == Conflicts(2, (Conflict("/singletons/0", "Singleton stripe_webhook has a stream."),))


async def test_what_another_tenant_stored_is_not_in_the_way(conn: asyncpg.Connection, tenant: Tenant) -> None:
    other = await tenants.create(conn, "other")
    for owner in (tenant, other):
        await accepted(conn, owner.id, ORDERS)
    await store(conn, other.id, "invoice", KEY, "was_sent")
    await store(conn, other.id, "order", "stripe_webhook", "was_shipped")
    assert await accepted(conn, tenant.id, document({"order": ["was_placed"]})) == 2


async def test_a_deployed_document_that_can_not_be_read_here_needs_force(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    await accepted(conn, tenant.id, ORDERS)
    await conn.execute("""UPDATE spec_revision SET document = '{"agent_types": []}'""")
    outcome = await specs.deploy(conn, tenant.id, document({}), {})
    assert isinstance(outcome, Conflicts)
    assert "Revision 1, which is deployed, can't be read here" in outcome.conflicts[0].error
    assert await accepted(conn, tenant.id, document({}), force=True) == 2


async def test_only_a_new_deployment_is_refused_for_what_an_earlier_release_accepted(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    outdated = with_an_id("not one")
    await accepted(conn, tenant.id, with_an_id("global"))
    await conn.execute("UPDATE spec_revision SET document = $1", outdated)
    assert await specs.deploy(conn, tenant.id, outdated, {}) == Accepted(1, changed=False)
    for still in (with_an_id("not one either"), outdated[:-1] + b', "target_types": []}'):
        found = await specs.deploy(conn, tenant.id, still, {})
        assert isinstance(found, Faults)
        assert [fault.code for fault in found] == ["undeclared"]
    assert await accepted(conn, tenant.id, with_an_id("$.key")) == 2


async def test_a_removal_looks_through_many_events_for_longer_than_a_read_may_take(
    pool: asyncpg.Pool, postgres_url: str, tenant: Tenant
) -> None:
    hasty = await open_pool(postgres_url, 1, 0.2)
    removed = [Removal("event_type", "/aggregate_types/order", ("order", "was_shipped"))]
    waits = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
               AND wait_event_type = 'Lock' AND now() - query_start > '0.5 s'"""
    try:
        async with asyncio.timeout(40), pool.acquire() as conn:
            async with conn.transaction():
                await conn.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
                looking = asyncio.create_task(specs._in_use(hasty, tenant.id, removed))
                while not looking.done() and not await pool.fetchval(waits):
                    await asyncio.sleep(0)
            assert await looking == ()
    finally:
        await hasty.close()


async def test_a_failed_removal_leaves_nothing_closed_and_the_lock_free(
    pool: asyncpg.Pool, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    await accepted(pool, tenant.id, ORDERS)
    async with pool.acquire() as conn:
        # A gateway that reported at the beginning of time and is seen from now on: never followed.
        await conn.execute("INSERT INTO catalog_reader VALUES (gen_random_uuid(), 0, 'infinity')")
    deploying = asyncio.create_task(specs.deploy(pool, tenant.id, document({}), {}))
    async with asyncio.timeout(40), pool.acquire() as conn:
        while not await conn.fetchval("SELECT count(*) FROM spec_closing"):
            await asyncio.sleep(0)
    deploying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deploying
    assert await pool.fetchval("SELECT count(*) FROM spec_closing") == 0
    assert await accepted(pool, tenant.id, document({}), force=True) == 2


async def test_a_lock_that_was_taken_as_its_time_was_up_ends_with_its_connection(
    postgres_url: str, conn: asyncpg.Connection, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute, late = asyncpg.Connection.execute, iter([TimeoutError("the answer comes too late")])

    async def answered_late(conn: asyncpg.Connection, query: str, *args: object, **more: Any) -> Any:
        answer = await execute(conn, query, *args, **more)
        for trouble in late if "pg_advisory_lock" in query else ():
            raise trouble
        return answer

    monkeypatch.setattr(asyncpg.Connection, "execute", answered_late)
    pool = await open_pool(postgres_url, 2, 5.0)
    with pytest.raises(TimeoutError, match="too late"):
        await specs.deploy(pool, tenant.id, ORDERS, {})
    async with asyncio.timeout(20):
        assert await accepted(conn, tenant.id, ORDERS) == 1
    await pool.close()


async def test_the_closing_spec_is_the_old_one_without_what_the_new_one_drops() -> None:
    old, new = parse(ORDERS), parse(document({"order": ["was_placed", "was_new"], "extra": []}))
    assert not isinstance(old, Faults)
    assert not isinstance(new, Faults)
    closed = specs.closed(old, new)
    assert list(closed.aggregate_types) == ["order"]
    assert list(closed.aggregate_types["order"].events) == ["was_placed"]
    assert (closed.singletons, closed.singleton_list, closed.agent_types) == (
        frozenset(),
        (),
        old.agent_types,
    )


def with_secret(secret: str) -> dict[str, Any]:
    source = {
        "provider": "stripe",
        "secrets": [secret],
        "actor": {"type": "webhook", "id": "some_webhook"},
        "to": {"type": "order", "id": "some_webhook", "event": "was_placed"},
    }
    return {
        "aggregate_types": {"order": {"events": {"was_placed": {"schema": {"type": "object"}}}}},
        "agent_types": ["webhook"],
        "singletons": ["some_webhook"],
        "webhooks": {"stripe": source},
    }


async def test_a_secret_that_is_not_shown_is_the_one_that_another_deployment_has_just_given(
    pool: asyncpg.Pool, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its turn only after the other, which it waits for with the secret of before in its hands."""
    former, newer = (with_secret(f"whsec_{digit * 40}") for digit in "12")
    await accepted(pool, tenant.id, json.dumps(former).encode())
    turn, others = specs._turn, iter([json.dumps(newer).encode()])

    @asynccontextmanager
    async def late(conn: Any, tenant_id: UUID) -> AsyncIterator[None]:
        for other in others:
            assert await accepted(pool, tenant_id, other) == 2
        async with turn(conn, tenant_id):
            yield

    monkeypatch.setattr(specs, "_turn", late)
    shown = {**with_secret("***"), "singletons": ["some_webhook", "another_webhook"]}
    assert await accepted(pool, tenant.id, json.dumps(shown).encode()) == 3
    stored = await specs.stored(pool, tenant.id)
    assert stored is not None
    deployed = json.loads(stored.document)
    assert deployed["webhooks"] == newer["webhooks"]
    assert deployed["singletons"] == shown["singletons"]


async def test_a_secret_that_is_not_shown_stays_as_it_is_deployed(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    await accepted(conn, tenant.id, json.dumps(with_secret("whsec_one")).encode())
    for sent in (with_secret("***"), {"spec": with_secret("***")}):
        outcome = await specs.deploy(conn, tenant.id, json.dumps(sent).encode(), {})
        assert outcome == Accepted(1, changed=False)


async def test_faults_beside_a_secret_that_is_not_shown_are_told_where_they_are(
    conn: asyncpg.Connection, tenant: Tenant
) -> None:
    await accepted(conn, tenant.id, json.dumps(with_secret("whsec_one")).encode())
    spec, text = with_secret("***"), json.dumps(with_secret("***"))
    for sent, code, place in (
        (json.dumps({"spec": {**spec, "nope": 1}}), "unknown_key", "/spec/nope"),
        (json.dumps({"spec": spec, "webhook": {}}), "unknown_key", "/webhook"),
        (json.dumps({**spec, "nope": 1}), "unknown_key", "/nope"),
        (f'{{"spec": {text}, "spec": {text}}}', "duplicate_key", "/spec"),
        (f'{{"subscriptions": 1e400, {text[1:]}', "invalid_json", "/subscriptions"),
        (f'{{"subscriptions": {"1" * 5000}, {text[1:]}', "invalid_json", ""),
        (f'{{"spec": [{text}]}}', "wrong_type", "/spec"),
    ):
        faults = await specs.deploy(conn, tenant.id, sent.encode(), {})
        assert isinstance(faults, Faults), sent
        assert (code, place) in [(fault.code, fault.pointer) for fault in faults]


async def test_a_wrapped_document_is_unwrapped_token_by_token() -> None:
    assert specs.bare(b'{"spec": {"a": 1.00, "b": [ 1e3 ]}}') == b'{"a":1.00,"b":[1e3]}'
    assert specs.bare(b'{"aggregate_types": {}}') == b'{"aggregate_types":{}}'
