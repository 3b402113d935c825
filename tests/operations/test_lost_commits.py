"""Postgres has lost commits: it is noticed, never adopted in silence; repair restores, rewind continues."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from gateway.appends import Append, Appended
from gateway.catalog.migrate import migrate
from gateway.config import Config
from gateway.events import Stream
from gateway.log.log import Log
from gateway.log.read.ranges import Range
from gateway.operations.exclusive import exclusive
from gateway.operations.lost_events import LostEvents
from gateway.operations.place import OperationFailed, Place, open_place
from gateway.operations.repair import Plan, plan_repair, repair
from gateway.operations.rewind import Loss, rewind, weigh
from gateway.operations.standing import stand
from gateway.outcomes import NotCommitted, NotUnique, OutcomeUnknown
from tests.log.invariants import check_invariants
from tests.operations.conftest import OpenLog
from tests.operations.filled import audited, p_of
from tests.operations.restored import Restorable
from tests.support import calls, drive
from tests.support.accounts import open_account
from tests.support.databases import cloned, execute
from tests.support.drive import append, appended, ids, lane, new_stream, open_gateway, until
from tests.support.servers import Servers, open_folder, servers_in
from tests.support.serving import serving

WINDOW = 20_000
PARTITIONS = 4
_TEMPLATE = "template_lost"


@pytest.fixture(scope="module")
async def restorable_servers() -> AsyncIterator[Servers]:
    with open_folder() as folder:
        pair = servers_in(folder)
        with contextlib.closing(pair):
            await pair.start()
            await execute(pair.database_url("postgres"), f"CREATE DATABASE {_TEMPLATE}")
            await migrate(pair.database_url(_TEMPLATE), PARTITIONS)
            yield pair


@pytest.fixture
async def restorable(restorable_servers: Servers) -> AsyncIterator[Restorable]:
    servers = restorable_servers
    async with cloned(servers, _TEMPLATE) as url:
        yield Restorable(servers, drive.Place(url, servers.redis_url))


@pytest.fixture
def home(restorable: Restorable) -> drive.Place:
    return restorable.home


@contextlib.asynccontextmanager
async def at(home: drive.Place) -> AsyncIterator[Place]:
    async with open_place(home.postgres_url, home.redis_url, 2.0) as place:
        yield place


async def plans(place: Place) -> list[Plan]:
    every = [await stand(place, p) for p in range(place.instance.partitions)]
    return [await plan_repair(place, each) for each in every if each.in_need]


async def trail(home: drive.Place) -> list[tuple[str, int]]:
    return [
        (row["what"], row["seq"]) for row in await home.fetch("SELECT * FROM partition_trail ORDER BY id")
    ]


async def halted(log: Log, stream: Stream) -> str:
    await until(lambda: lane(log, stream).partition.halted is not None)
    return str(lane(log, stream).partition.halted)


async def stored(home: drive.Place, stream: Stream) -> list[bytes]:
    rows = await home.fetch(
        "SELECT id FROM outbox WHERE tenant = $1 AND aggregate_id = $2 ORDER BY version",
        uuid.UUID(bytes=stream.tenant), stream.key,
    )  # fmt: skip
    return [row["id"].bytes for row in rows]


async def opened(log: Log) -> None:
    await until(lambda: all(each.partition.open for each in log._lanes))


class Written:
    """What one stream was told: the ids that were acknowledged, before and after the copy was made."""

    def __init__(self, stream: Stream, kept: list[Append], lost: list[Append]) -> None:
        self.stream = stream
        self.kept = [each for one in kept for each in ids(one)]
        self.lost = [each for one in lost for each in ids(one)]


async def written(log: Log, restorable: Restorable, stream: Stream | None = None) -> Written:
    """Five events before the copy, seven after it, in appends of several and with a key."""
    stream = stream or new_stream()
    await opened(log)
    kept = [append(stream, 2), append(stream, 3, key=b"first")]
    lost = [append(stream, 4, key=b"second"), append(stream), append(stream, 2)]
    for each in kept:  # a call, and so an entry of the journal, of its own
        await appended(log, each)
    await restorable.back_up()
    for each in lost:
        await appended(log, each)
    partition = lane(log, stream).partition
    await until(lambda: partition.watermark == partition.committed_seq == 12)
    return Written(stream, kept, lost)


# -- repair


async def test_repair_restores_tags_and_who_holds_which_value(
    open_log: OpenLog, restorable: Restorable, home: drive.Place
) -> None:
    log = await open_log()
    await opened(log)
    tenant = drive.new_tenant()
    ada, bob = new_stream(tenant), new_stream(tenant)
    await appended(log, drive.claiming(ada, "a"), drive.claiming(bob, "b"))
    await restorable.back_up()
    swapped = [drive.claiming(ada, None), drive.claiming(bob, "a"), drive.claiming(ada, "b")]
    for each in (*swapped, drive.tagged(ada, ("a:1", "b:1")), drive.tagged(bob, ("a:1",))):
        await appended(log, each)
    partition = lane(log, ada).partition
    await until(lambda: partition.watermark == partition.committed_seq == 7)
    tables = ("unique_claim", "event_tag")
    before = [sorted(map(tuple, await home.fetch(f"SELECT * FROM {name}"))) for name in tables]
    await restorable.restore()
    await halted(log, ada)
    assert await home.fetch("SELECT FROM event_tag") == []
    async with at(home) as place:
        (plan,) = await plans(place)
        await repair(place, plan)
    after = [sorted(map(tuple, await home.fetch(f"SELECT * FROM {name}"))) for name in tables]
    assert after == before
    await until(lambda: partition.halted is None)
    assert isinstance(await log.append(drive.claiming(new_stream(tenant), "a")), NotUnique)
    await check_invariants(home)


async def test_repair_restores_every_acknowledged_event_and_gateways_go_on(
    open_log: OpenLog, restorable: Restorable, home: drive.Place
) -> None:
    busy, idle = await open_log(), await open_log()
    done = await written(busy, restorable)
    await restorable.restore()
    told = await halted(busy, done.stream)
    assert "is at epoch 2, seq 5, but this gateway saw epoch 2, seq 12 committed" in told
    await halted(idle, done.stream)
    assert await stored(home, done.stream) == done.kept
    refused = await busy.append(append(done.stream))
    assert isinstance(refused, NotCommitted), refused
    async with at(home) as place:
        assert "seen" in {each.invariant for each in (await audited(place)).violations}
        (plan,) = await plans(place)
        assert "commits seq 6…12 again (7 events)" in plan.told
        assert not plan.unmended
        await repair(place, plan)
        assert await stored(home, done.stream) == [*done.kept, *done.lost]
        for log in (busy, idle):
            await until(lambda log=log: lane(log, done.stream).partition.halted is None)
            (after,) = await appended(log, append(done.stream))
        assert after.first_version == 14
        assert not await plans(place)
        assert (await audited(place, deep=True)).ok
    await check_invariants(home)
    assert ("repair", 12) in await trail(home)


async def test_a_subscription_whose_position_a_repair_restored_continues(
    log: Log, restorable: Restorable, home: drive.Place
) -> None:
    done = await written(log, restorable)
    (place_8,) = await home.fetch("SELECT p, seq, substr(digest, 1, 4) AS mark FROM outbox WHERE seq = 8")
    await restorable.restore()
    await halted(log, done.stream)
    tenant = uuid.UUID(bytes=done.stream.tenant)
    await home.fetch("INSERT INTO tenant (id, name, handle) VALUES ($1, 'shop', 'shop')", tenant)
    never = (place_8["p"], place_8["seq"], b"none")
    for name, at_place, code in (
        ("restored", tuple(place_8), "position_lost"),
        ("elsewhere", never, "position_lost"),
        ("parked", tuple(place_8), None),
    ):
        await home.fetch(
            """INSERT INTO subscription (tenant, name, kind, declared, document, p, seq, mark, state, why,
            why_code) VALUES ($1, $2, 'webhook', false, '{}', $3, $4, $5, 'disabled', 'A sentence.', $6)""",
            tenant, name, *at_place, code,
        )  # fmt: skip
    async with at(home) as place:
        (plan,) = await plans(place)
        await repair(place, plan)
    rows = await home.fetch("SELECT name, state, why, why_code FROM subscription ORDER BY id")
    assert [tuple(row) for row in rows] == [
        ("restored", "active", None, None),
        ("elsewhere", "disabled", "A sentence.", "position_lost"),
        ("parked", "disabled", "A sentence.", None),
    ]


async def test_what_a_repair_restored_keeps_its_identities(
    open_log: OpenLog, restorable: Restorable, home: drive.Place
) -> None:
    log = await open_log()
    stream = new_stream()
    await opened(log)
    await restorable.back_up()
    first = append(stream, 2, key=b"once")
    await appended(log, first)
    await until(lambda: lane(log, stream).partition.watermark == 2)
    await restorable.restore()
    await halted(log, stream)
    async with at(home) as place:
        (plan,) = await plans(place)
        await repair(place, plan)
    await until(lambda: lane(log, stream).partition.halted is None)
    again = await log.append(append(stream, 2, key=b"once"))
    assert again == Appended(stream.key, 1, ids(first), replayed=True)


async def test_a_gateway_that_starts_on_a_restored_postgres_refuses_by_what_redis_saw(
    open_log: OpenLog, restorable: Restorable, home: drive.Place
) -> None:
    first = await open_log()
    done = await written(first, restorable)
    await first.stop(5)
    await restorable.restore()
    second = await open_log()
    assert "but Redis saw epoch 2, seq 12 committed" in await halted(second, done.stream)
    assert (await trail(home)) == [("alarm", 12)]
    async with at(home) as place:
        (plan,) = await plans(place)
        await repair(place, plan)
    await until(lambda: lane(second, done.stream).partition.halted is None)
    assert await stored(home, done.stream) == [*done.kept, *done.lost]


async def test_a_repair_follows_the_journal_through_the_epochs(
    open_log: OpenLog, restorable: Restorable, home: drive.Place
) -> None:
    log = await open_log()
    done = await written(log, restorable)
    partition = lane(log, done.stream).partition
    for _ in range(2):
        before = partition.epoch
        await home.execute("UPDATE partition_log SET epoch = epoch + 1 WHERE p = $1", partition.number)
        await until(lambda before=before: partition.epoch > before and partition.open)
        one = append(done.stream, 2)
        await appended(log, one)
        done.lost += ids(one)
    await until(lambda: partition.watermark == 16)
    epoch = partition.epoch
    await restorable.restore()
    await halted(log, done.stream)
    async with at(home) as place:
        (plan,) = await plans(place)
        assert plan.end.epoch == epoch
        await repair(place, plan)
        assert (await place.postgres.partition(partition.number)).epoch == epoch
    await until(lambda: partition.halted is None and partition.open)
    assert await stored(home, done.stream) == [*done.kept, *done.lost]
    await appended(log, append(done.stream))
    await check_invariants(home)


async def lost_seal(home: drive.Place, restorable: Restorable, log: Log, stream: Stream) -> int:
    """Three events, a copy, and a seal after it; the epoch that it began."""
    await opened(log)
    await appended(log, append(stream, 3))
    await restorable.back_up()
    partition = lane(log, stream).partition
    await home.execute("UPDATE partition_log SET epoch = epoch + 1 WHERE p = $1", partition.number)
    await until(lambda: partition.epoch > 2 and partition.open)
    return partition.epoch


async def test_a_seal_that_is_the_only_loss_is_made_again_beyond_the_epoch_that_was_seen(
    open_log: OpenLog, restorable: Restorable, home: drive.Place
) -> None:
    log, other = await open_log(), await open_log()
    stream = new_stream()
    epoch = await lost_seal(home, restorable, log, stream)
    await restorable.restore()
    await until(lambda: lane(log, stream).partition.epoch > epoch and lane(log, stream).partition.open)
    for each in (log, other):
        await appended(each, append(stream))
        assert lane(each, stream).partition.halted is None
    assert await trail(home) == []
    async with at(home) as place:
        assert not await plans(place)
        assert (await audited(place, deep=True)).ok
    await check_invariants(home)


async def test_a_seal_that_was_lost_with_what_may_have_been_committed_after_it_is_for_a_person(
    open_log: OpenLog, restorable: Restorable, home: drive.Place
) -> None:
    log = await open_log()
    stream = new_stream()
    epoch = await lost_seal(home, restorable, log, stream)
    partition = lane(log, stream).partition
    gate = drive.hold_commits(log, stream)
    late = append(stream)
    log.append(late)
    await gate.arrived()
    await restorable.restore()
    gate.open()
    assert f"saw epoch {epoch}, seq 3 committed" in await halted(log, stream)
    async with at(home) as place:
        (plan,) = await plans(place)
        await repair(place, plan)
    await until(lambda: partition.halted is None)
    assert (await stored(home, stream))[-1] == late.append_id
    await appended(log, append(stream))
    await check_invariants(home)


async def test_what_was_on_its_way_is_never_called_not_committed(
    open_log: OpenLog, restorable: Restorable, home: drive.Place
) -> None:
    """It stands in the journal, so a repair may commit it after its caller was answered."""
    log = await open_log()
    done = await written(log, restorable)
    gate = drive.hold_commits(log, done.stream)
    late = append(done.stream)
    pending = log.append(late)
    await gate.arrived()
    await restorable.restore()
    gate.open()
    await halted(log, done.stream)
    drive.time_is_up(log, done.stream)
    outcome = await pending
    assert isinstance(outcome, OutcomeUnknown), outcome
    async with at(home) as place:
        (plan,) = await plans(place)
        await repair(place, plan)
    assert await stored(home, done.stream) == [*done.kept, *done.lost, *ids(late)]


async def test_without_need_nothing_is_planned_and_two_at_once_are_refused(
    log: Log, home: drive.Place
) -> None:
    await appended(log, append(new_stream(), 3))
    async with at(home) as place, at(home) as other:
        assert not await plans(place)
        async with exclusive(place):
            with pytest.raises(OperationFailed, match="is running"):
                async with exclusive(other):
                    pass
        async with exclusive(other):
            pass


async def test_a_plan_that_postgres_has_overtaken_changes_nothing(
    open_log: OpenLog, restorable: Restorable, home: drive.Place
) -> None:
    log = await open_log()
    done = await written(log, restorable)
    await log.stop(5)
    await restorable.restore()
    async with at(home) as place:
        (plan,) = await plans(place)
        await repair(place, plan)
        with pytest.raises(OperationFailed, match="is at seq 12 by now"):
            await repair(place, plan)
    assert await stored(home, done.stream) == [*done.kept, *done.lost]
    assert [what for what, _ in await trail(home)].count("repair") == 1


async def test_an_alarm_that_comes_while_a_repair_runs_is_not_ended_by_it(
    open_log: OpenLog, restorable: Restorable, home: drive.Place, tmp_path: Path
) -> None:
    log = await open_log()
    done = await written(log, restorable)
    await log.stop(5)
    await restorable.restore()
    async with at(home) as place:
        (plan,) = await plans(place)
        p = plan.standing.p
        await place.postgres.keep_alarm(p, "a gateway", plan.standing.row.epoch, 14, "x", "more was seen")
        with pytest.raises(OperationFailed, match="misses more by now"):
            await repair(place, plan)
        assert (await trail(home))[-1] == ("partial repair", 12)
        assert (await place.postgres.partition(p)).alarm == "more was seen"
        (again,) = await plans(place)
        assert "a gateway saw seq 14 committed" in again.told
        loss = await weigh(place, again, LostEvents(tmp_path))
        await place.postgres.keep_alarm(p, "another", plan.standing.row.epoch, 15, "x", "still more")
        with pytest.raises(OperationFailed, match="changed by a gateway in the meantime"):
            await rewind(place, loss, WINDOW)
        (last,) = await plans(place)
        assert await rewind(place, await weigh(place, last, LostEvents(tmp_path)), WINDOW) > 2
    assert await stored(home, done.stream) == [*done.kept, *done.lost]


async def test_a_gateway_that_may_not_keep_an_alarm_halts_all_the_same(
    open_log: OpenLog, restorable: Restorable, home: drive.Place
) -> None:
    log = await open_log()
    done = await written(log, restorable)
    await restorable.restore()
    await home.execute("ALTER TABLE partition_trail RENAME TO elsewhere")
    await halted(log, done.stream)
    await home.execute("ALTER TABLE elsewhere RENAME TO partition_trail")
    await until(lambda: _has_trail(home))


async def _has_trail(home: drive.Place) -> bool:
    return bool(await trail(home))


async def test_an_alarm_that_nothing_speaks_for_any_more_is_ended(log: Log, home: drive.Place) -> None:
    stream = new_stream()
    await appended(log, append(stream, 3))
    p = drive.partition_number(log, stream)
    await home.execute("UPDATE partition_log SET alarm = 'somebody said so' WHERE p = $1", p)
    assert "somebody said so" in await halted(log, stream)
    async with at(home) as place:
        (plan,) = await plans(place)
        assert plan.told == f"partition {p}: nothing is missing"
        assert plan.of_use
        await repair(place, plan)
    await until(lambda: lane(log, stream).partition.halted is None)
    await appended(log, append(stream))


# -- what can't be repaired


async def drop_journals(place: Place, stream: Stream) -> None:
    pattern = f"sluice:1:{place.instance.id.hex}:{{{p_of(place, stream)}}}:*:j"
    await place.redis.delete(*await place.redis.keys(pattern))


async def give_up(place: Place, folder: Path) -> Loss:
    (plan,) = await plans(place)
    loss = await weigh(place, plan, LostEvents(folder))
    await rewind(place, loss, WINDOW)
    return loss


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


async def test_without_a_journal_repair_says_what_is_missing_and_rewind_continues(
    open_log: OpenLog, restorable: Restorable, home: drive.Place, tmp_path: Path
) -> None:
    first, second = await open_log(), await open_log()
    done = await written(first, restorable)
    await restorable.restore()
    for log in (first, second):
        await halted(log, done.stream)
    async with at(home) as place:
        await drop_journals(place, done.stream)
        (plan,) = await plans(place)
        assert not plan.of_use
        assert "saw seq 12 committed in epoch 2, to which no journal leads" in plan.told
        loss = await give_up(place, tmp_path / "lost")
        assert loss.found.count == 7  # the stream itself still has them
        assert list(loss.found.seqs) == [6, 7, 8, 9, 10, 11, 12]
        for log in (first, second):
            await until(lambda log=log: lane(log, done.stream).partition.halted is None)
            (after,) = await appended(log, append(done.stream))
        assert after.first_version == 7
        assert not await plans(place)
        assert (await audited(place, deep=True)).ok
    assert await first.length(done.stream) == 7
    await check_invariants(home)
    assert ("rewind", 5) in await trail(home)


async def test_a_rewind_writes_the_lost_events_so_that_they_can_be_appended_again(
    open_log: OpenLog, restorable: Restorable, home: drive.Place, tmp_path: Path
) -> None:
    log = await open_log()
    done = await written(log, restorable)
    await restorable.restore()
    await halted(log, done.stream)
    async with at(home) as place:
        (plan,) = await plans(place)
        assert plan.restores
        loss = await give_up(place, tmp_path / "lost")
    assert loss.told.endswith("gives up seq 6…12; 7 lost events found in Redis, seq 6…12")
    facts = lines(tmp_path / "lost" / "lost.jsonl")
    assert [each["seq"] for each in facts] == [6, 7, 8, 9, 10, 11, 12]
    assert [each["version"] for each in facts] == [6, 7, 8, 9, 10, 11, 12]
    assert all(each["known_committed"] for each in facts)
    bulk = lines(tmp_path / "lost" / f"{uuid.UUID(bytes=done.stream.tenant)}.ndjson")
    assert [each["append"] for each in facts] == bulk
    assert [uuid.UUID(each["metadata"]["event_id"]).bytes for each in bulk] == done.lost
    assert bulk[0] == {
        "aggregate_type": "order",
        "key": done.stream.key,
        "type": "was_placed",
        "data": {"n": 0},
        "metadata": {
            "actor": {"type": "user", "id": drive.ACTOR},
            "event_id": str(uuid.UUID(bytes=done.lost[0])),
        },
    }
    assert (tmp_path / "lost").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "lost" / "lost.jsonl").stat().st_mode & 0o777 == 0o600
    await until(lambda: lane(log, done.stream).partition.halted is None)
    events = (await log.page(Range(done.stream))).events
    assert [each.event.id for each in events] == done.kept


async def test_positions_that_are_nowhere_any_more_are_named(
    open_log: OpenLog, restorable: Restorable, home: drive.Place, tmp_path: Path
) -> None:
    log = await open_log()
    done = await written(log, restorable)
    await restorable.restore()
    await halted(log, done.stream)
    partition = lane(log, done.stream).partition
    async with at(home) as place:
        keys = place.keys(partition.number, partition.epoch)
        await place.redis.delete(keys.stream(done.stream))
        await place.redis.execute_command("XDEL", keys.journal, "10-0")
        (plan,) = await plans(place)
        assert plan.joined
        assert plan.stopped == "seq 10…10 are no longer in any journal"
        assert (plan.end.seq, plan.restores) == (9, True)
        loss = await weigh(place, plan, LostEvents(tmp_path))
        assert "of these, seq 10 are no longer in Redis" in loss.told
        assert "6 lost events found in Redis, seq 6…9, 11…12" in loss.told
        assert lane(log, done.stream).partition.halted is not None  # nothing was decided


async def test_a_redis_that_lost_its_end_too_is_repaired_as_far_as_it_goes(
    open_log: OpenLog, restorable: Restorable, home: drive.Place, tmp_path: Path
) -> None:
    """Only the gateway remembers the last two events."""
    log = await open_log()
    done = await written(log, restorable)
    partition = lane(log, done.stream).partition
    async with at(home) as place:
        keys = place.keys(partition.number, partition.epoch)
        (entry,) = await place.redis.xrange(keys.journal, "10", "10")
        (place_and_chain,) = entry[1]
        chain = place_and_chain.split(b":")[2]
        await restorable.restore()
        await halted(log, done.stream)
        await place.redis.execute_command("XDEL", keys.journal, "12-0")
        await place.redis.hset(keys.meta, mapping={"q": 10, "h": chain, "c": 10, "ch": chain})
        (plan,) = await plans(place)
        assert "commits seq 6…10 again" in plan.told
        assert "this gateway" in plan.told
        assert "saw seq 12 committed in epoch 2, to which no journal leads" in plan.told
        await repair(place, plan)
        assert (await trail(home))[-1] == ("partial repair", 10)
        await asyncio.sleep(1)
        assert partition.halted is not None
        loss = await give_up(place, tmp_path)
        assert "gives up seq 11…12" in loss.told
    await until(lambda: partition.halted is None)
    (after,) = await appended(log, append(done.stream))
    assert after.first_version == 11
    await check_invariants(home)


async def test_the_memory_of_a_gateway_is_enough_to_notice_and_every_gateway_heeds_it(
    open_log: OpenLog, restorable: Restorable, home: drive.Place, tmp_path: Path
) -> None:
    """Redis was lost together with Postgres' commits."""
    log = await open_log()
    done = await written(log, restorable)
    async with at(home) as place:
        pattern = f"sluice:1:{place.instance.id.hex}:*"
        restorable.servers.postgres.stop()
        await place.redis.delete(*await place.redis.keys(pattern))
        await restorable.restore()
        assert "this gateway saw epoch 2, seq 12" in await halted(log, done.stream)
        newcomer = await open_log()
        assert "saw epoch 2, seq 12 committed" in await halted(newcomer, done.stream)
        (plan,) = await plans(place)
        assert not plan.of_use
        loss = await give_up(place, tmp_path / "lost")
        assert loss.found.count == 0
        assert not (tmp_path / "lost").exists()
    for each in (log, newcomer):
        await until(lambda each=each: lane(each, done.stream).partition.halted is None)
        await appended(each, append(done.stream))
    await check_invariants(home)


