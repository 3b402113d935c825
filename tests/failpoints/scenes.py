"""What gateway A is doing when it ends or stands still. Scenes together pass every point of an append.

A scene brings A into a state, arms it, and has it do something. It may be cut short anywhere after that: the
point that is wanted may be any that it passes.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

from uuid_utils import uuid7

from tests.failpoints.stage import Stage
from tests.faults.history import Identity, Operation, StreamName
from tests.faults.link import Link, Way

Scene = Callable[[Stage], Awaitable[None]]
SCENES: dict[str, Scene] = {}


def _scene(scene: Scene) -> Scene:
    SCENES[scene.__name__] = scene
    return scene


async def _go(stage: Stage) -> None:
    """A is up; from now on it may be stopped."""
    await stage.start_a()
    stage.a.arm()


async def _go_known(stage: Stage) -> None:
    """The same; and A knows the client's key, so it does not need Postgres for that."""
    await stage.start_a()
    stage.send(stage.operation())
    await stage.answered()
    await stage.until(stage.resting)
    stage.a.arm()


async def _written(stage: Stage) -> StreamName:
    """A stream with an event."""
    stream = stage.stream()
    await stage.at_b(stage.operation(stream))
    return stream


async def _gone(stage: Stage) -> None:
    keys = await stage.keys()
    prefix = keys.meta.rsplit(":", 1)[0]
    await stage.redis(
        "EVAL", "return redis.call('DEL', unpack(redis.call('KEYS', ARGV[1])))", 0,
        prefix.replace("{", "?").replace("}", "?") + "*",
    )  # fmt: skip


# -- an append


@_scene
async def a_first_append(stage: Stage) -> None:
    await _go(stage)
    stage.send(stage.plain())
    await stage.answered()


@_scene
async def appends_to_a_stream_that_is_there(stage: Stage) -> None:
    stream = await _written(stage)
    await _go(stage)
    stage.send(stage.operation(stream, expected=1))
    await stage.answered()
    stage.send(stage.plain(stream))
    await stage.answered()


@_scene
async def a_batch(stage: Stage) -> None:
    await _go(stage)
    stage.send(stage.operation(events=5))
    await stage.answered()


@_scene
async def a_retry(stage: Stage) -> None:
    made = await stage.at_b(stage.operation())
    await _go(stage)
    stage.send(made)
    await stage.answered()


@_scene
async def a_key_that_another_request_has(stage: Stage) -> None:
    made = await stage.at_b(stage.operation())
    await _go(stage)
    stage.send(stage.stolen(made))
    await stage.answered()


@_scene
async def a_conflict(stage: Stage) -> None:
    stream = await _written(stage)
    await _go(stage)
    stage.send(stage.plain(stream, expected=0))
    await stage.answered()


# -- beside another gateway


@_scene
async def a_retry_of_what_is_not_committed(stage: Stage) -> None:
    await _go(stage)
    made = stage.operation()
    async with stage.row_locked():
        first = await _sent_to_b(stage, made)
        await stage.until(lambda: _uncommitted(stage))
        stage.send(made)
        await stage.commits_wait(2)
    await stage.answered()
    await first


@_scene
async def a_key_that_a_request_has_that_is_not_committed(stage: Stage) -> None:
    await _go(stage)
    made = stage.operation()
    async with stage.row_locked():
        first = await _sent_to_b(stage, made)
        await stage.until(lambda: _uncommitted(stage))
        stage.send(stage.stolen(made))
        await stage.commits_wait(2)
    await stage.answered()
    await first


@_scene
async def an_append_after_what_another_commits(stage: Stage) -> None:
    await _go(stage)
    async with stage.row_locked():
        first = await _sent_to_b(stage, stage.operation())
        await stage.until(lambda: _uncommitted(stage))
        stage.send(stage.operation())
        await stage.commits_wait(2)
    await stage.answered()
    await first


@_scene
async def an_append_after_one_that_stays_uncommitted(stage: Stage) -> None:
    await _go_known(stage)
    stage.b.signal(signal.SIGSTOP)
    await stage.sequence_and_die(stage.plain())
    stage.send(stage.operation())
    await stage.answered()


@_scene
async def an_append_that_stays_uncommitted(stage: Stage) -> None:
    await stage.start_a()
    stage.b.signal(signal.SIGSTOP)
    await stage.sequence_and_die(stage.plain())
    stage.a.arm()
    await stage.until(lambda: _committed(stage))


