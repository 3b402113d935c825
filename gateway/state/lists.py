"""What operations do to the items of a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import compress

from msgspec import Raw

from gateway.state.budget import SPELLED_BYTES, Misfit, TooLarge
from gateway.state.draft import FIELDS_MAX, ITEMS_MAX, Draft, Place, Target, full
from gateway.state.predicates import Named, Where, parts_of, spelling_at
from gateway.state.templates import View
from gateway.state.values import Fields, Node, fields_of, items_of, kind, length, raw
from spec.handlers import ITEMS_CHANGED_MAX, Predicate, Step

Become = Callable[[int, Node], Node | None]
"""What an item becomes, by its place in the list and what it is; None: it stays as it is."""


class _Items(list[Node]):
    """A list that is looked up in: of each of some paths within the items, the spelling of what stands there,
    None where nothing does, in the order of the items; and how often each occurs."""

    spellings: dict[tuple[Step, ...], list[str | None]]
    counts: dict[tuple[Step, ...], Counter[str | None]]

    def look_up(self, path: tuple[Step, ...], view: View) -> Counter[str | None]:
        if path not in self.counts:
            sizes = (length(item) for item in self if isinstance(item, Raw))
            view.budget.work(len(self) + sum(sizes) // SPELLED_BYTES)
            self.spellings[path] = [spelling_at(item, path) for item in self]
            self.counts[path] = Counter(self.spellings[path])
        return self.counts[path]

    def add(self, value: Node) -> None:
        for path, spelling in self._spelled(value):
            self.spellings[path].append(spelling)
            self.counts[path][spelling] += 1
        self.append(value)

    def put(self, at: int, value: Node) -> None:
        """In place of the item there."""
        for path, spelling in self._spelled(value):
            was, self.spellings[path][at] = self.spellings[path][at], spelling
            counts = self.counts[path]
            counts[spelling] += 1
            counts[was] -= 1
            if not counts[was]:
                del counts[was]
        self[at] = value

    def _spelled(self, value: Node) -> list[tuple[tuple[Step, ...], str | None]]:
        """Its spelling for each path. A path at which it is too long to be compared is not looked up any
        longer: who does so finds the same."""
        found = []
        for path in tuple(self.counts):
            try:
                found.append((path, spelling_at(value, path)))
            except Misfit:
                del self.counts[path], self.spellings[path]
        return found

    def keep(self, wanted: list[bool]) -> None:
        """Only those that are True."""
        self[:] = compress(self, wanted)
        for path, spellings in self.spellings.items():
            self.spellings[path] = kept = [*compress(spellings, wanted)]
            self.counts[path] = Counter(kept)


def append(draft: Draft, target: Target, value: Node, size: int) -> None:
    place, items = _list_at(draft, target)
    _check_item(draft, place, items, target, value, size)
    items.add(value)
    place.put(items)


def append_unique(
    draft: Draft, target: Target, field: str | None, value: Node, size: int, view: View
) -> None:
    """`field` is what items are matched by, None for all of them."""
    path = () if field is None else (field,)
    view.budget.work(size // SPELLED_BYTES)
    spelling = spelling_at(value, path)
    if spelling is None:
        raise _lacks(field)
    place, items = _list_at(draft, target)
    if spelling not in items.look_up(path, view):
        _check_item(draft, place, items, target, value, size)
        items.add(value)
    place.room()
    place.put(items)  # also without a new item: the next event finds it open


def upsert(draft: Draft, target: Target, field: str, value: Node, size: int, view: View) -> None:
    fields = fields_of(value)
    if fields is None:
        raise Misfit(f"The value is {kind(value)}, not an object.")
    view.budget.work(size // SPELLED_BYTES)
    spelling = spelling_at(value, (field,))
    if spelling is None:
        raise _lacks(field)
    place, items = _list_at(draft, target)
    if spelling not in items.look_up((field,), view):
        _check_item(draft, place, items, target, value, size)
        items.add(value)
    else:
        at = items.spellings[field,].index(spelling)
        draft.check((*target, ""), value, size)
        items.put(at, _merged(items[at], fields))
    place.room()
    place.put(items)


def _lacks(field: str | None) -> Misfit:
    return Misfit(f"The value has no `{field}`, by which items are matched.")


def _merged(item: Node, fields: Fields) -> Fields:
    """The item with these fields; a new object. Raises Misfit."""
    into = fields_of(item)
    if into is None:
        raise Misfit(f"The item is {kind(item)}, not an object to merge into.")
    if len(into) + len(fields) > FIELDS_MAX and len(into.keys() | fields.keys()) > FIELDS_MAX:
        raise full()
    return {**into, **fields}


def _check_item(
    draft: Draft, place: Place, items: list[Node], target: Target, value: Node, size: int
) -> None:
    if len(items) >= ITEMS_MAX:
        raise Misfit(f"`{'.'.join(target)}` has {len(items)} items; a list grows to {ITEMS_MAX} at most.")
    draft.check((*target, ""), value, size)
    place.room()


def remove(draft: Draft, target: Target, predicate: Predicate, view: View) -> None:
    place, items = _list_at(draft, target)
    _keep(place, items, [not each for each in _holds(items, predicate, view)])


def keep(draft: Draft, target: Target, predicate: Predicate, view: View) -> None:
    place, items = _changed_list(draft, target, "filter")
    _keep(place, items, _holds(items, predicate, view))


def _keep(place: Place, items: _Items, kept: list[bool]) -> None:
    if not all(kept):
        items.keep(kept)
        place.put(items)


def _holds(items: _Items, predicate: Predicate, view: View) -> list[bool]:
    """Of each item whether the test is true."""
    where = Where(view)
    named = where.named_by(predicate)
    if named is not None:
        return _named(items, named, view)
    view.budget.look(len(items) * parts_of(predicate))
    return [where.holds(predicate, item) for item in items]


def _named(items: _Items, named: Named, view: View) -> list[bool]:
    counts = items.look_up(named.path, view)
    if not any(spelling in counts for spelling in named.spellings):
        return [False] * len(items)
    return [spelling in named.spellings for spelling in items.spellings[named.path]]


def change(
    draft: Draft, target: Target, name: str, predicate: Predicate | None, become: Become, view: View
) -> None:
    """Makes each item for which the test is true what it becomes. Raises Misfit: no item is changed then."""
    place, items = _changed_list(draft, target, name)
    view.budget.look(len(items))
    wanted = None if predicate is None else _holds(items, predicate, view)
    made: list[Node] = []
    size, changed = 0, False
    for index, item in enumerate(items):
        new = become(index, item) if wanted is None or wanted[index] else None
        if new is None:
            made.append(item)
            continue
        new = raw(new)
        draft.check_levels((*target, ""), new)
        size += length(new) + 1
        if size > 2 * draft.bytes_max:
            raise TooLarge(f"The list would be longer than {2 * draft.bytes_max} bytes.")
        made.append(new)
        changed = True
    if changed:
        draft.grow(size)
        place.put(_opened(made))


def merged(item: Node, value: Node) -> Node:
    """The item with the fields of the value. Raises Misfit."""
    fields = fields_of(value)
    if fields is None:
        raise Misfit(f"The value is {kind(value)}, not an object.")
    return _merged(item, fields)


def _changed_list(draft: Draft, target: Target, name: str) -> tuple[Place, _Items]:
    """A list that is there, of which `name` may change every item."""
    place, items = _list_at(draft, target)
    if place.found is None:
        raise Misfit(f"`{'.'.join(target)}` is absent; `{name}` takes a list.")
    if len(items) > ITEMS_CHANGED_MAX:
        raise Misfit(
            f"`{'.'.join(target)}` has {len(items)} items; `{name}` takes {ITEMS_CHANGED_MAX} at most."
        )
    return place, items


def _list_at(draft: Draft, target: Target) -> tuple[Place, _Items]:
    """The place of a list and its items, none if there is no list."""
    if not target:
        raise Misfit("The whole state is an object, not a list; name a field of it.")
    place = draft.place(target)
    found = place.found
    items = _opened([]) if found is None else draft.opened(found, _open)
    if items is None:
        assert found is not None
        raise Misfit(f"`{'.'.join(target)}` is {kind(found)}, not a list.")
    assert isinstance(items, _Items)
    return place, items


def _open(node: Node) -> list[Node] | None:
    items = items_of(node)
    return items if items is None or isinstance(items, _Items) else _opened(items)


def _opened(items: list[Node]) -> _Items:
    made = _Items(items)
    made.spellings, made.counts = {}, {}
    return made
