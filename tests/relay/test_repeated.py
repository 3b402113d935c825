"""Work that is repeated: an outage of Postgres is logged once, with its reason, and ends nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from gateway.postgres.errors import PostgresTrouble
from gateway.relay.repeated import Repeated
from gateway.tasks import ended

OUTAGE = PostgresTrouble("heads: no answer within 5 s")


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
