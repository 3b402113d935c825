"""Rules: what must hold, of an event and of its aggregate's state just before it, or the event is refused.

`"rules": [{"require": test, "error": "Only {@.available} are left."}]`: a test of the handler language, in
which `$` is the event and `@` the state, and the sentence of the refusal, with paths in braces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spec.errors import Report, below, proposal, shown
from spec.handlers import Path, Predicate
from spec.predicates import read_predicate
from spec.templates import Scope, read_path

RULES_MAX = 100
"""Rules of one event type: each is judged at each append."""

ERROR_CHARS_MAX = 1_000
"""Characters of a sentence as it is declared: it is told whole, and to people."""

_KEYS = frozenset({"require", "error"})
_PARTS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")


@dataclass(frozen=True, slots=True)
class Rule:
    """`error` are the parts of the sentence: texts, and paths whose values stand in their places."""

    require: Predicate
    error: tuple[str | Path, ...]


def read_rules(value: object, pointer: str, scope: Scope, report: Report) -> tuple[Rule, ...]:
    """The rules that `value` is; what is at fault in it is left out, with faults in `report`."""
    if not isinstance(value, list):
        why = '`rules` is a list, as in [{"require": {"gte": ["@.available", 1]}, "error": "None is left."}].'
        report.add("wrong_type", pointer, why)
        return ()
    if len(value) > RULES_MAX:
        report.add("invalid_value", pointer, f"An event type has at most {RULES_MAX} rules; use `and`.")
        return ()
    rules = (_read_rule(each, below(pointer, n), scope, report) for n, each in enumerate(value))
    return tuple([rule for rule in rules if rule is not None])


def _read_rule(value: object, pointer: str, scope: Scope, report: Report) -> Rule | None:
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, "A rule is an object: `require`, a test, and `error`, a sentence.")
        return None
    faults_before = len(report)
    for key in sorted(_KEYS - value.keys()):
        report.add("missing_key", pointer, f"A rule needs `{key}`.")
    for key in value.keys() - _KEYS:
        report.add("unknown_key", below(pointer, key), f"A rule has no {shown(key)}. {proposal(key, _KEYS)}")
    require: Predicate | None = None
    error: tuple[str | Path, ...] = ()
    if "require" in value:
        require = read_predicate(value["require"], below(pointer, "require"), scope, report)
    if "error" in value:
        error = _read_sentence(value["error"], below(pointer, "error"), scope, report)
    return Rule(require, error) if require is not None and len(report) == faults_before else None


def _read_sentence(value: object, pointer: str, scope: Scope, report: Report) -> tuple[str | Path, ...]:
    """`{{` and `}}` are the braces themselves."""
    if not isinstance(value, str):
        report.add("wrong_type", pointer, "`error` is a sentence: a string, with paths in braces.")
        return ()
    if not value.strip() or len(value) > ERROR_CHARS_MAX:
        report.add("invalid_value", pointer, f"`error` is a sentence of 1 to {ERROR_CHARS_MAX} characters.")
        return ()
    parts: list[str | Path] = []
    for found in _PARTS.finditer(value):
        text = found[0]
        if text in ("{", "}"):
            why = "A path is written between `{` and `}`; the brace itself is `{{` or `}}`."
            report.add("invalid_template", pointer, why)
            return ()
        if found[1] is not None:
            parts.append(read_path(found[1], pointer, scope, report))
        else:
            parts.append(text[0] if text in ("{{", "}}") else text)
    return tuple(parts)
