"""What the first start makes in the database, and what later starts leave untouched."""

from __future__ import annotations

import json

import asyncpg
import pytest

from gateway.catalog.bootstrap import Bootstrapped
from gateway.dev import prepare as module
from gateway.dev.failure import CannotStart
from gateway.dev.prepare import Wanted, bundled_spec, prepare

OTHER_SPEC = (
    b'{"aggregate_types": {"note": {"events": {"was_taken": {"schema": {}}}}}, "agent_types": ["user"]}'
)


def wanted(url: str, spec: bytes | None = None, key: str | None = None, partitions: int = 4) -> Wanted:
    return Wanted(url, partitions, spec, key)


async def deployed(url: str) -> list[bytes]:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch("SELECT document FROM spec_revision ORDER BY revision")
        return [row["document"] for row in rows]
    finally:
        await connection.close()


async def test_an_empty_database_gets_tables_a_key_and_the_example(empty_postgres_url: str) -> None:
    said: list[str] = []
    key = await prepare(wanted(empty_postgres_url), said.append)
    assert key.startswith("sl_")
    assert await deployed(empty_postgres_url) == [bundled_spec()]
    assert any("0001" in line for line in said)


async def test_a_second_start_makes_nothing_twice(empty_postgres_url: str) -> None:
    said: list[str] = []
    key = await prepare(wanted(empty_postgres_url, OTHER_SPEC), print)
    assert await prepare(wanted(empty_postgres_url, key=key), said.append) == key
    assert await deployed(empty_postgres_url) == [OTHER_SPEC]
    assert said == []


async def test_a_key_that_is_not_valid_here_is_replaced(empty_postgres_url: str) -> None:
    first = await prepare(wanted(empty_postgres_url), print)
    second = await prepare(wanted(empty_postgres_url, key="sl_another"), print)
    assert second not in ("sl_another", first)


async def test_a_given_spec_is_deployed_when_it_differs(empty_postgres_url: str) -> None:
    await prepare(wanted(empty_postgres_url), print)
    for _ in range(2):
        await prepare(wanted(empty_postgres_url, OTHER_SPEC), print)
    assert await deployed(empty_postgres_url) == [bundled_spec(), OTHER_SPEC]


async def test_a_faulty_spec_is_refused_with_all_its_faults(empty_postgres_url: str) -> None:
    document = json.loads(OTHER_SPEC) | {"singletons": ["global"], "agent_types": ["system_x"]}
    with pytest.raises(CannotStart) as refused:
        await prepare(wanted(empty_postgres_url, json.dumps(document).encode()), print)
    assert "/singletons/0" in str(refused.value)
    assert "/agent_types/0" in str(refused.value)


async def test_conflicts_are_listed(empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refusing(*_: object, **__: object) -> Bootstrapped:
        return Bootstrapped("key", 1, ("type note has 3 streams", "type card has 1 stream"))

    monkeypatch.setattr(module, "bootstrap", refusing)
    with pytest.raises(CannotStart, match=r"what is stored:\n  type note has 3 streams\n  type card"):
        await prepare(wanted(empty_postgres_url, OTHER_SPEC), print)


async def test_another_number_of_partitions_is_said(empty_postgres_url: str) -> None:
    await prepare(wanted(empty_postgres_url), print)
    with pytest.raises(CannotStart, match="SLUICE_PARTITIONS=4"):
        await prepare(wanted(empty_postgres_url, partitions=8), print)


async def test_a_postgres_that_is_not_there_is_said() -> None:
    with pytest.raises(CannotStart, match="can't be used"):
        await prepare(wanted("postgresql://sluice@/sluice?host=/nowhere"), print)
