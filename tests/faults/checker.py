"""Holds what clients were told against what is stored: the promises of docs/guarantees.md. Pure.

Owns: what counts as a violation, and its name. `check` may be called on a running system too, with a history
that ends before the evidence was gathered.
"""

from __future__ import annotations

import itertools
import os
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from tests.faults.evidence import Evidence, Row
from tests.faults.history import (
    AT_LEAST_ONE,
    History,
    Observation,
    Operation,
    Receipt,
    Sample,
    StreamName,
    Try,
    Verdict,
    of_lost_history,
)
from tests.faults.stored import check_stored

RECOVERY_S = 5.0
"""The promise: faults stop, and within this time every partition accepts appends."""
ALARM_S = 5.0
"""The promise: within this time the loss of acknowledged commits by Postgres is alarmed."""
HALT_S = 1.5
"""For a gateway to hear of another one's alarm, and of its end."""
STALE_S = 1.0
"""What a read may be behind while gateways may disagree about Redis."""
_OP = re.compile(rb'^\{"op": ?"([^"#]+)#(\d+)",')


class Violation(NamedTuple):
    """`kind`: lost, doubled, reordered, phantom, corrupted, receipt, conflict, stale, identity, gap, chain,
    copy, epoch, quarantine, alarm, growth, answer, outdated, stuck or bug."""

    kind: str
    told: str


def check(
    history: History, evidence: Evidence, *, digests: bool = True, partitions: Sequence[int] = ()
) -> list[Violation]:
    """Every violation there is. Without `digests`, row digests are taken as they are stored. `partitions`: of
    each tenant, by its number."""
    alarms = [Violation(kind, told) for kind, told in _alarms(history, partitions)]
    if history.set_backs:
        history = history.without_given_up(partitions.__getitem__)
    return alarms + _check(history, evidence, partitions, digests=digests)


def _check(
    history: History, evidence: Evidence, partitions: Sequence[int], *, digests: bool
) -> list[Violation]:
    found = _Found(history, evidence, partitions)
    violations = [Violation(kind, told) for kind, told in check_stored(evidence, digests=digests)]
    for part in (_mapped, _operations, _order, _conflicts, _observations, _samples, _other):
        violations += (Violation(kind, told) for kind, told in part(found))
    return violations


