"""What serves does not rest while a reader waits for its own write, nor while another build does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest

from gateway.config import Config
from gateway.follow import moves as moves_module
from gateway.follow import pace, runner
from gateway.follow.commit import Followed
from gateway.follow.database import fetch
from gateway.follow.declarations import Declarations
from gateway.follow.model import Build
from gateway.follow.moves import Moves
from gateway.follow.output import NeverAhead
from gateway.follow.reading import Reading
from gateway.follow.threads import LIGHT_EVENTS
from gateway.follow.worker import Worker
from gateway.http.api.rows import Named, RowReader
from gateway.http.key_watch import KeyWatch
from gateway.http.request import Head, Refused
from gateway.log.epoch.settling import settling_without_log
from gateway.log.postgres import Postgres
from gateway.postgres.errors import PostgresTrouble
from gateway.relay.outbox import Outbox
from gateway.relay.position import Place, Position
from gateway.tasks import ended
from tests.bench.projections import FILL
from tests.follow.conftest import SPEC
from tests.support import drive
from tests.support.accounts import open_account

HOUR_S = 3600.0
BUILD = Build(
    1, bytes(16), "list", "order", 1, b"", (), "serving", False, 1, Place(900, b""), 1, 0, 0, b"", 0, 0
)


class Turns(Worker):
    """Notes which builds had a turn, each with more than a few events."""

    turns: list[str]
    events = LIGHT_EVENTS + 1

    async def _advance(self, group: Sequence[Followed], limit: Place | None) -> bool:
        self.turns += [each.build.state for each in group]
        self._folded = self.events
        if limit is not None:  # a turn takes time
            turn = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(0.002, turn.set_result, None)
            await turn
        return False


@asynccontextmanager
async def turns_of(builds: Sequence[Build], *, pressed: bool) -> AsyncIterator[Turns]:
    nothing = cast(Any, None)
    worker = Turns(bytes(16), nothing, nothing, nothing, nothing, lambda: True, lambda: pressed)
    worker.turns, worker._stale = [], False
    for each in builds:
        worker._followed[each.id] = Followed(each, cast(Any, NeverAhead()), nothing, each.place)
    task = asyncio.create_task(worker.run())
    yield worker
    await ended([task])


async def test_a_reader_who_waits_ends_the_rest_of_a_busy_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "PRESSED_S", HOUR_S)
    async with turns_of([BUILD], pressed=True) as worker:
        for count in (1, 2, 3):
            await drive.until(lambda: len(worker.turns) == count)  # noqa: B023
            worker.hurry()
        await drive.until(lambda: len(worker.turns) == 4)


async def test_what_serves_is_updated_while_a_build_behind_it_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "RESTS", HOUR_S / 0.002)
    building = replace(BUILD, id=2, state="building", place=Place(7, b""))
    async with turns_of([BUILD, building], pressed=False) as worker:
        await drive.until(lambda: worker.turns.count("serving") > 5)
        assert worker.turns[:2] == ["serving", "building"]
        assert worker.turns.count("building") == 1
        worker.events = 0
        await drive.until(lambda: not worker.at_work)
        before = len(worker.turns)
        worker.wake(1000)
        await drive.until(lambda: worker.turns[before:] == ["serving"])


async def test_a_read_after_a_position_tells_the_process_that_keeps_the_list(
    config: Config, pool: asyncpg.Pool
) -> None:
    tenant = UUID((await open_account(pool, SPEC)).id)
    postgres = Postgres(pool, 60.0)
    instance = await postgres.instance()
    async with settling_without_log(config.postgres_url, postgres, 60.0) as settling:
        outbox = Outbox(postgres, instance.partitions, settling.stands)
        p = outbox.partition(tenant.bytes)
        await pool.execute(FILL, p, tenant, 1, 1)
        await Declarations(pool, outbox).declare()
        mark = await pool.fetchval("SELECT substr(digest, 1, 4) FROM outbox WHERE p = $1", p)
        moves, hurried = Moves(pool, None), list[bytes]()
        reader = RowReader(Reading(pool), moves, outbox, KeyWatch(cast(Any, None)))
        named, head = Named(tenant.bytes, "list", "order", ()), Head({"headers": []})
        with moves.kept_by(hurried.append):
            with pytest.raises(Refused):
                await reader.serving(named, None, 0.001, head)
            assert not hurried
            with pytest.raises(Refused):
                await reader.serving(named, Position(((p, Place(1, mark)),)), 0.001, head)
        assert hurried == [tenant.bytes]


async def test_a_build_of_a_tenant_that_is_being_deleted_has_no_output(
    config: Config, pool: asyncpg.Pool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its spec may go before it does."""
    postgres = Postgres(pool, 60.0)
    instance = await postgres.instance()
    async with settling_without_log(config.postgres_url, postgres, 60.0) as settling:
        outbox = Outbox(postgres, instance.partitions, settling.stands)
        kept = runner.Runner(pool, outbox, Declarations(pool, outbox), 6.0, deployed=lambda: None)
        assert await kept._output(BUILD) is None
    assert caplog.records == []


