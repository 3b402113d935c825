"""Every refusal as a documented response, grouped by what is asked for.

Pure. Statuses come from the one table of refusals.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from gateway.errors import REFUSALS, Known, Refusal
from gateway.http.openapi.parameters import EXAMPLE_EVENT_ID, RECEIPT, header_refs
from gateway.http.openapi.refusal_groups import GROUPS
from gateway.http.openapi.schemas import ANY_RECEIPT, LENGTH, OK, Schema, list_of, object_of, or_null, ref
from gateway.names.hash_ids import CANDIDATES_MAX

# What a body has beside code, error and path: its schema, and its part of the example.
_MORE: dict[str, tuple[Schema, dict[str, Any]]] = {
    "version_conflict": (
        {
            "length": LENGTH,
            "missed": {
                **list_of(ref("Event")),
                "description": "The missed events, oldest first; absent with `Prefer: return=minimal`.",
            },
            "missed_next": {
                **or_null(LENGTH),
                "description": "The `from` with which to read further events.",
            },
        },
        {"length": 6, "missed": [], "missed_next": 6},
    ),
    "condition_failed": (
        {
            "matched": {
                **list_of(ref("FedEvent")),
                "description": "The events that match, oldest first; absent with `Prefer: return=minimal`.",
            },
            "matched_next": {
                **or_null({"type": "string"}),
                "description": "The `after` with which to read further events.",
            },
            "position": {"type": "string", "description": "It comes after all events that match."},
        },
        {"matched": [], "matched_next": None, "position": "AQ"},
    ),
    "rule_violated": (
        {
            "length": LENGTH,
            **{
                name: {
                    "type": "string",
                    "description": "Of the aggregate whose rule an implied event violates.",
                }
                for name in ("aggregate_type", "key")
            },
        },
        {"length": 6},
    ),
    "not_unique": (
        {"holder": object_of({"aggregate_type": {"type": "string"}, "key": {"type": "string"}})},
        {"holder": {"aggregate_type": "user", "key": "ABC123XYZ"}},
    ),
    "ambiguous_alias": (
        {"candidates": list_of({"type": "string"}, minItems=2, maxItems=CANDIDATES_MAX)},
        {"candidates": ["bd-k86gaq", "bd-k86gm2"]},
    ),
    "idempotency_mismatch": (
        {
            "by": {
                "enum": ["idempotency_key", "event_id"],
                "description": "Which identity belongs to another request.",
            },
            "receipt": {
                "anyOf": [*ANY_RECEIPT["anyOf"], object_of({"ok": OK, "schedule": {"type": "object"}})],
                "description": "The receipt of that request, in its original form.",
            },
        },
        {"by": "idempotency_key", "receipt": RECEIPT},
    ),
    "state_too_large": (
        {"version": {**LENGTH, "description": "The first version at which the state is too large."}},
        {"version": 812},
    ),
    "not_listed": (
        {"listed": {**list_of({"type": "string"}), "description": "The fields that a request may name."}},
        {"listed": ["status", "total"]},
    ),
    "behind": (
        {"position": {"type": "string", "description": "The position that the rows have reached."}},
        {"position": "AQ"},
    ),
    "outcome_unknown": ({"event_id": ref("EventId")}, {"event_id": EXAMPLE_EVENT_ID}),
    "invalid_spec": (
        {
            "faults": list_of(
                object_of({name: {"type": "string"} for name in ("code", "pointer", "error")}),
            )
        },
        {
            "faults": [
                {"code": "missing_key", "pointer": "", "error": "The spec has no `agent_types`; add it."}
            ]
        },
    ),
    "spec_conflict": (
        {
            "revision": LENGTH,
            "conflicts": list_of(object_of({name: {"type": "string"} for name in ("pointer", "error")})),
        },
        {
            "revision": 3,
            "conflicts": [{"pointer": "/aggregate_types/order", "error": "Aggregate type order has events."}],
        },
    ),
}
_DEPLOYED: tuple[Schema, dict[str, Any]] = ({"revision": LENGTH}, {"revision": 3})


def responses_of(group: str) -> Schema:
    """By status, references to what `shared_responses` holds."""
    statuses = sorted({each.http_status for each in GROUPS[group]})
    return {str(status): {"$ref": f"#/components/responses/{group}.{status}"} for status in statuses}


def shared_responses() -> dict[str, Schema]:
    """Every refusal of every group, a response for each status: `append.409`."""
    return {
        f"{group}.{status}": _response(group, status, list(refusals))
        for group, members in GROUPS.items()
        for status, refusals in groupby(sorted(members, key=_status), _status)
    }


def _status(refusal: Refusal) -> int:
    return refusal.http_status


def _response(group: str, status: int, refusals: list[Refusal]) -> Schema:
    codes = list(dict.fromkeys(refusal.code for refusal in refusals))
    more = {code: _more(group, code) for code in codes}
    properties: Schema = {"code": {"enum": codes}}
    for schema, _ in more.values():
        properties |= schema
    return {
        "description": " ".join(map(_meaning, codes)),
        "headers": _headers(status),
        "content": {
            "application/json": {
                "schema": {"allOf": [ref("Refusal"), {"properties": properties}]},
                "examples": {
                    refusal.code: {"value": _body(refusal) | more[refusal.code][1]} for refusal in refusals
                },
            }
        },
    }


def _meaning(code: str) -> str:
    known = REFUSALS[code].known
    return f"`{code}`." if known is Known.NOT_AN_APPEND else f"`{code}`: {known.value}."


def _more(group: str, code: str) -> tuple[Schema, dict[str, Any]]:
    if group in ("deploy", "rollback") and code == "version_conflict":
        return _DEPLOYED
    return _MORE.get(code, ({}, {}))


def _body(refusal: Refusal) -> dict[str, Any]:
    body = {"ok": False, "code": refusal.code, "error": refusal.error}
    return body if refusal.path is None else {**body, "path": refusal.path}


def _headers(status: int) -> Schema:
    extra = {401: ("WWW-Authenticate",), 405: ("Allow",), 429: ("Retry-After",)}
    names: Iterable[str] = extra.get(status, ("Retry-After",) if status >= 500 else ())
    return header_refs(*names)
