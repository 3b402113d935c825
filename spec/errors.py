"""What can be wrong with a spec: `Fault`, the table of codes, and the `Report` that collects faults.

A fault is a value, not an exception: a person corrects a spec from the whole list, not from its first line.
"""

from __future__ import annotations

import difflib
import heapq
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType

FAULTS_MAX = 1_000
"""Faults reported at once. No one corrects more in one sitting, and a hostile document must not fill
memory."""

SHOWN_CHARS_MAX = 60
"""Characters of a document's own text that a message repeats."""

_COMPARED_MAX = 20
"""Names that a word is compared with, at up to 60 us each: there may be FAULTS_MAX such words."""
_MEASURED_MAX = 2_000
"""Names whose length is looked at to find those."""
_LISTED_MAX = 30
"""Names that a sentence lists where none is near."""
_NAME_CHARS_MAX = 64

_ABOUT_AS_NEAR = 0.05
"""By how much less the second name may be like a word and still be about as near as the first."""
_ABOUT_AS_NEAR_MAX = 3
"""Names that are compared by this."""

CODES: Mapping[str, str] = MappingProxyType(
    {
        # The text
        "invalid_json": "the text is not JSON, or holds what JSON can't: NaN, U+0000, a lone surrogate",
        "too_large": "the text is longer than 1 MiB",
        "too_deep": "values are nested deeper than 64",
        "duplicate_key": "an object names a key twice",
        # Its shape
        "wrong_type": "the value has another type than required here",
        "missing_key": "a required key is absent",
        "unknown_key": "a key that is not known here",
        "not_available": "a part that this release does not have yet: `personal`, `retention`, `sealed`",
        "invalid_value": "the right type, but not a valid value",
        # Names
        "invalid_name": "a name that is not `[a-z][a-z0-9_]{0,63}`",
        "reserved_name": "a name that is reserved for the system",
        "duplicate_name": "a name declared twice",
        "ambiguous_name": "a singleton that is, or normalizes to, an identifier of another kind",
        # Schemas
        "invalid_schema": "not JSON Schema 2020-12",
        "invalid_pattern": "a regular expression that can't be matched in linear time",
        "remote_ref": "a `$ref` that leaves the schema",
        "unresolved_ref": "a `$ref` to nothing",
        "circular_ref": "a `$ref` that leads back to itself for one and the same value",
        "schema_too_complex": "checking one value could take too long",
        # Handlers
        "unknown_operation": "an operation of a handler, or a test, that does not exist",
        "invalid_operation": "an operation or test with a wrong form",
        "invalid_target": "a target that the operation can't change",
        "invalid_path": "a path that can't be read",
        "impossible_path": "a path into `$.data` that the event's schema rules out",
        "invalid_template": "a value template with a wrong form",
        # Revisions
        "refused_example": "an example of an earlier revision that the schema refuses after its upcasts",
        # Subscriptions
        "unsafe_target": "a target that is not reached over TLS at a public address",
        # Parts
        "keyed_by_content": "an event emitted to an aggregate whose key is made of its content",
        "implication_cycle": "events that would imply each other without end",
        "undeclared": "a name that the spec does not declare elsewhere",
        "missing_secret": "a secret that is not set in the gateway's environment",
        "invalid_secret": "a secret that can't be a key of its provider",
        "too_many_faults": "there are more faults than are reported at once",
    }
)
"""Every fault code and what it says. spec/README.md shows the same table."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong. `pointer` is RFC 6901 into the document as given; `error` says how to correct it."""

    code: str
    pointer: str
    error: str


class Faults(tuple[Fault, ...]):
    """Every fault of a document, sorted by place. Never empty."""

    __slots__ = ()


class TooManyFaults(Exception):
    """Ends a check whose report is full. Never leaves `spec.parse`."""


class Report:
    """Collects the faults of one check. `deployed`: of a document that was accepted before, perhaps by an
    earlier release, whose faults do not count where that release had accepted them."""

    def __init__(self, *, deployed: bool = False) -> None:
        self._faults: list[Fault] = []
        self._deployed = deployed
        self._outdated: list[Fault] = []

    def add(self, code: str, pointer: str, error: str, *, accepted_before: bool = False) -> None:
        """`accepted_before`: earlier releases accept this, and it works as it did with them. Raises
        TooManyFaults once FAULTS_MAX faults are in."""
        assert code in CODES, code
        if accepted_before and self._deployed:
            if len(self._outdated) < FAULTS_MAX:
                self._outdated.append(Fault(code, pointer, error))
            return
        if len(self._faults) == FAULTS_MAX:
            raise TooManyFaults
        self._faults.append(Fault(code, pointer, error))

    def faults(self) -> Faults:
        return Faults(sorted(self._faults, key=_place))

    def outdated(self) -> tuple[Fault, ...]:
        """Those that do not count, sorted by place."""
        return tuple(sorted(self._outdated, key=_place))

    def truncated(self) -> Faults:
        """The faults so far, and a last one that says there are more."""
        more = Fault("too_many_faults", "", f"There are more than {FAULTS_MAX} faults; correct these first.")
        return Faults((*self.faults(), more))

    def __len__(self) -> int:
        return len(self._faults)


