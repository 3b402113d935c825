"""The audit counts what is there and is not fooled by gateways at work."""

from __future__ import annotations

import asyncio

import pytest

from gateway.events import Stream
from gateway.log.log import Log
from gateway.operations import rows
from gateway.operations.audit import audit
from gateway.operations.place import OperationFailed, Place
from gateway.operations.report import INVARIANTS
from tests.operations.conftest import OpenLog
from tests.operations.filled import Counting, audited, fill, p_of
from tests.support import drive
from tests.support.drive import append, appended, lane, new_stream, until

NAMES = {each.name for each in INVARIANTS}


@pytest.fixture
async def streams(open_log: OpenLog) -> list[Stream]:
    """Filled by a gateway that is gone."""
    log = await open_log()
    streams = await fill(log)
    await log.stop(5)
    return streams


# -- what holds


async def test_every_invariant_is_counted_and_holds(place: Place, streams: list[Stream]) -> None:
    watcher = Counting()
    report = await audit(place, watcher)
    assert report.ok, report.violations
    assert report.checked["rows"] == report.checked["order"] == 42
    assert report.checked["versions"] == report.checked["streams"] == 6
    assert report.checked["tenants"] == 3
    assert report.checked["identities"] == 6
    assert report.checked["chain"] == place.instance.partitions
    assert report.checked["journal"] == 18
    assert report.checked["epochs"] == place.instance.partitions
    assert report.checked["seen"] > 0
    assert watcher.done == watcher.expected == 84


async def test_a_database_without_events_is_in_order(place: Place) -> None:
    report = await audited(place)
    assert report.ok
    assert report.checked["rows"] == 0


async def test_one_partition_can_be_audited_by_itself(place: Place, streams: list[Stream]) -> None:
    p = p_of(place, streams[0])
    there = [each for each in streams if p_of(place, each) == p]
    report = await audited(place, partition=p)
    assert report.ok
    assert report.checked["rows"] == 7 * len(there)
    assert report.checked["versions"] == len(there)
    with pytest.raises(OperationFailed, match="there is no partition 16: the last one is 15"):
        await audited(place, partition=16)


@pytest.mark.parametrize("bytes_max", [1, 1 << 20])
async def test_pages_do_not_matter(
    place: Place, streams: list[Stream], monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    monkeypatch.setattr("gateway.operations.postgres_check.PAGE_ROWS", 2)
    monkeypatch.setattr("gateway.operations.postgres_check.PAGE_BYTES", bytes_max)
    monkeypatch.setattr("gateway.operations.postgres_check._PAGE", 3)
    monkeypatch.setattr("gateway.operations.entries.PAGE_ENTRIES", 2)
    monkeypatch.setattr("gateway.operations.redis_check.PAGE_ENTRIES", 2)
    whole = await audited(place, deep=True)
    assert whole.ok, whole.violations
    assert (whole.checked["rows"], whole.checked["versions"], whole.checked["identities"]) == (42, 6, 6)


async def test_a_deep_audit_looks_at_every_stream(
    place: Place, streams: list[Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "STREAMS_SAMPLED", 1)
    sampled = await audited(place)
    assert sampled.checked["streams"] < 6
    deep = await audited(place, deep=True)
    assert deep.ok
    assert deep.checked["streams"] >= 6


async def test_a_redis_that_was_emptied_breaks_nothing(place: Place, streams: list[Stream]) -> None:
    await place.redis.eval(
        "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end",
        0, f"sluice:1:{place.instance.id.hex}:*",
    )  # fmt: skip
    report = await audited(place)
    assert report.ok
    assert report.checked["epochs"] == 0


async def test_gateways_at_work_raise_no_false_alarm(open_log: OpenLog, place: Place) -> None:
    first, second = await open_log(), await open_log()
    hot = [new_stream() for _ in range(4)]
    stopping = asyncio.Event()

    async def write(log: Log) -> None:
        while not stopping.is_set():
            await appended(log, *(append(each, 2) for each in hot))

    writers = [asyncio.create_task(write(log)) for log in (first, second, second)]
    try:
        for _ in range(2):
            report = await audited(place, deep=True)
            assert report.ok, report.violations
        assert report.checked["rows"] > 100
    finally:
        stopping.set()
        await asyncio.gather(*writers)


async def test_an_epoch_that_ends_meanwhile_raises_no_false_alarm(
    log: Log, home: drive.Place, place: Place
) -> None:
    stream = new_stream()
    partition = lane(log, stream).partition
    await appended(log, *(append(stream, 3) for _ in range(30)))
    stopping = asyncio.Event()

    async def seal() -> None:
        while not stopping.is_set():
            before = partition.epoch
            await home.execute("UPDATE partition_log SET epoch = epoch + 1 WHERE p = $1", partition.number)
            await until(lambda before=before: partition.epoch > before and partition.open)
            await appended(log, append(stream))

    sealing = asyncio.create_task(seal())
    try:
        for _ in range(6):
            report = await audited(place, partition=partition.number, deep=True)
            assert report.ok, report.violations
    finally:
        stopping.set()
        await sealing


async def test_what_is_sequenced_and_not_committed_is_held_against_the_watermark(
    log: Log, place: Place
) -> None:
    stream = new_stream()
    await appended(log, append(stream))
    gate, helping = drive.hold_commits(log, stream), drive.hold_help(log)
    pending = log.append(append(stream, 3))
    await gate.arrived()
    assert (await audited(place, deep=True)).ok
    p = p_of(place, stream)
    keys = place.keys(p, lane(log, stream).partition.epoch)
    await place.redis.execute_command("XDEL", keys.journal, "4-0")
    report = await audited(place)
    assert [each.invariant for each in report.violations] == ["journal"]
    assert str(report.violations[0]).endswith(
        "seq 2…4: the journal does not continue the watermark after seq 1"
    )
    gate.open()
    helping.open()
    await pending


async def test_violations_are_kept_up_to_a_limit_and_all_counted(
    home: drive.Place, place: Place, log: Log
) -> None:
    stream = new_stream()
    await appended(log, append(stream, 300))
    await home.execute("UPDATE outbox SET actor_id = 'x'")
    report = await audited(place)
    assert report.broken["rows"] == 300
    assert len([each for each in report.violations if each.invariant == "rows"]) == 100
    assert report.as_json()["ok"] is False


async def test_the_figures_have_a_stable_shape(place: Place) -> None:
    report = (await audited(place)).as_json()
    assert {each["name"] for each in report["invariants"]} == NAMES
    assert set(report) == {"ok", "invariants", "violations", "unchecked"}
    assert set(report["invariants"][0]) == {"name", "holds", "checked", "unit", "violations"}
