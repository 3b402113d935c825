"""How often Redis is asked where partitions stand: at rest less often than while anything waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.log.append import sweeper as module
from gateway.log.log import Log
from tests.log.conftest import OpenLog
from tests.support.drive import (
    Proceed,
    append,
    appended,
    hold_commits,
    hold_script,
    interpose,
    lane,
    new_stream,
    opened,
    until,
)


def _swept(*logs: Log) -> bool:
    """Whether one has committed from a journal: on a busy machine perhaps the one whose commit is held."""
    return any(each._metrics.swept_appends._value.get() for each in logs)


async def test_at_rest_it_looks_less_often_and_at_each_tick_while_an_append_waits(log: Log) -> None:
    stream, sweeper = new_stream(), log._sweeper
    await opened(log, stream)
    await appended(log, append(stream))
    await until(sweeper._at_rest)
    gate = hold_commits(log, stream)
    waiting = log.append(append(stream))
    await gate.arrived()
    assert not sweeper._at_rest()
    gate.open()
    await waiting
    await until(sweeper._at_rest)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda partition: partition.distrust(),
        lambda partition: partition.reach.failed(),
        lambda partition: setattr(partition, "direct", True),
    ],
    ids=["closed", "failing", "direct"],
)
async def test_what_is_wrong_with_a_partition_ends_the_rest(log: Log, wrong: Callable[..., None]) -> None:
    stream, sweeper = new_stream(), log._sweeper
    await opened(log, stream)
    await until(sweeper._at_rest)
    wrong(lane(log, stream).partition)
    assert not sweeper._at_rest()


async def test_a_call_of_redis_that_hangs_ends_the_rest(log: Log) -> None:
    stream, sweeper = new_stream(), log._sweeper
    await opened(log, stream)
    await until(sweeper._at_rest)
    call = asyncio.create_task(log._scripts.run("look", ("{1}a", "{1}b", "{1}c"), (0, 0)))
    await until(lambda: log._scripts.servers.under_way)
    assert not sweeper._at_rest()
    await call


async def test_what_another_gateway_left_uncommitted_ends_the_rest(open_log: OpenLog) -> None:
    one, other = await open_log(), await open_log()
    stream = new_stream()
    await opened(one, stream)
    await opened(other, stream)
    await until(other._sweeper._at_rest)
    looks: list[bool] = []

    async def noting(proceed: Proceed) -> int:
        found: int = await proceed()
        looks.append(other._sweeper._all_committed)
        return found

    gate = hold_commits(one, stream)
    interpose(other._sweeper, "run_once", noting)
    waiting = one.append(append(stream))
    await gate.arrived()
    await until(lambda: False in looks)
    await until(lambda: _swept(one, other))
    gate.open()
    await waiting
    assert module._AT_REST * module.SWEEP_EVERY_S < 0.5


async def test_a_journal_that_is_not_read_holds_up_no_look(open_log: OpenLog) -> None:
    """A Redis that hangs in that very moment would be found only by its own time limit."""
    one, other = await open_log(), await open_log()
    stream = new_stream()
    await opened(one, stream)
    await opened(other, stream)
    gate, reading = hold_commits(one, stream), hold_script(other, "journal")
    waiting = one.append(append(stream))
    await gate.arrived()
    await reading.arrived()
    looks = 0

    async def counting(proceed: Proceed) -> int:
        nonlocal looks
        looks += 1
        found: int = await proceed()
        return found

    interpose(other._sweeper, "run_once", counting)
    await until(lambda: looks > 3)
    reading.open()
    await until(lambda: _swept(one, other))
    gate.open()
    await waiting
