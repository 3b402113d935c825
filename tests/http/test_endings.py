"""What became of many timers is noted by few statements, and each by its own."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from gateway.postgres.errors import PostgresTrouble
from gateway.reactions import endings
from gateway.reactions.endings import Ending, Endings
from gateway.reactions.reactor import rest_after
from tests.support.accounts import open_account

TIMERS = 50


async def test_what_ends_while_others_are_noted_is_noted_together(
    own_outbox: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant, timers = UUID((await open_account(own_outbox, None)).id), [uuid4() for _ in range(TIMERS)]
    await own_outbox.execute(
        "INSERT INTO schedule (id, tenant, seq, mark, due_at, emit, cancel_on, correlation_id, state)"
        " SELECT id, $2, 0, '', now(), '{}', '[]', id, CASE id WHEN $3 THEN 'cancelled' ELSE 'pending' END"
        " FROM unnest($1::uuid[]) AS made (id)",
        timers, tenant, timers[0],
    )  # fmt: skip
    statements, fetch = 0, endings.fetch

    async def counted(*args: Any) -> Any:
        nonlocal statements
        statements += 1
        return await fetch(*args)

    monkeypatch.setattr(endings, "fetch", counted)
    noting = Endings(own_outbox)
    await asyncio.gather(*(noting.note(Ending(timer, "fired", None, timer)) for timer in timers[:-1]))
    await noting.note(Ending(timers[-1], "parked", "no room"))
    rows = await own_outbox.fetch(
        "SELECT id, state, reason, fired_event FROM schedule WHERE tenant = $1", tenant
    )
    found = {row["id"]: (row["state"], row["reason"], row["fired_event"]) for row in rows}
    assert found[timers[0]] == ("cancelled", None, None)  # a person was faster
    assert all(found[timer] == ("fired", None, timer) for timer in timers[1:-1])
    assert found[timers[-1]] == ("parked", "no room", None)
    assert statements <= 3


async def test_each_one_that_could_not_be_noted_is_told(
    own_outbox: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*args: Any) -> Any:
        raise PostgresTrouble("the test says so")

    monkeypatch.setattr(endings, "fetch", fails)
    noting = Endings(own_outbox)
    told = await asyncio.gather(
        *(noting.note(Ending(uuid4(), "fired")) for _ in range(3)), return_exceptions=True
    )
    assert [type(each) for each in told] == [PostgresTrouble] * 3


def test_counts_of_timers_take_a_hundredth_of_the_time_and_are_never_old() -> None:
    assert [rest_after(took_s) for took_s in (0.0, 0.4, 60.0)] == [0.0, 40.0, 120.0]
