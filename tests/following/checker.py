"""Whether rows are what a fold from the first event gives at their position; nothing here is the product's.

Owns: a fold of the campaign's own spec, in plain Python, over what the outbox holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import asyncpg


class Violation(NamedTuple):
    kind: str
    told: str


class Stored(NamedTuple):
    """A row of the outbox."""

    seq: int
    append_id: bytes
    aggregate_type: str
    key: str
    type: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """A follower with all its rows, as one snapshot has them."""

    name: str
    state: str
    seq: int
    factor: int
    counted: int
    rows: dict[str, Any]


def fold_list(events: Iterable[Stored], factor: int) -> dict[str, Any]:
    states: dict[str, Any] = {}
    for each in events:
        if each.aggregate_type == "order":
            _order(states.setdefault(each.key, {}), each, factor)
    return states


def _order(state: dict[str, Any], event: Stored, factor: int) -> None:
    match event.type:
        case "was_placed":
            state.update(event.data)
        case "had_item":
            state["items"] = state.get("items", 0) + factor
        case "was_cancelled":
            state["status"] = "cancelled"


def fold_totals(events: Iterable[Stored], factor: int) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    orders: dict[str, Any] = {}
    for each in events:
        if each.aggregate_type == "customer":
            if each.type == "was_closed":
                rows.pop(each.key, None)
            continue
        state = orders.setdefault(each.key, {})
        _order(state, each, factor)
        match each.type:
            case "was_placed":
                row = rows.setdefault(each.data["customer_id"], {})
                row["orders"] = row.get("orders", 0) + 1
                row["spent"] = row.get("spent", 0) + each.data["total"]
            case "had_item" if "customer_id" in state:
                row = rows.setdefault(state["customer_id"], {})
                row["items"] = row.get("items", 0) + factor
            case "was_cancelled" if "customer_id" in state:
                row = rows.setdefault(state["customer_id"], {})
                row["orders"] = row.get("orders", 0) - 1
    return rows


def fold_details(events: Iterable[Stored], factor: int) -> dict[str, Any]:
    events = list(events)
    orders = fold_list(events, factor)
    names: dict[str, Any] = {}
    for each in events:
        if each.aggregate_type == "customer":  # both of its events are merged into its state
            names[each.key] = each.data["name"]
    return {
        key: {
            "items": state.get("items"),
            "name": names.get(state.get("customer_id", "")),
            "factor": factor,
        }
        for key, state in orders.items()
    }


def fold_counts(events: Iterable[Stored], factor: int) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for each in events:
        if each.type == "was_placed":
            row = rows.setdefault(each.data["customer_id"], {"orders": 0, "spent": 0})
            row["orders"] += factor
            row["spent"] += each.data["total"]
    return rows


class Switch(NamedTuple):
    """A build that began to serve where another one had served: where each stood."""

    name: str
    before: int
    seq: int


def check_switches(switches: Iterable[Switch]) -> list[Violation]:
    return [
        Violation("early", f"{each.name} serves at {each.seq} what had been served at {each.before}")
        for each in switches
        if each.seq < each.before
    ]


FOLDS = {"order": fold_list, "totals": fold_totals, "details": fold_details, "counts": fold_counts}


async def observe(postgres_url: str, tenant: str) -> tuple[list[Stored], list[Seen]]:
    """What is committed, and every follower with its rows, in one snapshot."""
    conn = await asyncpg.connect(postgres_url)
    try:
        async with conn.transaction(isolation="repeatable_read", readonly=True):
            rows = await conn.fetch(
                "SELECT seq, append_id, aggregate_type, aggregate_id, type, payload FROM outbox"
                " WHERE tenant = $1::text::uuid ORDER BY seq", tenant
            )  # fmt: skip
            events = [Stored(*row[:5], json.loads(row["payload"])) for row in rows]
            followers = await conn.fetch(
                "SELECT f.id, f.name, f.state, f.seq, f.rows, s.document FROM follower f JOIN spec_revision s"
                " ON s.tenant = f.tenant AND s.revision = f.spec_rev"
                " WHERE f.tenant = $1::text::uuid AND f.state IN ('building', 'serving')", tenant
            )  # fmt: skip
            seen = []
            for each in followers:
                kept = await conn.fetch(
                    "SELECT key, data FROM follower_row WHERE follower = $1 AND data IS NOT NULL", each["id"]
                )
                rows_of = {row["key"]: json.loads(row["data"]) for row in kept}
                factor = json.loads(each["document"])["aggregate_types"]["order"]["events"]["had_item"]
                seen.append(
                    Seen(each["name"], each["state"], each["seq"], _factor(factor), each["rows"], rows_of)
                )
            return events, seen
    finally:
        await conn.close()


# Each change of what serves is noted by Postgres, as it is committed: looks come too late for most.
RECORD_SWITCHES = """
CREATE TABLE campaign_switch (txid bigint, name text, served bool, seq bigint);
CREATE FUNCTION campaign_switched() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO campaign_switch VALUES (
        txid_current(), NEW.kind || ' ' || NEW.name, NEW.state = 'serving', NEW.seq);
    RETURN NULL;
END $$;
CREATE TRIGGER campaign_switched AFTER UPDATE ON follower FOR EACH ROW
    WHEN ((OLD.state = 'serving') <> (NEW.state = 'serving')) EXECUTE FUNCTION campaign_switched();
"""


async def recorded_switches(postgres_url: str) -> list[Switch]:
    conn = await asyncpg.connect(postgres_url)
    try:
        rows = await conn.fetch(
            "SELECT begun.name, ended.seq AS before, begun.seq FROM campaign_switch begun"
            " JOIN campaign_switch ended USING (txid, name) WHERE begun.served AND NOT ended.served"
        )
        return [Switch(*row) for row in rows]
    finally:
        await conn.close()


def _factor(event_type: Mapping[str, Any]) -> int:
    return int(event_type["handler"]["increment"]["value"])


def check(events: Sequence[Stored], seen: Iterable[Seen]) -> list[Violation]:
    violations = []
    for each in seen:
        wanted = FOLDS[each.name]((event for event in events if event.seq <= each.seq), each.factor)
        where = f"{each.name} ({each.state}) at {each.seq}"
        if wanted != each.rows:
            keys = {*wanted, *each.rows}
            wrong = [key for key in sorted(keys) if wanted.get(key) != each.rows.get(key)]
            first = f"{wrong[0]}: {each.rows.get(wrong[0])} for {wanted.get(wrong[0])}"
            violations.append(Violation("rows", f"{where}: {len(wrong)} of {len(keys)} differ, {first}"))
        if each.counted != len(each.rows):
            violations.append(Violation("count", f"{where}: {each.counted} for {len(each.rows)} rows"))
        if _is_within_an_append(events, each.seq):
            violations.append(Violation("half", f"{where}: it stands within an append"))
    return violations


def _is_within_an_append(events: Sequence[Stored], seq: int) -> bool:
    ids = {each.seq: each.append_id for each in events if seq <= each.seq <= seq + 1}
    return len(ids) == 2 and len({*ids.values()}) == 1
