"""Rows that events are applied to, each opened once for all of them. No I/O.

Owns: how long the rows are that are held open together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gateway.events import Recorded
from gateway.follow.lists import misfit_of
from gateway.follow.model import MISFITS_SHOWN, ROWS_BYTES_MAX, Event, Misfit, Row
from gateway.follow.row_cache import held_bytes
from gateway.relay.position import Place
from gateway.state.budget import OPERATIONS_A_LOOK, STATE_BYTES_MAX, Budget
from gateway.state.budget import Misfit as Unfit
from gateway.state.counters import Counters, Counts, counts_of
from gateway.state.draft import Draft as StateDraft
from gateway.state.operations import apply
from gateway.state.templates import View
from gateway.state.values import Fields, Node, decode_fields, encode
from spec.handlers import Path, Root
from spec.projections import Rule

LIGHT_COUNTS: Final = 16
"""So many operations that only count are folded in turns of the event loop, however many events there are."""

OPEN_OF_CACHE: Final = 16
"""Rows stay open from one batch to the next, as long as they are no longer together than this part of those
that are held."""

_EMPTY: Final = b"{}"


SomeOf = Callable[[bytes], Sequence[Any]]
"""Some fields of an event's data, in an order; UNSET for what it does not have. Raises ValueError where the
data are no object."""


def some_of(names: Sequence[str]) -> SomeOf | None:
    """Reads these fields, and makes nothing of the others. Of data that were admitted: that they are JSON is
    not proved again. None where a name is spelled in more than one way in JSON."""
    if any(not each.isascii() or not each.isprintable() or '"' in each or "\\" in each for each in names):
        return None
    at = {name: f"f{n}" for n, name in enumerate(dict.fromkeys(names))}
    made = msgspec.defstruct(
        "Some", [(each, Raw | UnsetType, UNSET) for each in at.values()],
        rename={each: name for name, each in at.items()}, frozen=True, gc=False,
    )  # fmt: skip
    decode = msgspec.json.Decoder(made).decode
    if not names:
        return lambda data: (decode(data), ())[1]
    found = attrgetter(*[at[each] for each in names])
    if len(names) == 1:
        return lambda data: (found(decode(data)),)
    return lambda data: found(decode(data))


class Plan(msgspec.Struct, frozen=True, gc=False):
    """A rule, with what is the same for all events. `counts`: what it does, where it only counts. `own_key`:
    its key is the event's own; `key_field`: it stands in this field of the event's data. `some_of`: where its
    key and what it counts stand in fields of the data, reads that field of the key first, if it is one, and
    those that are counted."""

    rule: Rule
    counts: Counts | None
    own_key: bool
    key_field: str | None
    sees_aggregate: bool
    some_of: SomeOf | None

    @classmethod
    def of(cls, rule: Rule, *, identifiers: bool) -> Plan:
        counts, sees, own, field = None, rule.sees_aggregate, False, None
        if rule.do is not None and not rule.several and not sees:
            counts = counts_of(rule.do)
        match rule.key:
            case Path(Root.KEY, ()) if identifiers:
                own = True
            case Path(Root.DATA, (str(name),)):
                field = name
        some = None
        if counts is not None and (own or field is not None):
            some = some_of([*([] if field is None else [field]), *[each for _, _, each in counts.others]])
        return cls(rule, counts, own, field, sees, some)

    @property
    def is_light(self) -> bool:
        """Whether it takes some microseconds for each event, if that is short."""
        return self.counts is not None and len(self.counts.names) <= LIGHT_COUNTS


class Step(msgspec.Struct, frozen=True, gc=False):
    """An event that changes rows, as it is applied to each of `keys`. `view` is made where it is needed; with
    several keys they share it. `looks` of the event's budget went into its keys."""

    event: Event
    plan: Plan
    data: Node
    view: View | None
    keys: Sequence[str]
    looks: int