async def test_where_nothing_was_declared_leases_are_looked_at_once_a_second(
    config: Config, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LEASES_EVERY_S", 60.0)
    looks = 0

    async def counted(pool: asyncpg.Pool, name: str, *args: object) -> list[Any]:
        nonlocal looks
        looks += name == "acquire"
        return await fetch(pool, name, *args)

    monkeypatch.setattr(runner, "fetch", counted)
    postgres = Postgres(pool, 60.0)
    instance = await postgres.instance()
    serving = [object()]
    async with settling_without_log(config.postgres_url, postgres, 60.0) as settling:
        outbox = Outbox(postgres, instance.partitions, settling.stands)
        kept = runner.Runner(pool, outbox, Declarations(pool, outbox), 6.0, deployed=lambda: serving[0])
        for _ in range(5):
            await kept.look()
        before = looks
        for _ in range(3):
            await kept.look()
        assert looks == before
        serving[0] = object()
        await kept.look()
        assert looks == before + 1
        await kept.stop()


@dataclass(eq=False)
class Keeps:
    """A worker that has nothing to do, and is told of commits."""

    tenant: bytes
    seq: int = 0
    at_work: bool = False
    told: list[int] = field(default_factory=list)

    def wake(self, head: int) -> None:
        self.told.append(head)

    def share(self) -> None:
        pass


@pytest.fixture
async def kept(config: Config, pool: asyncpg.Pool) -> AsyncIterator[runner.Runner]:
    postgres = Postgres(pool, 60.0)
    instance = await postgres.instance()
    async with settling_without_log(config.postgres_url, postgres, 60.0) as settling:
        outbox = Outbox(postgres, instance.partitions, settling.stands)
        yield runner.Runner(pool, outbox, Declarations(pool, outbox), 6.0, deployed=lambda: None)


async def test_a_commit_that_postgres_could_not_tell_of_is_told_of_once_it_answers(
    kept: runner.Runner, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several tenants of a partition, who has the new events is asked."""
    one, other = drive.new_tenant(), drive.new_tenant()
    while kept._outbox.partition(one) != kept._outbox.partition(other):
        other = drive.new_tenant()
    workers = [Keeps(one), Keeps(other)]
    kept._workers = dict.fromkeys(workers)  # type: ignore[arg-type]
    fails = [PostgresTrouble("away")]

    async def failing(pool: asyncpg.Pool, name: str, *args: object) -> list[Any]:
        if name == "arrived" and fails:
            raise fails.pop()
        return await fetch(pool, name, *args)

    await kept._tell_heads()
    gateway = await drive.open_gateway(drive.Place(config.postgres_url, config.redis_url))
    (placed,) = await drive.appended(gateway.log, drive.append(drive.new_stream(one)))
    await gateway.close()
    assert placed.last is not None
    for each in workers:
        each.told.clear()
    monkeypatch.setattr(runner, "fetch", failing)
    with pytest.raises(PostgresTrouble):
        await kept._tell_heads()
    await kept._tell_heads()
    assert [each.told for each in workers] == [[placed.last.seq], []]


async def test_a_worker_that_ends_while_leases_are_renewed_stops_no_look(
    kept: runner.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Keeps(drive.new_tenant())
    kept._workers = {worker: asyncio.create_task(asyncio.sleep(60))}  # type: ignore[dict-item]

    async def ends(pool: asyncpg.Pool, name: str, *args: object) -> list[Any]:
        if name == "held":
            kept._workers.popitem()[1].cancel()
        return await fetch(pool, name, *args)

    monkeypatch.setattr(runner, "fetch", ends)
    await kept.look()


async def test_leases_are_renewed_while_a_spec_is_read(
    kept: runner.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of one tenant may take longer than they last."""
    kept._workers = {Keeps(drive.new_tenant()): asyncio.create_task(asyncio.sleep(60))}  # type: ignore[dict-item]
    read, renewed = asyncio.Event(), 0

    async def declare() -> bool:
        return await read.wait()

    async def counted(pool: asyncpg.Pool, name: str, *args: object) -> list[Any]:
        nonlocal renewed
        renewed += name == "held"
        return await fetch(pool, name, *args)

    monkeypatch.setattr(kept._declarations, "declare", declare)
    monkeypatch.setattr(runner, "fetch", counted)
    for count in (1, 2):
        async with asyncio.timeout(10):
            await kept.look()
        assert renewed == count
    await kept.stop()


@pytest.mark.bug
async def test_commits_are_told_of_again_after_a_bug(
    kept: runner.Runner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As uvloop's RuntimeError of a connection that is closed in this very moment."""
    worker = Keeps(drive.new_tenant())
    kept._workers = {worker: asyncio.create_task(asyncio.sleep(60))}  # type: ignore[dict-item]
    kept._some.set()
    fails = [RuntimeError("unable to perform operation on a closed transport")]

    async def failing(pool: asyncpg.Pool, name: str, *args: object) -> list[Any]:
        if name == "heads" and fails:
            raise fails.pop()
        return [] if name == "held" else await fetch(pool, name, *args)

    async def no_look() -> None:
        pass

    monkeypatch.setattr(runner, "fetch", failing)
    monkeypatch.setattr(kept, "look", no_look)
    await kept.start()
    await drive.until(lambda: worker.told)
    await kept.stop()
    assert "task_restarted" in caplog.messages


@pytest.mark.bug
async def test_readers_are_told_of_moves_after_a_bug(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant, asked = drive.new_tenant(), 0

    async def failing(pool: asyncpg.Pool, name: str, *args: object) -> list[Any]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise RuntimeError("unable to perform operation on a closed transport")
        return await fetch(pool, name, *args)

    monkeypatch.setattr(moves_module, "fetch", failing)
    moves = Moves(pool, None)
    with moves.watching(tenant) as watch:
        await watch.wait(20)
    assert asked == 2
