"""What a look-up of names costs does not hang on what Postgres knows of the table: names come faster than
statistics do, and those of one new tenant among many change none for long."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from gateway.aliases.store import statement
from gateway.log import postgres
from gateway.names.changes import Retire
from tests.aliases.conftest import OpenRegistry
from tests.aliases.drive import name
from tests.support.drive import Place, new_stream

NAMES = 600
TOUCHED_MAX = 12
"""Rows of all steps of a plan together, for each name that is asked for."""
OTHER = UUID("01900000-0000-7000-8000-000000000001")
KNOWN = {
    "nothing": (),
    "hardly_anything": (1,),
    "another_tenant": (3000,),
}
"""How many names there were, of another tenant, when statistics were made."""


@pytest.mark.parametrize("known", KNOWN)
async def test_each_name_is_looked_up_by_itself(
    open_one: OpenRegistry, place: Place, tenant: UUID, known: str
) -> None:
    registry = await open_one(assigning=False)
    connection = await postgres.connect(place.postgres_url, 30)
    try:
        for count in KNOWN[known]:
            await registry.give(OTHER, *_new(count))
            await connection.execute("ANALYZE alias")
        names = _new(NAMES)
        await registry.give(tenant, *names)
        await registry.change(tenant, Retire(tuple([name(text) for text, *_ in names])))
        keys = [key for *_, key in names]
        for look_up, (asked, args) in _asked(tenant, keys).items():
            touched = await _touched(connection, statement(look_up), args)
            assert touched <= TOUCHED_MAX * asked, (look_up, touched / asked)
    finally:
        await connection.close()


def _asked(tenant: UUID, keys: list[str]) -> dict[str, tuple[int, tuple[Any, ...]]]:
    """Of how many names each is asked, and its arguments."""
    names = [["VNO"] * NAMES, _numbers(NAMES), [""] * NAMES]
    aggregates = [["order"] * NAMES, keys]
    return {
        "holders": (NAMES, (tenant, *names)),
        "public_ids_of": (NAMES, (tenant, *aggregates)),
        "public_and_hash": (NAMES, (tenant,)),
        "taken": (NAMES, (tenant, "VNO", _numbers(NAMES))),
        "retire": (NAMES, (tenant, 2, True)),
        "find_alias": (1, (tenant, "public", "VNO", "7", "", "order")),
        "find_abbreviated": (1, (tenant, "bd", "k86g", "k86h", "", "order", 10)),
        "greatest_child": (1, (tenant, "bd", "k86gaq", ".")),
        "aliases_of": (1, (tenant, "order", keys[0])),
    }


def _new(count: int) -> list[tuple[str, str, str]]:
    return [(f"VNO-{number}", "order", new_stream().key) for number in _numbers(count)]


def _numbers(count: int) -> list[str]:
    return [str(number) for number in range(1, count + 1)]


async def _touched(connection: Any, sql: str, args: tuple[Any, ...]) -> float:
    told = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *args)
    return _rows(json.loads(told)[0]["Plan"])


def _rows(node: dict[str, Any]) -> float:
    removed = sum(float(node.get(f"Rows Removed by {by}", 0)) for by in ("Filter", "Join Filter"))
    own = (float(node["Actual Rows"]) + removed) * float(node["Actual Loops"])
    return own + sum(map(_rows, node.get("Plans", ())))