class Draft:
    """A row that events are applied to, opened once for all of them."""

    __slots__ = ("_changed", "_counted", "_created", "_length", "_opened", "_updated", "place")

    def __init__(self, row: Row | None) -> None:
        self._begin(row if row is not None and row.data is not None else None)
        self._updated = 0 if row is None else row.updated_at_ms
        self.place: Place | None = None
        self._changed = False
        self._counted = 0 if row is None or row.data is None else len(row.data)

    def begin_again(self, row: Row) -> None:
        """It was written as this row."""
        self.place = None
        self._counted = 0 if row.data is None else len(row.data)

    def measure(self, held: OpenRows) -> None:
        """Counts it with what is held as long as it is, if it was changed since the last time."""
        if not self._changed:
            return
        self._changed = False
        if self._opened is not None:
            self._opened.settle()
            draft = self._opened.draft
            draft.size_at_most = len(encode(draft.fields))
        self._count(held)

    def _count(self, held: OpenRows) -> None:
        size = 0 if self._opened is None else self._opened.draft.size_at_most
        held.size += size - self._counted
        self._counted = size

    def _begin(self, row: Row | None) -> None:
        data = _EMPTY if row is None or row.data is None else row.data
        self._opened = None if row is None else _opened(data)
        self._length = 0 if row is None else row.length
        self._created = 0 if row is None else row.created_at_ms

    def count(
        self, counts: Counts, numbers: Sequence[tuple[int, int]], place: Place, at_ms: int, held: OpenRows
    ) -> bool:
        """As `apply`, of an event that only counts; False where it did nothing that `apply` would not."""
        opened = self._opened
        if opened is None:
            self._opened = opened = _opened(_EMPTY)
            self._created = at_ms
        if not opened.add(counts, numbers):
            return False
        self.place, self._updated, self._changed = place, at_ms, True
        self._length += 1
        if opened.draft.size_at_most != self._counted:
            self._count(held)
        return True

    def apply(self, step: Step, misfits: list[Misfit], budget: Budget, held: OpenRows) -> None:
        """Counts with what is held what operations make of it. Raises TakesLong."""
        recorded = step.event.recorded
        self.place, self._updated, self._changed = step.event.place, recorded.event.recorded_at_ms, True
        do = step.plan.rule.do
        if do is None:
            self._begin(None)
            self._count(held)
            return
        if self._opened is None:
            self._opened, self._created = _opened(_EMPTY), self._updated
        self._length += 1
        counters, counts = self._opened, step.plan.counts
        if counts is not None and isinstance(step.data, dict) and counters.take(counts, step.data):
            if counters.draft.size_at_most != self._counted:
                self._count(held)
            return
        counters.settle()
        budget.work(1 + len(do) // OPERATIONS_A_LOOK)
        draft, view = counters.draft, step.view or view_of(step.event, step.data, budget)
        view.budget = budget  # the view may have been made where another one counted
        view.roots[Root.STATE] = draft.fields
        for index, operation in enumerate(do):
            try:
                apply(operation, draft, view, partial(_note, misfits, recorded, index))
            except Unfit as unfit:
                _note(misfits, recorded, index, str(unfit))
        if draft.is_too_large():
            why = f"The row would be longer than {STATE_BYTES_MAX} bytes, so it is {{}} again."
            misfits.append(misfit_of(recorded, None, why))
            self._opened = _opened(_EMPTY)
        self._count(held)

    @property
    def state(self) -> Fields | None:
        """After `row`."""
        return None if self._opened is None else self._opened.draft.fields

    def row(self) -> Row:
        """As it is now; it may be changed further."""
        data = None
        if self._opened is not None:
            self._opened.write()
            data = encode(self._opened.draft.fields)
        return Row(self._length, self._created or self._updated, self._updated, data)


class OpenRows:
    """Rows as events change them, by their keys, and what did not fit. `before` are they as they were, None
    where there was none; `size` bounds from above how long they are. It `is_begun` where events were folded
    that are not written."""

    __slots__ = ("_full", "before", "drafts", "is_begun", "misfits", "misfits_total", "size")

    def __init__(self) -> None:
        self.before: dict[str, Row | None] = {}
        self.drafts: dict[str, Draft] = {}
        self.size = 0
        self.misfits: list[Misfit] = []
        self.misfits_total = 0
        self.is_begun = False
        self._full = False

    def add(self, rows: Mapping[str, Row | None]) -> None:
        """None of which is among them."""
        self.before.update(rows)
        self.size += held_bytes(rows.values())

    def draft(self, key: str) -> Draft | None:
        """None where its row is not among them."""
        found = self.drafts.get(key)
        if found is None and key in self.before:
            found = self.drafts[key] = Draft(self.before[key])
        return found

    def changed(self) -> list[tuple[str, Draft]]:
        return [(key, each) for key, each in self.drafts.items() if each.place is not None]

    def written(self, rows: Mapping[str, Row]) -> None:
        """From here on these, which are all that were changed, are what they were before."""
        self.before.update(rows)
        self.size = held_bytes(self.before.values())
        for key in rows:
            self.drafts[key].begin_again(rows[key])
        self.misfits, self.misfits_total, self.is_begun = [], 0, False

    def note(self, misfits: Sequence[Misfit]) -> None:
        """In the order of their events: the last ones are kept."""
        self.misfits_total += len(misfits)
        self.misfits = [*self.misfits, *misfits][-MISFITS_SHOWN:]

    def is_full(self) -> bool:
        """Measured, so that the answer depends on the rows and not on the way to them; once for all that
        follows where they are."""
        if self.size <= ROWS_BYTES_MAX:
            return False
        if not self._full:
            for each in self.drafts.values():
                each.measure(self)
            self._full = self.size > ROWS_BYTES_MAX
        return self._full


def view_of(event: Event, data: Node, budget: Budget) -> View:
    recorded = event.recorded
    return View(recorded, recorded.event.payload, {Root.DATA: data}, budget)


def _note(misfits: list[Misfit], recorded: Recorded, operation: int, error: str) -> None:
    misfits.append(misfit_of(recorded, operation, error))


def _opened(data: bytes) -> Counters:
    return Counters(StateDraft(decode_fields(data), len(data), STATE_BYTES_MAX))
