"""The compare-and-swap by itself, on a real Postgres: it holds in one place of one history only."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import msgspec
import pytest
from uuid_utils import uuid7

from gateway.appends import Append, Appended, next_chain, pack_event, row_digests, salts_of, tag_key, tag_keys
from gateway.events import Stream, Tags
from gateway.log.commit_connection import (
    ChainBroken,
    CommitConnection,
    Ready,
    RefusedByPostgres,
    made_ready,
)
from gateway.log.entries import SequencedAppend, chain_over, commit_columns, event_of, stream_of
from gateway.log.log import Log
from gateway.log.postgres import REDIS, SQL
from gateway.outcomes import Outcome
from gateway.postgres.errors import PostgresTrouble
from tests.log.conftest import OpenLog
from tests.log.invariants import check_invariants
from tests.support.drive import (
    ACTOR,
    Gate,
    Place,
    Proceed,
    append,
    appended,
    event,
    hold_commits,
    hold_settling,
    interpose,
    lane,
    new_stream,
    opened,
    until,
)

P, EPOCH = 3, 1


def placed(one: Append, first_version: int, last_seq: int) -> SequencedAppend:
    return SequencedAppend(
        one.stream,
        one.append_id,
        one.events,
        one.digests,
        one.chosen,
        one.request_digest,
        first_version,
        last_seq,
        salts=salts_of(one.packed),
    )


async def test_a_row_has_the_salt_that_its_digest_is_over_and_one_of_an_earlier_release_has_none(
    log: Log, place: Place
) -> None:
    stream = new_stream()
    salted, earlier = append(stream, 2), append(stream, 2)
    packed = tuple(map(pack_event, earlier.events))
    digests = row_digests(stream, earlier.append_id, packed)
    earlier = msgspec.structs.replace(earlier, packed=packed, digests=digests)
    await appended(log, salted, earlier)
    rows = await place.fetch("SELECT salt FROM outbox WHERE aggregate_id = $1 ORDER BY seq", stream.key)
    assert [row["salt"] for row in rows] == [each[-16:] for each in salted.packed] + [None, None]
    await check_invariants(place)


@pytest.fixture
async def connection(place: Place) -> AsyncIterator[CommitConnection]:
    made = CommitConnection(place.postgres_url, 5)
    yield made
    await made.close()


async def stands(place: Place) -> tuple[int, str, int]:
    (row,) = await place.fetch("SELECT seq, chain FROM partition_log WHERE p = $1", P)
    return row["seq"], row["chain"], (await place.fetch("SELECT count(*) FROM outbox"))[0][0]


async def test_a_run_is_committed_where_the_partition_stands(
    connection: CommitConnection, place: Place
) -> None:
    stream = new_stream()
    run = [placed(append(stream, 2, key=b"k"), 1, 2), placed(append(stream), 3, 3)]
    chain = chain_over("", run)
    assert await connection.swap(P, EPOCH, (0, ""), (3, chain), run)
    assert await stands(place) == (3, chain, 3)
    assert not await connection.swap(P, EPOCH, (0, ""), (3, chain), run)
    assert await stands(place) == (3, chain, 3)
    await check_invariants(place, settles=False)


async def test_each_column_of_each_row_comes_back_as_it_was_placed(
    connection: CommitConnection, place: Place
) -> None:
    """Of appends of several events and of one, with and without what may be left out."""
    stream, other = new_stream(), new_stream()
    full = event(target_type="order", target_id="global", causation_id=uuid7().bytes, extra=b'{"a":1}')
    bare = event(type="was_noted", actor_type="robot", spec_rev=7, recorded_at_ms=1)
    several = [
        placed(append(stream, events=(full, bare)), 1, 2),
        placed(append(other, events=(event(payload=b""), event(payload=None)), key=b"k"), 1, 4),
    ]
    single = [
        placed(append(other, events=(event(target_type="user", target_id=ACTOR),)), 3, 5),
        placed(append(stream, events=(event(extra=b"{}"),)), 3, 6),
    ]
    before = (0, "")
    for run in (several, single):
        after = (run[-1].last_seq, chain_over(before[1], run))
        assert await connection.swap(P, EPOCH, before, after, run)
        before = after
    milliseconds = "(extract(epoch FROM recorded_at) * 1000)::bigint AS recorded_at_ms"
    rows = await place.fetch(f"SELECT *, {milliseconds} FROM outbox ORDER BY seq")
    found = [(row["seq"], (row["version"], row["digest"])) for row in rows]
    assert found == [row for each in (*several, *single) for row in each.rows()]
    assert [(row["p"], row["append_id"], stream_of(row), event_of(row)) for row in rows] == [
        (P, each.append_id, each.stream, one) for each in (*several, *single) for one in each.events
    ]
    await check_invariants(place, settles=False)


def with_tags(one: SequencedAppend, tags: Tags) -> SequencedAppend:
    return msgspec.structs.replace(one, tags=tags, tag_keys=tag_keys(one.stream.tenant, tags))


async def test_tags_are_stored_with_the_seq_of_their_event(
    connection: CommitConnection, place: Place
) -> None:
    stream = new_stream()
    tagged = with_tags(placed(append(stream, 2), 1, 2), (("a:1", "b:1"), ("a:1",)))
    last = with_tags(placed(append(stream), 4, 4), (("b:1",),))
    run = [tagged, placed(append(stream), 3, 3), last]
    assert await connection.swap(P, EPOCH, (0, ""), (4, chain_over("", run)), run)
    rows = await place.fetch("SELECT tag, seq FROM event_tag ORDER BY seq, tag")
    a, b = (tag_key(stream.tenant, tag) for tag in ("a:1", "b:1"))
    assert {(row["tag"].bytes, row["seq"]) for row in rows} == {(a, 1), (b, 1), (a, 2), (b, 4)}


async def test_only_a_run_with_tags_or_chosen_identities_inserts_any() -> None:
    one, two = append(new_stream()), append(new_stream(), key=b"k")
    plain = placed(one, 1, 1)
    chosen, tagged = placed(two, 1, 2), with_tags(placed(one, 1, 2), (("a:1",),))
    for run, kind in (([plain], "_plain"), ([plain, chosen], ""), ([plain, tagged], "")):
        assert made_ready((0, ""), (run[-1].last_seq, chain_over("", run)), run).kind == kind
    for name in ("commit", "commit_in_turn"):
        inserts = [re.findall(r"INSERT INTO (\w+)", SQL[name + kind]) for kind in ("_plain", "")]
        assert inserts == [["outbox"], ["outbox", "append_identity", "event_tag"]]


@pytest.mark.parametrize("name", ['a"b', "a\\b", '","'])
def test_a_name_that_would_break_out_of_its_column_is_not_sent(name: str) -> None:
    stream = Stream(bytes(16), "order", name)
    with pytest.raises(ValueError, match="quote or backslash"):
        commit_columns([placed(append(stream), 1, 1), placed(append(stream, 2), 2, 3)])


@pytest.mark.parametrize(
    ("epoch", "seq", "chain", "mode"),
    [(2, 1, None, "redis"), (0, 1, None, "redis"), (1, 0, None, "redis"), (1, 2, None, "redis"),
     (1, 1, "0" * 40, "redis"), (1, 1, "", "redis"), (1, 1, None, "direct")],
)  # fmt: skip
async def test_a_run_that_continues_anything_else_does_nothing(
    connection: CommitConnection, place: Place, epoch: int, seq: int, chain: str | None, mode: str
) -> None:
    stream = new_stream()
    first = placed(append(stream), 1, 1)
    committed = chain_over("", [first])
    assert await connection.swap(P, EPOCH, (0, ""), (1, committed), [first])
    await place.execute("UPDATE partition_log SET mode = $1", mode)
    believed = committed if chain is None else chain
    run = [placed(append(stream, key=b"k"), 2, seq + 1)]
    assert not await connection.swap(P, epoch, (seq, believed), (seq + 1, chain_over(believed, run)), run)
    assert await stands(place) == (1, committed, 1)
    assert await place.fetch("SELECT FROM append_identity") == []


async def test_rows_that_do_not_add_up_to_the_chain_are_never_sent(
    connection: CommitConnection, place: Place
) -> None:
    run = [placed(append(new_stream()), 1, 1)]
    for chain in ("0" * 40, next_chain("", 2, run[0].digests)):
        with pytest.raises(ChainBroken):
            await connection.swap(P, EPOCH, (0, ""), (1, chain), run)
    assert await stands(place) == (0, "", 0)


async def test_a_refused_row_leaves_nothing_of_its_run(connection: CommitConnection, place: Place) -> None:
    stream = new_stream()
    twice = append(stream)
    run = [placed(twice, 1, 1), placed(twice, 2, 2)]
    with pytest.raises(RefusedByPostgres, match="UniqueViolation"):
        await connection.swap(P, EPOCH, (0, ""), (2, chain_over("", run)), run)
    assert await stands(place) == (0, "", 0)
    run = [placed(append(stream), 1, 1)]
    assert await connection.swap(P, EPOCH, (0, ""), (1, chain_over("", run)), run)
    await check_invariants(place, settles=False)


async def test_the_same_run_sent_twice_at_once_counts_once(place: Place) -> None:
    connections = [CommitConnection(place.postgres_url, 5) for _ in range(4)]
    run = [placed(append(new_stream(), 3, key=b"k"), 1, 3)]
    after = (3, chain_over("", run))
    held = await asyncio.gather(*(each.swap(P, EPOCH, (0, ""), after, run) for each in connections))
    assert sorted(held) == [False, False, False, True]
    await asyncio.gather(*(each.close() for each in connections))
    await check_invariants(place, settles=False)


async def test_a_run_that_comes_before_its_turn_waits_for_it(
    connection: CommitConnection, place: Place
) -> None:
    """Also longer than it would wait for one that does not come, if that one is being committed."""
    first, second = [placed(append(new_stream()), 1, 1)], [placed(append(new_stream()), 1, 2)]
    between = (1, chain_over("", first))
    after = (2, chain_over(between[1], second))
    holder = await asyncpg.connect(place.postgres_url)
    try:
        async with holder.transaction():
            swap = (P, EPOCH, 0, "", *between, *commit_columns(first), REDIS)
            assert await holder.fetchval(SQL["commit"], *swap) == 1
            waiting = asyncio.create_task(connection.swap(P, EPOCH, between, after, second, in_turn=True))
            await until(lambda: _waits_for_a_lock(place))
            for _ in range(60):
                await holder.execute("SELECT pg_sleep(0.001)")
            assert not waiting.done()
        assert await waiting
    finally:
        await holder.close()
    assert await stands(place) == (*after, 2)
    await check_invariants(place, settles=False)


@contextlib.asynccontextmanager
async def looking_longer(place: Place) -> AsyncIterator[None]:
    """For a turn that does come: that it comes in time also on a machine that stands still for a while."""
    ((text,),) = await place.fetch("SELECT pg_get_functiondef('swap_in_turn'::regproc)")
    assert text.count("looks int := 30;") == 1
    await place.execute(text.replace("looks int := 30;", "looks int := 30000;"))
    try:
        yield
    finally:
        await place.execute(text)


async def test_runs_of_several_gateways_commit_in_order_whichever_sends_first(place: Place) -> None:
    connections = [CommitConnection(place.postgres_url, 5) for _ in range(4)]
    runs, places = [], [(0, "")]
    for seq in range(1, 5):
        runs.append([placed(append(new_stream(), key=b"%d" % seq), 1, seq)])
        places.append((seq, chain_over(places[-1][1], runs[-1])))
    swaps = [*zip(connections, places[:-1], places[1:], runs, strict=True)]
    async with looking_longer(place):
        held = await asyncio.gather(
            *(
                each.swap(P, EPOCH, before, after, run, in_turn=True)
                for each, before, after, run in reversed(swaps)
            )
        )
    assert held == [True] * 4
    assert await stands(place) == (*places[-1], 4)
    await asyncio.gather(*(each.close() for each in connections))
    await check_invariants(place, settles=False)


@pytest.mark.parametrize("sealed", [True, False])
async def test_a_run_whose_turn_does_not_come_does_nothing(
    connection: CommitConnection, place: Place, sealed: bool
) -> None:
    run = [placed(append(new_stream()), 1, 2)]
    before = (1, next_chain("", 1, run[0].digests))
    after = (2, chain_over(before[1], run))
    waiting = asyncio.create_task(connection.swap(P, EPOCH, before, after, run, in_turn=True))
    if sealed:
        await place.execute("UPDATE partition_log SET epoch = 2 WHERE p = $1", P)
    assert not await waiting
    assert await stands(place) == (0, "", 0)


async def test_a_commit_that_is_cancelled_here_is_not_cancelled_there(
    connection: CommitConnection, place: Place
) -> None:
    """A gateway that stops must not undo what it has sent, nor leave a commit whose standby was not asked."""
    run = [placed(append(new_stream()), 1, 1)]
    assert await connection.swap(P, EPOCH, (0, ""), (1, chain_over("", run)), run)
    more = [placed(append(new_stream()), 1, 2)]
    before = (1, chain_over("", run))
    holder = await asyncpg.connect(place.postgres_url)
    try:
        async with holder.transaction():
            await holder.execute("SELECT FROM partition_log WHERE p = $1 FOR UPDATE", P)
            after = (2, chain_over(before[1], more))
            swap = asyncio.create_task(connection.swap(P, EPOCH, before, after, more))
            await until(lambda: _waits_for_a_lock(place))
            swap.cancel()
            with pytest.raises(asyncio.CancelledError):
                await swap
            assert await _waits_for_a_lock(place)
        await until(lambda: _stands_at(place, 2))
    finally:
        await holder.close()
    await check_invariants(place, settles=False)


async def _waits_for_a_lock(place: Place) -> bool:
    waits = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(await place.fetch(waits))


async def _stands_at(place: Place, seq: int) -> bool:
    return (await stands(place))[0] == seq


WARNS = """
CREATE FUNCTION pristine.warn() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE WARNING 'canceling wait for synchronous replication'; RETURN NEW; END $$;
CREATE TRIGGER warn BEFORE UPDATE ON partition_log FOR EACH ROW EXECUTE FUNCTION pristine.warn();
"""
WARNS_NO_MORE = "DROP TRIGGER warn ON partition_log; DROP FUNCTION pristine.warn()"


async def test_a_commit_that_was_answered_with_a_warning_is_found_and_acknowledged_after_another_write(
    open_log: OpenLog, place: Place
) -> None:
    """Postgres answers so when the wait for a standby was cancelled: committed, and perhaps not durable."""
    log = await open_log()
    stream = new_stream()
    await opened(log, stream)
    await appended(log, append(stream))
    gate = hold_settling(log)
    await place.execute(WARNS)
    try:
        pending = log.append(append(stream, 2))
        await gate.arrived()
        assert await place.committed() == 3
        assert not pending.done()
    finally:
        await place.execute(WARNS_NO_MORE)
    gate.open()
    assert await pending == Appended(stream.key, 2, (await pending).event_ids, replayed=False)
    await check_invariants(place)


async def test_a_connection_says_that_a_warned_commit_is_of_unknown_outcome(
    connection: CommitConnection, place: Place
) -> None:
    run = [placed(append(new_stream()), 1, 1)]
    swap: tuple[Any, ...] = (P, EPOCH, (0, ""), (1, chain_over("", run)), run)
    await place.execute(WARNS)
    try:
        with pytest.raises(PostgresTrouble, match="warning"):
            await connection.swap(*swap)
    finally:
        await place.execute(WARNS_NO_MORE)
    assert not await connection.swap(*swap)
    assert (await stands(place))[0] == 1


# -- made ready ahead


def sent_of(log: Log, stream: Stream) -> list[tuple[tuple[int, str], Ready | None]]:
    """Grows by the end of each run that the gateway commits from now on, and what was made ready of it."""
    sent: list[tuple[tuple[int, str], Ready | None]] = []

    async def around(proceed: Proceed, *args: Any) -> Any:
        sent.append((args[3], args[7]))
        return await proceed()

    interpose(lane(log, stream).connection, "swap", around)
    return sent


async def held_commit(
    log: Log, stream: Stream
) -> tuple[Gate, asyncio.Future[Outcome], list[tuple[tuple[int, str], Ready | None]]]:
    """A commit that is held, the append that it carries, and what is sent from it on."""
    await appended(log, append(stream))
    gate = hold_commits(log, stream)
    sent = sent_of(log, stream)
    carried = log.append(append(stream))
    await gate.arrived()
    return gate, carried, sent


async def test_what_a_commit_sends_is_made_while_the_one_before_it_is_under_way(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log()
    stream = new_stream()
    gate, committing, sent = await held_commit(log, stream)
    behind = log.append(append(stream))
    await until(lambda: lane(log, stream).committer.appends == 2)
    gate.open()
    assert [type(each) for each in await asyncio.gather(committing, behind)] == [Appended] * 2
    (_, none), (end, ready) = sent
    assert none is None
    assert ready is not None
    assert ready.after == end
    await check_invariants(place)


@pytest.mark.bug
async def test_a_bug_in_making_rows_ready_is_logged_and_the_commit_makes_them(
    open_log: OpenLog, place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> object:
        raise RuntimeError("a bug")

    log = await open_log()
    stream = new_stream()
    gate, committing, sent = await held_commit(log, stream)
    monkeypatch.setattr("gateway.log.append.committer.made_ready", broken)
    behind = log.append(append(stream))
    await until(lambda: lane(log, stream).committer.appends == 2)
    gate.open()
    assert [type(each) for each in await asyncio.gather(committing, behind)] == [Appended] * 2
    assert [ready for _, ready in sent] == [None, None]
    assert [record.msg for record in caplog.records].count("commit_not_prepared") == 1
    await check_invariants(place)


@pytest.mark.bug
async def test_a_bug_of_what_hears_of_commits_is_logged_each_time_and_delays_no_answer(
    open_log: OpenLog, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("a bug")

    log = await open_log()
    stream = new_stream()
    p = log.partition(stream.tenant)
    heard: list[object] = []
    with (
        log.followers.tapped(p, broken),
        log.followers.tapped(p, heard.append),
        log.followers.follow(stream) as follower,
    ):
        for n in (1, 2, 3):
            assert isinstance(await log.append(append(stream)), Appended)
            await follower.wait(60)
            told = [(record.msg, record.levelname) for record in caplog.records]
            assert told.count(("commit_tap_failed", "ERROR")) == len(heard) == n
            assert len(told) == n  # the commit itself did not fail
    await check_invariants(place)


async def test_calls_that_are_committed_together_leave_out_nothing_though_each_was_made_ready_by_itself(
    open_log: OpenLog, place: Place
) -> None:
    log = await open_log()
    stream = new_stream()
    gate, first, sent = await held_commit(log, stream)
    crowd = asyncio.gather(*(log.append(append(stream)) for _ in range(600)))  # their calls wait for no room
    await until(lambda: lane(log, stream).committer.appends > 300)
    gate.open()
    outcomes = [await first, *await crowd]
    assert sorted(each.first_version for each in outcomes if type(each) is Appended) == [*range(2, 603)]
    assert [end for end, ready in sent if ready is not None and ready.after != end], "no calls were joined"
    await check_invariants(place)


async def test_an_append_whose_rows_do_not_give_the_chain_that_redis_told_is_sequenced_again(
    open_log: OpenLog, place: Place
) -> None:
    """Found while the commit before it is under way, which is not held up by it."""
    log = await open_log()
    stream = new_stream()
    gate, before, _ = await held_commit(log, stream)
    told_wrong = 0

    async def around(proceed: Proceed, name: str, *args: Any) -> Any:
        nonlocal told_wrong
        reply = await proceed()
        if name == "sequence" and told_wrong == 0 and reply[0] == b"OK" and len(reply) > 7:
            told_wrong += 1
            reply[4] = b"0" * 40
        return reply

    interpose(log._scripts, "run", around)
    behind = log.append(append(stream))
    await until(lambda: told_wrong and lane(log, stream).committer.appends == 2)
    epoch = lane(log, stream).partition.epoch
    gate.open()
    outcomes = await asyncio.gather(before, behind)
    assert [each.first_version for each in outcomes if type(each) is Appended] == [2, 3]
    assert lane(log, stream).partition.epoch > epoch
    await check_invariants(place)
