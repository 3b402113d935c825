"""What Postgres does for a query of the feed: so much for each event, however many types and tags are named.

Counted in rows that the nodes of a plan read, without the tables' statistics, by plans that hold for any
arguments: so a gateway's connections have them soon after it began.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from gateway.config import Config
from gateway.items import Item
from gateway.log.postgres import SQL, Postgres, open_pool
from gateway.relay.outbox import Filter, Outbox
from gateway.relay.position import START
from tests.conftest import PARTITIONS
from tests.http.conftest import Served
from tests.http.test_feed_query import declared
from tests.support.calls import bulk, bulk_line, new_id

EVENTS = 400
PAIRS = [frozenset([(f"a{n}", f"e{k}") for k in range(100)]) for n in range(100)]
KEY = new_id()
COMMON = frozenset({"student:s1", "course:c1"})


class Explaining(Postgres):
    """Tells of each statement what it took before it is sent."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        super().__init__(pool)
        self._of = pool
        self.rows = 0.0
        self.plans = ""

    async def fetch(self, name: str, *args: object) -> list[Any]:
        async with self._of.acquire() as connection, connection.transaction():
            await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            told = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {SQL[name]}", *args)
        self.plans += told
        self.rows += _rows(json.loads(told)[0]["Plan"])
        return await super().fetch(name, *args)


def _rows(node: dict[str, Any]) -> float:
    removed = sum(float(node.get(f"Rows Removed by {by}", 0)) for by in ("Filter", "Join Filter"))
    own = (float(node["Actual Rows"]) + removed) * float(node["Actual Loops"])
    return own + sum(map(_rows, node.get("Plans", ())))


async def _settled(*_: object) -> None:
    """All that these tests read is."""


@pytest.fixture(scope="module")
async def filled(own_gateway: Served, own_outbox: asyncpg.Pool) -> bytes:
    """A tenant with events, all of which have the same tags."""
    async with declared(own_gateway, own_outbox) as client:
        data = {"student": "s1", "courses": ["c1"]}
        await bulk(client, *[bulk_line(KEY, data, "was_made") for _ in range(EVENTS)])
        return UUID(client.headers["x-tenant"]).bytes


@pytest.fixture
async def explaining(own_config: Config) -> AsyncIterator[Explaining]:
    pool = await open_pool(own_config.postgres_url, 2, 60)
    try:
        yield Explaining(pool)
    finally:
        await pool.close()


async def _read(explaining: Explaining, wanted: Filter, newest_first: bool) -> None:
    outbox = Outbox(explaining, PARTITIONS, _settled)
    reading = outbox.page_back(wanted, None, 1000) if newest_first else outbox.page(wanted, START, 1000)
    assert (await reading).caught_up


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize(
    ("items", "rows_max"),
    [
        ([Item(types, frozenset()) for types in PAIRS], 20_000),
        ([Item(types | {("order", "was_made")}, COMMON) for types in PAIRS], 25 * 100 * EVENTS),
        ([Item(types, frozenset({f"order:{KEY}"})) for types in PAIRS], 15 * 100 * EVENTS),
    ],
    ids=["types", "tags", "own tags"],
)
async def test_an_event_costs_the_same_however_much_is_named(
    filled: bytes, explaining: Explaining, newest_first: bool, items: list[Item], rows_max: int
) -> None:
    await _read(explaining, Filter(filled, items=tuple(items)), newest_first)
    assert explaining.rows <= rows_max


@pytest.mark.parametrize("newest_first", [False, True])
async def test_names_of_types_are_hashed(filled: bytes, explaining: Explaining, newest_first: bool) -> None:
    many = frozenset([f"was_{n}" for n in range(10_000)])
    await _read(explaining, Filter(filled, many, many), newest_first)
    assert explaining.plans.count("(ANY (aggregate_type = (hashed SubPlan") == 1
    assert explaining.plans.count("(ANY (type = (hashed SubPlan") == 1
