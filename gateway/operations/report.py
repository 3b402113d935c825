"""What an audit found: a figure for each invariant, and where it is broken. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

SHOWN_MAX: Final = 100
"""Violations of one invariant that are kept; the rest are only counted."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """`holds` is the sentence, `unit` what its figure counts."""

    name: str
    holds: str
    unit: str


INVARIANTS: Final = (
    Invariant("rows", "every row is what its digest says", "rows"),
    Invariant("order", "seq 1…n in each partition, appends whole and in one piece", "rows"),
    Invariant("chain", "the chain recomputed from the rows is the one stored", "partitions"),
    Invariant("versions", "versions 1…n in each stream, in the order of seq", "streams"),
    Invariant("tenants", "every row is in its tenant's partition", "tenants"),
    Invariant("identities", "each identity leads to all rows of one append", "identities"),
    Invariant("storage", "what was counted of each tenant is each event once", "events"),
    Invariant("kept", "a kept state is the fold of its stream's events", "states"),
    Invariant("unique", "each unique value is held by the aggregate that its events give it to", "values"),
    Invariant("seen", "what Redis and gateways saw committed is in Postgres", "positions"),
    Invariant("epochs", "Redis is in no later epoch than Postgres", "partitions"),
    Invariant("journal", "the journal continues what Postgres holds, append by append", "appends"),
    Invariant("streams", "a stream in Redis is the end of the one in Postgres, byte for byte", "streams"),
)


@dataclass(frozen=True, slots=True)
class Violation:
    """`where` names the row, entry or key that breaks the invariant, `what` is a sentence."""

    invariant: str
    partition: int | None
    where: str
    what: str

    def __str__(self) -> str:
        place = "" if self.partition is None else f"partition {self.partition}, "
        return f"{self.invariant}: {place}{self.where}: {self.what}"


@dataclass(slots=True)
class Report:
    """Filled as an audit continues."""

    checked: dict[str, int] = field(default_factory=lambda: {each.name: 0 for each in INVARIANTS})
    broken: dict[str, int] = field(default_factory=lambda: {each.name: 0 for each in INVARIANTS})
    violations: list[Violation] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    """Sentences: what could not be looked at, and why."""

    @property
    def ok(self) -> bool:
        return not any(self.broken.values()) and not self.unchecked

    def count(self, invariant: str, more: int = 1) -> None:
        self.checked[invariant] += more

    def violated(self, invariant: str, partition: int | None, where: str, what: str) -> None:
        self.broken[invariant] += 1
        if self.broken[invariant] <= SHOWN_MAX:
            self.violations.append(Violation(invariant, partition, where, what))

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "invariants": [
                {
                    "name": each.name,
                    "holds": each.holds,
                    "checked": self.checked[each.name],
                    "unit": each.unit,
                    "violations": self.broken[each.name],
                }
                for each in INVARIANTS
            ],
            "violations": [
                {"invariant": of.invariant, "partition": of.partition, "where": of.where, "what": of.what}
                for of in self.violations
            ],
            "unchecked": self.unchecked,
        }
