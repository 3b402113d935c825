"""Public ids, given behind the commit: 1, 2, 3 … without a gap, whichever gateway gives them or dies."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from uuid import UUID

import asyncpg
import pytest

from gateway.catalog import specs
from tests.aliases.conftest import OpenRegistry
from tests.aliases.drive import SPEC, Registry, tables
from tests.support.drive import Place, lose_commit_replies, until, wipe_partition


async def numbers(registry: Registry, tenant: UUID) -> list[int]:
    return [int(found.alias.body) for found in await registry.all_of(tenant)]


async def test_aggregates_are_numbered_in_the_order_of_their_creation(
    registry: Registry, tenant: UUID
) -> None:
    streams = [await registry.create(tenant, kind) for kind in ("order", "ticket", "order", "note")]
    assert await registry.names_of(streams[2]) == ["VNO-3"]
    assert [await registry.names_of(stream) for stream in streams] == [["VNO-1"], ["VNO-2"], ["VNO-3"], []]


async def test_no_request_waits_for_a_name_to_be_given(registry: Registry, tenant: UUID) -> None:
    await registry.create(tenant)

    async def given() -> bool:
        return await numbers(registry, tenant) == [1]

    await until(given)


async def test_two_gateways_that_number_at_once_leave_no_gap_and_no_number_twice(
    open_one: OpenRegistry, tenant: UUID, place: Place
) -> None:
    both = [await open_one(), await open_one()]

    async def create(n: int) -> str:
        registry = both[n % 2]
        found = await registry.names_of(await registry.create(tenant))
        assert len(found) == 1
        return found[0]

    given = await asyncio.gather(*(create(n) for n in range(120)))
    assert {int(text.removeprefix("VNO-")) for text in given} == set(range(1, 121))
    assert await numbers(both[0], tenant) == list(range(1, 121))
    seen = await place.fetch("SELECT greatest FROM alias_counter")
    assert [row["greatest"] for row in seen] == [120]


async def test_more_aggregates_than_go_into_one_append_are_all_numbered(
    open_one: OpenRegistry, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.aliases.assigner.AGGREGATES_MAX", 7)
    quiet = await open_one(assigning=False)
    streams = [await quiet.create(tenant) for _ in range(30)]
    busy = await open_one()
    assert await busy.names_of(streams[-1]) == ["VNO-30"]
    assert await numbers(busy, tenant) == list(range(1, 31))


async def test_a_look_that_finds_none_of_its_types_is_not_made_again_from_the_same_place(
    open_one: OpenRegistry, tenant: UUID, database: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.aliases.assigner.PASSED_OVER_MAX", 20)
    registry = await open_one()
    named = await registry.create(tenant)
    assert await registry.names_of(named) == ["VNO-1"]
    for _ in range(30):
        await registry.create(tenant, "note")

    async def moved_on() -> bool:
        seq = await database.fetchval("SELECT seq FROM alias_scan WHERE tenant = $1", tenant)
        return bool(seq >= 20)

    await until(moved_on)
    assert await registry.names_of(await registry.create(tenant)) == ["VNO-2"]


async def test_those_of_before_are_numbered_when_the_spec_begins_to(
    open_one: OpenRegistry, tenant: UUID, database: asyncpg.Pool
) -> None:
    registry = await open_one()
    notes = [await registry.create(tenant, "note") for _ in range(3)]
    order = await registry.create(tenant)
    assert await registry.names_of(order) == ["VNO-1"]
    wider = {**SPEC, "public_ids": {"key": "VNO", "types": ["order", "note"]}}
    await specs.deploy(database, tenant, json.dumps(wider).encode(), {})
    await registry.catalog.refresh()
    assert [await registry.names_of(note) for note in notes] == [["VNO-2"], ["VNO-3"], ["VNO-4"]]


async def test_a_gateway_that_follows_the_catalog_behind_others_leaves_it_to_them(
    open_one: OpenRegistry, tenant: UUID, database: asyncpg.Pool
) -> None:
    behind = await open_one(assigning=False)
    wider = {**SPEC, "public_ids": {"key": "VNO", "types": ["order", "note"]}}
    await specs.deploy(database, tenant, json.dumps(wider).encode(), {})
    current = await open_one()
    assert await current.names_of(await current.create(tenant, "note")) == ["VNO-1"]
    order = await behind.create(tenant)
    await behind.names_of(order)
    assert await current.names_of(order) == ["VNO-2"]
    assert await current.names_of(await current.create(tenant, "note")) == ["VNO-3"]


async def test_a_lost_redis_changes_no_name(registry: Registry, tenant: UUID, place: Place) -> None:
    first = await registry.create(tenant)
    assert await registry.names_of(first) == ["VNO-1"]
    before = await tables(place)
    await wipe_partition(registry.log, first)
    assert await tables(place) == before
    assert await registry.names_of(await registry.create(tenant)) == ["VNO-2"]
    assert await registry.names_of(first) == ["VNO-1"]


@pytest.mark.parametrize("carried_out", [True, False])
async def test_a_commit_whose_answer_is_lost_numbers_no_aggregate_twice(
    open_one: OpenRegistry, tenant: UUID, carried_out: bool
) -> None:
    registry = await open_one(assigning=False)
    streams = [await registry.create(tenant) for _ in range(3)]
    lose_commit_replies(registry.log._lane_of[tenant.bytes].connection, run=carried_out)
    assert [await registry.names_of(each) for each in streams] == [["VNO-1"], ["VNO-2"], ["VNO-3"]]
    assert await registry.names_of(await registry.create(tenant)) == ["VNO-4"]


@pytest.mark.parametrize("moment", ["planned", "sent", "committed", "applying", "applied"])
async def test_a_gateway_killed_while_it_numbers_leaves_no_gap_and_no_number_twice(
    open_one: OpenRegistry, tenant: UUID, place: Place, moment: str
) -> None:
    quiet = await open_one(assigning=False)
    streams = [await quiet.create(tenant) for _ in range(5)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.aliases.child", *(place.postgres_url, place.redis_url, moment)
    )
    assert await asyncio.wait_for(process.wait(), 30) == -signal.SIGKILL
    streams += [await quiet.create(tenant) for _ in range(5)]
    survivor = await open_one()
    given = [await survivor.names_of(stream) for stream in streams]
    assert given == [[f"VNO-{n}"] for n in range(1, 11)]
    before = await tables(place)
    assert (await survivor.store.rebuild(tenant.bytes)).unchanged
    assert await tables(place) == before
