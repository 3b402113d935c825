"""Rules, judged on the state that their event is about to be appended to. Pure.

Owns: which rule refuses an append, and its sentence. Must not know: where the state comes from, and how it is
made sure that the events are appended to that state and to no other.

A rule that can't be judged, as where it would compare values that are too long, does not hold: its sentence
says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.events import Recorded
from gateway.state.budget import STATE_BYTES_MAX, Budget, Misfit
from gateway.state.fold import Folded, Folding
from gateway.state.predicates import Operand, Where, parts_of
from gateway.state.templates import COPIED_BYTES, View, found_at
from gateway.state.values import Node, kind, opened, plain
from spec.handlers import Handler, Path, Template
from spec.rules import Rule

VALUE_CHARS_MAX: Final = 200
"""Characters of one value in a rule's sentence: it is for people, and the state is there to be read."""


COMPARED_BYTES_MAX: Final = 1024 * 1024
"""Of all values that the rules of one append compare, its events together: four of the longest. Lists of
numbers take longest, about a second; that is done beside everything else."""


class _Test(Where):
    """The rules of an event, which count what they compare. `spent` is the append's."""

    __slots__ = ("spent",)

    def __init__(self, view: View, spent: list[int]) -> None:
        super().__init__(view)
        self.spent = spent

    def _operand(self, template: Template) -> Operand | None:
        """No rule looks at one template twice."""
        made = self._made(template)
        self.spent[0] += self.view.size - self.view.bound
        if self.spent[0] > COMPARED_BYTES_MAX:
            raise Misfit(f"The rules of one append compare at most {COMPARED_BYTES_MAX} bytes.")
        return made


@dataclass(frozen=True, slots=True)
class Violation:
    """The first rule that does not hold: number `rule` of event number `event`."""

    event: int
    rule: int
    error: str


def judge(
    before: Folded,
    events: Sequence[Recorded],
    rules_of: Callable[[str], Sequence[Rule]],
    handler_of: Callable[[str], Handler],
    bytes_max: int = STATE_BYTES_MAX,
    at_once: int | None = None,
) -> Folded | Violation:
    """The state after the events, which follow on those of `before`, each judged by the rules of its type on
    the state that those before it leave. Total: raises nothing for any events, but TakesLong where `at_once`
    bounds what rules and folds of all events together may test."""
    return judge_within(before, events, rules_of, handler_of, Budgets.of(bytes_max, at_once))


class Budgets(msgspec.Struct, frozen=True):
    """Of what rules, and of what folds take, of all events that are judged together. `compared`: the bytes
    that their rules have compared."""

    judging: Budget
    folding: Budget
    compared: list[int] = msgspec.field(default_factory=lambda: [0])

    @classmethod
    def of(cls, bytes_max: int, at_once: int | None) -> Budgets:
        """Each has half of what may be done at once."""
        half = None if at_once is None else at_once // 2
        return cls(Budget(at_once=half), Budget(bytes_max, half))


def judge_within(
    before: Folded,
    events: Sequence[Recorded],
    rules_of: Callable[[str], Sequence[Rule]],
    handler_of: Callable[[str], Handler],
    budgets: Budgets,
) -> Folded | Violation:
    """The same within budgets that several appends to several aggregates share."""
    judging = budgets.judging
    folding = Folding(before, handler_of, budgets.folding.bytes_max)
    for n, recorded in enumerate(events):
        data = opened(recorded.event.payload or b"null")  # it was admitted
        rules = rules_of(recorded.event.type)
        if rules:
            judging.work(folding.size_at_most // COPIED_BYTES)  # opened here, and made by the fold before
            violation = _violation(n, recorded, data, folding, rules, budgets.compared, judging)
            if violation is not None:
                return violation
        folding.add_read(recorded, data, budgets.folding)
    return folding.folded()


_LIGHT_US: Final = 4_000


def is_light(before: Folded, events: Sequence[Recorded], rules_of: Callable[[str], Sequence[Rule]]) -> bool:
    """Whether the rules are judged in under 10 ms, beside what folding the events takes."""
    size, expected_us = len(before.data_json), 0
    for recorded in events:
        size += len(recorded.event.payload or b"")
        for rule in rules_of(recorded.event.type):
            expected_us += 10 + size // 500 + parts_of(rule.require) * (10 + size // 3)
    return expected_us < _LIGHT_US


def _violation(
    n: int,
    recorded: Recorded,
    data: Node,
    state: Folding,
    rules: Sequence[Rule],
    spent: list[int],
    budget: Budget,
) -> Violation | None:
    budget.looks = 0
    if state.too_large_at is not None:
        why = f"At version {state.too_large_at} the state became longer than its limit."
        return Violation(n, 0, f"This rule can't be judged. {why}")
    view = View.of(recorded, data, state.fields, budget)
    test = _Test(view, spent)
    for index, rule in enumerate(rules):
        try:
            if not test.true(rule.require):
                return Violation(n, index, _sentence(rule, view))
        except Misfit as misfit:
            return Violation(n, index, f"This rule can't be judged. {misfit}")
    return None


def _sentence(rule: Rule, view: View) -> str:
    return "".join([part if isinstance(part, str) else _shown(part, view) for part in rule.error])


def _shown(path: Path, view: View) -> str:
    """Texts as they are, other values as JSON; what is absent is null, or nothing by a path that says so."""
    found = found_at(path, view)
    if found is None:
        return "" if path.optional else "null"
    text = str(plain(found)) if kind(found) == "a string" else bytes(found).decode()
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}…"