async def test_a_postgres_that_grew_past_what_redis_saw_is_not_adopted_in_silence(
    open_log: OpenLog, restorable: Restorable, home: drive.Place, redis_url: str, tmp_path: Path
) -> None:
    """Another gateway, with another Redis, went on after the restore."""
    log = await open_log()
    done = await written(log, restorable)
    await log.stop(5)
    await restorable.restore()
    elsewhere = await open_gateway(drive.Place(home.postgres_url, redis_url))
    other = [append(done.stream) for _ in range(20)]
    await appended(elsewhere.log, *other)
    back = await open_log()
    told = await halted(back, done.stream)
    assert "what Postgres holds up to seq 25 does not continue what Redis saw committed at seq 12" in told
    assert (await trail(home)) == [("alarm", 12)]
    await appended(elsewhere.log, append(done.stream))  # who continues already is not halted
    async with at(home) as place:
        assert "seen" in {each.invariant for each in (await audited(place)).violations}
        (plan,) = await plans(place)
        assert not plan.of_use
        await elsewhere.close()
        loss = await give_up(place, tmp_path)
    assert "where the two histories part" in loss.told
    assert {each["seq"] for each in lines(tmp_path / "lost.jsonl")} == set(range(6, 13))
    await until(lambda: lane(back, done.stream).partition.halted is None)
    (after,) = await appended(back, append(done.stream))
    assert after.first_version == 27
    await check_invariants(home)


