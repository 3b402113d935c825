"""Counters of a state, held as integers while many events are folded into it.

Owns: which handlers do nothing but count, and sums that are exact. What is written is, byte for byte, what
`apply` would have left.
"""

from __future__ import annotations

from collections.abc import Mapping
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


class Count(msgspec.Struct, frozen=True, gc=False):
    """To add `sign` times `by`, or what stands in `field` of the event's data, to `name` of the state."""

    name: str
    sign: int
    by: int
    field: str | None


class Counts(msgspec.Struct, frozen=True, gc=False):
    """A handler that only counts. `size`: by so many bytes the state grows at most."""

    each: tuple[Count, ...]
    size: int


def counts_of(handler: Handler) -> Counts | None:
    """None where an operation is another one, its target lies deeper, or its value is no constant integer and
    no field of the event's data."""
    found: list[Count] = []
    for operation in handler:
        if not isinstance(operation, Increment | Decrement) or len(operation.target) != 1:
            return None
        sign = 1 if isinstance(operation, Increment) else -1
        match operation.by:
            case Constant(by) if type(by) is int and abs(by) < 10**SHORT_MAX:
                found.append(Count(operation.target[0], sign, by, None))
            case Path(Root.DATA, (str(field),)):
                found.append(Count(operation.target[0], sign, 0, field))
            case _:
                return None
    return Counts(tuple(found), sum(_NUMBER_BYTES + name_size(each.name) for each in found))


class Counters:
    """Of one draft, whose fields are as they should be only after `settle`."""

    __slots__ = ("_draft", "_sums")

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._sums: dict[str, tuple[int, int]] = {}

    def take(self, counts: Counts, data: Mapping[str, Node]) -> bool:
        """Does all of them; False where it did nothing, since one is not of two short numbers, or the state
        may become too large."""
        draft, sums = self._draft, self._sums
        if draft.size_at_most + counts.size > draft.bytes_max:
            return False
        if len(draft.fields) + len(counts.each) > FIELDS_MAX:
            return False
        made: dict[str, tuple[int, int]] = {}
        for each in counts.each:
            name = each.name
            stands = made.get(name) or sums.get(name) or self._stands(name)
            if stands is None:
                return False
            if each.field is None:
                by, scale = each.by, 0
            else:
                node = data.get(each.field)
                number = None if node is None else short_decimal(node)
                if number is None:
                    return False
                by, scale = number
            total, scale_before = stands
            if scale < scale_before:
                by *= _POWERS[scale_before - scale]
            elif scale > scale_before:
                total *= _POWERS[scale - scale_before]
                scale_before = scale
            made[name] = total + each.sign * by, scale_before
        for name in made:
            if name not in sums:
                draft.grow(_NUMBER_BYTES + name_size(name))
                draft.fields.setdefault(name, _OPEN)  # in the order in which operations make fields
        sums.update(made)
        return True

    def _stands(self, name: str) -> tuple[int, int] | None:
        found = self._draft.fields.get(name)
        return (0, 0) if found is None else short_decimal(found)

    def settle(self) -> None:
        """Writes the sums."""
        fields = self._draft.fields
        for name, (total, scale) in self._sums.items():
            text = b"%d" % abs(total)
            if scale:
                text = text.zfill(scale + 1)
                text = b"%b.%b" % (text[:-scale], text[-scale:])
            fields[name] = Raw(b"-" + text if total < 0 else text)
        self._sums.clear()
