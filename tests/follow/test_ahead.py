"""What a busy gateway commits is folded while projections that only count rest: their rows are those of one
fold of all of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.events import Event as Written
from gateway.events import Spread, Stream
from gateway.follow import pace, projections
from gateway.follow.declarations import Declarations
from gateway.follow.events import Events, Page, events_of
from gateway.follow.model import MISFITS_SHOWN, Build, Changes, Event, Put, Row
from gateway.follow.output import Output
from gateway.follow.outputs import output_of
from gateway.follow.projections import ProjectionOutput
from gateway.follow.recent import Recent
from gateway.follow.row_cache import ROW_BYTES, RowCache
from gateway.follow.states import AggregateStates
from gateway.follow.threads import LIGHT_EVENTS
from gateway.follow.worker import Worker
from gateway.log.entries import SequencedAppend
from gateway.log.log import Log
from gateway.relay.outbox import Outbox
from gateway.relay.position import Place
from gateway.tasks import ended
from spec.model import Spec
from spec.parse import parse
from tests.follow.test_recent import logs, outbox
from tests.support import drive
from tests.support.accounts import open_account

__all__ = ("logs", "outbox")

COUNTS = [
    {"increment": {"target": "orders"}},
    {"increment": {"target": "spent", "value": "$.data.total"}},
]
DOCUMENT: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {"was_placed": {"schema": {}}, "was_undone": {"schema": {}}, "was_seen": {"schema": {}}}
        }
    },
    "agent_types": ["user"],
    "singletons": ["shop"],
    "projections": {
        "of_customers": {
            "key_kind": "text",
            "on": {
                "order.was_placed": {"key": "$.data.customer", "do": COUNTS},
                "order.was_undone": {"key": "$.key", "do": [{"decrement": {"target": "orders"}}]},
            },
            "by": ["spent", "orders", "metadata.length"],
        },
        "of_orders": {"on": {"order.was_placed": {"key": "$.key", "do": COUNTS}}, "by": ["spent"]},
        "of_all": {"on": {"order.was_placed": {"key": "$.type", "do": COUNTS}}, "key_kind": "text"},
    },
}
TENANT = bytes(16)
KEYS = [str(UUID(int=n, version=4)) for n in range(3)]


def spec() -> Spec:
    found = parse(DOCUMENT)
    assert isinstance(found, Spec), found
    return found


SPEC = spec()

totals = st.sampled_from(
    ["1", "0", "-0", "1.50", "-2.5", "1e3", "99999999999999999999", "0.1234567", '"x"', "null", "[1]"]
)
customers = st.sampled_from(['"a"', '"b"', '"\\u00e9"', "7", "null", "[]", '""'])
data = st.one_of(
    st.builds(lambda total, who: f'{{"total":{total},"note":[1],"customer":{who}}}', totals, customers),
    st.builds(
        lambda one, two, who: f'{{"total":{one},"total":{two},"customer":{who}}}', totals, totals, customers
    ),
    st.builds(lambda who: f'{{"customer":{who}}}', customers),
    st.sampled_from(["{}", "[]", "1", '{"total":1}']),
).map(str.encode)
written = st.tuples(
    st.sampled_from(["was_placed", "was_placed", "was_undone", "was_seen"]),
    data,
    st.sampled_from([*KEYS, "gone"]),
)
Slices = list[list[list[tuple[str, bytes, str]]]]
# What was committed between two writes of the rows, in slices, of which the last one is not folded ahead.
histories = st.lists(
    st.lists(st.lists(st.lists(written, min_size=1, max_size=3), max_size=5), max_size=3), max_size=3
)


class Stored(RowCache):
    """Of rows that are stored here in place of Postgres."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(cast(Any, None), 1, bytes_max, empty=False)
        self.rows: dict[str, Row] = {}

    async def load(self, keys: Collection[str], bytes_max: int = 0) -> dict[str, Row | None]:
        read: dict[str, Row | None] = {key: self.rows.get(key) for key in keys}
        self.put(read)
        return read

    def store(self, puts: Sequence[Put]) -> None:
        self.rows.update({put.key: put.row for put in puts})
        self.write({put.key: put.row for put in puts})