async def test_a_gateway_notices_by_its_memory_that_postgres_went_another_way(
    open_log: OpenLog, restorable: Restorable, home: drive.Place, tmp_path: Path
) -> None:
    """Restored and grown while the gateway could not look, with a Redis that knows only the new history."""
    log = await open_log()
    done = await written(log, restorable)
    async with at(home) as place:
        for each in (log._postgres, log._reads):
            drive.interpose(each, "fetch", _away)
        await restorable.restore()
        pattern = f"sluice:1:{place.instance.id.hex}:*"
        await place.redis.delete(*await place.redis.keys(pattern))
        other = await open_gateway(home)
        await appended(other.log, *(append(done.stream) for _ in range(20)))
        del log._postgres.fetch
        assert "does not continue what this gateway saw committed at seq 12" in await halted(log, done.stream)
        assert ("alarm", 12) in await trail(home)
        await other.close()
        loss = await give_up(place, tmp_path)
        assert "what was seen committed up to seq 12 and is not in Postgres; where the two" in loss.told


async def _away(proceed: drive.Proceed, *_: object) -> Any:
    raise drive.PostgresTrouble("can't be reached")


async def test_an_alarm_comes_too_late_for_what_was_repaired_or_given_up(log: Log, home: drive.Place) -> None:
    stream = new_stream()
    await appended(log, append(stream, 3))
    p = drive.partition_number(log, stream)
    async with at(home) as place:
        row = await place.postgres.partition(p)
        told = (p, "a gateway", row.epoch, 3, row.chain, "late")
        for _ in range(3):
            await place.postgres.fetch("alarm", *told)
        assert (await place.postgres.partition(p)).alarm is None  # all of it is there
        await home.execute("UPDATE partition_log SET rewound = epoch WHERE p = $1", p)
        await place.postgres.fetch("alarm", p, "a gateway", row.epoch - 1, 99, "x", "late")
        assert (await place.postgres.partition(p)).alarm is None
        assert await trail(home) == [("alarm", 3)]
        await place.postgres.fetch("alarm", p, "a gateway", row.epoch, 99, "x", "in time")
        assert (await place.postgres.partition(p)).alarm == "in time"


