"""How much of a bulk request is held between reading and answering; the log is told by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from gateway.admit.append import Fault
from gateway.appends import Append
from gateway.errors import Refusal
from gateway.events import Stream
from gateway.http.api.bulk_run import HELD_MAX, UNDER_WAY_BYTES_MAX, UNDER_WAY_MAX, Line, Run
from gateway.outcomes import Outcome, OutcomeUnknown, Quarantined
from tests.support.calls import told_in
from tests.support.drive import append, event, new_stream

REFUSED = Fault(Refusal("unknown_event_type", "The spec declares no event 'nope' for 'order'.", "type"), None)


class HandedOver(list[tuple[Append, Line]]):
    """Appends that the log has, with their lines."""

    def take(self, asked: Iterable[tuple[Append, Line]]) -> None:
        self.extend(asked)

    def commit(self, first_version: int = 1) -> None:
        """Every one of them."""
        settled, self[:] = self[:], []
        for each, line in settled:
            line.set_result(each.committed_at(first_version))


@pytest.fixture
def log() -> HandedOver:
    return HandedOver()


@pytest.fixture
async def run(log: HandedOver) -> Run:
    return Run(log.take)


async def answers(run: Run) -> list[bytes]:
    """All lines that are told, once they all are."""
    run.end(None)
    told = [each async for several in run.settled() for each in several]
    return [each for each in told if isinstance(each, bytes)]


async def has_room(run: Run) -> None:
    await asyncio.wait_for(run.room(), 10)


def large(stream: Stream, size_bytes: int) -> Append:
    return append(stream, events=(event(payload=b"1" * size_bytes),))


async def test_appends_under_way_are_bounded_by_their_number(run: Run, log: HandedOver) -> None:
    for n in range(UNDER_WAY_MAX):
        assert not run.full
        run.add([Line(n, append(new_stream()))])
    assert run.full
    log.commit()
    await has_room(run)
    assert len(await answers(run)) == UNDER_WAY_MAX


async def test_appends_under_way_are_bounded_by_their_bytes_although_only_one_was_handed_over(
    run: Run, log: HandedOver
) -> None:
    stream, added = new_stream(), 0
    while not run.full:
        added += 1
        run.add([Line(added, large(stream, UNDER_WAY_BYTES_MAX // 10))])
    assert (added, len(log)) == (10, 1)
    log.commit()
    await has_room(run)
    for version in range(2, added + 1):
        log.commit(version)
        await has_room(run)
    assert [each["length"] for each in told_in(b"".join(await answers(run)))] == list(range(1, added + 1))


@pytest.mark.parametrize("failure", [OutcomeUnknown(bytes(16)), Quarantined("22P02")])
async def test_what_is_behind_a_line_that_failed_makes_room_too(
    run: Run, log: HandedOver, failure: Outcome
) -> None:
    stream, added = new_stream(), 0
    while not run.full:
        added += 1
        run.add([Line(added, large(stream, UNDER_WAY_BYTES_MAX // 10))])
    log.pop()[1].set_result(failure)
    await has_room(run)
    run.add([Line(added + 1, append(stream)), Line(added + 2, append(new_stream()))])
    assert len(log) == 1, "that of the other aggregate"
    log.commit()
    told = told_in(b"".join(await answers(run)))
    assert told[0]["status"] in (503, 504)
    assert [each["status"] for each in told[1:]] == [*[503] * added, 201]


async def test_lines_that_wait_for_an_earlier_one_are_bounded_by_their_number(
    run: Run, log: HandedOver
) -> None:
    run.add([Line(1, append(new_stream()))])
    first = log.pop()
    added = 1
    while not run.full:
        added += 1
        run.add([Line(added, append(new_stream()) if added % 2 else REFUSED)])
        if not added % 1_000:
            log.commit()
            await asyncio.sleep(0)  # what follows from it is done soon
    assert added == HELD_MAX
    log.append(first)
    log.commit()
    await has_room(run)
    assert [each["line"] for each in told_in(b"".join(await answers(run)))] == list(range(1, added + 1))


async def test_a_client_that_reads_no_answer_is_read_on(run: Run, log: HandedOver) -> None:
    for at in range(0, 3 * HELD_MAX, 100):
        run.add([Line(n, append(new_stream()) if n % 2 else REFUSED) for n in range(at, at + 100)])
        log.commit()
        await has_room(run)
    assert [each["line"] for each in told_in(b"".join(await answers(run)))] == list(range(3 * HELD_MAX))
