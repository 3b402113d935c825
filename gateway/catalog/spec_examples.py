"""Whether the steps between revisions do what they are for: each is run on the `examples` of the schema that
was deployed under its revision, and what becomes of them is held to the present schema.

Owns: how far back former specs are looked through for those schemas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from gateway.catalog.database import statement
from gateway.events import Event, Recorded, Stream, revised
from gateway.json_values import decode_data
from gateway.state import upcast
from spec.errors import Faults, Report, TooManyFaults, below
from spec.model import EventType, Spec

DOCUMENTS_MAX: Final = 500
"""Former revisions of a spec that are looked through, the newest first."""
EXAMPLES_MAX: Final = 100
"""Of one schema: more tell nothing new."""
_PAGE: Final = 20

Old = tuple[str, str, int]
"""Aggregate type, event type, and an earlier revision of that."""


async def upcast_faults(conn: Any, tenant_id: UUID, spec: Spec, pointer: str) -> Faults | None:
    """What is wrong with the steps of a spec, which stands at `pointer` of its document, by the examples of
    the schemas that they start from; None where nothing is. What was never deployed has none."""
    wanted = set(_steps(spec))
    examples: dict[Old, list[object]] = {}
    before, looked = 2**31 - 1, 0
    while wanted and looked < DOCUMENTS_MAX:
        rows = await conn.fetch(statement("spec_documents"), tenant_id, before, _PAGE)
        if not rows:
            break
        looked, before = looked + len(rows), rows[-1]["revision"]
        found = await asyncio.to_thread(_examples, [row["document"] for row in rows], frozenset(wanted))
        examples |= found
        wanted -= found.keys()
    return await asyncio.to_thread(_faults, spec, examples, pointer)


def _steps(spec: Spec) -> Iterator[Old]:
    for aggregate_type in spec.aggregate_types.values():
        for declared in aggregate_type.events.values():
            for revision in range(1, declared.revision):
                yield aggregate_type.name, declared.name, revision


def _examples(documents: list[bytes], wanted: frozenset[Old]) -> dict[Old, list[object]]:
    """Of the newest document that declares each."""
    found: dict[Old, list[object]] = {}
    for document in documents:
        value = msgspec.json.decode(document)
        types = value.get("spec", value)["aggregate_types"]
        for aggregate_type, event_type, revision in wanted:
            declared = types.get(aggregate_type, {}).get("events", {}).get(event_type)
            if declared is None or declared.get("revision", 1) != revision:
                continue
            schema = declared["schema"]
            examples = schema.get("examples") if isinstance(schema, dict) else None
            listed = examples[:EXAMPLES_MAX] if isinstance(examples, list) else []
            found.setdefault((aggregate_type, event_type, revision), listed)
    return found


def _faults(spec: Spec, examples: Mapping[Old, list[object]], pointer: str) -> Faults | None:
    report = Report()
    try:
        for (aggregate_type, event_type, revision), listed in sorted(
            examples.items(), key=lambda each: each[0]
        ):
            declared = spec.aggregate_types[aggregate_type].events[event_type]
            place = below(
                pointer, "aggregate_types", aggregate_type, "events", event_type, "upcast", str(revision)
            )
            for number, example in enumerate(listed):
                _try(declared, revision, number, example, place, report)
    except TooManyFaults:
        return report.truncated()
    return report.faults() if len(report) else None


def _try(
    declared: EventType, revision: int, number: int, example: object, place: str, report: Report
) -> None:
    said: list[str] = []
    brought = upcast(_event(declared.name, revision, example), declared, lambda _, why: said.append(why))
    violation = declared.violation(decode_data(brought.event.payload or b"null"))
    if violation is not None:
        why = (
            f"Example {number} of the schema of revision {revision} becomes data that the present schema "
            f"refuses: {violation.under('data')}: {violation.message}"
        )
        report.add("refused_example", place, " ".join((why, *said[:3])))


def _event(event_type: str, revision: int, data: object) -> Recorded:
    """As it would be stored."""
    event = Event(
        bytes(16), event_type, "user", "global", None, None, bytes(16), None, 0, 0, None,
        msgspec.json.encode(data),
    )  # fmt: skip
    return Recorded(Stream(bytes(16), "example", "global"), 1, revised(event, revision))
