"""The rows of a join: for each aggregate of a type, a selection of its state and of others'.

Owns: which rows a change of a state concerns, and that a row is a function of the states at the place that it
is as of. A row is made again when any aggregate that it was put together from has an event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import asyncpg
from msgspec import Raw
from msgspec.structs import replace

from gateway.events import Event as Stored
from gateway.events import Recorded, Stream
from gateway.follow.database import fetch
from gateway.follow.fields import fields_of
from gateway.follow.lists import misfit_of
from gateway.follow.model import MISFITS_SHOWN, Changes, Event, Misfit, Put, Row
from gateway.follow.output import NeverAhead
from gateway.follow.row_cache import ROW_BYTES, RowCache
from gateway.follow.selecting import selected
from gateway.follow.states import AggregateStates
from gateway.follow.threads import Steps, Turn, folding, taking
from gateway.relay.position import Place
from gateway.state import Folded
from gateway.state.budget import STATE_BYTES_MAX, Budget
from gateway.state.budget import Misfit as Unfit
from gateway.state.templates import COPIED_BYTES, View, found_at
from gateway.state.values import Node, decode_fields, encode, items_of, length, plain
from spec.identifiers import canonicalize
from spec.joins import KEY, Join, Source
from spec.model import Spec

SOURCE_KEYS_MAX: Final = 1000
"""Aggregates that one source of a row lists."""

ROW_STATES_BYTES_MAX: Final = 4 * STATE_BYTES_MAX
"""Of all states that one row is made of."""

ROWS_AT_ONCE: Final = 200
BYTES_AT_ONCE: Final = 8 * STATE_BYTES_MAX
"""Rows that are made together, and of their states; one row more may begin before these bytes."""

PART_BYTES_MAX: Final = 4 * STATE_BYTES_MAX
"""Of rows that are made, with their sources, until they are written; one row more may begin before."""
KEYS_AT_ONCE: Final = 5_000
"""Rows of which it is looked up at a time that they are to be made again."""
SOURCE_BYTES: Final = 200
"""What it takes to note that a row was made of an aggregate."""

_KEYS_A_LOOK: Final = 4
"""What takes about as long as to test an item: to read so many keys."""

KNOWN_MAX: Final = 100_000
"""Sources of rows that are remembered, so that they are not written again where they stay."""

_Sources = tuple[tuple[str, str], ...]
"""Aggregates that a row is put together from, by type and key."""

Dependents = Callable[[Collection[Stream], str, int], Awaitable[list[str]]]

_NULL: Final = Raw(b"null")
_NOBODY: Final = bytes(16)


async def dependents(
    pool: asyncpg.Pool, build: int, changed: Collection[Stream], behind: str, most: int
) -> list[str]:
    """Keys of the rows that were put together from these, in order, behind a key. Raises PostgresTrouble."""
    types, keys = [each.aggregate_type for each in changed], [each.key for each in changed]
    return [row["key"] for row in await fetch(pool, "dependents", build, types, keys, behind, most)]


@dataclass(slots=True)
class _Left:
    """Rows that are to be made: those that wait, and those made of what `changed` that are not looked up
    yet, `behind` a key (None: all are). `own` are those of aggregates that changed themselves."""

    changed: Collection[Stream]
    own: Collection[str]
    waiting: deque[str]
    behind: str | None = ""

    def __bool__(self) -> bool:
        return bool(self.waiting) or self.behind is not None


@dataclass(slots=True)
class _Made:
    """A row on its way: the states that it is made of, as `roots` by the names of their sources, or still
    `unopened`, and whose they are. `looks` of its budget are used; `error` says why it is made of none."""

    key: str
    trigger: Folded
    roots: dict[str, Node]
    unopened: list[tuple[str, bool, list[tuple[str, Folded]]]] = field(default_factory=list)
    sources: list[tuple[str, str]] = field(default_factory=list)
    updated_at_ms: int = 0
    size: int = 0  # of the states, as JSON
    looks: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Found:
    """Of the aggregates whose states are one source of a row; with the looks of its budget that are used by
    then, and why there can't be any."""

    keys: tuple[str, ...]
    looks: int
    error: str = ""


