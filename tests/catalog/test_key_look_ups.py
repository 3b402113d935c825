"""Keys that Postgres is asked for: each that waits gets an answer, whatever becomes of the statement."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.catalog.key_look_ups import BATCH_MAX, KeyLookUps
from gateway.catalog.model import CatalogUnavailable

DEADLINE_S = 20.0


class Pool:
    """Whose statements fail as often as there are `faults`, and then find every key."""

    def __init__(self, faults: list[BaseException]) -> None:
        self._faults = faults
        self.asked: list[list[bytes]] = []

    @asynccontextmanager
    async def acquire(self, *, timeout: float) -> AsyncIterator[Pool]:
        yield self

    async def fetch(self, _statement: str, digests: list[bytes]) -> list[Any]:
        self.asked.append(digests)
        await asyncio.sleep(0)
        if self._faults:
            raise self._faults.pop()
        return [{"digest": digest} for digest in digests]


@pytest.mark.parametrize("count", [1, BATCH_MAX, 3 * BATCH_MAX + 1])
async def test_no_request_waits_without_end_for_a_look_up_that_a_bug_ended(count: int) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the bug is reported there
    pool = Pool([RuntimeError("a bug")])
    look_ups = KeyLookUps(pool)  # type: ignore[arg-type]
    digests = [n.to_bytes(4) for n in range(count)]
    async with asyncio.timeout(DEADLINE_S):
        found = await asyncio.gather(*map(look_ups.find, digests), return_exceptions=True)
    assert [type(each) for each in found] == [CatalogUnavailable] * count
    async with asyncio.timeout(DEADLINE_S):
        again = await asyncio.gather(*map(look_ups.find, digests))
    assert [each["digest"] for each in again if each is not None] == digests


async def test_a_row_that_cannot_be_read_fails_its_look_up_too() -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)

    class Unreadable(Pool):
        async def fetch(self, _statement: str, digests: list[bytes]) -> list[Any]:
            return [{} for _ in digests]

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(CatalogUnavailable):
            await KeyLookUps(Unreadable([])).find(b"1")  # type: ignore[arg-type]


async def test_a_look_up_whose_callers_have_gone_leaves_nothing_behind() -> None:
    pool = Pool([])
    look_ups = KeyLookUps(pool)  # type: ignore[arg-type]
    gone = asyncio.create_task(look_ups.find(b"1"))
    await asyncio.sleep(0)
    gone.cancel()
    async with asyncio.timeout(DEADLINE_S):
        assert await look_ups.find(b"1") == {"digest": b"1"}
        assert await look_ups.find(b"1") == {"digest": b"1"}
    assert pool.asked == [[b"1"], [b"1"]]