@_scene
async def an_epoch_that_ends_under_a_commit(stage: Stage) -> None:
    await _go(stage)
    async with stage.row_locked() as row:
        stage.send(stage.operation())
        await stage.commits_wait(1)
        await row.execute("UPDATE partition_log SET epoch = epoch + 1, owner = 'somebody' WHERE p = 0")
    await stage.answered()


@_scene
async def more_than_the_window(stage: Stage) -> None:
    await _go(stage)
    async with stage.row_locked():
        stage.send(stage.operation(events=15))
        await stage.commits_wait(1)
        stage.send(stage.operation(events=15))
        await stage.until(lambda: _busy(stage))
    await stage.answered()


# -- servers


@_scene
async def a_commit_whose_answer_is_lost(stage: Stage) -> None:
    await _go(stage)
    async with stage.row_locked():
        stage.send(stage.operation())
        await stage.commits_wait(1)
        stage.postgres_link.cut(Way.DOWN, 1)
    await stage.answered()


@_scene
async def scripts_forgotten(stage: Stage) -> None:
    """The next look at Redis loads its script, and an append its own. B's look would load the same."""
    await _go(stage)
    stage.b.signal(signal.SIGSTOP)
    await stage.redis("SCRIPT", "FLUSH")
    looks = "self.send_after(_LOAD_HASHES, packed, 3)"
    await stage.until(lambda: stage.passes("Server.hashes", looks, "after"))
    stage.send(stage.operation())
    await stage.answered()


async def _waits_for(stage: Stage, link: Link, operation: Operation, *point: str) -> None:
    """An append while the link is down; it is back once the append has come to a point."""
    link.refuse()
    stage.send(operation)
    await stage.until(lambda: stage.passes(*point))
    link.heal()
    await stage.answered()


@_scene
async def no_redis(stage: Stage) -> None:
    await _go_known(stage)
    await _waits_for(stage, stage.redis_link, stage.operation(), "Sequencer._open", "self._back_off()")


@_scene
async def connections_that_break(stage: Stage) -> None:
    """An append's call beside a look at Redis leaves two connections; when one breaks, the other ends."""
    await _go_known(stage)
    stage.redis_link.hold(Way.DOWN)
    stage.send(stage.plain())
    await stage.until(lambda: stage.redis_link.waiting >= 2)
    stage.redis_link.heal()
    await stage.answered()
    stage.redis_link.drop()
    stage.send(stage.plain())
    await stage.answered()


@_scene
async def no_postgres_for_a_look_up(stage: Stage) -> None:
    await _go_known(stage)
    """Of ids that the client chose: that a key is new is known without."""
    made = stage.operation(identity=Identity.EVENTS, idempotency_key=None, event_ids=(str(uuid7()),))
    await _waits_for(stage, stage.postgres_link, made, "LookUps.run", "asyncio.sleep(_RETRY_S)")


@_scene
async def no_postgres_for_a_cold_stream(stage: Stage) -> None:
    await _go_known(stage)
    await _waits_for(stage, stage.postgres_link, stage.plain(), "Sequencer._warm", "self._back_off()")


@_scene
async def a_flush(stage: Stage) -> None:
    await _go(stage)
    stream = await _written(stage)
    await _gone(stage)
    stage.send(stage.operation(stream))
    await stage.answered()


@_scene
async def a_journal_that_is_gone(stage: Stage) -> None:
    await _go_known(stage)
    stage.b.signal(signal.SIGSTOP)
    keys = await stage.keys()
    await stage.sequence_and_die(stage.plain())
    await stage.redis("DEL", keys.journal)
    stage.send(stage.operation())
    await stage.answered()


# -- without Redis, for so long that appends go on


async def _go_without_redis(stage: Stage) -> None:
    """A knows the client's key, and reaches no Redis; B does, and follows."""
    await stage.start_a()
    stage.redis_link.refuse()
    await stage.until(lambda: stage.value("SELECT mode = 'direct' FROM partition_log WHERE p = 0"))
    stage.send(stage.operation())
    await stage.answered()
    stage.a.arm()


@_scene
async def a_redis_that_stays_away(stage: Stage) -> None:
    await _go_known(stage)
    stage.redis_link.refuse()
    stage.send(stage.operation(events=2))
    await stage.answered()


