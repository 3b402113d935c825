"""Who holds which unique value: the verdict on an append's claims. Pure.

Owns: that the claims of an append are judged one by one, in the order of its events, on what is committed and
on what the claims before them change. Must not know: how holders are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gateway.appends import Append
from gateway.events import Claim, Stream
from gateway.outcomes import NotUnique

Slot = tuple[Stream, str, bytes]
"""Where an aggregate holds one value: under a name, within a scope."""


class Holders:
    """Of values that are asked about: the slot that holds each, and the seq of the event that claimed it."""

    def __init__(self, held: Mapping[bytes, tuple[Slot, int]]) -> None:
        self._slot_of = {value: slot for value, (slot, _) in held.items()}
        self._seq_of = {value: seq for value, (_, seq) in held.items()}
        self._values_in: dict[tuple[Stream, str], dict[bytes, bytes]] = {}
        """By the aggregate and the name, each scope's."""
        for value, (stream, name, scope) in self._slot_of.items():
            self._values_in.setdefault((stream, name), {})[scope] = value

    def judge(self, append: Append) -> NotUnique | None:
        """None: the aggregates of its events may have all that they claim."""
        found = self._after(append)
        return found if isinstance(found, NotUnique) else None

    def take(self, append: Append) -> None:
        """It is placed: what it claims and releases counts for those that are judged next."""
        after = self._after(append)
        assert isinstance(after, Holders)
        self._slot_of, self._values_in, self._seq_of = after._slot_of, after._values_in, after._seq_of

    def _after(self, append: Append) -> Holders | NotUnique:
        after = Holders({})
        after._slot_of, after._seq_of = dict(self._slot_of), dict(self._seq_of)
        after._values_in = {at: dict(values) for at, values in self._values_in.items()}
        for n, claim in enumerate(append.claims):
            holder = after.take_claim(stream_of(append, claim), claim)
            if holder is not None:
                assert claim.value is not None
                before = self._slot_of.get(claim.value)
                held = before is not None and before[0] == holder
                seq = self._seq_of.get(claim.value, 0) if held else 0
                key = "" if not held and _would_be_new(append, holder) else holder.key
                return NotUnique(append.claim_paths[n], holder.aggregate_type, key, seq)
        return after

    def held(self) -> Iterator[tuple[bytes, str, str, str, bytes, int]]:
        """Value, aggregate type, key, name, scope, and the seq of the event that claimed it."""
        for value, (stream, name, scope) in self._slot_of.items():
            yield value, stream.aggregate_type, stream.key, name, scope, self._seq_of.get(value, 0)

    def take_claim(self, stream: Stream, claim: Claim, seq: int = 0) -> Stream | None:
        """The other aggregate that holds the value; None where there is none, and then `stream` has it, by
        the event at `seq`."""
        at = stream, claim.name
        if claim.value is None:
            for value in self._values_in.pop(at, {}).values():
                del self._slot_of[value]
            return None
        holder = self._slot_of.get(claim.value)
        if holder is not None and holder[0] != stream:
            return holder[0]
        values = self._values_in.setdefault(at, {})
        former = values.pop(claim.scope, None)
        if former is not None:
            del self._slot_of[former]
        self._slot_of[claim.value] = (*at, claim.scope)
        self._seq_of[claim.value] = seq
        values[claim.scope] = claim.value
        return None


def _would_be_new(append: Append, stream: Stream) -> bool:
    """Whether there is no such aggregate but for this append, as it asks for, or perhaps: events imply it."""
    which = append.streams.index(stream)
    order = (0,) if append.spread is None else append.spread.order
    return append.lengths[which] == 0 or which > max(order[: len(append.events) - append.implied])


def stream_of(append: Append, claim: Claim) -> Stream:
    return append.stream if append.spread is None else append.spread.stream_of(claim.event)


def values_of(appends: Iterable[Append]) -> list[bytes]:
    """All that they claim, each once."""
    return list({claim.value: None for each in appends for claim in each.claims if claim.value is not None})


def holders_of(rows: Iterable[Any]) -> Holders:
    """Of the rows of `holders`."""
    held: dict[bytes, tuple[Slot, int]] = {}
    for row in rows:
        stream = Stream(row["tenant"].bytes, row["aggregate_type"], row["aggregate_id"])
        held[row["value"]] = (stream, row["name"], row["scope"]), row["seq"]
    return Holders(held)
