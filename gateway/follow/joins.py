"""The rows of a join: for each aggregate of a type, what is selected of its state and of others'.

Owns: which rows a change of a state concerns, and that a row is a function of the states at the place that it
is as of. A row is made again when any aggregate that it was put together from has an event.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

import asyncpg
from msgspec import Raw

from gateway.events import Event as Stored
from gateway.events import Recorded, Stream
from gateway.follow import sort_values
from gateway.follow.database import fetch
from gateway.follow.fields import fields_of
from gateway.follow.lists import misfit_of
from gateway.follow.model import MISFITS_SHOWN, Changes, Event, Misfit, Put, Row
from gateway.follow.row_cache import RowCache
from gateway.follow.states import AggregateStates
from gateway.follow.threads import folding
from gateway.relay.position import Place
from gateway.state import Folded
from gateway.state.budget import STATE_BYTES_MAX, Budget
from gateway.state.budget import Misfit as Unfit
from gateway.state.templates import View, found_at, value_of
from gateway.state.values import Node, decode_fields, encode, items_of, plain, raw, spelled
from spec.handlers import Constant, ListTemplate, MergeTemplate, ObjectTemplate, Path
from spec.identifiers import canonicalize
from spec.joins import FOUND, KEY, Join, LookupOf, MapOf, ObjectOf, Selected
from spec.model import Spec

SOURCE_KEYS_MAX: Final = 1000
"""Aggregates that one source of a row lists."""

KNOWN_MAX: Final = 20_000
"""Rows whose sources are remembered, so that they are not written again where they stay."""

Dependents = Callable[[Collection[Stream]], Awaitable[list[str]]]

_NULL: Final = Raw(b"null")
_NOBODY: Final = bytes(16)


async def dependents(pool: asyncpg.Pool, build: int, changed: Collection[Stream]) -> list[str]:
    """Keys of the rows that were put together from these. Raises PostgresTrouble."""
    types, keys = [each.aggregate_type for each in changed], [each.key for each in changed]
    return [row["key"] for row in await fetch(pool, "dependents", build, types, keys)]


@dataclass(slots=True)
class _Made:
    """A row on its way: the states that it is made of, by the names of its sources, and whose they are."""

    key: str
    trigger: Folded
    roots: dict[str, Node] = field(default_factory=dict)
    sources: list[tuple[str, str]] = field(default_factory=list)
    updated_at_ms: int = 0
    size: int = 0  # of the states, as JSON


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
        self._known: dict[str, tuple[tuple[str, str], ...]] = {}

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
        made = [each for key in keys if (each := await self._made(key, reached.seq)) is not None]
        misfits: list[Misfit] = []
        size = sum([each.size for each in made])
        puts = await folding(len(made), size, lambda _: self._puts(made, reached, misfits))
        more = sum(before[put.key] is None for put in puts)
        sources = self._new_sources(made)
        changes = [put for put in puts if put.row != before[put.key]]
        return Changes(changes, more, len(misfits), misfits[-MISFITS_SHOWN:], sources)

    def _new_sources(self, made: Sequence[_Made]) -> dict[str, tuple[tuple[str, str], ...]]:
        """Of rows whose sources are not known to be the same as before."""
        found = {each.key: tuple(dict.fromkeys(each.sources)) for each in made}
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

    async def _made(self, key: str, up_to: int) -> _Made | None:
        """The states of a row; None where its own aggregate was never written."""
        trigger = await self._state(self._join.for_each, key, up_to)
        if not trigger.length or trigger.updated_at_ms is None:
            return None
        made = _Made(key, trigger, updated_at_ms=trigger.updated_at_ms, size=len(trigger.data_json))
        made.roots[KEY] = Raw(encode(key))
        for source in self._join.sources:
            if source.id is None:
                made.roots[f"${source.name}"] = _object(key, trigger)
                continue
            found = found_at(source.id, _view(made.roots))
            ids = [] if found is None else (items_of(found) or []) if source.several else [found]
            keys = [each for each in map(self._key, ids[:SOURCE_KEYS_MAX]) if each is not None]
            nodes = [
                await self._source(made, source.aggregate_type, each, up_to) for each in dict.fromkeys(keys)
            ]
            there = [node for node in nodes if node is not None]
            made.roots[f"${source.name}"] = list(there) if source.several else there[0] if there else _NULL
        for name, aggregate_type, singleton in self._join.included:
            node = await self._source(made, aggregate_type, singleton, up_to)
            made.roots[f"${name}"] = _NULL if node is None else node
        return made

    def _key(self, node: Node) -> str | None:
        value = plain(node)
        return canonicalize(value, self._singletons) if isinstance(value, str) else None

    async def _source(self, made: _Made, aggregate_type: str, key: str, up_to: int) -> Node | None:
        """None where it was never written; the row is made again once it is."""
        made.sources.append((aggregate_type, key))
        state = await self._state(aggregate_type, key, up_to)
        if not state.length:
            return None
        made.updated_at_ms = max(made.updated_at_ms, state.updated_at_ms or 0)
        made.size += len(state.data_json)
        return _object(key, state)

    async def _state(self, aggregate_type: str, key: str, up_to: int) -> Folded:
        return await self._states.at(Stream(self._tenant, aggregate_type, key), up_to)

    def _puts(self, made: Sequence[_Made], reached: Place, misfits: list[Misfit]) -> list[Put]:
        return [self._put(each, reached, misfits) for each in made]

    def _put(self, made: _Made, reached: Place, misfits: list[Misfit]) -> Put:
        try:
            selected = _selected(self._join.select, _view(made.roots))
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


def _view(roots: dict[str, Node]) -> View:
    return View(_NO_RECORDED, None, roots, Budget())


def _object(key: str, state: Folded) -> Node:
    """A state as paths see it: with its key as `id`, unless it has a field of that name."""
    return {"id": Raw(encode(key)), **decode_fields(state.data_json)}


def _selected(selected: Selected, view: View) -> Node:
    """What is absent is null. Raises Misfit."""
    match selected:
        case ObjectOf(fields):
            return {name: _selected(each, view) for name, each in fields}
        case MapOf(path, name, to):
            return _mapped(path, name, to, view)
        case LookupOf():
            return _looked_up(selected, view)
        case Path() | Constant() | ObjectTemplate() | ListTemplate() | MergeTemplate():
            view.size = 0
            value = value_of(selected, view)
            return _NULL if value is None else raw(value)
        case _:
            assert_never(selected)


def _mapped(path: Path, name: str, to: Selected, view: View) -> Node:
    items = _items(path, view)
    outer = view.roots.get(name)
    made: list[Node] = []
    for item in items:
        view.roots[name] = item
        made.append(raw(_selected(to, view)))
    if outer is None:
        view.roots.pop(name, None)
    else:
        view.roots[name] = outer
    return made


def _looked_up(lookup: LookupOf, view: View) -> Node:
    wanted = []
    for path, template in lookup.where:
        value = value_of(template, view)
        wanted.append((path, None if value is None else spelled(plain(value))))
    for item in _items(lookup.path, view):
        if all(_is_at(item, path, spelling) for path, spelling in wanted):
            view.roots[FOUND] = item
            found = found_at(lookup.select, view)
            return _NULL if found is None else found
    return _NULL


def _is_at(item: Node, path: Sequence[str], spelling: str | None) -> bool:
    found = sort_values.at({"": item}, ("", *path))
    return (None if found is None else spelled(plain(found))) == spelling


def _items(path: Path, view: View) -> list[Node]:
    """Of the list there; none where there is no list. Raises Misfit."""
    found = found_at(path, view)
    items = None if found is None else items_of(found)
    view.budget.look(len(items or ()))
    return items or []
