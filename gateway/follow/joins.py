"""The rows of a join: for each aggregate of a type, what is selected of its state and of others'.

Owns: which rows a change of a state concerns, and that a row is a function of the states at the place that it
is as of. A row is made again when any aggregate that it was put together from has an event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, assert_never

import asyncpg
from msgspec import Raw

from gateway.events import Event as Stored
from gateway.events import Recorded, Stream
from gateway.follow.database import fetch
from gateway.follow.fields import fields_of
from gateway.follow.lists import misfit_of
from gateway.follow.model import MISFITS_SHOWN, Changes, Event, Misfit, Put, Row
from gateway.follow.row_cache import RowCache
from gateway.follow.sort_values import at
from gateway.follow.states import AggregateStates
from gateway.follow.threads import Steps, Turn, folding, taking
from gateway.relay.position import Place
from gateway.state import Folded
from gateway.state.budget import SPELLED_BYTES, STATE_BYTES_MAX, Budget
from gateway.state.budget import Misfit as Unfit
from gateway.state.predicates import COMPARED_BYTES, spelling_at
from gateway.state.templates import COPIED_BYTES, View, found_at, name_size, value_of
from gateway.state.values import Fields, Node, decode_fields, encode, items_of, length, plain, raw
from spec.handlers import Constant, ListTemplate, MergeTemplate, ObjectTemplate, Path, Template
from spec.identifiers import canonicalize
from spec.joins import FOUND, KEY, Join, LookupOf, MapOf, ObjectOf, Selected, Source
from spec.model import Spec

SOURCE_KEYS_MAX: Final = 1000
"""Aggregates that one source of a row lists."""

ROW_STATES_BYTES_MAX: Final = 4 * STATE_BYTES_MAX
"""Of all states that one row is made of."""

ROWS_AT_ONCE: Final = 200
BYTES_AT_ONCE: Final = 8 * STATE_BYTES_MAX
"""Rows that are made together, and of their states; one row more may begin before these bytes."""

_KEYS_A_LOOK: Final = 4
_FIELDS_A_LOOK: Final = 8
"""What takes about as long as to test an item: to read so many keys, or to select so many fields."""

KNOWN_MAX: Final = 20_000
"""Rows whose sources are remembered, so that they are not written again where they stay."""

_Sources = tuple[tuple[str, str], ...]
"""Aggregates that a row is put together from, by type and key."""

Dependents = Callable[[Collection[Stream]], Awaitable[list[str]]]

_NULL: Final = Raw(b"null")
_NOBODY: Final = bytes(16)


async def dependents(pool: asyncpg.Pool, build: int, changed: Collection[Stream]) -> list[str]:
    """Keys of the rows that were put together from these. Raises PostgresTrouble."""
    types, keys = [each.aggregate_type for each in changed], [each.key for each in changed]
    return [row["key"] for row in await fetch(pool, "dependents", build, types, keys)]


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


class JoinOutput:
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

    def bound(self, bytes_max: int) -> None:
        self._states.bound(bytes_max)

    async def fold(self, events: Sequence[Event], reached: Place, rows: RowCache) -> Changes:
        wanted = [each for each in events if each.recorded.stream.aggregate_type in self.types]
        await self._states.advance(wanted, reached.seq)
        if not wanted:
            return Changes((), 0, 0, ())
        changed = {each.recorded.stream: each for each in wanted}
        keys = {each.key: None for each in changed if self._is_row(each)}
        keys.update(dict.fromkeys(await self._dependents(changed)))
        before = await rows.load(keys)
        found: dict[str, _Sources] = {}
        puts: list[Put] = []
        misfits: list[Misfit] = []
        waiting = deque(keys)
        while waiting:
            some = await self._some(waiting, reached.seq)
            size = sum([each.size for each in some])
            of_some, unfit = await folding(len(some), size, partial(self._puts, some, reached))
            puts += of_some
            misfits += unfit
            found.update((each.key, tuple(dict.fromkeys(each.sources))) for each in some)
        more = sum(before[put.key] is None for put in puts)
        sources = self._new_sources(found)
        changes = [put for put in puts if put.row != before[put.key]]
        return Changes(changes, more, len(misfits), misfits[-MISFITS_SHOWN:], sources)

    def _new_sources(self, found: Mapping[str, _Sources]) -> dict[str, _Sources]:
        """Of rows whose sources are not known to be the same as before."""
        changed = {key: each for key, each in found.items() if self._known.get(key) != each}
        if len(self._known) + len(changed) > KNOWN_MAX:
            self._known.clear()
        self._known.update(changed)
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
            for each in some:
                await self._take(each, name, False, aggregate_type, (singleton,), up_to)
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
            size += each.size
            if n and size > BYTES_AT_ONCE:
                waiting.extendleft([later.key for later in reversed(some[n:])])
                del some[n:]
                return

    async def _take(
        self, made: _Made, name: str, several: bool, aggregate_type: str, keys: Sequence[str], up_to: int
    ) -> None:
        states = []
        size = made.size
        for key in keys:
            made.sources.append((aggregate_type, key))  # made again, too, once one is written that is not yet
            if made.error:
                continue
            state = await self._state(aggregate_type, key, up_to)
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
        puts: list[Put] = []
        misfits: list[Misfit] = []
        for each in made:
            puts.append(self._put(each, reached, misfits, turn.budget))
            yield
        return puts, misfits

    def _put(self, made: _Made, reached: Place, misfits: list[Misfit], budget: Budget) -> Put:
        try:
            if made.error:
                raise Unfit(made.error)
            selected = _selected(self._join.select, _opened(made, budget))
            data = encode(selected)
            if len(data) > STATE_BYTES_MAX:
                raise Unfit(f"The row would be longer than {STATE_BYTES_MAX} bytes.")
        except Unfit as unfit:
            stream = Stream(self._tenant, self._join.for_each, made.key)
            misfits.append(misfit_of(Recorded(stream, made.trigger.length, _NO_EVENT), None, str(unfit)))
            data = b"{}"
        created = made.trigger.created_at_ms or 0
        row = Row(made.trigger.length, created, made.updated_at_ms, data)
        return Put(made.key, reached, row, fields_of(row, self._by))


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


def _selected(selected: Selected, view: View) -> Node:
    """What is absent is null. All of a row together is no longer than a value may be. Raises Misfit, and
    TakesLong."""
    match selected:
        case ObjectOf(fields):
            view.budget.look(1 + len(fields) // _FIELDS_A_LOOK)
            made: Fields = {}
            for name, each in fields:
                view.size += name_size(name)
                made[name] = _selected(each, view)
            return made
        case MapOf(path, name, to):
            return _mapped(path, name, to, view)
        case LookupOf():
            return _looked_up(selected, view)
        case Path() | Constant() | ObjectTemplate() | ListTemplate() | MergeTemplate():
            value = _value(selected, view)
            return _NULL if value is None else raw(value)
        case _:
            assert_never(selected)


def _value(template: Template, view: View) -> Node | None:
    """Counted with what the row has already."""
    view.bound, view.parts = view.size, 0
    value = value_of(template, view)
    view.pay()
    return value


def _mapped(path: Path, name: str, to: Selected, view: View) -> Node:
    outer = view.roots.get(name)
    made: list[Node] = []
    for item in _items(path, view):
        view.roots[name] = item
        made.append(raw(_selected(to, view)))
    if outer is None:
        view.roots.pop(name, None)
    else:
        view.roots[name] = outer
    return made


def _looked_up(lookup: LookupOf, view: View) -> Node:
    before, wanted = view.size, []
    for path, template in lookup.where:
        value = _value(template, view)
        wanted.append((path, None if value is None else _spelling(value, (), view)))
    view.size = before
    for item in _items(lookup.path, view, 1 + len(wanted)):
        if all(_spelling(item, path, view) == spelling for path, spelling in wanted):
            view.roots[FOUND] = item
            found = _value(lookup.select, view)
            return _NULL if found is None else found
    return _NULL


def _spelling(item: Node, path: Sequence[str], view: View) -> str | None:
    """Of what stands at the path in the item. Raises Misfit, and TakesLong."""
    found = at({"": item}, ("", *path))
    if found is None:
        return None
    size = length(raw(found))
    if size >= SPELLED_BYTES:
        view.budget.look(size // COMPARED_BYTES)
        view.budget.work(size // SPELLED_BYTES)
    return spelling_at(found, ())


def _items(path: Path, view: View, times: int = 1) -> list[Node]:
    """Of the list there, each to be read so many times; none where there is no list. Raises Misfit, and
    TakesLong."""
    found = found_at(path, view)
    if found is None:
        return []
    view.budget.look(times * (length(found) // COPIED_BYTES))
    items = items_of(found) or []
    view.budget.look(len(items))
    return items
