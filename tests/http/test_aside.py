"""Turns among tenants for work beside the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from threading import Event

import pytest

from gateway.aside import THREADS, Aside, Busy

DEADLINE_S = 10.0


@pytest.fixture
async def aside() -> AsyncIterator[Aside]:
    beside = Aside(waiting_max=16, wait_s=DEADLINE_S)
    yield beside
    beside.close()


async def test_a_tenant_waits_for_one_piece_of_each_other_tenant(
    aside: Aside,
) -> None:
    """Both threads are taken, and much waits of both tenants; a third comes last."""
    go, begun = Event(), []

    def piece(tenant: bytes) -> None:
        begun.append(tenant)
        assert go.wait(DEADLINE_S)

    tenants = [b"a", b"b"] * 8
    assert len(set(tenants)) == THREADS
    async with asyncio.TaskGroup() as tasks:
        for tenant in tenants:
            tasks.create_task(aside.run(tenant, partial(piece, tenant)))
        async with asyncio.timeout(DEADLINE_S):
            while len(begun) < THREADS:  # both threads
                await asyncio.sleep(0)
        third = tasks.create_task(aside.run(b"c", partial(piece, b"c")))
        await asyncio.sleep(0)
        go.set()
        await third
    assert sorted(begun[:THREADS]) == [b"a", b"b"]
    assert begun[THREADS] == b"c", "it comes before all that waits of a tenant that has had its turn"
    assert len(begun) == len(tenants) + 1


async def test_what_waits_too_long_or_behind_too_much_is_refused() -> None:
    go, aside = Event(), Aside(waiting_max=1, wait_s=0.05)

    def piece() -> None:
        assert go.wait(DEADLINE_S)

    first = asyncio.create_task(aside.run(b"a", piece))
    waits = asyncio.create_task(aside.run(b"a", piece))
    await asyncio.sleep(0)
    with pytest.raises(Busy, match="1 heavy requests wait already"):
        await aside.run(b"a", piece)
    with pytest.raises(Busy, match=r"took over 0\.05 s"):
        await waits
    go.set()
    await first
    aside.close()
