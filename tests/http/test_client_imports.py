"""What the Python client imports, beside what `sluice import` does with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from gateway.client import Actor, AsyncClient, Client, Imported, NotCommitted, Patience, Refused, imports
from tests.http.test_client import make_unreliable
from tests.support.accounts import SPEC, Account, open_account
from tests.support.serving import Served

OPTIONS: Any = {"event": "was_placed", "ref": "no"}


@pytest.fixture
async def account(outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox, SPEC)


@pytest.fixture
async def sluice(gateway: Served, account: Account) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(gateway.url, account.write, patience=Patience(first_s=0.01)) as client:
        yield client


def records(*numbers: int) -> list[dict[str, object]]:
    return [{"no": f"n{number}", "total": number} for number in numbers]


async def imported(sluice: AsyncClient, given: Any, **more: Any) -> list[Any]:
    found = [each async for each in sluice.import_records("order", given, **{**OPTIONS, **more})]
    return [each.result if isinstance(each, Imported) else type(each).__name__ for each in found]


async def test_records_are_imported_and_again_are_unchanged(sluice: AsyncClient) -> None:
    assert await imported(sluice, records(1, 2), dry_run=True) == ["new", "new"]
    first = [each async for each in sluice.import_records("order", records(1, 2), **OPTIONS)]
    assert [isinstance(each, Imported) and each.result for each in first] == ["new", "new"]
    assert isinstance(first[0], Imported) and first[0].key is not None
    event = await sluice.event(first[0].event_id or "")
    assert (event.key, event.data, event.metadata.actor.id) == (
        first[0].key,
        {"total": 1},
        "test_data_importer",
    )
    edited = {"no": "n2", "total": 5}
    text = b'{"no":\n"n1","total":1}'
    assert await imported(sluice, [text, edited, b"[]"]) == ["unchanged", "edited", "Refused"]
    assert await imported(sluice, records(3), actor=Actor("user", "global")) == ["new"]
    renamed = [each async for each in sluice.import_records("order", [{"no": "x", "total": 3}], **OPTIONS)]
    assert renamed == [Imported("renamed", renamed[0].key, None, "n3")]  # type: ignore[union-attr]


async def test_an_import_of_several_requests_hears_of_all_refs_first(
    sluice: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "RECORDS_MAX", 2)
    same = [{"no": f"n{number}", "total": 7} for number in range(5)]
    assert await imported(sluice, same[1:]) == ["new"] * 4
    # n0 comes first and says what the others say; but each of those has its own record.
    given = [*same, {"no": "n1", "total": 8}]
    assert await imported(sluice, given) == ["new", *["unchanged"] * 4, "Refused"]


async def test_calls_with_one_id_are_one_import(sluice: AsyncClient) -> None:
    same = [{"no": f"n{number}", "total": 7} for number in range(3)]
    assert await imported(sluice, same[1:]) == ["new"] * 2
    one = {"import_id": str(uuid4())}
    assert await imported(sluice, same, **one, only_refs=True) == []
    assert [await imported(sluice, [each], **one) for each in same] == [["new"], ["unchanged"], ["unchanged"]]


async def test_records_whose_answers_are_lost_are_imported_once(sluice: AsyncClient) -> None:
    make_unreliable(sluice, "answer", "request", "answer")
    assert await imported(sluice, records(*range(20))) in (["new"] * 20, ["unchanged"] * 20)
    assert len({each.key for each in (await sluice.feed()).events}) == 20


async def test_records_that_are_given_up_say_what_is_known(gateway: Served, account: Account) -> None:
    async with AsyncClient(gateway.url, account.write, patience=Patience(0.05, 0.01)) as sluice:
        for loss, known in (("answer", "OutcomeUnknown"), ("request", NotCommitted.__name__)):
            make_unreliable(sluice, *[loss] * 1000)
            assert await imported(sluice, records(1, 2)) == [known] * 2


async def test_what_can_not_be_an_import_is_refused_as_a_whole(sluice: AsyncClient) -> None:
    with pytest.raises(Refused, match="event"):
        await imported(sluice, records(1), event="was_never")
    with pytest.raises(TypeError, match="did you mean 'event'"):
        await imported(sluice, records(1), evnt="was_placed")
    with pytest.raises(TypeError, match="only_refs"):
        [each async for each in sluice.import_records("order", records(1), only_refs=True)]


async def test_the_plain_client_imports_too(gateway: Served, account: Account) -> None:
    def use() -> list[str]:
        with Client(gateway.url, account.write) as sluice:
            found = sluice.import_records("order", records(1), event="was_placed", ref="no")
            return [each.result for each in found if isinstance(each, Imported)]

    assert await asyncio.to_thread(use) == ["new"]
