"""Work that is repeated: an outage of Postgres is logged once, with its reason, and ends nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from gateway.postgres.errors import PostgresTrouble
from gateway.relay.repeated import Repeated
from gateway.tasks import TICK_S, ended, to_tick

OUTAGE = PostgresTrouble("heads: no answer within 5 s")


@pytest.mark.bug
async def test_an_outage_is_logged_once_with_its_reason_and_work_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outcomes: Iterator[Exception | None] = iter([OUTAGE, OUTAGE, None, ValueError("a bug"), OUTAGE])
    over = asyncio.Event()

    async def work() -> None:
        outcome = next(outcomes, over)
        if outcome is over:
            over.set()
        elif isinstance(outcome, Exception):
            raise outcome

    task = asyncio.create_task(Repeated(logging.getLogger("sluice.relay")).run(work, 0.0))
    await over.wait()
    await ended([task])
    told = [(record.msg, getattr(record, "reason", None)) for record in caplog.records]
    assert told == [
        ("relay_postgres_unavailable", str(OUTAGE)),
        ("task_restarted", None),
        ("relay_postgres_unavailable", str(OUTAGE)),
    ]


@pytest.mark.parametrize("seconds", [0.1, 0.25, 0.5, 5.0])
def test_pauses_of_loops_end_at_ticks_near_to_their_length(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Mock()
    monkeypatch.setattr("gateway.tasks.asyncio.get_running_loop", lambda: clock)
    ends = []
    for n in range(100):
        clock.time.return_value = 1_000 + n * 0.003
        pause = to_tick(seconds)
        assert seconds - TICK_S / 2 - 1e-6 <= pause <= seconds + TICK_S / 2 + 1e-6
        ends.append(clock.time.return_value + pause)
    apart = [(end - ends[0]) / TICK_S for end in ends]
    assert all(abs(each - round(each)) < 1e-6 for each in apart)
    assert to_tick(0.01) == 0.01
