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


_Count = tuple[str, int, int, str | None]
"""To add to a field of the state, by its name, the sign times an integer, or times what stands in a field of
the event's data."""

_Sum = list[int]
"""An integer, and how many of its digits stand behind the point."""


class Counts(msgspec.Struct, frozen=True, gc=False):
    """A handler that only counts. `size`: by so many bytes the state grows at most."""

    each: tuple[_Count, ...]
    size: int


def counts_of(handler: Handler) -> Counts | None:
    """None where an operation is another one, its target lies deeper or is counted twice, or its value is no
    constant integer and no field of the event's data."""
    found: dict[str, _Count] = {}
    for operation in handler:
        if not isinstance(operation, Increment | Decrement) or len(operation.target) != 1:
            return None
        (name,), sign = operation.target, 1 if isinstance(operation, Increment) else -1
        if name in found:
            return None
        match operation.by:
            case Constant(by) if type(by) is int and abs(by) < 10**SHORT_MAX:
                found[name] = name, sign, by, None
            case Path(Root.DATA, (str(field),)):
                found[name] = name, sign, 0, field
            case _:
                return None
    return Counts(tuple(found.values()), sum(_NUMBER_BYTES + name_size(name) for name in found))


class Counters:
    """Of one `draft`, whose fields are as they should be only after `settle`."""

    __slots__ = ("_sums", "draft")

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._sums: dict[str, _Sum] = {}

    def take(self, counts: Counts, data: Mapping[str, Node]) -> bool:
        """Does all of them; False where it did nothing, since one is not of two short numbers, or the state
        may become too large."""
        sums = self._sums
        found: list[tuple[_Sum, int, int]] = []
        new = False
        for name, sign, by, field in counts.each:
            total = sums.get(name)
            if total is None:
                total, new = self._begun(name, counts), True
                if total is None:
                    return False
            scale = 0
            if field is not None:
                node = data.get(field)
                number = None if node is None else short_decimal(node)
                if number is None:
                    return False
                by, scale = number
            found.append((total, sign * by, scale))
        for total, by, scale in found:
            if scale < total[1]:
                by *= _POWERS[total[1] - scale]
            elif scale > total[1]:
                total[0] *= _POWERS[scale - total[1]]
                total[1] = scale
            total[0] += by
        if new:
            self._begin(counts, [total for total, _, _ in found])
        return True

    def _begun(self, name: str, counts: Counts) -> _Sum | None:
        """Of a field that is not counted yet."""
        draft = self.draft
        if draft.size_at_most + counts.size > draft.bytes_max:
            return None
        if len(draft.fields) + len(counts.each) > FIELDS_MAX:
            return None
        node = draft.fields.get(name)
        number = (0, 0) if node is None else short_decimal(node)
        return None if number is None else [*number]

    def _begin(self, counts: Counts, totals: Sequence[_Sum]) -> None:
        """These are counted from here on. Fields that are new stand in the order of the operations."""
        self.draft.grow(counts.size)
        for (name, *_), total in zip(counts.each, totals, strict=True):
            self._sums[name] = total
            self.draft.fields.setdefault(name, _OPEN)

    def settle(self) -> None:
        """Writes the sums."""
        fields = self.draft.fields
        for name, (total, scale) in self._sums.items():
            text = b"%d" % abs(total)
            if scale:
                text = text.zfill(scale + 1)
                text = b"%b.%b" % (text[:-scale], text[-scale:])
            fields[name] = Raw(b"-" + text if total < 0 else text)
        self._sums.clear()
