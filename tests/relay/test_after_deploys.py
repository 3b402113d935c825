"""When specs are looked up for what they declare: each look costs Postgres and every gateway."""

from __future__ import annotations

import pytest

from gateway.postgres.errors import PostgresTrouble
from gateway.relay import after_deploys
from gateway.relay.after_deploys import AfterDeploys


class Looks:
    """Answers each look with the next of `more`, then that there is no more."""

    def __init__(self, *more: bool | PostgresTrouble) -> None:
        self.count = 0
        self._more = list(more)

    async def declare(self) -> bool:
        self.count += 1
        answer = self._more.pop(0) if self._more else False
        if isinstance(answer, PostgresTrouble):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(after_deploys, "ANYWAY_EVERY_S", 60.0)


async def test_specs_are_looked_up_once_for_each_change() -> None:
    serving, looks = [object()], Looks()
    due = AfterDeploys(lambda: serving[0])
    assert [await due.run(looks.declare) for _ in range(3)] == [True, False, False]
    serving[0] = object()
    assert [await due.run(looks.declare) for _ in range(3)] == [True, False, False]
    assert looks.count == 2


async def test_a_look_continues_until_there_is_no_more() -> None:
    looks = Looks(True, True)
    due = AfterDeploys(lambda: looks)
    assert [await due.run(looks.declare) for _ in range(4)] == [True, True, True, False]


async def test_a_change_in_the_middle_is_looked_up_from_the_beginning() -> None:
    serving: list[object] = [{}]
    looks = Looks(True)
    due = AfterDeploys(lambda: serving[0])
    await due.run(looks.declare)
    serving[0] = {1: 1}
    assert [await due.run(looks.declare) for _ in range(3)] == [True, True, False]


async def test_a_look_that_failed_is_made_again() -> None:
    looks = Looks(PostgresTrouble("away"))
    due = AfterDeploys(lambda: looks)
    with pytest.raises(PostgresTrouble):
        await due.run(looks.declare)
    assert [await due.run(looks.declare) for _ in range(2)] == [True, False]


async def test_now_and_then_specs_are_looked_up_without_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(after_deploys, "ANYWAY_EVERY_S", 0.0)
    looks = Looks()
    due = AfterDeploys(lambda: looks)
    assert [await due.run(looks.declare) for _ in range(3)] == [True, True, True]


async def test_where_nothing_tells_of_changes_each_look_is_made() -> None:
    looks = Looks()
    due = AfterDeploys(None)
    assert [await due.run(looks.declare) for _ in range(3)] == [True, True, True]