def output(name: str) -> ProjectionOutput:
    made = ProjectionOutput(SPEC, name, AggregateStates(SPEC, cast(Any, None), 0))
    made.bound(1 << 20)
    return made


def sequenced(of: Sequence[tuple[str, bytes, str]], last_seq: int) -> SequencedAppend:
    """An append to one stream or to several."""
    streams = tuple(dict.fromkeys(Stream(TENANT, "order", key) for _, _, key in of))
    order = tuple(streams.index(Stream(TENANT, "order", key)) for _, _, key in of)
    first = last_seq - len(of) + 1
    events = tuple(
        Written(
            b"%016d" % (first + n),
            name,
            "user",
            "u",
            None,
            None,
            bytes(16),
            None,
            1,
            first + n,
            None,
            payload,
        )
        for n, (name, payload, _) in enumerate(of)
    )
    digests = b"".join(b"%032d" % (first + n) for n in range(len(of)))
    several = (
        {}
        if len(of) == 1
        else {"spread": Spread(streams, order), "versions": tuple(range(first, last_seq + 1))}
    )
    return SequencedAppend(
        streams[0], events[0].id, events, digests, (), b"", first, last_seq, **cast(Any, several)
    )


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    history=histories,
    name=st.sampled_from(["of_customers", "of_orders", "of_all"]),
    held=st.sampled_from([0, 900, 1 << 20]),
)
def test_rows_folded_ahead_are_those_of_one_fold(history: Sequence[Slices], name: str, held: int) -> None:
    asyncio.run(compare(history, name, held))


async def compare(history: Sequence[Slices], name: str, held: int) -> None:
    ahead, plain = output(name), output(name)
    rows, plain_rows = Stored(held), Stored(1 << 20)
    seq = 0
    for slices in history:
        appends: list[list[SequencedAppend]] = [[]]
        for each in slices:
            appends.append([])
            for of in each:
                seq += len(of)
                appends[-1].append(sequenced(of, seq))
        reached = Place(seq, b"")
        wanted = await plain.fold(events_in(chain(*appends)), reached, plain_rows)
        for earlier in appends[:-1]:
            assert ahead.can_fold_ahead
            await ahead.fold_ahead(earlier, rows)
        found = await ahead.fold(events_in(appends[-1]), reached, rows)
        assert not ahead.is_ahead
        assert by_key(found) == by_key(wanted)
        assert (found.rows, found.misfits) == (wanted.rows, wanted.misfits)
        if wanted.misfits <= MISFITS_SHOWN:
            assert sorted(map(str, found.last_misfits)) == sorted(map(str, wanted.last_misfits))
        rows.store(found.puts)
        plain_rows.store(wanted.puts)


def events_in(appends: Iterable[SequencedAppend]) -> list[Event]:
    return [event for append in appends for event in events_of(append, frozenset(("order",)))]


def by_key(changes: Changes) -> Mapping[str, Put]:
    found = {put.key: put for put in changes.puts}
    assert len(found) == len(changes.puts)
    return found


class Counted(Events):
    """Counts what is read from Postgres."""

    read = 0

    async def page(self, tenant: bytes, p: int, after: Place, types: Collection[str]) -> Page:
        self.read += 1
        return await super().page(tenant, p, after, types)


class Kept:
    """A projection that a busy gateway keeps, which writes its rows only where a reader waits for them."""

    def __init__(self, pool: asyncpg.Pool, outbox: Outbox, log: Log, tenant: bytes) -> None:
        self.pool = pool
        self.p = outbox.partition(tenant)
        self.recent = Recent(log.followers.tapped)
        self.recent.hold((self.p,))
        self.log, self.tenant = log, tenant
        self.events = Counted(pool, outbox, recent=self.recent)
        self.outputs: list[Output] = []
        self.worker = Worker(
            tenant, pool, self.events, self._output, lambda _: None, lambda: True, lambda: True,
            passed=lambda: self.recent.forget(self.p, self.worker.seq),
        )  # fmt: skip

    async def _output(self, build: Build) -> Output | None:
        made = output_of(build, SPEC, self.events, self.pool)
        assert made is not None
        self.outputs.append(made)
        return made

    @property
    def is_ahead(self) -> bool:
        return self.outputs[-1].is_ahead

    async def append(self, key: str, events: int = 1) -> int:
        """The seq of the last one."""
        of = tuple(drive.event(payload=b'{"total":1}') for _ in range(events))
        append = drive.append(Stream(self.tenant, "order", key), events=of)
        (placed,) = await drive.appended(self.log, append)
        assert placed.last is not None
        self.worker.wake(placed.last.seq)
        return placed.last.seq

    async def stands(self) -> tuple[int, dict[str, int]]:
        """Up to where the rows go, and how many events are in each, as Postgres has them."""
        seq = await self.pool.fetchval("SELECT seq FROM follower WHERE tenant = $1", UUID(bytes=self.tenant))
        rows = await self.pool.fetch(
            "SELECT key, data FROM follower_row WHERE tenant = $1", UUID(bytes=self.tenant)
        )
        return seq, {row["key"]: json.loads(row["data"])["orders"] for row in rows}

    async def written(self, seq: int) -> dict[str, int]:
        """The rows, once they go up to there."""

        async def there() -> bool:
            return (await self.stands())[0] >= seq

        await drive.until(there)
        return (await self.stands())[1]


