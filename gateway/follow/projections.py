"""The rows of a projection: each event changes the rows that it names.

Owns: which rows an event belongs to, and what `^` is. An event that names no row, or one in bad form, is
counted, and nothing stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.events import Recorded
from gateway.follow.fields import fields_of
from gateway.follow.lists import are_several, misfit_of
from gateway.follow.model import MISFITS_SHOWN, ROWS_BYTES_MAX, Changes, Event, Misfit, Put, Row, TooMuch
from gateway.follow.row_cache import RowCache, held_bytes
from gateway.follow.states import AggregateStates
from gateway.follow.threads import LIGHT_BYTES, Steps, Turn, folding, row_bytes
from gateway.relay.position import Place
from gateway.state.budget import OPERATIONS_A_LOOK, STATE_BYTES_MAX, Budget
from gateway.state.budget import Misfit as Unfit
from gateway.state.counters import Counters, Counts, counts_of
from gateway.state.draft import Draft
from gateway.state.operations import apply
from gateway.state.templates import View, found_at
from gateway.state.upcast import presenting
from gateway.state.values import Fields, Node, decode_fields, encode, items_of, kind, plain, read
from spec.handlers import Path, Root
from spec.identifiers import canonicalize
from spec.model import Spec
from spec.projections import Rule

KEY_BYTES_MAX: Final = 256
KEYS_MAX: Final = 1000
"""Rows that one event may change: it changes all of them in one transaction."""

_KEYS_A_LOOK: Final = 4
_ROW_LOOKS: Final = 2
"""What takes about as long as to test an item: to read so many keys; and half of what it takes to write a
short row."""

LIGHT_COUNTS: Final = 16
"""So many operations that only count are folded in turns of the event loop, however many events there are."""

_EMPTY: Final = b"{}"


class _Plan(msgspec.Struct, frozen=True, gc=False):
    """A rule, with what is the same for all events. `counts`: what it does, where it only counts. `own_key`:
    its key is the event's own; `key_field`: it stands in this field of the event's data."""

    rule: Rule
    counts: Counts | None
    own_key: bool
    key_field: str | None
    sees_aggregate: bool

    @classmethod
    def of(cls, rule: Rule, *, identifiers: bool) -> _Plan:
        counts, sees = None, rule.sees_aggregate
        if rule.do is not None and not rule.several and not sees:
            counts = counts_of(rule.do)
        match rule.key:
            case Path(Root.KEY, ()) if identifiers:
                return cls(rule, counts, True, None, sees)
            case Path(Root.DATA, (str(field),)):
                return cls(rule, counts, False, field, sees)
        return cls(rule, counts, False, None, sees)

    @property
    def is_light(self) -> bool:
        """Whether it takes some microseconds for each event, if that is short."""
        return self.counts is not None and len(self.counts.names) <= LIGHT_COUNTS


class _Step(msgspec.Struct, frozen=True, gc=False):
    """An event that changes rows, as it is applied to each of `keys`. `view` is made where it is needed; with
    several keys they share it. `looks` of the event's budget went into its keys."""

    event: Event
    plan: _Plan
    data: Node
    view: View | None
    keys: Sequence[str]
    looks: int


