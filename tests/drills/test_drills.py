"""The commands of docs/backups.md, in short: `python -m tests.drills` is the long form."""

from __future__ import annotations

import pytest

from tests.drills.drill import DRILLS, STEPS


@pytest.mark.parametrize("name", DRILLS)
async def test_what_was_acknowledged_is_in_the_restored_copy(name: str) -> None:
    outcome = await DRILLS[name](4, 0.1, durable=False)
    assert outcome.restored >= outcome.acknowledged >= 50


def test_every_step_of_the_page_is_run() -> None:
    assert set(STEPS) == {"dump", "restore-dump", "adopt", "archive", "base", "restore-base"}