@asynccontextmanager
async def kept(pool: asyncpg.Pool, outbox: Outbox, log: Log, tenant: bytes) -> AsyncIterator[Kept]:
    """It serves."""
    made = Kept(pool, outbox, log, tenant)
    task = asyncio.create_task(made.worker.run())
    try:
        yield made
    finally:
        await ended([task])
        made.recent.hold(())


@pytest.fixture
async def tenant(pool: asyncpg.Pool, outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> bytes:
    monkeypatch.setattr(pace, "PRESSED_S", 3600.0)
    document = {**DOCUMENT, "projections": {"of_orders": DOCUMENT["projections"]["of_orders"]}}
    made = UUID((await open_account(pool, document)).id).bytes
    await Declarations(pool, outbox).declare()
    return made


async def test_what_is_committed_while_rows_rest_is_written_with_them(
    logs: tuple[Log, Log], outbox: Outbox, pool: asyncpg.Pool, tenant: bytes
) -> None:
    async with kept(pool, outbox, logs[0], tenant) as made:
        first = await made.append(KEYS[0], LIGHT_EVENTS + 1)
        assert await made.written(first) == {KEYS[0]: LIGHT_EVENTS + 1}
        (followed,) = made.worker._followed.values()
        place = followed.place
        await made.append(KEYS[0], LIGHT_EVENTS + 1)
        await drive.until(lambda: made.is_ahead)
        read = made.events.read
        last = await made.append(KEYS[1])
        await drive.until(lambda: made.worker.seq == last)
        assert await made.stands() == (first, {KEYS[0]: LIGHT_EVENTS + 1})
        assert not made.recent.behind(made.p, place, 1)
        made.worker.hurry()
        assert await made.written(last) == {KEYS[0]: 2 * (LIGHT_EVENTS + 1), KEYS[1]: 1}
        assert made.events.read <= read + 1  # at the end, that there is no more
        await made.append(KEYS[1])
        await drive.until(lambda: made.is_ahead)
    async with kept(pool, outbox, logs[0], tenant) as made:  # what was not written is folded again
        last = await made.append(KEYS[2])
        assert await made.written(last) == {KEYS[0]: 2 * (LIGHT_EVENTS + 1), KEYS[1]: 2, KEYS[2]: 1}


async def test_where_rows_become_too_long_together_what_was_folded_ahead_is_folded_again(
    logs: tuple[Log, Log], outbox: Outbox, pool: asyncpg.Pool, tenant: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kept(pool, outbox, logs[0], tenant) as made:
        first = await made.append(KEYS[0], LIGHT_EVENTS + 1)
        await made.written(first)
        await made.append(KEYS[0])
        await drive.until(lambda: made.is_ahead)
        monkeypatch.setattr(projections, "ROWS_BYTES_MAX", 13 * ROW_BYTES // 4)
        others = [Stream(tenant, "order", key) for key in KEYS[1:]]
        (placed,) = await drive.appended(logs[0], drive.append_to_all(others))
        assert placed.last is not None
        rows = await made.written(placed.last.seq)
        assert rows == {KEYS[0]: LIGHT_EVENTS + 2, KEYS[1]: 1, KEYS[2]: 1}
        assert len(made.outputs) > 1