class ProjectionOutput:
    """Of one projection, by one revision of the spec. `states` has those of the aggregates whose events it
    folds."""

    def __init__(self, spec: Spec, name: str, states: AggregateStates) -> None:
        self._projection = spec.projections[name]
        self._singletons = spec.singletons
        self._states = states
        self._present: Final = presenting(spec)
        identifiers = self._projection.key_kind == "identifier"
        self._plans: Final = {
            at: _Plan.of(rule, identifiers=identifiers) for at, rule in self._projection.on.items()
        }
        each_light = all(plan.is_light for plan in self._plans.values())
        self._light: Final = each_light and self._present is None
        self._folded: Final = frozenset(
            at[0] for at, rule in self._projection.on.items() if rule.sees_aggregate
        )
        self.types = self._projection.types
        self.reads_back = False
        self.holds_states = bool(self._folded)

    def bound(self, bytes_max: int) -> None:
        self._states.bound(bytes_max)

    async def fold(self, events: Sequence[Event], reached: Place, rows: RowCache) -> Changes:
        wanted = [each for each in events if each.recorded.stream.aggregate_type in self.types]
        if not wanted:
            return Changes((), 0, 0, ())
        folded = [each for each in wanted if each.recorded.stream.aggregate_type in self._folded]
        after = await self._states.after(folded, self._sees) if folded else {}
        several = are_several(wanted)
        if several and folded and len(after) < sum(map(self._sees, folded)):
            raise TooMuch
        lengths = [len(each.recorded.event.payload or b"") for each in wanted]
        light = self._light and max(lengths) <= LIGHT_BYTES
        size = sum(lengths) + sum(map(len, after.values()))
        steps, misfits = await folding(len(wanted), size, partial(self._steps, wanted, after), light=light)
        keys = dict.fromkeys([key for step in steps for key in step.keys])
        before = await rows.load(keys, ROWS_BYTES_MAX)
        if several and len(before) < len(keys):
            raise TooMuch
        size += row_bytes(before)
        fold = partial(self._rows, steps, before, several)
        puts, made, more = await folding(len(steps), size, fold, light=light)
        misfits += more
        return Changes(puts, made, len(misfits), misfits[-MISFITS_SHOWN:])

    def _plan(self, recorded: Recorded) -> _Plan | None:
        return self._plans.get((recorded.stream.aggregate_type, recorded.event.type))

    def _sees(self, event: Event) -> bool:
        plan = self._plan(event.recorded)
        return plan is not None and plan.sees_aggregate

    def _steps(
        self, events: Iterable[Event], after: Mapping[int, bytes], turn: Turn
    ) -> Steps[tuple[list[_Step], list[Misfit]]]:
        steps: list[_Step] = []
        misfits: list[Misfit] = []
        plans, budget = self._plans, turn.budget
        for each in events:
            yield
            if self._present is not None:
                each = replace(each, recorded=self._present(each.recorded, _unreported, budget))
            recorded = each.recorded
            plan = plans.get((recorded.stream.aggregate_type, recorded.event.type))
            payload = recorded.event.payload
            if plan is None or payload is None:
                continue
            budget.looks = 0
            try:
                data = read(payload)
                if data is None:
                    raise Unfit("The event's data can't be read; compare it with the backup.")
                key = None if plan.counts is None else self._key_at_once(plan, recorded, data)
                if key is not None:
                    steps.append(_Step(each, plan, data, None, (key,), 0))
                    continue
                step, bad = self._step(each, plan, data, after, budget)
            except Unfit as unfit:
                step, bad = None, str(unfit)
            if bad:
                misfits.append(misfit_of(recorded, None, bad))
            if step is not None:
                steps.append(step)
        return steps, misfits

    def _step(
        self, event: Event, plan: _Plan, data: Node, after: Mapping[int, bytes], budget: Budget
    ) -> tuple[_Step | None, str]:
        """None where the event names no row; and what is wrong with others of its keys, "" for none. Raises
        Misfit."""
        view = _view(event, data, budget)
        state = after.get(event.place.seq)
        if state is not None:
            view.roots[Root.AGGREGATE] = decode_fields(state)
        elif plan.sees_aggregate:
            raise Unfit(
                f"The states after the events of its append are longer than {ROWS_BYTES_MAX} bytes together."
            )
        keys, bad = self._keys(plan.rule, view)
        return (_Step(event, plan, data, view, keys, budget.looks) if keys else None), bad

    def _key_at_once(self, plan: _Plan, recorded: Recorded, data: Node) -> str | None:
        """The key where it is the event's own, or a field of its data; None where `_keys` says more. Raises
        Misfit."""
        if not isinstance(data, dict):
            return None
        if plan.own_key:
            return canonicalize(recorded.stream.key, self._singletons)
        found = None if plan.key_field is None else data.get(plan.key_field)
        return None if found is None else self._key(found)

    def _keys(self, rule: Rule, view: View) -> tuple[Sequence[str], str]:
        """Of the rows, each once; and what is wrong with others in the list, "" for none. Raises Misfit."""
        found = found_at(rule.key, view)
        if found is None:
            raise Unfit("The event names no row: the value of `key` is absent.")
        if not rule.several:
            return (self._key(found),), ""
        listed = items_of(found)
        if listed is None:
            raise Unfit(f"`keys` gives {kind(found)}, not a list.")
        if len(listed) > KEYS_MAX:
            raise Unfit(f"The event names {len(listed)} rows; it may change at most {KEYS_MAX}.")
        view.budget.work(len(listed) // _KEYS_A_LOOK)
        keys: dict[str, None] = {}
        bad = []
        for at, each in enumerate(listed):
            try:
                keys[self._key(each)] = None
            except Unfit as unfit:
                bad.append((at, unfit))
        if not bad:
            return tuple(keys), ""
        at, first = bad[0]
        return tuple(keys), f"{len(bad)} of {len(listed)} keys are not valid; the first is at [{at}]. {first}"

    def _key(self, node: Node) -> str:
        value = plain(node)
        if self._projection.key_kind == "text":
            text = value if isinstance(value, str) else _as_text(node, value)
            if text is None or "\0" in text or not 0 < len(text.encode()) <= KEY_BYTES_MAX:
                raise Unfit(f"The key is {kind(node)}, not a string of 1 to {KEY_BYTES_MAX} bytes.")
            return text
        key = canonicalize(value, self._singletons) if isinstance(value, str) else None
        if key is None:
            raise Unfit(f"The key is {kind(node)} that is not an identifier.")
        return key

    def _rows(
        self, steps: Sequence[_Step], before: Mapping[str, Row | None], several: bool, turn: Turn
    ) -> Steps[tuple[list[Put], int, list[Misfit]]]:
        """The rows as the events leave them, how many more there are, and what did not fit: of one append
        also changes of rows that are not in `before`, or that come once the rows are longer than they may be.
        Of several it raises TooMuch then."""
        misfits: list[Misfit] = []
        drafts: dict[str, _Draft] = {}
        held = _Held(held_bytes(before.values()))
        for step in steps:
            turn.budget.looks = step.looks
            turn.budget.work(len(step.keys) // _KEYS_A_LOOK)
            left = 0
            for key in step.keys:
                full = held.size > ROWS_BYTES_MAX and held.is_full(drafts.values())
                if full or key not in before:
                    left += 1
                    continue
                draft = drafts.get(key)
                if draft is None:
                    draft = drafts[key] = _Draft(before[key])
                draft.apply(step, misfits, turn.budget, held)
                yield
            if left and several:
                raise TooMuch
            if left:
                misfits.append(misfit_of(step.event.recorded, None, _too_long(left)))
        puts, more = [], 0
        for key, draft in drafts.items():
            yield
            turn.budget.work(_ROW_LOOKS)
            stands = before[key]
            was = stands is not None and stands.data is not None
            row = draft.row()
            more += (row.data is not None) - was
            if row.data is None and stands is None:
                continue  # deleted before it was seen
            assert draft.place is not None
            fields = fields_of(row, self._projection.by, draft.state)
            puts.append(Put(key, draft.place, row, fields))
        return puts, more, misfits


def _too_long(left: int) -> str:
    together = f"the rows of its append are longer than {ROWS_BYTES_MAX} bytes together"
    return f"{left} of its rows are not changed: {together}."


def _unreported(operation: int, error: str) -> None:
    """Upcasts: what reads the event reports them."""


def _note(misfits: list[Misfit], recorded: Recorded, operation: int, error: str) -> None:
    misfits.append(misfit_of(recorded, operation, error))


def _as_text(node: Node, value: object) -> str | None:
    """Numbers and booleans as JSON writes them."""
    if value is None or isinstance(value, dict | list):
        return None
    return bytes(encode(node)).decode()


def _view(event: Event, data: Node, budget: Budget) -> View:
    recorded = event.recorded
    return View(recorded, recorded.event.payload, {Root.DATA: data}, budget)


def _opened(data: bytes) -> Counters:
    return Counters(Draft(decode_fields(data), len(data), STATE_BYTES_MAX))


class _Held:
    """How long the rows are that are changed together. `size` bounds it from above."""

    __slots__ = ("_full", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._full = False

    def is_full(self, drafts: Iterable[_Draft]) -> bool:
        """Measured, so that the answer depends on the rows and not on the way to them; once for all that
        follows where they are."""
        if not self._full:
            for each in drafts:
                each.measure(self)
            self._full = self.size > ROWS_BYTES_MAX
        return self._full


class _Draft:
    """A row that events are applied to, opened once for all of them."""

    __slots__ = ("_changed", "_counted", "_created", "_length", "_opened", "_updated", "place")

    def __init__(self, row: Row | None) -> None:
        self._begin(row if row is not None and row.data is not None else None)
        self._updated = 0 if row is None else row.updated_at_ms
        self.place: Place | None = None
        self._changed = False
        self._counted = 0 if row is None or row.data is None else len(row.data)

    def measure(self, held: _Held) -> None:
        """Counts it with what is held as long as it is, if it was changed since the last time."""
        if not self._changed:
            return
        self._changed = False
        if self._opened is not None:
            self._opened.settle()
            draft = self._opened.draft
            draft.size_at_most = len(encode(draft.fields))
        self._count(held)

    def _count(self, held: _Held) -> None:
        size = 0 if self._opened is None else self._opened.draft.size_at_most
        held.size += size - self._counted
        self._counted = size

    def _begin(self, row: Row | None) -> None:
        data = _EMPTY if row is None or row.data is None else row.data
        self._opened = None if row is None else _opened(data)
        self._length = 0 if row is None else row.length
        self._created = 0 if row is None else row.created_at_ms

    def apply(self, step: _Step, misfits: list[Misfit], budget: Budget, held: _Held) -> None:
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
        draft, view = counters.draft, step.view or _view(step.event, step.data, budget)
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
        data = None
        if self._opened is not None:
            self._opened.settle()
            data = encode(self._opened.draft.fields)
        return Row(self._length, self._created or self._updated, self._updated, data)