@_scene
async def direct_appends(stage: Stage) -> None:
    made = await stage.at_b(stage.operation())
    stream = await _written(stage)
    await _go_without_redis(stage)
    stage.send(made)
    stage.send(stage.operation(stream, expected=1))
    stage.send(stage.plain(stream, expected=0))
    await stage.answered()


@_scene
async def a_direct_append_that_is_overtaken(stage: Stage) -> None:
    await _go_without_redis(stage)
    await stage.at_b(stage.operation())
    async with stage.row_locked():
        first = await _sent_to_b(stage, stage.operation())
        await stage.commits_wait(1)
        stage.send(stage.operation())
        await stage.commits_wait(2)
    await stage.answered()
    await first


@_scene
async def no_postgres_for_a_direct_append(stage: Stage) -> None:
    await _go_without_redis(stage)
    await _waits_for(stage, stage.postgres_link, stage.operation(), "Sequencer.run", "self._back_off()")


@_scene
async def a_return_to_redis(stage: Stage) -> None:
    await _go_without_redis(stage)
    stage.redis_link.heal()
    await stage.until(lambda: stage.value("SELECT mode = 'redis' FROM partition_log WHERE p = 0"))
    stage.send(stage.operation())
    await stage.answered()


# -- verifying


@_scene
async def a_start_beside_another(stage: Stage) -> None:
    await _written(stage)
    await stage.start_a(armed=True)


@_scene
async def a_start_on_an_empty_redis(stage: Stage) -> None:
    await _written(stage)
    stage.b.signal(signal.SIGSTOP)
    await _gone(stage)
    await stage.start_a(armed=True)


@_scene
async def a_start_while_another_installs(stage: Stage) -> None:
    await _written(stage)
    stage.b.signal(signal.SIGSTOP)
    await stage.execute("UPDATE partition_log SET epoch = epoch + 1, owner = 'somebody' WHERE p = 0")
    await stage.start_a(armed=True)


@_scene
async def a_start_with_a_watermark_behind(stage: Stage) -> None:
    """Postgres has gone on since what this Redis calls committed."""
    await _written(stage)
    before = await stage.value("SELECT (seq, chain) FROM partition_log WHERE p = 0")
    await _written(stage)
    await stage.until(lambda: _committed(stage))
    stage.b.signal(signal.SIGSTOP)
    keys = await stage.keys()
    seq, chain = before
    await stage.redis("HSET", keys.meta, "c", seq, "ch", chain, "fence", "0" * 40)
    await stage.start_a(armed=True)


@_scene
async def a_postgres_that_lost_commits(stage: Stage) -> None:
    async with stage.lost():
        await stage.start_a_halted()
        await stage.until(lambda: stage.passes("Sequencer._open", "self._back_off()", "after"))


@_scene
async def a_postgres_that_loses_commits(stage: Stage) -> None:
    await _go_known(stage)
    async with stage.lost():
        stage.send(stage.operation())
        await stage.until(lambda: stage.value("SELECT alarm IS NOT NULL FROM partition_log WHERE p = 0"))


# -- rows that Postgres refuses


@_scene
async def appends_of_which_postgres_refuses_one(stage: Stage) -> None:
    await _go_known(stage)
    async with stage.refused(after=4):
        async with stage.row_locked():
            stage.send(stage.plain())
            await stage.commits_wait(1)
            for _ in range(5):
                stage.send(stage.plain())
            await stage.until(lambda: _uncommitted(stage, 2))
        await stage.answered()


@_scene
async def an_uncommitted_append_that_postgres_refuses(stage: Stage) -> None:
    await stage.start_a()
    stage.b.signal(signal.SIGSTOP)
    async with stage.refused(after=2):
        await stage.sequence_and_die(stage.plain(), stage.plain())
        stage.a.arm()
        await stage.until(lambda: stage.value("SELECT count(*) > 0 FROM quarantined_append"))


async def _sent_to_b(stage: Stage, made: Operation) -> Awaitable[object]:
    return stage.aside(stage.at_b(made))


async def _uncommitted(stage: Stage, count: int = 1) -> bool:
    return await stage.uncommitted() >= count


async def _committed(stage: Stage) -> bool:
    return await stage.uncommitted() == 0


async def _busy(stage: Stage) -> bool:
    return stage.passes("Sequencer._settle", "self._until_committed_further()")