async def test_an_epoch_that_begins_after_a_rewind_keeps_the_mark_of_it(log: Log, home: drive.Place) -> None:
    stream = new_stream()
    await appended(log, append(stream, 3))
    p = drive.partition_number(log, stream)
    async with at(home) as place:
        await home.execute("UPDATE partition_log SET rewound = epoch WHERE p = $1", p)
        row = await place.postgres.partition(p)
        sealed = await place.postgres.seal(p, row.epoch, "another gateway", row.mode)
        assert sealed is not None
        assert sealed == await place.postgres.partition(p)
        assert sealed.rewound == row.epoch > 0


# -- what a gateway remembers


async def test_no_state_is_told_that_a_rewind_has_given_up(
    restorable: Restorable, home: drive.Place, tmp_path: Path
) -> None:
    """A state that was folded from lost events, beside as many that came in their place."""
    async with asyncpg.create_pool(home.postgres_url, min_size=1, max_size=1) as pool:
        account = await open_account(pool)
    key = calls.new_id()
    config = Config(redis_url=home.redis_url, postgres_url=home.postgres_url)
    async with serving(config) as served, calls.new_client(served.url, account.admin) as client:

        async def told(customer: str) -> None:
            appended = calls.append(client, "order", key, "was_placed", {"customer": {"email": customer}})
            assert (await appended).status_code == 201

        async def found() -> list[Any]:
            state = (await client.get(f"/order/{key}")).json()
            events = (await client.get(f"/order/{key}/events")).json()
            return [state["metadata"]["length"], state["data"], *[each["data"] for each in events["events"]]]

        async def ready() -> bool:
            return (await client.get("/_/health/ready")).status_code == 200

        await told("kept@here")
        await restorable.back_up()
        await until(ready)
        await told("lost@here")
        kept, lost, new = ({"customer": {"email": f"{each}@here"}} for each in ("kept", "lost", "new"))
        assert await found() == [2, lost, kept, lost]
        old = (await client.get(f"/order/{key}")).headers["etag"]
        assert old == '"2.r1"'
        await restorable.restore()

        async def noticed() -> bool:
            async with at(home) as place:
                return any(plan.standing.alarm for plan in await plans(place)) and not await ready()

        await until(noticed)
        assert (await client.get(f"/order/{key}")).json()["metadata"]["length"] == 1
        async with at(home) as place:
            await give_up(place, tmp_path)
        await until(ready)
        await told("new@here")
        assert await found() == [2, new, kept, new]
        again = await client.get(f"/order/{key}", headers={"if-none-match": old})
        assert (again.status_code, again.headers["etag"][:7]) == (200, '"2.r1.e')
        asks = partial(calls.append, client, "order", key, "was_placed", new)
        stale = await asks({"if-match": old})
        assert (stale.status_code, stale.json()["length"]) == (409, 2)
        assert "another history" in stale.json()["error"]
        current = await asks({"if-match": again.headers["etag"]})
        assert current.status_code == 201
        assert current.headers["etag"] == '"3' + again.headers["etag"][5:]
