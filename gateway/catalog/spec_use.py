"""What a tenant has stored that another spec would refuse or read differently.

Owns: how much of it is looked at. A look is bounded in rows, in time and in its turns of the event loop: up
to EVENTS_CHECKED_MAX events are held to changed schemas, each aggregate type from its first key on. Keys are
mostly random UUIDs, so where there are more events, these are a random sample of the aggregates.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from gateway.catalog.database import statement
from gateway.events import Event, Recorded, Stream, revised
from gateway.json_values import decode_data
from gateway.state import upcast
from spec.changes import Removal, Reread, lowered, rechecked, references, reread
from spec.endless import endless_sagas
from spec.errors import below
from spec.model import EventType, Spec
from spec.violations import SchemaViolation

EVENTS_CHECKED_MAX: Final = 100_000
"""Events that one deployment reads to hold them to changed schemas: seconds."""

CHECK_S: Final = 8.0
"""How long it may take over that; a deployment is answered within 30 s."""

USE_S: Final = 4.0
"""How long a look through all of a tenant's events for types and ids in use may take; then a sample has to
do."""

_PAGE_EVENTS: Final = 200
_WORK_MAX: Final = (
    10_000_000  # comparisons of one event, two seconds at the worst; beyond it, it is passed over
)
_TURN_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class Conflict:
    """Something stored that stands in the way; `pointer` is its place in the deployed document."""

    pointer: str
    error: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Something stored that is read differently from now on, or was not looked at, or what the spec would do
    without end; `pointer` as above."""

    pointer: str
    text: str

    def as_json(self) -> dict[str, str]:
        """As the gateway and the commands answer it."""
        return {"pointer": self.pointer, "notice": self.text}


@dataclass(slots=True)
class Use:
    """What was found."""

    conflicts: list[Conflict] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)


def of_itself(spec: Spec) -> tuple[Notice, ...]:
    """What is noticed of a spec whatever is stored."""
    return tuple([Notice(each.pointer, each.text) for each in endless_sagas(spec)])


async def stored_use(conn: Any, tenant_id: UUID, old: Spec, new: Spec) -> Use:
    """What is in the way of `new`, but for what it no longer declares of types and streams; and what follows
    from it for what is stored."""
    use = Use()
    await _look_for_references(conn, tenant_id, references(old, new), use)
    use.conflicts += [
        Conflict(place, f"Revision {was} was deployed, and events of it may be stored; take {was} or more.")
        for place, was in lowered(old, new)
    ]
    await _hold_to_schemas(conn, tenant_id, new, rechecked(old, new), use)
    for each in reread(old, new):
        use.notices.append(Notice(each.pointer, await _reread(conn, tenant_id, each)))
    return use


async def _look_for_references(conn: Any, tenant_id: UUID, wanted: Sequence[Removal], use: Use) -> None:
    if not wanted:
        return
    asked = ([each.kind for each in wanted], [each.names[0] for each in wanted])
    try:
        rows = await conn.fetch(statement("references"), tenant_id, *asked, None, timeout=USE_S)
    except TimeoutError:
        rows = await conn.fetch(statement("references"), tenant_id, *asked, EVENTS_CHECKED_MAX)
        found = {row["n"] for row in rows}
        use.notices += [
            Notice(each.pointer, f"Only {EVENTS_CHECKED_MAX:,} events were searched for {each.names[0]}.")
            for n, each in enumerate(wanted, 1)
            if n not in found
        ]
    use.conflicts += [_reference(wanted[row["n"] - 1]) for row in rows]


def _reference(removal: Removal) -> Conflict:
    (name,) = removal.names
    match removal.kind:
        case "agent_type":
            error = f"Stored events have actors of the type {name}."
        case "target_type":
            error = f"Stored events have targets of the type {name}."
        case _:
            error = f"Stored events have the singleton {name} as actor or target."
    return Conflict(removal.pointer, error)


@dataclass(slots=True)
class _Tally:
    checked: int = 0
    unfit: int = 0
    first: str = ""


