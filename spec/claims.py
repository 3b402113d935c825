"""The unique values that an event type claims for its aggregate, and those that it releases.

Owns: the grammar of both. Must not know: who holds which value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spec.errors import Report, below, proposal, shown
from spec.identifiers import NAME_GRAMMAR, is_name
from spec.subschemas import Schema
from spec.tags import Steps, read_steps

if TYPE_CHECKING:
    from spec.model import EventType

CLAIMS_MAX: Final = 16
"""Of one event type: each is looked up before an append."""

_KEYS: Final = ("value", "fold", "scope")


@dataclass(frozen=True, slots=True)
class ClaimRule:
    """The value at `steps` is only the aggregate's, among those of its type, under this name; within the
    value at `scope`, if there is one. `folded`: by Unicode's full case folding."""

    name: str
    steps: Steps
    scope: Steps | None = None
    folded: bool = False


def read_claims(value: object, pointer: str, schema: Schema, report: Report) -> tuple[ClaimRule, ...]:
    """The rules that `value` declares; those at fault are left out, with faults in `report`."""
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, '`claims` is an object, like {"email": {"value": "$.data.email"}}.')
        return ()
    if len(value) > CLAIMS_MAX:
        report.add("invalid_value", pointer, f"At most {CLAIMS_MAX} claims for one event type.")
    rules = [_read_claim(name, each, below(pointer, name), schema, report) for name, each in value.items()]
    return tuple([rule for rule in rules if rule is not None])


def _read_claim(name: str, value: object, pointer: str, schema: Schema, report: Report) -> ClaimRule | None:
    if not is_name(name):
        report.add("invalid_name", pointer, f"{shown(name)} is not a valid name; names are `{NAME_GRAMMAR}`.")
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, 'A claim is an object, like {"value": "$.data.email"}.')
        return None
    for key in value:
        if key not in _KEYS:
            why = f"A claim has no {shown(key)}. {proposal(key, _KEYS)}"
            report.add("unknown_key", below(pointer, key), why)
    if value.get("fold", "case") != "case":
        report.add(
            "invalid_value", below(pointer, "fold"), '`fold` is "case", or left out: then bytes count.'
        )
    if "value" not in value:
        report.add("missing_key", pointer, "A claim needs a `value`, a path like `$.data.email`.")
        return None
    steps = read_steps(value["value"], below(pointer, "value"), schema, report, items=False)
    scope = None
    if "scope" in value:
        scope = read_steps(value["scope"], below(pointer, "scope"), schema, report, items=False)
    return None if steps is None else ClaimRule(name, steps, scope, "fold" in value)


def read_releases(value: object, pointer: str, report: Report) -> tuple[str, ...]:
    if not isinstance(value, list):
        report.add("wrong_type", pointer, '`releases` is a list of names of claims, like ["email"].')
        return ()
    names: dict[str, None] = {}
    for index, name in enumerate(value):
        place = below(pointer, index)
        if not isinstance(name, str):
            report.add("wrong_type", place, "A name must be a string.")
        elif name in names:
            report.add("duplicate_name", place, f"{shown(name)} is declared above already; remove one.")
        else:
            names[name] = None
    return tuple(names)


def check_claims(events: Mapping[str, EventType], pointer: str, report: Report) -> None:
    """What all events of an aggregate type tell: a name means one thing, and what is released is claimed."""
    first: dict[str, ClaimRule] = {}
    for event, declared in events.items():
        for rule in declared.claims:
            known = first.setdefault(rule.name, rule)
            if (known.folded, known.scope is None) != (rule.folded, rule.scope is None):
                why = f"Another event claims {shown(rule.name)} with another `fold` or use of `scope`."
                report.add("invalid_value", below(pointer, event, "claims", rule.name), why)
    for event, declared in events.items():
        for index, name in enumerate(declared.releases):
            if name not in first:
                why = f"No event of this aggregate type claims {shown(name)}. {proposal(name, first)}"
                report.add("undeclared", below(pointer, event, "releases", index), why.rstrip())
