"""A follower behind which its gateway commits has these events without reading them back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

import asyncpg
import pytest

from gateway.config import Config
from gateway.events import Event as Written
from gateway.events import Stream
from gateway.follow.declarations import Declarations
from gateway.follow.events import Events, Page
from gateway.follow.model import Build, Changes, Event
from gateway.follow.output import NeverAhead
from gateway.follow.pace import rest_s
from gateway.follow.recent import BYTES_MAX, EACH_BYTES, Recent
from gateway.follow.row_cache import RowCache
from gateway.follow.worker import Worker
from gateway.log.entries import SequencedAppend
from gateway.log.epoch.settling import settling_without_log
from gateway.log.log import Log
from gateway.log.postgres import Postgres
from gateway.log.read.followers import Tap
from gateway.relay.outbox import Outbox
from gateway.relay.position import BEGINNING, Place
from gateway.tasks import ended
from tests.follow.conftest import SPEC
from tests.support import drive
from tests.support.accounts import open_account

TYPES = frozenset(("order",))


@pytest.fixture
async def logs(config: Config) -> AsyncIterator[tuple[Log, Log]]:
    place = drive.Place(config.postgres_url, config.redis_url)
    gateways = [await drive.open_gateway(place) for _ in range(2)]
    yield gateways[0].log, gateways[1].log
    for each in gateways:
        await each.close()


@pytest.fixture
async def outbox(config: Config, pool: asyncpg.Pool) -> AsyncIterator[Outbox]:
    postgres = Postgres(pool, 60.0)
    instance = await postgres.instance()
    async with settling_without_log(config.postgres_url, postgres, 60.0) as settling:
        yield Outbox(postgres, instance.partitions, settling.stands)


async def test_events_are_handed_over_as_postgres_has_them_until_another_gateway_commits(
    logs: tuple[Log, Log], outbox: Outbox, pool: asyncpg.Pool
) -> None:
    here, elsewhere = logs
    tenant = drive.new_tenant()
    p = outbox.partition(tenant)
    recent = Recent(here.followers.tapped)
    recent.hold((p,))
    events = Events(pool, outbox, recent=recent)

    def new() -> Stream:
        return drive.new_stream(tenant)

    await drive.appended(here, drive.append(new()))
    first = (await events.page(tenant, p, BEGINNING, TYPES)).reached
    assert await events.committed_here(tenant, p, first, TYPES, 0) is None
    await drive.appended(here, drive.append(new()))
    await drive.appended(here, drive.append_to_all([new() for _ in range(3)]))
    read = await events.page(tenant, p, first, TYPES)
    assert await events.committed_here(tenant, p, first, TYPES, 0) == read
    assert len(read.events) == 4
    assert (
        await events.committed_here(tenant, p, Place(first.seq, b"none"), TYPES, 0) is None
    )  # another history
    await drive.appended(elsewhere, drive.append(new()))
    await drive.appended(here, drive.append(new()))
    assert await events.committed_here(tenant, p, read.reached, TYPES, 0) is None
    behind = (await events.page(tenant, p, read.reached, TYPES)).reached
    await drive.appended(here, drive.append(new()))
    handed = await events.committed_here(tenant, p, behind, TYPES, 0)
    assert handed == await events.page(tenant, p, behind, TYPES)
    recent.hold(())
    assert await events.committed_here(tenant, p, behind, TYPES, 0) is None


class Counted(Events):
    """Counts what is read from Postgres."""

    read = 0

    async def page(self, tenant: bytes, p: int, after: Place, types: Collection[str]) -> Page:
        self.read += 1
        return await super().page(tenant, p, after, types)


class Keeps(NeverAhead):
    """A list of aggregates without anything in them."""

    types = TYPES
    reads_back = holds_states = False

    def __init__(self) -> None:
        self.events = 0

    def bound(self, bytes_max: int) -> None:
        pass

    async def fold(self, events: Sequence[Event], reached: Place, rows: RowCache) -> Changes:
        self.events += len(events)
        return Changes((), 0, 0, ())


async def test_a_build_that_serves_reads_nothing_back_that_its_gateway_commits(
    logs: tuple[Log, Log], outbox: Outbox, pool: asyncpg.Pool
) -> None:
    tenant = UUID((await open_account(pool, SPEC)).id).bytes
    await Declarations(pool, outbox).declare()
    recent = Recent(logs[0].followers.tapped)
    recent.hold((outbox.partition(tenant),))
    events, output = Counted(pool, outbox, recent=recent), Keeps()

    async def output_of(_: Build) -> Keeps:
        return output

    worker = Worker(tenant, pool, events, output_of, lambda _: None, lambda: False)
    builds = 2
    task = asyncio.create_task(worker.run())
    try:
        for number in range(1, 6):
            (placed,) = await drive.appended(logs[0], drive.append(drive.new_stream(tenant)))
            assert placed.last is not None
            worker.wake(placed.last.seq)
            await drive.until(lambda: output.events == builds * number and not worker.at_work)  # noqa: B023
            if number == 2:
                read = events.read
    finally:
        await ended([task])
    assert events.read == read


def test_what_serves_rests_for_so_long_that_readers_hardly_notice_but_in_a_busy_gateway() -> None:
    assert [rest_s(took_s, pressed=False) for took_s in (0.001, 0.01, 1.0)] == [0.002, 0.02, 0.05]
    assert rest_s(0.001, pressed=True) == 0.5


def placed(seq: int, payload: bytes = b"{}") -> SequencedAppend:
    stream = Stream(bytes(16), "order", "global")
    event = Written(
        bytes(16), "was_placed", "user", "global", None, None, bytes(16), None, 1, 0, None, payload
    )
    return SequencedAppend(stream, bytes(16), (event,), b"%032d" % seq, (), b"", seq, seq)


class Taps:
    def __init__(self) -> None:
        self.of: dict[int, Tap] = {}

    @contextmanager
    def __call__(self, p: int, tap: Tap) -> Iterator[None]:
        self.of[p] = tap
        yield
        del self.of[p]


def test_of_many_appends_the_newest_are_held() -> None:
    taps = Taps()
    recent = Recent(taps)
    recent.hold((1, 2))
    payload = bytes(BYTES_MAX // 8 - EACH_BYTES)
    for seq in range(1, 9):
        taps.of[1]([placed(seq, payload)])
    taps.of[1]([placed(9, payload), placed(10)])
    mark = b"0000"

    def behind(seq: int, events_max: int = 100, mark: bytes = mark) -> list[int]:
        return [each.last_seq for each in recent.behind(1, Place(seq, mark), events_max)]

    assert behind(4) == behind(10) == behind(11) == behind(6, mark=b"none") == behind(9, mark=b"none") == []
    assert behind(6) == [7, 8, 9, 10]
    assert behind(6, 2) == [7, 8]
    assert behind(6, 3) == [7, 8, 9, 10]  # whole commits
    assert behind(9) == [10]
    taps.of[1]([placed(11)])
    assert behind(9) == [10, 11]
    taps.of[1]([placed(13)])
    assert not recent.behind(1, Place(5, mark), 100)
    recent.hold((2,))
    assert taps.of.keys() == {2}
