"""Turns that tenants share: how many one has, whose is next, and what a request that is cancelled leaves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hypothesis import given
from hypothesis import strategies as st

from gateway.fair_turns import FairTurns

A, B, C = b"a", b"b", b"c"


class Requests:
    """Each takes a turn and holds it until it is told to end; `begun` says in which order they came."""

    def __init__(self, turns: FairTurns) -> None:
        self._turns = turns
        self.begun: list[tuple[bytes, int]] = []
        self._ending: dict[tuple[bytes, int], asyncio.Event] = {}
        self.tasks: dict[tuple[bytes, int], asyncio.Task[None]] = {}
        self._numbers: Counter[bytes] = Counter()

    async def send(self, tenant: bytes, count: int = 1) -> None:
        for _ in range(count):
            of = tenant, self._numbers[tenant]
            self._numbers[tenant] += 1
            self._ending[of] = asyncio.Event()
            self.tasks[of] = asyncio.create_task(self._run(of))
        await _settled()

    async def end(self, *of: tuple[bytes, int]) -> None:
        for each in of:
            self._ending[each].set()
        await _settled()

    async def cancel(self, of: tuple[bytes, int]) -> None:
        self.tasks[of].cancel()
        await _settled()

    def holding(self) -> list[tuple[bytes, int]]:
        return [each for each in self.begun if not self.tasks[each].done()]

    async def _run(self, of: tuple[bytes, int]) -> None:
        async with self._turns.of(of[0]):
            self.begun.append(of)
            await self._ending[of].wait()


@asynccontextmanager
async def requests_at(total: int, each_max: int) -> AsyncIterator[Requests]:
    """Those that are left are cancelled."""
    requests = Requests(FairTurns(total, each_max))
    yield requests
    for task in requests.tasks.values():
        task.cancel()
    await asyncio.gather(*requests.tasks.values(), return_exceptions=True)


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_tenant_leaves_a_turn_for_the_others() -> None:
    async with requests_at(3, 2) as requests:
        await requests.send(A, 10)
        assert requests.begun == [(A, 0), (A, 1)]
        await requests.send(B)
        assert requests.begun[2:] == [(B, 0)]


async def test_tenants_that_wait_are_served_in_rotation() -> None:
    async with requests_at(2, 1) as requests:
        await requests.send(A, 4)
        await requests.send(B, 2)
        await requests.send(C, 1)
        assert requests.begun == [(A, 0), (B, 0)]
        await requests.end((A, 0))
        assert requests.begun[2:] == [(A, 1)]  # it waited before the third tenant came
        await requests.end((A, 1))
        assert requests.begun[3:] == [(C, 0)]
        await requests.end((C, 0), (B, 0))
        assert set(requests.begun[4:]) == {(A, 2), (B, 1)}
        await requests.end((A, 2), (B, 1))
        assert requests.begun[6:] == [(A, 3)]
        await requests.end((A, 3))
        assert requests.holding() == []


async def test_a_request_that_is_cancelled_leaves_its_turn_to_the_next() -> None:
    async with requests_at(1, 1) as requests:
        await requests.send(A, 3)
        await requests.send(B, 1)
        await requests.cancel((A, 1))
        await requests.cancel((B, 0))
        assert requests.begun == [(A, 0)]
        await requests.cancel((A, 0))
        assert requests.begun == [(A, 0), (A, 2)]
        await requests.end((A, 2))
        await requests.send(B, 1)
        assert requests.holding() == [(B, 1)]


async def test_one_that_is_cancelled_as_its_turn_comes_hands_it_on() -> None:
    async with requests_at(1, 1) as requests:
        await requests.send(A, 2)
        await requests.send(B, 1)
        requests.tasks[A, 0].cancel()
        await asyncio.sleep(0)  # the turn is given, and its request has not run yet
        await requests.cancel((A, 1))
        assert requests.begun == [(A, 0), (B, 0)]
        assert requests.holding() == [(B, 0)]


async def test_one_that_was_cancelled_and_did_not_run_since_is_passed_over() -> None:
    async with requests_at(1, 1) as requests:
        await requests.send(A, 3)
        await requests.send(B, 1)
        for of in ((A, 0), (A, 1)):
            requests.tasks[of].cancel()
        await _settled()
        assert requests.begun == [(A, 0), (A, 2)]
        requests.tasks[A, 2].cancel()
        requests.tasks[B, 0].cancel()
        await requests.send(A)
        assert requests.holding() == [(A, 3)]


STEPS = st.lists(
    st.tuples(st.sampled_from(["send", "end", "cancel"]), st.sampled_from([A, B, C]), st.integers(0, 9)),
    max_size=40,
)


@given(st.integers(1, 4), st.integers(1, 4), STEPS)
def test_no_turn_is_lost_and_none_is_given_twice(
    total: int, each_max: int, steps: list[tuple[str, bytes, int]]
) -> None:
    asyncio.run(_worked(total, each_max, steps))


async def _worked(total: int, each_max: int, steps: list[tuple[str, bytes, int]]) -> None:
    async with requests_at(total, each_max) as requests:
        for step, tenant, number in steps:
            of = tenant, number
            if step == "send":
                await requests.send(tenant)
            elif of in requests.tasks:
                await (requests.end(of) if step == "end" else requests.cancel(of))
            holding = Counter(each[0] for each in requests.holding())
            living = Counter(each[0] for each, task in requests.tasks.items() if not task.done())
            assert holding.total() <= total
            assert max(holding.values(), default=0) <= each_max
            if holding.total() < total:
                assert all(holding[each] == min(living[each], each_max) for each in living)
        for each in requests.tasks:
            await requests.end(each)
        assert all(task.done() for task in requests.tasks.values())