async def _hold_to_schemas(
    conn: Any, tenant_id: UUID, new: Spec, changed: dict[str, tuple[str, ...]], use: Use
) -> None:
    """`changed`: by aggregate type the event types whose schema is another."""
    until, left = time.monotonic() + CHECK_S, EVENTS_CHECKED_MAX
    for aggregate_type, event_types in changed.items():
        tallies = {name: _Tally() for name in event_types}
        read, whole = await _held(conn, tenant_id, new, aggregate_type, tallies, left, until)
        left -= read
        for name, tally in tallies.items():
            place = below("", "aggregate_types", aggregate_type, "events", name, "schema")
            share = "" if whole else f" ({read:,} events of {aggregate_type} were checked, not all)"
            if tally.unfit:
                error = (
                    f"{tally.unfit:,} of {tally.checked:,} stored {name} events do not match the schema"
                    f"{share}. {tally.first}"
                )
                use.conflicts.append(Conflict(place, error))
            elif not whole:
                use.notices.append(Notice(place, f"The schema was compared with a sample{share}."))


async def _held(
    conn: Any,
    tenant_id: UUID,
    new: Spec,
    aggregate_type: str,
    tallies: dict[str, _Tally],
    most: int,
    until: float,
) -> tuple[int, bool]:
    """Counts the stored events that do not match; how many were read, and whether they were all."""
    declared = new.aggregate_types[aggregate_type].events
    read, key, version, begun = 0, "", 0, time.monotonic()
    while True:
        limit = min(_PAGE_EVENTS, most - read + 1)  # the one more tells whether there are more
        left_s = until - time.monotonic()
        if left_s <= 0:
            return read, False
        try:
            rows = await conn.fetch(
                statement("stored_events"), tenant_id, aggregate_type, key, version, [*tallies], limit,
                timeout=left_s,
            )  # fmt: skip
        except TimeoutError:
            return read, False
        begun, more = time.monotonic(), len(rows) > most - read
        for row in rows[: most - read]:
            if row["payload"] is not None:
                payload = await present(tenant_id, aggregate_type, declared[row["type"]], row)
                await _hold(declared[row["type"]], tallies[row["type"]], row, payload)
                if time.monotonic() - begun > _TURN_S:
                    await asyncio.sleep(0)
                    begun = time.monotonic()
        read += min(len(rows), most - read)
        if more or len(rows) < limit:
            return read, not more
        key, version = rows[-1]["aggregate_id"], rows[-1]["version"]


async def present(tenant_id: UUID, aggregate_type: str, declared: EventType, row: Any) -> bytes:
    """The data of a row of `stored_events` as the new spec sees them."""
    if (row["revision"] or 1) >= declared.revision:
        return bytes(row["payload"])
    recorded = recorded_of(tenant_id, aggregate_type, row)
    return (await asyncio.to_thread(upcast, recorded, declared)).event.payload or b"null"


def recorded_of(tenant_id: UUID, aggregate_type: str, row: Any) -> Recorded:
    """The event of a row of `stored_events`."""
    causation = row["causation_id"]
    event = Event(
        row["id"].bytes,
        row["type"],
        row["actor_type"],
        row["actor_id"],
        row["target_type"],
        row["target_id"],
        row["correlation_id"].bytes,
        None if causation is None else causation.bytes,
        0,
        row["recorded_at_ms"],
        row["extra"],
        row["payload"],
    )
    stream = Stream(tenant_id.bytes, aggregate_type, row["aggregate_id"])
    return Recorded(stream, row["version"], revised(event, row["revision"] or 1))


async def _hold(declared: EventType, tally: _Tally, row: Any, payload: bytes) -> None:
    """Only the first violation is worded: words take several times as long as finding that there is one."""
    judge = declared.violation if not tally.first else declared.compiled.is_violated
    if declared.is_light(payload):
        violation = judge(decode_data(payload))
    elif declared.compiled.work(payload) > _WORK_MAX:
        return
    else:
        violation = await asyncio.to_thread(judge, decode_data(payload))
    tally.checked += 1
    if violation:
        tally.unfit += 1
    if isinstance(violation, SchemaViolation):
        place = f"{row['aggregate_id']}, version {row['version']}"
        tally.first = f"The first is of {place}: {violation.under('data')}: {violation.message}"


async def _reread(conn: Any, tenant_id: UUID, each: Reread) -> str:
    if each.aggregate_type is None:
        return each.text
    try:
        count = await conn.fetchval(
            statement("count_aggregates"), tenant_id, each.aggregate_type, EVENTS_CHECKED_MAX, timeout=USE_S
        )
    except TimeoutError:
        return f"{each.text} Many {each.aggregate_type} aggregates are stored."
    more = "More than " if count >= EVENTS_CHECKED_MAX else ""
    stored = "1 aggregate" if count == 1 else f"{count:,} aggregates"
    return f"{each.text} {more}{stored} of the type {each.aggregate_type} may show another state."
