"""Kept states of long streams: written behind appends and reads, and not believed where they do not hold."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import asyncpg
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.aggregates.folder import Folder
from gateway.aggregates.keeper import Keeper
from gateway.aggregates.kept import (
    FOLD_EVERY,
    FOLD_HELD_EVERY,
    KEEP_EVERY,
    STATES_MAX,
    STREAM_BYTES_MAX,
    KeptStates,
    handlers_digest,
    stride_of,
)
from gateway.aggregates.running import RunningStates
from gateway.cli.spec_status import _status
from gateway.config import Config
from gateway.events import Page
from gateway.log.log import Log
from gateway.log.read.ranges import Range
from gateway.operations.kept_states import check_kept_states
from gateway.operations.place import open_place
from gateway.operations.report import Report
from gateway.postgres.errors import PostgresTrouble
from gateway.state import Folded
from spec.model import Spec
from spec.parse import parse
from tests.support.accounts import SPEC, Account, open_account
from tests.support.calls import batch, new_client, new_id, until
from tests.support.serving import Served, serving

COUNTED: dict[str, Any] = {
    "events": {
        "was_counted": {"schema": True, "handler": {"increment": {"target": "n", "value": "$.data.by"}}},
        "was_noted": {
            "schema": True,
            "handler": {"append_unique": {"target": "lines", "value": "$.data.line"}},
        },
        "was_reset": {"schema": True, "handler": {"set": {"target": "n", "value": 0}}},
    }
}
COUNTERS = {**SPEC, "aggregate_types": {**SPEC["aggregate_types"], "counter": COUNTED}}


@pytest.fixture
async def account(own_outbox: asyncpg.Pool) -> Account:
    return await open_account(own_outbox, COUNTERS)


@asynccontextmanager
async def fresh(config: Config, account: Account) -> AsyncIterator[tuple[Served, httpx.AsyncClient]]:
    """A gateway that knows nothing yet."""
    async with serving(replace(config)) as served, new_client(served.url, account.admin) as client:
        yield served, client


async def count(client: httpx.AsyncClient, key: str, events: int, *, by: int = 1) -> None:
    for begin in range(0, events, 500):
        body = batch(*[("was_counted", {"by": by})] * min(500, events - begin))
        response = await client.post(f"/counter/{key}", json=body)
        assert response.status_code == 201, response.text


async def deploy_by_twos(client: httpx.AsyncClient) -> None:
    """Other handlers: each event counts two."""
    spec = json.loads(json.dumps(COUNTERS))
    events = spec["aggregate_types"]["counter"]["events"]
    events["was_counted"]["handler"] = {"increment": {"target": "n", "value": 2}}
    assert (await client.put("/_/spec", json=spec)).status_code == 200


async def state(client: httpx.AsyncClient, key: str, query: str = "") -> tuple[Any, int]:
    response = await client.get(f"/counter/{key}{query}")
    assert response.status_code == 200, response.text
    told = response.json()
    return told["data"].get("n"), told["metadata"]["length"]


def kept_of(outbox: asyncpg.Pool, account: Account, key: str) -> Callable[[], Awaitable[list[int]]]:
    async def versions() -> list[int]:
        rows = await outbox.fetch(
            "SELECT version FROM kept_state WHERE tenant = $1::uuid AND aggregate_id = $2 ORDER BY version",
            account.id,
            key,
        )
        return [row["version"] for row in rows]

    return versions


async def kept(versions: Callable[[], Awaitable[list[int]]], version: int) -> None:
    async def is_kept() -> bool:
        return (await versions() or [0])[-1] >= version

    await until(is_kept)


async def falsify(outbox: asyncpg.Pool, key: str, last: int) -> None:
    """What folds these events once more finds another state."""
    await outbox.execute(
        "UPDATE outbox SET payload = $2 WHERE aggregate_id = $1 AND version <= $3", key, b'{"by": 3}', last
    )


async def test_a_long_stream_is_read_from_its_kept_state(
    own_config: Config, own_outbox: asyncpg.Pool, account: Account
) -> None:
    key = new_id()
    versions = kept_of(own_outbox, account, key)
    async with fresh(own_config, account) as (_, client):
        await count(client, key, 1_700)
        await kept(versions, 1_500)
    await falsify(own_outbox, key, 1_000)
    async with fresh(own_config, account) as (_, client):
        assert await state(client, key) == (1_700, 1_700)
        assert await state(client, key, "?at_length=1550") == (1_550, 1_550)
        assert await state(client, key, "?at_length=1100") == (1_100, 1_100)
        assert await state(client, key, "?at_length=300") == (900, 300)
        assert await state(client, key, "?synchronous=true") == (3_700, 1_700)


async def test_the_next_state_is_kept_of_what_was_committed_and_nothing_is_read_back(
    own_config: Config, own_outbox: asyncpg.Pool, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = new_id()
    versions = kept_of(own_outbox, account, key)
    read: list[int] = []
    page = Log.page

    async def noted(log: Log, wanted: Range, **more: Any) -> Page:
        if wanted.stream.key == key:
            read.append(wanted.first)
        return await page(log, wanted, **more)

    monkeypatch.setattr(Log, "page", noted)
    async with fresh(own_config, account) as (_, client):
        await count(client, key, KEEP_EVERY + 7)
        await kept(versions, KEEP_EVERY)
        await count(client, key, KEEP_EVERY)
        await kept(versions, 2 * KEEP_EVERY)
        assert read == [1]  # nor how long the stream is
        assert await state(client, key, f"?at_length={2 * KEEP_EVERY}") == (2 * KEEP_EVERY, 2 * KEEP_EVERY)


async def test_a_new_stream_is_folded_before_redis_has_too_few_of_its_events(
    own_config: Config, own_outbox: asyncpg.Pool, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, folded = new_id(), asyncio.Event()
    read: list[tuple[int, int]] = []
    versions: list[int] = []
    page, keep_up = Log.page, Folder.keep_up

    async def noted(log: Log, wanted: Range, **more: Any) -> Page:
        if wanted.stream.key == key and wanted.limit:
            read.append((wanted.first, wanted.limit))
        return await page(log, wanted, **more)

    async def done(folder: Folder, *args: Any) -> None:
        versions.append(args[2])
        try:
            await keep_up(folder, *args)
        finally:
            folded.set()

    monkeypatch.setattr(Log, "page", noted)
    monkeypatch.setattr(Folder, "keep_up", done)
    async with fresh(own_config, account) as (_, client):
        await count(client, key, FOLD_EVERY + 7)
        async with asyncio.timeout(30):
            await folded.wait()
        assert read == [(1, FOLD_EVERY)]
        for _ in range(10):
            await count(client, key, FOLD_EVERY // 10)
        await kept(kept_of(own_outbox, account, key), KEEP_EVERY)
        assert versions == [FOLD_EVERY], "then the state follows what is committed"
        assert read == [(1, FOLD_EVERY)]
        for n in range(20):  # now and then an operation that looks at every item
            body = batch(("was_noted", {"line": n}), *[("was_counted", {"by": 1})] * (FOLD_EVERY // 10 - 1))
            assert (await client.post(f"/counter/{key}", json=body)).status_code == 201
        await kept(kept_of(own_outbox, account, key), 2 * KEEP_EVERY)
    assert read == [(1, FOLD_EVERY)]
    between = [each for each in versions if KEEP_EVERY < each < 2 * KEEP_EVERY]
    assert between, "what is held is folded soon, so that little is"
    assert not [each for each in between if each % FOLD_HELD_EVERY]


@pytest.mark.parametrize("trouble", ["it grew slowly", "Postgres was away"])
async def test_a_state_that_could_not_be_kept_as_it_ran_is_kept_from_what_is_read(
    own_config: Config,
    own_outbox: asyncpg.Pool,
    account: Account,
    monkeypatch: pytest.MonkeyPatch,
    trouble: str,
) -> None:
    key, runs = new_id(), asyncio.Event()
    start, keep = RunningStates.start, KeptStates.keep

    def started(self: RunningStates, *args: Any) -> None:
        start(self, *args)
        runs.set()

    async def away(self: KeptStates, *args: Any) -> None:
        monkeypatch.setattr(KeptStates, "keep", keep)
        raise PostgresTrouble("away")

    monkeypatch.setattr(RunningStates, "start", started)
    async with fresh(own_config, account) as (_, client):
        await count(client, key, FOLD_EVERY)
        async with asyncio.timeout(30):
            await runs.wait()
        if trouble == "it grew slowly":
            monkeypatch.setattr("gateway.aggregates.running.AGE_S", 0.0)
        else:
            monkeypatch.setattr(KeptStates, "keep", away)
        await count(client, key, FOLD_EVERY)
        await kept(kept_of(own_outbox, account, key), KEEP_EVERY)
        assert await state(client, key, f"?at_length={KEEP_EVERY}") == (KEEP_EVERY, KEEP_EVERY)


async def test_a_state_is_kept_although_a_reader_has_folded_beyond_it(
    own_config: Config, own_outbox: asyncpg.Pool, account: Account
) -> None:
    key, length = new_id(), KEEP_EVERY + 120
    versions = kept_of(own_outbox, account, key)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Keeper, "due", lambda *_: None)  # before the gateway starts: reads have it from then
        async with fresh(own_config, account) as (_, client):
            await count(client, key, length)
            assert await state(client, key) == (length, length)
            assert await versions() == []
            patch.undo()
            await count(client, key, FOLD_EVERY)
            await kept(versions, KEEP_EVERY)


async def test_what_another_gateway_commits_between_is_in_the_state_that_is_kept(
    own_config: Config, own_outbox: asyncpg.Pool, account: Account
) -> None:
    key = new_id()
    versions = kept_of(own_outbox, account, key)
    async with fresh(own_config, account) as (_, client), fresh(own_config, account) as (_, other):
        await count(client, key, KEEP_EVERY + 100)
        await kept(versions, KEEP_EVERY)
        await count(other, key, 100, by=5)
        await count(client, key, KEEP_EVERY)
        await kept(versions, 2 * KEEP_EVERY)
        await count(client, key, KEEP_EVERY)
        await kept(versions, 3 * KEEP_EVERY)
    async with fresh(own_config, account) as (_, client):
        for length in (2 * KEEP_EVERY, 3 * KEEP_EVERY):
            assert await state(client, key, f"?at_length={length}") == (length + 400, length)


async def test_short_streams_are_not_kept(
    own_config: Config, own_outbox: asyncpg.Pool, account: Account
) -> None:
    key, other = new_id(), new_id()
    async with fresh(own_config, account) as (_, client):
        await count(client, key, KEEP_EVERY - 1)
        await count(client, other, KEEP_EVERY)
        await kept(kept_of(own_outbox, account, other), KEEP_EVERY)
    assert await kept_of(own_outbox, account, key)() == []


@pytest.mark.parametrize(
    "spoilt",
    [
        "UPDATE kept_state SET event_id = gen_random_uuid()",
        "UPDATE kept_state SET folded = '\\x00'",
        "UPDATE partition_log SET rewound = 1",
    ],
)
async def test_what_does_not_hold_is_folded_from_the_beginning(
    own_config: Config, own_outbox: asyncpg.Pool, account: Account, spoilt: str
) -> None:
    key = new_id()
    versions = kept_of(own_outbox, account, key)
    async with fresh(own_config, account) as (_, client):
        await count(client, key, 1_100)
        await kept(versions, 1_000)
    await falsify(own_outbox, key, 1)
    await own_outbox.execute(spoilt)
    async with fresh(own_config, account) as (_, client):
        assert await state(client, key) == (1_102, 1_100)
    await own_outbox.execute("UPDATE partition_log SET rewound = 0")


async def test_other_handlers_make_kept_states_again_in_the_background(
    own_config: Config, own_outbox: asyncpg.Pool, account: Account
) -> None:
    key = new_id()
    versions = kept_of(own_outbox, account, key)
    async with fresh(own_config, account) as (_, client):
        await count(client, key, 1_000)
        await kept(versions, 1_000)
        digests = await own_outbox.fetch("SELECT DISTINCT handlers FROM kept_state")
        await deploy_by_twos(client)
        assert await state(client, key) == (2_000, 1_000)

        async def is_remade() -> bool:
            now = await own_outbox.fetch(
                "SELECT DISTINCT handlers FROM kept_state WHERE aggregate_id = $1", key
            )
            return len(now) == 1 and now[0] not in digests

        await until(is_remade)
    await falsify(own_outbox, key, 1)
    async with fresh(own_config, account) as (_, client):
        assert await state(client, key) == (2_000, 1_000)


async def test_a_state_that_a_reader_folded_by_other_handlers_just_so_far_is_kept(
    own_config: Config, own_outbox: asyncpg.Pool, account: Account
) -> None:
    key = new_id()
    versions = kept_of(own_outbox, account, key)
    async with fresh(own_config, account) as (_, client):
        await count(client, key, KEEP_EVERY)
        await kept(versions, KEEP_EVERY)
        await own_outbox.execute("UPDATE kept_state SET handlers = '\\x00'")
        with pytest.MonkeyPatch.context() as patch:
            looked = asyncio.Event()
            look = Keeper._look

            async def later(keeper: Keeper, now: float) -> None:
                if looked.is_set():
                    await look(keeper, now)

            patch.setattr(Keeper, "_look", later)
            patch.setattr(Folder, "nearest", _as_it_is)
            await deploy_by_twos(client)
            assert await state(client, key) == (2 * KEEP_EVERY, KEEP_EVERY)
            looked.set()

            async def is_remade() -> bool:
                rows = await own_outbox.fetch("SELECT handlers FROM kept_state WHERE aggregate_id = $1", key)
                return [row["handlers"] for row in rows] not in ([], [b"\0"])

            await until(is_remade)


async def _as_it_is(folder: Folder, place: object, deployed: object, folded: Folded, last: int) -> Folded:
    return folded


async def test_a_read_of_a_long_stream_of_which_nothing_is_kept_has_it_kept(
    own_config: Config, own_outbox: asyncpg.Pool, account: Account
) -> None:
    key = new_id()
    versions = kept_of(own_outbox, account, key)
    async with fresh(own_config, account) as (_, client):
        await count(client, key, 1_200)
        await kept(versions, 1_000)
    await own_outbox.execute("DELETE FROM kept_state")
    async with fresh(own_config, account) as (_, client):
        assert await state(client, key) == (1_200, 1_200)
        await kept(versions, 1_000)


async def test_the_audit_compares_kept_states_with_folds_and_status_counts_them(
    own_config: Config, own_outbox: asyncpg.Pool, account: Account
) -> None:
    await own_outbox.execute("DELETE FROM kept_state")
    key = new_id()
    async with fresh(own_config, account) as (_, client):
        await count(client, key, 1_000)
        await kept(kept_of(own_outbox, account, key), 1_000)

    async def audited() -> Report:
        report = Report()
        async with open_place(own_config.postgres_url, own_config.redis_url, 2) as place:
            await check_kept_states(place, report, deep=False)
        return report

    told = await _status(own_config.postgres_url, account.name)
    (counter,) = told["kept_states"]
    assert (told["ok"], told["done"], counter["aggregate_type"]) == (True, True, "counter")
    assert (counter["kept"], counter["stale"]) == (1, 0)
    report = await audited()
    assert report.ok
    assert report.checked["kept"] == counter["states"] > 0
    await falsify(own_outbox, key, 1)
    report = await audited()
    assert report.broken["kept"] == report.checked["kept"]
    assert key in report.violations[0].where
    await own_outbox.execute("UPDATE kept_state SET handlers = '\\x00'")
    assert (await audited()).checked["kept"] == 0
    told = await _status(own_config.postgres_url, account.name)
    assert (told["done"], told["kept_states"][0]["stale"]) == (False, 1)


def digest(spec: dict[str, Any]) -> bytes:
    parsed = parse(json.dumps(spec).encode())
    assert isinstance(parsed, Spec), parsed
    return handlers_digest(parsed.aggregate_types["counter"])


def test_kept_states_depend_on_what_folds_events_and_on_nothing_else() -> None:
    events = COUNTED["events"]
    changed = {**events, "was_reset": {"schema": True, "handler": []}}
    more = {**events, "was_noted": {"schema": True}}
    rule = {"require": {"exists": "@.n"}, "error": "No."}
    ruled = {**events, "was_reset": {**events["was_reset"], "schema": {"type": "object"}, "rules": [rule]}}

    def of(of_counter: dict[str, Any]) -> bytes:
        return digest({"aggregate_types": {"counter": {"events": of_counter}}, "agent_types": []})

    assert of(events) == of(dict(reversed(events.items()))) == of(ruled)
    assert len({of(events), of(changed), of(more), handlers_digest(None)}) == 4


@given(st.integers(1, 10**8), st.integers(1, 10**7))
def test_what_is_kept_of_a_stream_is_bounded(version: int, size: int) -> None:
    stride = stride_of(version, size)
    assert stride % KEEP_EVERY == 0
    assert version // stride <= STATES_MAX
    assert version // stride <= 1 or version // stride * size <= STREAM_BYTES_MAX
