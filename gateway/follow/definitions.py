"""Which followers a spec declares, and what the rows of each depend on. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import rfc8785

from spec.model import Spec

Kind = Literal["list", "projection"]

FORMAT: Final = 1
"""Of rows: another one when this release makes other rows of the same definition, so that all are built
again."""

_FOLDED: Final = ("handler", "revision", "upcast")
"""What of an event type decides about states."""


@dataclass(frozen=True, slots=True)
class Definition:
    """`fields` is `by`; `digest` differs where the rows may."""

    kind: Kind
    name: str
    fields: tuple[str, ...]
    digest: bytes


def definitions(spec: Spec, document: bytes) -> Iterator[Definition]:
    """All that `spec` declares, which is what `document` says."""
    whole = msgspec.json.decode(document)
    declared: Mapping[str, Any] = whole.get("spec", whole)
    types = declared["aggregate_types"]
    for name, each in spec.aggregate_types.items():
        if each.listed is not None:
            depends = {"list": list(each.listed.by), "states": _states(types, name)}
            yield Definition("list", name, each.listed.by, digest(depends))
    for name, projection in spec.projections.items():
        folded = {at[0] for at, rule in projection.on.items() if rule.sees_aggregate}
        if projection.join is not None:
            folded |= projection.join.types
        depends = {
            "projection": declared["projections"][name],
            "states": {each: _states(types, each) for each in sorted(folded)},
            "events": {f"{of}.{event}": _states(types, of).get(event) for of, event in sorted(projection.on)},
        }
        yield Definition("projection", name, projection.by, digest(depends))


def _states(types: Mapping[str, Any], aggregate_type: str) -> dict[str, Any]:
    """What states of this type depend on."""
    events = types.get(aggregate_type, {}).get("events", {})
    return {name: {key: each[key] for key in _FOLDED if key in each} for name, each in events.items()}


def digest(value: Any) -> bytes:
    """A number that no double holds has no form by RFC 8785."""
    whole = [FORMAT, value]
    try:
        canonical = rfc8785.dumps(whole)
    except rfc8785.CanonicalizationError:
        canonical = msgspec.json.encode(whole, order="sorted")
    return hashlib.sha256(canonical).digest()