class JoinOutput(NeverAhead):
    """Of one join, by one revision of the spec."""

    def __init__(
        self, spec: Spec, name: str, tenant: bytes, states: AggregateStates, dependents_of: Dependents
    ) -> None:
        projection = spec.projections[name]
        assert projection.join is not None
        self._join: Join = projection.join
        self._by = projection.by
        self._singletons = spec.singletons
        self._tenant = tenant
        self._states = states
        self._dependents = dependents_of
        self.types = self._join.types
        self.reads_back = True
        self.holds_states = True
        self._known: dict[str, _Sources] = {}
        self._known_count = 0  # of their sources

    def bound(self, bytes_max: int) -> None:
        self._states.bound(bytes_max)

    async def fold(self, events: Sequence[Event], reached: Place, rows: RowCache) -> Changes:
        wanted = [each for each in events if each.recorded.stream.aggregate_type in self.types]
        await self._states.advance(wanted, reached.seq)
        if not wanted:
            return Changes((), 0, 0, ())
        changed = dict.fromkeys(each.recorded.stream for each in wanted)
        own = dict.fromkeys(each.key for each in changed if self._is_row(each))
        left = _Left(changed, own, deque(own))
        await self._look_up(left)
        first = await self._part(left, reached, rows)
        return replace(first, rest=self._parts(left, reached, rows)) if left else first

    async def _parts(self, left: _Left, reached: Place, rows: RowCache) -> AsyncIterator[Changes]:
        while left:
            yield await self._part(left, reached, rows)

    async def _part(self, left: _Left, reached: Place, rows: RowCache) -> Changes:
        """As many of the rows that are left as are held at a time, and as one statement looks up."""
        if not left.waiting and left.behind is not None:
            await self._look_up(left)
        found: dict[str, _Sources] = {}
        changes: list[Put] = []
        misfits: list[Misfit] = []
        more = size = 0
        while left.waiting and size <= PART_BYTES_MAX:
            some = await self._some(left.waiting, reached.seq)
            read = sum([each.size for each in some])
            puts, unfit = await folding(len(some), read, partial(self._puts, some, reached))
            left.waiting.extendleft([each.key for each in reversed(some[len(puts) :])])
            misfits += unfit
            found.update((each.key, tuple(dict.fromkeys(each.sources))) for each in some[: len(puts)])
            size += sum([_size_of(put, found[put.key]) for put in puts])
            while puts:
                before = await rows.load([put.key for put in puts], PART_BYTES_MAX)
                more += sum([each is None for each in before.values()])
                changes += [put for put in puts[: len(before)] if put.row != before[put.key]]
                puts = puts[len(before) :]
        return Changes(changes, more, len(misfits), misfits[-MISFITS_SHOWN:], self._new_sources(found))

    async def _look_up(self, left: _Left) -> None:
        assert left.behind is not None
        keys = await self._dependents(left.changed, left.behind, KEYS_AT_ONCE)
        left.behind = keys[-1] if len(keys) == KEYS_AT_ONCE else None
        left.waiting += [key for key in keys if key not in left.own]

    def _new_sources(self, found: Mapping[str, _Sources]) -> dict[str, _Sources]:
        """Of rows whose sources are not known to be the same as before."""
        changed = {key: each for key, each in found.items() if self._known.get(key) != each}
        for key, each in changed.items():
            self._known_count += len(each) - len(self._known.pop(key, ()))
            self._known[key] = each
        if self._known_count > KNOWN_MAX:
            self._known.clear()
            self._known_count = 0
        return changed

    def _is_row(self, stream: Stream) -> bool:
        is_substream = ":" in stream.key
        return stream.aggregate_type == self._join.for_each and (
            self._join.include_substreams or not is_substream
        )

    async def _some(self, waiting: deque[str], up_to: int) -> list[_Made]:
        """The first of the rows that wait, with the states that they are made of; those whose own aggregate
        was never written are left out."""
        some: list[_Made] = []
        size = 0
        while waiting and len(some) < ROWS_AT_ONCE and size <= BYTES_AT_ONCE:
            key = waiting.popleft()
            trigger = await self._state(self._join.for_each, key, up_to)
            if trigger.length and trigger.updated_at_ms is not None:
                roots: dict[str, Node] = {KEY: Raw(encode(key))}
                some.append(_Made(key, trigger, roots, updated_at_ms=trigger.updated_at_ms))
                size += len(trigger.data_json)
        for source in self._join.sources:
            await self._find(source, some, waiting, up_to)
        for name, aggregate_type, singleton in self._join.included:
            state = await self._state(aggregate_type, singleton, up_to)  # held once for all rows
            for each in some:
                await self._take(each, name, False, aggregate_type, (singleton,), up_to, state)
        return some

    async def _find(self, source: Source, some: list[_Made], waiting: deque[str], up_to: int) -> None:
        """Takes the states of a source to each row. Rows whose states are too long to be held beside those of
        the rows before them wait for the next time."""
        if source.id is None:
            for each in some:
                self._add(each, source.name, False, [(each.key, each.trigger)])
            return
        size = sum([each.size for each in some])
        found = await folding(len(some), size, partial(self._keys, source, some))
        size = 0
        for n, (each, of_row) in enumerate(zip(some, found, strict=True)):
            each.looks, each.error = of_row.looks, of_row.error
            await self._take(each, source.name, source.several, source.aggregate_type, of_row.keys, up_to)
            size += each.size + SOURCE_BYTES * len(each.sources)
            if n and size > BYTES_AT_ONCE:
                waiting.extendleft([later.key for later in reversed(some[n:])])
                del some[n:]
                return

    async def _take(
        self,
        made: _Made,
        name: str,
        several: bool,
        aggregate_type: str,
        keys: Sequence[str],
        up_to: int,
        known: Folded | None = None,
    ) -> None:
        """Gives a row the states with these keys, or the one that is `known`."""
        states = []
        size = made.size
        for key in keys:
            made.sources.append((aggregate_type, key))  # made again, too, once one is written that is not yet
            if made.error:
                continue
            state = known or await self._state(aggregate_type, key, up_to)
            if state.length:
                made.updated_at_ms = max(made.updated_at_ms, state.updated_at_ms or 0)
                states.append((key, state))
                size += len(state.data_json)
                if size > ROW_STATES_BYTES_MAX:
                    made.error = (
                        f"The states of the row are longer than {ROW_STATES_BYTES_MAX} bytes together."
                    )
        self._add(made, name, several, states)

    def _add(self, made: _Made, name: str, several: bool, states: list[tuple[str, Folded]]) -> None:
        if made.error:
            made.unopened, made.roots, made.size = [], {}, 0
            return
        made.unopened.append((name, several, states))
        made.size += sum([len(each.data_json) for _, each in states])

    def _keys(self, source: Source, some: Sequence[_Made], turn: Turn) -> Steps[list[_Found]]:
        found = []
        for each in some:
            yield
            try:
                keys = () if each.error else self._keys_of(source, each, turn.budget)
                found.append(_Found(keys, turn.budget.looks, each.error))
            except Unfit as unfit:
                found.append(_Found((), turn.budget.looks, str(unfit)))
        return found

    def _keys_of(self, source: Source, made: _Made, budget: Budget) -> tuple[str, ...]:
        """Raises Misfit, and TakesLong."""
        view = _opened(made, budget)
        assert source.id is not None
        node = found_at(source.id, view)
        if node is None:
            return ()
        budget.look(length(node) // COPIED_BYTES)
        ids = (items_of(node) or [])[:SOURCE_KEYS_MAX] if source.several else [node]
        budget.work(len(ids) // _KEYS_A_LOOK)
        return tuple(dict.fromkeys(each for each in map(self._key, ids) if each is not None))

    def _key(self, node: Node) -> str | None:
        value = plain(node)
        return canonicalize(value, self._singletons) if isinstance(value, str) else None

    async def _state(self, aggregate_type: str, key: str, up_to: int) -> Folded:
        await taking(1)  # one that is kept is not waited for
        return await self._states.at(Stream(self._tenant, aggregate_type, key), up_to)

    def _puts(
        self, made: Sequence[_Made], reached: Place, turn: Turn
    ) -> Steps[tuple[list[Put], list[Misfit]]]:
        """The first of the rows: no further one is begun once they are as long as a part may be."""
        puts: list[Put] = []
        misfits: list[Misfit] = []
        size = 0
        for each in made:
            if size > PART_BYTES_MAX:
                break
            puts.append(self._put(each, reached, misfits, turn.budget))
            size += len(puts[-1].row.data or b"")
            yield
        return puts, misfits

    def _put(self, made: _Made, reached: Place, misfits: list[Misfit], budget: Budget) -> Put:
        try:
            if made.error:
                raise Unfit(made.error)
            data = encode(selected(self._join.select, _opened(made, budget)))
            if len(data) > STATE_BYTES_MAX:
                raise Unfit(f"The row would be longer than {STATE_BYTES_MAX} bytes.")
        except Unfit as unfit:
            stream = Stream(self._tenant, self._join.for_each, made.key)
            misfits.append(misfit_of(Recorded(stream, made.trigger.length, _NO_EVENT), None, str(unfit)))
            data = b"{}"
        created = made.trigger.created_at_ms or 0
        row = Row(made.trigger.length, created, made.updated_at_ms, data)
        return Put(made.key, reached, row, fields_of(row, self._by))


def _size_of(put: Put, sources: _Sources) -> int:
    return ROW_BYTES + len(put.row.data or b"") + SOURCE_BYTES * len(sources)


_NO_EVENT: Final = Stored(_NOBODY, "", "", "", None, None, _NOBODY, None, 0, 0, None, None)
_NO_RECORDED: Final = Recorded(Stream(_NOBODY, "", ""), 0, _NO_EVENT)


def _opened(made: _Made, budget: Budget) -> View:
    """What paths see of its states. Raises TakesLong: what is opened by then need not be again."""
    budget.looks = made.looks
    while made.unopened:
        name, several, states = made.unopened[0]
        budget.work(1 + sum([len(each.data_json) for _, each in states]) // COPIED_BYTES)
        nodes: list[Node] = [_object(*each) for each in states]
        made.roots[f"${name}"] = nodes if several else nodes[0] if nodes else _NULL
        del made.unopened[0]
    return View(_NO_RECORDED, None, dict(made.roots), budget)


def _object(key: str, state: Folded) -> Node:
    """A state as paths see it: with its key as `id`, unless it has a field of that name."""
    return {"id": Raw(encode(key)), **decode_fields(state.data_json)}
