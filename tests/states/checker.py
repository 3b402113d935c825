"""Whether states that were read are what a fold from the first event gives; nothing here is the product's.

Owns: a fold of the campaign's own specs, in plain Python, over what the outbox holds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import asyncpg


class Violation(NamedTuple):
    kind: str
    told: str


class Stored(NamedTuple):
    """A row of the outbox. `revision` is that of its type, as it was appended under."""

    type: str
    data: dict[str, Any]
    revision: int


class Variant(NamedTuple):
    """How a spec of the campaign folds: what its handler adds for each event, and the revision of `was_moved`
    with what each step to the next adds to its data."""

    factor: int
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """An answer: the state of `key` at `length`, by revision `spec` of the spec. `asked`: what the request
    was; `least`: the length that the stream had for certain before it, or the one that was asked for."""

    asked: str
    key: str
    spec: int
    length: int
    data: Any
    least: int
    exact: bool


@dataclass(frozen=True, slots=True)
class History:
    """What is committed: events by key in order of their versions; the specs by revision."""

    events: Mapping[str, Sequence[Stored]]
    specs: Mapping[int, Variant]
    kept: int = 0
    """Kept states."""


def check(history: History, reads: Iterable[Read]) -> list[Violation]:
    violations = []
    together: dict[tuple[str, Variant], list[Read]] = defaultdict(list)
    for read in reads:
        where = f"{read.asked}: r{read.spec}, length {read.length}"
        if read.spec not in history.specs:
            violations.append(Violation("spec", f"{where}: that revision was never deployed"))
        elif read.length > len(history.events.get(read.key, ())):
            violations.append(Violation("length", f"{where}: such a stream was never committed"))
        elif read.length < read.least or (read.exact and read.length != read.least):
            violations.append(Violation("length", f"{where} for {read.least}"))
        else:
            together[read.key, history.specs[read.spec]].append(read)
    for (key, variant), each in together.items():
        violations += _check_states(history.events.get(key, ()), variant, each)
    return violations


def _check_states(events: Sequence[Stored], variant: Variant, reads: list[Read]) -> Iterable[Violation]:
    """All of one stream, by one spec, in one fold."""
    state: dict[str, Any] = {}
    folded = 0
    for read in sorted(reads, key=lambda each: each.length):
        while folded < read.length:
            apply(state, events[folded], variant)
            folded += 1
        if read.data != state:
            told = f"{read.asked}: r{read.spec}, length {read.length}: {read.data} for {state}"
            yield Violation("state", told)


def apply(state: dict[str, Any], event: Stored, variant: Variant) -> None:
    """Sums of the factor and of its square: no mixture of two specs gives what any one of them does."""
    match event.type:
        case "was_added":
            state["count"] = state.get("count", 0) + 1
            state["sum"] = state.get("sum", 0) + variant.factor
            state["squares"] = state.get("squares", 0) + variant.factor**2
            state["last"] = event.data["n"]
            state.setdefault("by", {})[str(event.data["n"] % 7)] = variant.factor
        case "was_moved":
            more = sum(variant.steps[event.revision - 1 :])
            state["way"] = state.get("way", 0) + event.data["way"] + more


def spec_of(variant: Variant) -> dict[str, Any]:
    added = [
        {"increment": {"target": "count"}},
        {"increment": {"target": "sum", "value": variant.factor}},
        {"increment": {"target": "squares", "value": variant.factor**2}},
        {"set": {"target": "last", "value": "$.data.n"}},
        {"set_at": {"target": "by", "key": "$.data.group", "value": variant.factor}},
    ]
    upcast = {
        str(n): [{"increment": {"target": "way", "value": step}}]
        for n, step in enumerate(variant.steps, 1)
    }  # fmt: skip
    moved: dict[str, Any] = {
        "schema": True,
        "handler": {"increment": {"target": "way", "value": "$.data.way"}},
        "revision": len(variant.steps) + 1,
        "upcast": upcast,
    }
    events = {"was_added": {"schema": True, "handler": added}, "was_moved": moved}
    return {"aggregate_types": {"counter": {"events": events}}, "agent_types": ["user"]}


def variant_of(spec: Any) -> Variant | None:
    """None where it is not one of the campaign's."""
    counter = spec["aggregate_types"].get("counter")
    if counter is None:
        return None
    added, moved = counter["events"]["was_added"], counter["events"]["was_moved"]
    steps = [moved["upcast"][str(n)][0]["increment"]["value"] for n in range(1, moved["revision"])]
    return Variant(added["handler"][1]["increment"]["value"], tuple(steps))


async def committed(conn: asyncpg.Connection, tenant: str) -> History:
    """In one snapshot."""
    async with conn.transaction(isolation="repeatable_read", readonly=True):
        found = await conn.fetch(
            "SELECT revision, document FROM spec_revision WHERE tenant = $1::text::uuid", tenant
        )
        read = {row["revision"]: variant_of(json.loads(row["document"])) for row in found}
        specs = {revision: variant for revision, variant in read.items() if variant is not None}
        rows = await conn.fetch(
            "SELECT aggregate_id, version, type, payload, spec_rev FROM outbox"
            " WHERE tenant = $1::text::uuid ORDER BY aggregate_id, version", tenant
        )  # fmt: skip
        kept = await conn.fetchval("SELECT count(*) FROM kept_state")
    events: dict[str, list[Stored]] = defaultdict(list)
    for row in rows:
        of_key = events[row["aggregate_id"]]
        assert row["version"] == len(of_key) + 1, f"{row['aggregate_id']} has no version {len(of_key) + 1}"
        moved = row["type"] == "was_moved"
        revision = len(specs[row["spec_rev"]].steps) + 1 if moved else 1
        of_key.append(Stored(row["type"], json.loads(row["payload"]), revision))
    return History(events, specs, kept)