class _Found:
    """The history and the rows, each findable from the other."""

    def __init__(self, history: History, evidence: Evidence, partitions: Sequence[int]) -> None:
        self.partitions = partitions
        self.history = history
        self.evidence = evidence
        self.operations = {each.id: each for each in history.operations}
        self.streams: dict[StreamName, dict[int, Row]] = defaultdict(dict)
        self.rows_of: dict[str, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
        self.strangers: list[Row] = []
        for row in evidence.rows:
            self.streams[row.stream][row.version] = row
            matched = _OP.match(row.payload or b"")
            operation = self.operations.get(matched[1].decode()) if matched else None
            if operation is None or matched is None or int(matched[2]) >= len(operation.payloads):
                self.strangers.append(row)
            else:
                self.rows_of[operation.id][int(matched[2])].append(row)
        self._splits = [(fault.begun, fault.ended) for fault in history.faults if fault.splits]
        self._bypassed = _bypassed(history.samples)
        self.known = _Known(history, self.streams)

    def length(self, stream: StreamName) -> int:
        return len(self.streams.get(stream, ()))

    def split_at(self, tenant: int, begun: float, ended: float) -> bool:
        """Whether gateways may have disagreed about Redis at some time of that span: by a fault, or since one
        of them began to bypass it for the tenant's partition, as where Redis had no CPU."""
        bypassed = self._bypassed[self.partitions[tenant]] if self.partitions else []
        return any(
            first <= ended and begun <= last for first, last in itertools.chain(self._splits, bypassed)
        )


def _bypassed(samples: Sequence[Sample]) -> dict[int, list[tuple[float, float]]]:
    """When each partition's direct mode began: between which two samples."""
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    last: dict[int, Sample] = {}
    for sample in samples:
        before = last.get(sample.partition)
        if sample.direct and before is not None and not before.direct:
            found[sample.partition].append((before.at, sample.at))
        last[sample.partition] = sample
    return found


Told = Iterator[tuple[str, str]]


# -- a Postgres that lost commits


def _alarms(history: History, partitions: Sequence[int]) -> Told:
    """Raised in time, and then nothing is appended."""
    for back in history.set_backs:
        for partition, at in (back.alarmed | back.overtaken).items():
            if at - back.begun > ALARM_S:
                yield "alarm", f"partition {partition}: raised {at - back.begun:.1f} s after the loss"
        for operation in history.operations:
            at = back.alarmed.get(partitions[operation.tenant], inf)
            for one in operation.tries:
                if one.status == 201 and not one.replayed and at + HALT_S < one.sent < one.answered < (
                    back.mending
                ):  # fmt: skip
                    yield "alarm", f"{_told(operation)} was appended {one.sent - at:.1f} s after the alarm"
                if of_lost_history(back, partitions[operation.tenant], operation, one) and (
                    one.status == 201 and not one.replayed
                ):
                    yield "conflict", f"{_told(operation)} met an ETag that a rewind had ended"


# -- rows and operations


def _mapped(found: _Found) -> Told:
    for row in found.strangers:
        yield "phantom", f"{_place(row)} holds what nobody sent: {row.payload[:80]!r}"
    for name, by_index in found.rows_of.items():
        operation = found.operations[name]
        for index, rows in by_index.items():
            if len(rows) > 1:
                yield "doubled", f"{name}#{index} stands at {', '.join(map(_place, rows))}"
            for row in rows:
                yield from _row_of(operation, index, row)


def _row_of(operation: Operation, index: int, row: Row) -> Told:
    if row.payload != operation.payloads[index]:
        yield "corrupted", f"{_place(row)}: {row.payload!r} was sent as {operation.payloads[index]!r}"
    if (row.stream.tenant, row.stream.aggregate_type) != (operation.tenant, operation.aggregate_type) or (
        operation.key not in (None, row.stream.key)
    ):
        yield (
            "corrupted",
            f"{operation.id} was sent to {operation.tenant}/{operation.key} and is in {_place(row)}",
        )
    if operation.event_ids and row.event_id != operation.event_ids[index]:
        yield "corrupted", f"{_place(row)}: id {row.event_id}, chosen was {operation.event_ids[index]}"


def _operations(found: _Found) -> Told:
    for operation in found.history.operations:
        rows = found.rows_of.get(operation.id, {})
        if rows:
            yield from _whole(operation, rows)
        if operation.outdated and (rows or operation.verdict is Verdict.COMMITTED):
            yield "outdated", f"{_told(operation)} was appended although {operation.outdated}"
        match operation.verdict:
            case Verdict.COMMITTED:
                yield from _committed(found, operation, rows)
            case Verdict.ABSENT if rows:
                last = operation.tries[-1]
                yield "phantom", f"{_told(operation)} was answered {last.status} {last.code} and is stored"
        yield from _receipts(operation)


def _whole(operation: Operation, rows: Mapping[int, list[Row]]) -> Told:
    """All of its events or none, one after the other."""
    if len(rows) < len(operation.payloads):
        yield "lost", f"of {operation.id} only {len(rows)} of {len(operation.payloads)} events are stored"
        return
    firsts = [rows[index][0] for index in range(len(rows))]
    for before, after in itertools.pairwise(firsts):
        if (after.seq, after.version) != (before.seq + 1, before.version + 1):
            yield "reordered", f"{operation.id} is torn apart: {_place(before)}, {_place(after)}"


def _committed(found: _Found, operation: Operation, rows: Mapping[int, list[Row]]) -> Told:
    if not rows:
        yield "lost", f"{_told(operation)} was acknowledged and is not stored"
    if len(rows) < len(operation.payloads):
        return  # `_whole` has told which part is missing
    first = rows[0][0]
    if (
        operation.expected is not None
        and operation.expected >= 0
        and not operation.stolen
        and (first.version != operation.expected + 1)
    ):
        yield (
            "conflict",
            f"{operation.id} asked for length {operation.expected} and stands at {_place(first)}",
        )
    stored = Receipt(
        first.stream.key,
        tuple(rows[index][0].event_id for index in sorted(rows)),
        first.version,
        first.version + len(operation.payloads) - 1,
    )
    for one in operation.tries:  # a webhook's answer names only its event
        if one.status == 201 and one.receipt is None and one.event_id not in (None, *stored.event_ids):
            yield "receipt", f"{operation.id} was told event {one.event_id}, stored is {stored}"
    for told in operation.receipts:
        if told != stored:
            yield "receipt", f"{operation.id} was told {told}, stored is {stored}"


def _receipts(operation: Operation) -> Told:
    """What the tries of one operation were told, one beside the other."""
    for one in operation.tries:
        mismatch = one.code == "idempotency_mismatch"
        if operation.stolen and one.status == 201:
            yield "identity", f"{operation.id} was accepted under an identity that is taken"
        if not operation.stolen and mismatch and not one.adopts:
            yield "identity", f"{operation.id} was told that its own identity belongs to another"
        if one.status == 201 and one.sent > operation.completed and not one.replayed:
            yield "receipt", f"{operation.id} was acknowledged before, and again without Idempotency-Replayed"
        if one.status == 409 and one.sent > operation.completed:
            yield "receipt", f"{operation.id} was acknowledged and is then refused as a conflict"


def _order(found: _Found) -> Told:
    """Within a stream: what was acknowledged before another was begun stands before it."""
    bounds: dict[StreamName, list[tuple[int, int, Operation]]] = defaultdict(list)
    for name, rows in found.rows_of.items():
        if len(rows) == len(found.operations[name].payloads):
            versions = [each.version for those in rows.values() for each in those]
            stream = rows[0][0].stream
            bounds[stream].append((min(versions), max(versions), found.operations[name]))
    for stream, placed in bounds.items():
        placed.sort(key=lambda each: -each[0])
        earliest, by = inf, ""
        for _, _, operation in placed:
            if earliest < operation.invoked:
                yield (
                    "reordered",
                    f"{stream}: {operation.id} was begun after {by} was acknowledged, and precedes it",
                )
            if operation.completed < earliest:
                earliest, by = operation.completed, operation.id


# -- what was known when


class _Known:
    """Lengths that some client had been told, by the time it was told."""

    def __init__(self, history: History, streams: Mapping[StreamName, Mapping[int, Row]]) -> None:
        told: dict[StreamName, list[tuple[float, int]]] = defaultdict(list)
        for operation in history.operations:
            for one in operation.tries:
                if one.receipt is not None:
                    stream = StreamName(operation.tenant, operation.aggregate_type, one.receipt.key)
                    told[stream].append((one.answered, one.receipt.length))
                elif one.length is not None and operation.key is not None:
                    stream = StreamName(operation.tenant, operation.aggregate_type, operation.key)
                    told[stream].append((one.answered, one.length))
        for seen in history.observations:
            length = max([seen.length or 0, *(event.version for event in seen.events)])
            told[seen.stream].append((seen.answered, length))
        self._of = {stream: _rising(pairs, len(streams.get(stream, ()))) for stream, pairs in told.items()}

    def before(self, stream: StreamName, at: float) -> int:
        """The longest that it was known to be before that time; what was told at the same may be later."""
        times, lengths = self._of.get(stream, ((), ()))
        place = bisect_left(times, at)
        return lengths[place - 1] if place else 0

    def since(self, stream: StreamName, length: int) -> float:
        """When it was first known to be longer than that."""
        times, lengths = self._of.get(stream, ((), ()))
        place = bisect_right(lengths, length)
        return times[place] if place < len(times) else inf


def _rising(pairs: list[tuple[float, int]], most: int) -> tuple[Sequence[float], Sequence[int]]:
    """Only what is stored counts as known; lengths that rise, at the times when they were first told."""
    times: list[float] = []
    lengths: list[int] = []
    for at, length in sorted(pairs):
        if length <= most and (not lengths or length > lengths[-1]):
            times.append(at)
            lengths.append(length)
    return times, lengths


def _behind(found: _Found, stream: StreamName, length: int, one: Try | Observation) -> str | None:
    """Why this length is too short for when it was asked for; None when it is not."""
    asked = one.asked if isinstance(one, Observation) else one.sent
    known = found.known.before(stream, asked)
    if length >= known:
        return None
    behind_s = asked - found.known.since(stream, length)
    strong = isinstance(one, Try) or one.strong
    if behind_s <= STALE_S and not strong and found.split_at(stream.tenant, asked - STALE_S, one.answered):
        return None
    return f"length {length} at gateway {one.gateway}, {behind_s * 1000:.0f} ms after {known} was known"


def _conflicts(found: _Found) -> Told:
    """A 409 was decided on the committed history, and reports its length."""
    backs = found.history.set_backs
    for operation in found.history.operations:
        for one in operation.tries:
            if one.length is None or operation.key is None:
                continue
            stream = StreamName(operation.tenant, operation.aggregate_type, operation.key)
            if one.length > found.length(stream):
                yield (
                    "phantom",
                    f"{operation.id} was refused for length {one.length}, stored {found.length(stream)}",
                )
            if any(
                of_lost_history(each, found.partitions[operation.tenant], operation, one) for each in backs
            ):
                continue
            met = one.length >= 1 if operation.expected == AT_LEAST_ONE else one.length == operation.expected
            if met:
                yield "conflict", f"{operation.id} was refused at length {one.length}, which it asked for"
            behind = _behind(found, stream, one.length, one)
            if behind is not None:
                yield "conflict", f"{operation.id} was refused for an old length: {behind}"


# -- what was read


def _observations(found: _Found) -> Told:
    for seen in found.history.observations:
        rows = found.streams.get(seen.stream, {})
        yield from _shown(seen, rows)
        if seen.length is None:
            continue
        if seen.length > len(rows):
            yield "phantom", f"{_read(seen)} showed length {seen.length}, stored are {len(rows)}"
        behind = _behind(found, seen.stream, seen.length, seen)
        if behind is not None:
            yield "stale", f"{_read(seen)} showed {behind}"
        if seen.folded is not None:
            yield from _folded(seen, seen.length, rows)


def _shown(seen: Observation, rows: Mapping[int, Row]) -> Told:
    versions = sorted(event.version for event in seen.events)
    if versions != list(range(seen.lowest, seen.highest + 1)):
        yield "gap", f"{_read(seen)} showed {versions} for {seen.lowest} to {seen.highest}"
    for event in seen.events:
        row = rows.get(event.version)
        if row is None or row.event_id != event.event_id:
            stored = "nothing" if row is None else row.event_id
            yield (
                "phantom",
                f"{_read(seen)} showed {event.event_id} at version {event.version}, stored: {stored}",
            )
        elif row.payload != event.data:
            yield "corrupted", f"{_read(seen)} showed {event.data!r}, stored: {row.payload!r}"


def _folded(seen: Observation, length: int, rows: Mapping[int, Row]) -> Told:
    assert seen.folded is not None
    row = rows.get(length)
    matched = _OP.match(row.payload) if row is not None else None
    last = None if matched is None else f"{matched[1].decode()}#{matched[2].decode()}"
    if seen.folded != (length, last) and length <= len(rows):
        yield (
            "corrupted",
            f"{_read(seen)} at length {length} folded {seen.folded}, the events give {(length, last)}",
        )


# -- the rest


def _samples(found: _Found) -> Told:
    """Partitions only go forward. A sample shows all that its server has: of commits that became visible and
    that no standby has, none is there once one takes over. One of these that was acknowledged is lost."""
    last: dict[int, tuple[int, int]] = {}
    backs = found.history.set_backs
    unsettled = [fault for fault in found.history.faults if fault.name == "crash-in-wait"]
    for sample in found.history.samples:
        if any(each.begun <= sample.at <= each.ended for each in unsettled):
            continue
        if any(each.begun - 1 <= sample.at <= each.ended for each in backs):
            last.clear()
            continue
        before = last.get(sample.partition, (0, 0))
        if sample.epoch < before[0] or sample.seq < before[1]:
            here = (sample.epoch, sample.seq)
            yield "epoch", f"partition {sample.partition} went from (epoch, seq) {before} to {here}"
        last[sample.partition] = (sample.epoch, sample.seq)


def _other(found: _Found) -> Told:
    if not any(fault.name == "redis-del" for fault in found.history.faults):  # its last guard is Postgres
        for told in found.evidence.quarantined:
            yield "quarantine", f"Postgres refused an append: {told}"
    for told in found.history.resources:
        yield "growth", told
    for told in found.history.odd:
        yield "answer", told
    for recovery in found.history.recoveries:
        if recovery.seconds - recovery.starved_s > RECOVERY_S or recovery.stuck:
            after, why = ", ".join(recovery.after), "; ".join(recovery.stuck) or "slow"
            yield "stuck", f"{recovery.seconds:.1f} s{without_cpu(recovery.starved_s)} after {after}: {why}"


def without_cpu(starved_s: float) -> str:
    """To be told beside a time that is too long."""
    return f" ({starved_s:.1f} s of it without a CPU for the rig; load {os.getloadavg()[0]:.0f})"


def _place(row: Row) -> str:
    return f"{row.stream.tenant}/{row.stream.aggregate_type}/{row.stream.key} version {row.version}"


def _told(operation: Operation) -> str:
    return f"{operation.kind} {operation.id} ({operation.identity.value})"


def _read(seen: Observation) -> str:
    return f"{seen.what} of {'/'.join(map(str, seen.stream))} at gateway {seen.gateway}"