def _place(fault: Fault) -> tuple[list[tuple[int, int, str]], str, str]:
    """Sorts by pointer, segment by segment, array indexes by number; then by code."""
    segments = fault.pointer.split("/")
    return [_segment(segment) for segment in segments], fault.code, fault.error


def _segment(text: str) -> tuple[int, int, str]:
    if re.fullmatch("[0-9]{1,9}", text):
        return 0, int(text), text
    return 1, 0, text


def below(pointer: str, *segments: str | int) -> str:
    """The pointer to what `segments` lead to from `pointer`, escaped as RFC 6901 says."""
    escaped = (str(segment).replace("~", "~0").replace("/", "~1") for segment in segments)
    return "/".join((pointer, *escaped))


def shown(text: str) -> str:
    """`text` as a message repeats it: quoted, escaped to ASCII where something in it can't be printed, and
    between the quotes no longer than SHOWN_CHARS_MAX."""
    beginning = text[: SHOWN_CHARS_MAX + 1]
    escaped = not beginning.isprintable()
    parts = [json.dumps(char, ensure_ascii=escaped)[1:-1] for char in beginning]
    if sum(map(len, parts)) > SHOWN_CHARS_MAX:
        while sum(map(len, parts)) >= SHOWN_CHARS_MAX:
            parts.pop()
        parts.append("…")
    return f'"{"".join(parts)}"'


def nearest(word: str, known: Collection[str]) -> str:
    """What follows a word that is unknown: " (did you mean `x`?)", or nothing where no member of `known` is
    near. It takes less than 1 ms, as only names of about that length are compared."""
    close = _closest(word[:SHOWN_CHARS_MAX], known)
    return "" if close is None else f" (did you mean `{close}`?)"


def proposal(word: str, known: Collection[str]) -> str:
    """A sentence that names the member of `known` nearest to `word`, or those that there are when none is
    near. Bounded likewise, in time and in length."""
    if not known:
        return "There is none yet."
    close = _closest(word[:SHOWN_CHARS_MAX].lower(), known)
    if close is not None:
        return f"Did you mean {shown(close)}?"
    return f"Known here: {listing(known)}."


def listing(known: Collection[str]) -> str:
    """The first of them in their order, and how many more there are."""
    names = heapq.nsmallest(_LISTED_MAX, islice(known, _MEASURED_MAX))
    listed = ", ".join(
        each if len(each) <= _NAME_CHARS_MAX else f"{each[:_NAME_CHARS_MAX]}…" for each in names
    )
    more = len(known) - len(names)
    return f"{listed}{f' and {more} more' if more else ''}"


def _closest(word: str, known: Collection[str]) -> str | None:
    """Of the names that are about as near as the nearest one, the one that shares the longest beginning with
    `word`: `was_payed` means `was_paid` rather than `was_placed`."""
    some: Iterable[str] = islice(known, _MEASURED_MAX)
    if len(known) > _COMPARED_MAX:
        some = heapq.nsmallest(_COMPARED_MAX, some, key=lambda each: abs(len(each) - len(word)))
    close = difflib.get_close_matches(word, some, n=_ABOUT_AS_NEAR_MAX, cutoff=0.6)
    if not close:
        return None
    matcher = difflib.SequenceMatcher(b=word)
    least = _ratio(matcher, close[0]) - _ABOUT_AS_NEAR
    near = [name for name in close if _ratio(matcher, name) >= least]
    return max(near, key=lambda name: _begin_alike(name, word))


def _begin_alike(name: str, word: str) -> int:
    alike = [a == b for a, b in zip(name, word, strict=False)]
    return alike.index(False) if False in alike else len(alike)


def _ratio(matcher: difflib.SequenceMatcher[str], name: str) -> float:
    matcher.set_seq1(name)
    return matcher.ratio()
