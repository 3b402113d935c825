"""The rows of a projection: each event changes the rows that it names.

Owns: which rows an event belongs to, and what `^` is. An event that names no row, or one in bad form, is
counted, and nothing stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from gateway.events import Event as Written
from gateway.events import Recorded
from gateway.follow.drafts import OPEN_OF_CACHE, Draft, OpenRows, Plan, Step, view_of
from gateway.follow.events import events_of
from gateway.follow.fields import fields_of
from gateway.follow.lists import are_several, misfit_of
from gateway.follow.model import ROWS_BYTES_MAX, Changes, Event, Misfit, Put, Row, TooMuch
from gateway.follow.row_cache import RowCache
from gateway.follow.states import AggregateStates
from gateway.follow.threads import LIGHT_BYTES, Steps, Turn, folding, in_turns, row_bytes
from gateway.log.entries import SequencedAppend
from gateway.relay.position import MARK_BYTES, Place
from gateway.state.budget import Budget
from gateway.state.budget import Misfit as Unfit
from gateway.state.templates import View, found_at
from gateway.state.upcast import presenting
from gateway.state.values import Node, decode_fields, encode, items_of, kind, plain, read, short_decimal
from spec.handlers import Root
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
            at: Plan.of(rule, identifiers=identifiers) for at, rule in self._projection.on.items()
        }
        each_light = all(plan.is_light for plan in self._plans.values())
        self._light: Final = each_light and self._present is None
        self._folded: Final = frozenset(
            at[0] for at, rule in self._projection.on.items() if rule.sees_aggregate
        )
        self.types = self._projection.types
        self.reads_back = False
        self.holds_states = bool(self._folded)
        self._open = OpenRows()  # for what is folded ahead
        self._open_bytes_max = 0

    def bound(self, bytes_max: int) -> None:
        self._states.bound(bytes_max)
        self._open_bytes_max = bytes_max // OPEN_OF_CACHE

    @property
    def can_fold_ahead(self) -> bool:
        return self._light and self._open.size <= ROWS_BYTES_MAX // 2

    @property
    def is_ahead(self) -> bool:
        return self._open.is_begun

    async def fold_ahead(self, appends: Sequence[SequencedAppend], rows: RowCache) -> None:
        done = 0
        while True:
            done = await in_turns(self._count_all(appends, done, rows, Turn(Budget())))
            self._open.is_begun = True
            if done == len(appends):
                return
            events = [each for append in appends[done:] for each in events_of(append, self.types)]
            steps, _ = await in_turns(self._steps(events, {}, Turn(Budget())))
            keys = dict.fromkeys([key for step in steps for key in step.keys if key not in self._open.before])
            self._open.add(await rows.load(keys, ROWS_BYTES_MAX))
            if self._open.size > ROWS_BYTES_MAX:
                raise TooMuch

    def _count_all(
        self, appends: Sequence[SequencedAppend], first: int, rows: RowCache, turn: Turn
    ) -> Steps[int]:
        """Folds them from this one on, up to one that changes a row which is not at hand: which one that is,
        or how many they are. Raises TooMuch."""
        opened, plans = self._open, self._plans
        for at in range(first, len(appends)):
            yield
            append = appends[at]
            event = append.events[0]
            if len(append.events) == 1:
                plan = plans.get((append.stream.aggregate_type, event.type))
                if plan is None or event.payload is None:
                    continue
                if self._count(plan, append, event, rows):
                    continue
            steps, misfits = yield from self._steps(events_of(append, self.types), {}, turn)
            drafts = [self._draft(key, rows) for step in steps for key in step.keys]
            if None in drafts:
                return at
            for step, draft in zip(steps, drafts, strict=True):  # a plan that only counts gives one key
                assert draft is not None
                turn.budget.looks = step.looks
                draft.apply(step, misfits, turn.budget, opened)
            opened.note(misfits)
            if opened.size > ROWS_BYTES_MAX:
                raise TooMuch
        return len(appends)

    def _count(self, plan: Plan, append: SequencedAppend, event: Written, rows: RowCache) -> bool:
        """What most events do; False where it did nothing."""
        if plan.some_of is None or plan.counts is None or event.payload is None:
            return False
        try:
            found = plan.some_of(event.payload)
            if plan.own_key:
                key = append.stream.key
            elif found[0] is UNSET:
                return False
            else:
                key, found = self._key(found[0]), found[1:]
        except (ValueError, Unfit):
            return False
        draft = self._open.drafts.get(key)
        if draft is None:
            if plan.own_key and canonicalize(key, self._singletons) != key:
                return False
            draft = self._draft(key, rows)
            if draft is None:
                return False
        numbers = []
        for each in found:
            number = short_decimal(each)
            if number is None:
                return False
            numbers.append(number)
        place = Place(append.last_seq, append.digests[:MARK_BYTES])
        return draft.count(plan.counts, numbers, place, event.recorded_at_ms, self._open)

    def _draft(self, key: str, rows: RowCache) -> Draft | None:
        """None where its row is not at hand."""
        if key not in self._open.before:
            self._open.add(rows.here((key,)))
        return self._open.draft(key)

    async def fold(self, events: Sequence[Event], reached: Place, rows: RowCache) -> Changes:
        opened = self._open if self._open.is_begun else OpenRows()
        self._open = OpenRows()
        wanted = [each for each in events if each.recorded.stream.aggregate_type in self.types]
        if not wanted and not opened.is_begun:
            return Changes((), 0, 0, ())
        folded = [each for each in wanted if each.recorded.stream.aggregate_type in self._folded]
        after = await self._states.after(folded, self._sees) if folded else {}
        several = opened.is_begun or are_several(wanted)
        if several and folded and len(after) < sum(map(self._sees, folded)):
            raise TooMuch
        lengths = [len(each.recorded.event.payload or b"") for each in wanted]
        light = self._light and max(lengths, default=0) <= LIGHT_BYTES
        size = sum(lengths) + sum(map(len, after.values()))
        steps, misfits = await folding(len(wanted), size, partial(self._steps, wanted, after), light=light)
        keys = dict.fromkeys([key for step in steps for key in step.keys if key not in opened.before])
        before = await rows.load(keys, ROWS_BYTES_MAX)
        if several and len(before) < len(keys):
            raise TooMuch
        size += row_bytes(before) + row_bytes(opened.before)
        fold = partial(self._rows, steps, misfits, before, opened, several)
        changes = await folding(len(steps) + len(opened.before), size, fold, light=light)
        if opened.is_begun and opened.size <= self._open_bytes_max:
            opened.written({put.key: put.row for put in changes.puts})
            self._open = opened
        return changes

    def _plan(self, recorded: Recorded) -> Plan | None:
        return self._plans.get((recorded.stream.aggregate_type, recorded.event.type))

    def _sees(self, event: Event) -> bool:
        plan = self._plan(event.recorded)
        return plan is not None and plan.sees_aggregate

    def _steps(
        self, events: Iterable[Event], after: Mapping[int, bytes], turn: Turn
    ) -> Steps[tuple[list[Step], list[Misfit]]]:
        steps: list[Step] = []
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
                    steps.append(Step(each, plan, data, None, (key,), 0))
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
        self, event: Event, plan: Plan, data: Node, after: Mapping[int, bytes], budget: Budget
    ) -> tuple[Step | None, str]:
        """None where the event names no row; and what is wrong with others of its keys, "" for none. Raises
        Misfit."""
        view = view_of(event, data, budget)
        state = after.get(event.place.seq)
        if state is not None:
            view.roots[Root.AGGREGATE] = decode_fields(state)
        elif plan.sees_aggregate:
            raise Unfit(
                f"The states after the events of its append are longer than {ROWS_BYTES_MAX} bytes together."
            )
        keys, bad = self._keys(plan.rule, view)
        return (Step(event, plan, data, view, keys, budget.looks) if keys else None), bad

    def _key_at_once(self, plan: Plan, recorded: Recorded, data: Node) -> str | None:
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
            if text is None:
                raise Unfit(f"The key is {kind(node)}, not a string of 1 to {KEY_BYTES_MAX} bytes.")
            size = len(text.encode())
            if "\0" in text or not 0 < size <= KEY_BYTES_MAX:
                raise Unfit(f"The key has {size} bytes; it may have 1 to {KEY_BYTES_MAX}, without U+0000.")
            return text
        key = canonicalize(value, self._singletons) if isinstance(value, str) else None
        if key is None:
            what = "a string that is not" if isinstance(value, str) else f"{kind(node)}, not"
            raise Unfit(f"The key is {what} an identifier.")
        return key

    def _rows(
        self, steps: Sequence[Step], unfit: Sequence[Misfit], before: Mapping[str, Row | None],
        ahead: OpenRows, several: bool, turn: Turn,
    ) -> Steps[Changes]:  # fmt: skip
        """The rows as the events leave them, on top of what was folded `ahead`. Of one append, changes of
        rows do not fit that are not in `before`, or that come once the rows are longer than they may be.
        Of several it raises TooMuch then."""
        opened = ahead if ahead.is_begun else OpenRows()  # what is begun once more has nothing ahead of it
        opened.add(before)
        opened.note(unfit)
        misfits: list[Misfit] = []
        for step in steps:
            turn.budget.looks = step.looks
            turn.budget.work(len(step.keys) // _KEYS_A_LOOK)
            left = 0
            for key in step.keys:
                draft = None if opened.is_full() else opened.draft(key)
                if draft is None:
                    left += 1
                    continue
                draft.apply(step, misfits, turn.budget, opened)
                yield
            if left and several:
                raise TooMuch
            if left:
                misfits.append(misfit_of(step.event.recorded, None, _too_long(left)))
        opened.note(misfits)
        puts, more = [], 0
        for key, draft in opened.changed():
            yield
            turn.budget.work(_ROW_LOOKS)
            stands = opened.before[key]
            was = stands is not None and stands.data is not None
            row = draft.row()
            more += (row.data is not None) - was
            if row.data is None and stands is None:
                continue  # deleted before it was seen
            assert draft.place is not None
            fields = fields_of(row, self._projection.by, draft.state)
            puts.append(Put(key, draft.place, row, fields))
        return Changes(puts, more, opened.misfits_total, opened.misfits)


def _too_long(left: int) -> str:
    together = f"the rows of its append are longer than {ROWS_BYTES_MAX} bytes together"
    return f"{left} of its rows are not changed: {together}."


def _unreported(operation: int, error: str) -> None:
    """Upcasts: what reads the event reports them."""


def _as_text(node: Node, value: object) -> str | None:
    """Numbers and booleans as JSON writes them."""
    if value is None or isinstance(value, dict | list):
        return None
    return bytes(encode(node)).decode()
