"""The rows of a list: of every aggregate of a type, its state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from gateway.events import Recorded
from gateway.follow.fields import fields_of
from gateway.follow.model import MISFITS_SHOWN, ROWS_BYTES_MAX, Changes, Event, Misfit, Put, Row, TooMuch
from gateway.follow.output import NeverAhead
from gateway.follow.row_cache import RowCache
from gateway.follow.threads import Steps, Turn, data_bytes, fold_in_turns, folding, row_bytes
from gateway.relay.position import Place
from gateway.state import EMPTY, Folded, presenting
from spec.handlers import DEFAULT_HANDLER, Handler
from spec.identifiers import uuid_text
from spec.model import Spec


class ListOutput(NeverAhead):
    """Of one type, by one revision of the spec."""

    def __init__(self, spec: Spec, aggregate_type: str) -> None:
        declared = spec.aggregate_types[aggregate_type]
        assert declared.listed is not None
        self.types = frozenset((aggregate_type,))
        self.reads_back = False
        self.holds_states = False
        self._by: Final = declared.listed.by
        self._present: Final = presenting(spec)
        self._handlers: Final = {name: each.handler for name, each in declared.events.items()}

    def _handler(self, event_type: str) -> Handler:
        return self._handlers.get(event_type, DEFAULT_HANDLER)

    def bound(self, bytes_max: int) -> None:
        """It holds nothing."""

    async def fold(self, events: Sequence[Event], reached: Place, rows: RowCache) -> Changes:
        of: dict[str, list[Event]] = {}
        for each in events:
            if each.recorded.stream.aggregate_type in self.types:
                of.setdefault(each.recorded.stream.key, []).append(each)
        if not of:
            return Changes((), 0, 0, ())
        first = await self._part(of, rows)
        if of and are_several(events):
            raise TooMuch
        return replace(first, rest=self._parts(of, rows)) if of else first

    async def _parts(self, left: dict[str, list[Event]], rows: RowCache) -> AsyncIterator[Changes]:
        while left:
            yield await self._part(left, rows)

    async def _part(self, left: dict[str, list[Event]], rows: RowCache) -> Changes:
        """What the first of the events that are left do: as many rows as are held at a time, and one more."""
        before = await rows.load(left, ROWS_BYTES_MAX)
        some = {key: left[key] for key in before}
        found = [each for events in some.values() for each in events]
        size = data_bytes(found) + row_bytes(before)
        changes = await folding(len(found), size, partial(self._fold, some, before))
        for put in changes.puts:
            del left[put.key]
        return changes

    def _fold(
        self, of: Mapping[str, Sequence[Event]], before: Mapping[str, Row | None], turn: Turn
    ) -> Steps[Changes]:
        """No further row is begun once they are longer than ROWS_BYTES_MAX together."""
        puts, misfits, last, size = [], 0, list[Misfit](), 0
        for key, events in of.items():
            if size > ROWS_BYTES_MAX:
                break
            stands = before[key]
            recorded = [each.recorded for each in events]
            folded = yield from fold_in_turns(_folded(stands), recorded, self._handler, turn, self._present)
            assert folded.created_at_ms is not None and folded.updated_at_ms is not None
            too_large = folded.too_large_at is not None
            data = None if too_large else folded.data_json
            size += len(folded.data_json)
            row = Row(folded.length, folded.created_at_ms, folded.updated_at_ms, data)
            puts.append(Put(key, events[-1].place, row, fields_of(row, self._by)))
            if folded.errors_total:
                misfits += folded.errors_total
                by_version = {each.recorded.version: each.recorded for each in events}
                last += [
                    misfit_of(by_version[each.version], each.operation, each.error) for each in folded.errors
                ]
            if too_large and stands is not None and stands.data is not None:
                misfits += 1
                last.append(misfit_of(events[-1].recorded, None, "The state is too large to be listed."))
        more = sum((put.row.data is not None) - _is_there(before[put.key]) for put in puts)
        return Changes(puts, more, misfits, last[-MISFITS_SHOWN:])


def are_several(events: Sequence[Event]) -> bool:
    """Whether the events are of several appends, which may be folded one after the other."""
    return events[0].append_id != events[-1].append_id


def misfit_of(recorded: Recorded, operation: int | None, error: str) -> Misfit:
    stream, event = recorded.stream, recorded.event
    return Misfit(
        uuid_text(event.id), stream.aggregate_type, stream.key, recorded.version, event.type, operation, error
    )


def _is_there(row: Row | None) -> bool:
    return row is not None and row.data is not None


def _folded(row: Row | None) -> Folded:
    if row is None:
        return EMPTY
    if row.data is None:  # it was too large, and stays so
        return Folded(row.length, row.created_at_ms, row.updated_at_ms, (), 0, b"{}", row.length)
    return Folded(row.length, row.created_at_ms, row.updated_at_ms, (), 0, row.data)
