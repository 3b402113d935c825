"""Holds what reservers were told against what is stored. Knows no code of the gateway: numbers and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

STOCKED, RESERVED = "was_stocked", "was_reserved"


@dataclass(frozen=True, slots=True)
class Row:
    """An event of the item, as it is stored."""

    version: int
    type: str
    id: str
    quantity: int


@dataclass(frozen=True, slots=True)
class Told:
    """What one request came to. `status` is the last answer's, None where none came; `doubtful`: an earlier
    attempt of it was not answered, or with a 503 or 504."""

    type: str
    id: str
    quantity: int
    status: int | None
    length: int | None = None
    error: str | None = None
    doubtful: bool = False


@dataclass(slots=True)
class History:
    rows: Sequence[Row]
    told: Sequence[Told]
    states: Sequence[tuple[int, int]] = ()
    """Lengths, and how many were left there by what a gateway showed."""
    harms: list[str] = field(default_factory=list)

    def check(self) -> list[str]:
        """What is wrong; empty where every promise was kept."""
        available, after = 0, [0]
        for n, row in enumerate(self.rows, 1):
            if row.version != n:
                self.harms.append(f"version {row.version} stands where {n} belongs")
            available += row.quantity if row.type == STOCKED else -row.quantity
            if available < 0:
                self.harms.append(f"{available} are left after version {n}")
            after.append(available)
        for length, left in self.states:
            if length >= len(after) or after[length] != left:
                self.harms.append(f"a gateway shows {left} at {length}")
        stored: dict[str, Row] = {}
        for row in self.rows:
            if row.id in stored:
                self.harms.append(f"request {row.id} stands at {stored[row.id].version} and {row.version}")
            stored[row.id] = row
        for each in self.told:
            self._check(each, stored.get(each.id), after)
        asked = {each.id for each in self.told}
        self.harms += [f"nobody asked for {row.id}" for row in self.rows if row.id not in asked]
        return self.harms

    def _check(self, told: Told, row: Row | None, after: list[int]) -> None:
        what = f"request {told.id}, told {told.status}"
        if told.status == 201:
            if row is None or (row.version, row.type, row.quantity) != (
                told.length,
                told.type,
                told.quantity,
            ):
                self.harms.append(f"{what} at {told.length}, is stored as {row}")
        elif told.status == 422:
            assert told.length is not None
            if row is not None and not told.doubtful:
                self.harms.append(f"{what}, is stored at {row.version}")
            if told.length >= len(after):
                self.harms.append(f"{what} by a state at {told.length}, which there never was")
                return
            left = after[told.length]
            if left >= told.quantity or told.error != f"Only {left} are left.":
                self.harms.append(f"{what} ({told.error}) although {left} were left at {told.length}")
        elif told.status is not None:
            self.harms.append(f"{what}: {told.error}")
