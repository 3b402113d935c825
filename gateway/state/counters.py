"""Counters of a state, held as integers while many events are folded into it.

Owns: which handlers do nothing but count, and sums that are exact. What is written is, byte for byte, what
`apply` would have left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw

from gateway.state.draft import FIELDS_MAX, Draft
from gateway.state.templates import name_size
from gateway.state.values import SHORT_MAX, Node, short_decimal
from spec.handlers import Constant, Decrement, Handler, Increment, Path, Root

_NUMBER_BYTES: Final = 64
"""Of a sum, at most: it starts with 20 digits, and each event adds 20 at most."""

_OPEN: Final = Raw(b"0")
_POWERS: Final = [10**n for n in range(SHORT_MAX)]


_Sum = list[int]
"""An integer, and how many of its digits stand behind the point."""


class Counts(msgspec.Struct, frozen=True, gc=False):
    """A handler that only counts. To fields of the state, by their names, it adds an integer (`constants`),
    or the sign times what stands in a field of the event's data (`others`). `names` are in the order of its
    operations. `size`: by so many bytes the state grows at most."""

    names: tuple[str, ...]
    constants: tuple[tuple[str, int], ...]
    others: tuple[tuple[str, int, str], ...]
    size: int


def counts_of(handler: Handler) -> Counts | None:
    """None where an operation is another one, its target lies deeper or is counted twice, or its value is no
    constant integer and no field of the event's data."""
    names: dict[str, None] = {}
    constants: list[tuple[str, int]] = []
    others: list[tuple[str, int, str]] = []
    for operation in handler:
        if not isinstance(operation, Increment | Decrement) or len(operation.target) != 1:
            return None
        (name,), sign = operation.target, 1 if isinstance(operation, Increment) else -1
        if name in names:
            return None
        names[name] = None
        match operation.by:
            case Constant(by) if type(by) is int and abs(by) < 10**SHORT_MAX:
                constants.append((name, sign * by))
            case Path(Root.DATA, (str(field),)):
                others.append((name, sign, field))
            case _:
                return None
    size = sum(_NUMBER_BYTES + name_size(name) for name in names)
    return Counts(tuple(names), tuple(constants), tuple(others), size)


class Counters:
    """Of one `draft`, whose fields are as they should be only after `write` or `settle`."""

    __slots__ = ("_begun", "_sums", "draft")

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._sums: dict[str, _Sum] = {}
        self._begun: Counts | None = None  # those of the event before

    def take(self, counts: Counts, data: Mapping[str, Node]) -> bool:
        """Does all of them; False where it did nothing, since one is not of two short numbers, or the state
        may become too large."""
        numbers = []
        for _, _, field in counts.others:
            node = data.get(field)
            number = None if node is None else short_decimal(node)
            if number is None:
                return False
            numbers.append(number)
        return self.add(counts, numbers)

    def add(self, counts: Counts, numbers: Sequence[tuple[int, int]]) -> bool:
        """As `take`, where `numbers` are those of the fields of `others`."""
        if self._begun is not counts and not self._begin(counts):
            return False
        sums = self._sums
        for name, by in counts.constants:
            total = sums[name]
            total[0] += by * _POWERS[total[1]]
        for (name, sign, _), (by, scale) in zip(counts.others, numbers, strict=True):
            total = sums[name]
            if scale > total[1]:
                total[0] *= _POWERS[scale - total[1]]
                total[1] = scale
            total[0] += sign * by * _POWERS[total[1] - scale]
        return True

    def _begin(self, counts: Counts) -> bool:
        """From here on all of them are counted, if each is a short number now. Fields that are new stand in
        the order of the operations."""
        draft = self.draft
        found: dict[str, _Sum] = {}
        for name in counts.names:
            if name in self._sums:
                continue
            node = draft.fields.get(name)
            number = (0, 0) if node is None else short_decimal(node)
            if number is None:
                return False
            found[name] = [*number]
        if found:
            if draft.size_at_most + counts.size > draft.bytes_max:
                return False
            if len(draft.fields) + len(counts.names) > FIELDS_MAX:
                return False
            draft.grow(counts.size)
            self._sums.update(found)
            for name in found:
                draft.fields.setdefault(name, _OPEN)
        self._begun = counts
        return True

    def settle(self) -> None:
        """Writes the sums, which end here."""
        self.write()
        self._sums.clear()
        self._begun = None

    def write(self) -> None:
        """Writes the sums, which go on: until they are settled nothing else may change the draft."""
        fields = self.draft.fields
        for name, (total, scale) in self._sums.items():
            text = b"%d" % abs(total)
            if scale:
                text = text.zfill(scale + 1)
                text = b"%b.%b" % (text[:-scale], text[-scale:])
            fields[name] = Raw(b"-" + text if total < 0 else text)
