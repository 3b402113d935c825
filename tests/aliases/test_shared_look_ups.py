"""Look-ups of aliases that come together share a statement, which is never older than any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from gateway.aliases import shared_look_ups
from gateway.aliases.shared_look_ups import Aggregate, AliasLookUps
from gateway.aliases.store import Store
from gateway.postgres.errors import PostgresTrouble

TENANT, OTHER = b"t" * 16, b"o" * 16


class Names:
    """In place of the tables: each statement waits until it is answered, and tells the names of then."""

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, list[Aggregate]]] = []
        self.answers: list[asyncio.Future[None]] = []
        self.name = "first"

    async def aliases_of_each(
        self, tenant: bytes, aggregates: Sequence[Aggregate]
    ) -> dict[Aggregate, tuple[str, ...]]:
        name = self.name
        self.asked.append((tenant, list(aggregates)))
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[-1]
        return {each: (f"{name}-{each[1]}",) for each in aggregates}


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def shared(names: Names) -> AliasLookUps:
    return AliasLookUps(cast(Store, names))


async def _turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_those_of_a_crowd_are_few_statements_one_at_a_time(names: Names, shared: AliasLookUps) -> None:
    asking = [asyncio.create_task(shared.of_each(TENANT, [("order", str(n % 3))])) for n in range(50)]
    await _turns()
    assert names.asked == [(TENANT, [("order", "0"), ("order", "1"), ("order", "2")])]
    asking += [asyncio.create_task(shared.of_each(TENANT, [("order", "9")])) for _ in range(50)]
    await _turns()
    assert len(names.asked) == 1
    beside = asyncio.create_task(shared.of_each(OTHER, [("order", "0")]))
    await _turns()
    assert names.asked[1:] == [(OTHER, [("order", "0")])]
    names.name = "second"
    names.answers[0].set_result(None)
    await _turns()
    assert names.asked[2:] == [(TENANT, [("order", "9")])]
    for answer in names.answers[1:]:
        answer.set_result(None)
    found = await asyncio.gather(*asking)
    assert [each["order", str(n % 3)] for n, each in enumerate(found[:50])] == [
        (f"first-{n % 3}",) for n in range(50)
    ]
    assert {each["order", "9"] for each in found[50:]} == {("second-9",)}
    assert (await beside)["order", "0"] == ("first-0",)


async def test_one_that_comes_while_a_statement_is_under_way_is_told_what_holds_then(
    names: Names, shared: AliasLookUps
) -> None:
    before = asyncio.create_task(shared.of_each(TENANT, [("order", "1")]))
    await _turns()
    names.name = "second"
    after = asyncio.create_task(shared.of_each(TENANT, [("order", "1")]))
    await _turns()
    names.answers[0].set_result(None)
    await _turns()
    names.answers[1].set_result(None)
    assert [(await each)["order", "1"] for each in (before, after)] == [("first-1",), ("second-1",)]


async def test_a_statement_has_so_many_aggregates(
    names: Names, shared: AliasLookUps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_look_ups, "AGGREGATES_MAX", 2)
    asking = [asyncio.create_task(shared.of_each(TENANT, [("order", str(n))])) for n in range(5)]
    for n in range(3):
        await _turns()
        names.answers[n].set_result(None)
    await asyncio.gather(*asking)
    assert [len(each) for _, each in names.asked] == [2, 2, 1]


async def test_all_that_share_one_are_told_of_its_trouble_and_the_next_is_asked(
    names: Names, shared: AliasLookUps
) -> None:
    asking = [asyncio.create_task(shared.of_each(TENANT, [("order", "1")])) for _ in range(3)]
    await _turns()
    asking[0].cancel()
    await _turns()
    names.answers[0].set_exception(PostgresTrouble("away"))
    told = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(each) for each in told] == [asyncio.CancelledError, PostgresTrouble, PostgresTrouble]
    again = asyncio.create_task(shared.of_each(TENANT, [("order", "1")]))
    await _turns()
    names.answers[1].set_result(None)
    assert (await again)["order", "1"] == ("first-1",)
