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

from gateway.events import Recorded
from gateway.state.budget import STATE_BYTES_MAX, Budget, Misfit
from gateway.state.fold import Folded, fold
from gateway.state.predicates import Where, parts_of
from gateway.state.templates import View, found_at
from gateway.state.values import decode_fields, kind, plain, read
from spec.handlers import Handler, Path
from spec.rules import Rule

VALUE_CHARS_MAX: Final = 200
"""Characters of one value in a rule's sentence: it is for people, and the state is there to be read."""


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
    bounds the tests of a fold."""
    folded = 0
    for n, recorded in enumerate(events):
        rules = rules_of(recorded.event.type)
        if not rules:
            continue
        if folded < n:
            before = fold(before, events[folded:n], handler_of, bytes_max=bytes_max, at_once=at_once)
            folded = n
        violation = _violation(n, recorded, before, rules)
        if violation is not None:
            return violation
    return fold(before, events[folded:], handler_of, bytes_max=bytes_max, at_once=at_once)


_LIGHT_US: Final = 4_000


def is_light(before: Folded, events: Sequence[Recorded], rules_of: Callable[[str], Sequence[Rule]]) -> bool:
    """Whether the rules are judged in under 10 ms, beside what folding the events takes."""
    size, expected_us = len(before.data_json), 0
    for recorded in events:
        size += len(recorded.event.payload or b"")
        for rule in rules_of(recorded.event.type):
            expected_us += 10 + size // 500 + parts_of(rule.require) * (10 + size // 10)
    return expected_us < _LIGHT_US


def _violation(n: int, recorded: Recorded, before: Folded, rules: Sequence[Rule]) -> Violation | None:
    if before.too_large_at is not None:
        why = f"With version {before.too_large_at} the state became longer than it may be."
        return Violation(n, 0, f"This rule can't be judged. {why}")
    data = read(recorded.event.payload or b"null")
    assert data is not None  # it was admitted
    view = View.of(recorded, data, decode_fields(before.data_json), Budget())
    for index, rule in enumerate(rules):
        try:
            if not Where(view).true(rule.require):
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
    text = str(plain(found)) if kind(found) == "a text" else bytes(found).decode()
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}…"
