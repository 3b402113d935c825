"""`join` of a projection: a row for each aggregate of a type, put together from states.

Owns the grammar: which states a row is made of, and what is selected of them. Paths begin with the name of a
source, `$.customer.name`, with the `as` of the `$map` around them, `$item.sku`, or are `$key`, the row's key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from spec.errors import Report, below, listing, proposal, shown
from spec.fields import check_keys
from spec.handlers import EACH, Constant, Path, Template
from spec.identifiers import GLOBAL
from spec.templates import Scope, read_path, read_template

if TYPE_CHECKING:
    from spec.model import Spec

SOURCES_MAX: Final = 20
"""States, and lists of states, that a row is made of."""

KEY: Final = "$key"
FOUND: Final = "$_"
"""What `select` of a `$lookup` calls the item that was found; it is written `$`."""
_OF_FOUND: Final = "paths are `$`, the item that was found, and its fields, as `$.name`"

_KEYS = frozenset({"for_each", "include_substreams", "sources", "include", "select"})
_SOURCE_KEYS = frozenset({"type", "id", "mode"})
_MAP_KEYS = frozenset({"$map", "as", "to"})
_LOOKUP_KEYS = frozenset({"$lookup", "where", "select"})
_NAME = re.compile("[a-z][a-z_]{0,31}")
_ITEM = re.compile(r"\$[a-z][a-z_]{0,31}")
_OF_ITEM = re.compile(r"\$([.\[?]|\Z)")
_INCLUDED = re.compile("([a-z][a-z0-9_]{0,63}):([a-z][a-z0-9_]{0,63})")


@dataclass(frozen=True, slots=True)
class Source:
    """The state of the aggregate that `id` leads to, of the row's own where that is None; with `several`, of
    each that it lists."""

    name: str
    aggregate_type: str
    id: Path | None
    several: bool = False


@dataclass(frozen=True, slots=True)
class MapOf:
    """A list: `to` for each item of the list at `path`, the item being `name`."""

    path: Path
    name: str
    to: Selected


@dataclass(frozen=True, slots=True)
class LookupOf:
    """Of the first item of the list at `path` whose fields are equal to these values, what `select` leads
    to."""

    path: Path
    where: tuple[tuple[tuple[str, ...], Template], ...]
    select: Path


@dataclass(frozen=True, slots=True)
class ObjectOf:
    fields: tuple[tuple[str, Selected], ...]


Selected = Template | MapOf | LookupOf | ObjectOf


@dataclass(frozen=True, slots=True)
class Join:
    """`included` are singletons: name, aggregate type, key."""

    for_each: str
    include_substreams: bool
    sources: tuple[Source, ...]
    included: tuple[tuple[str, str, str], ...]
    select: ObjectOf

    @property
    def types(self) -> frozenset[str]:
        """Of all aggregates that a row is made of."""
        others = {each.aggregate_type for each in self.sources} | {each[1] for each in self.included}
        return frozenset((self.for_each, *others))


@dataclass(frozen=True, slots=True)
class _Reader:
    """What paths may begin with, by name; where faults go."""

    names: frozenset[str]
    report: Report

    def scope(self) -> Scope:
        paths = f"paths begin with one of {listing(self.names)}"
        return Scope(True, None, names=self.names, paths=paths)


def read_join(value: object, pointer: str, spec: Spec, report: Report) -> Join | None:
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, "`join` is an object with `for_each` and `select`.")
        return None
    check_keys(value, pointer, _KEYS, report)
    for key in ("for_each", "select"):
        if key not in value:
            report.add("missing_key", pointer, f"A join needs `{key}`.")
    for_each = ""
    if "for_each" in value:
        for_each = _type(value["for_each"], below(pointer, "for_each"), spec, report)
    substreams = value.get("include_substreams", False)
    if not isinstance(substreams, bool):
        why = "`include_substreams` is true or false."
        report.add("wrong_type", below(pointer, "include_substreams"), why)
    sources = _read_sources(value.get("sources", {}), below(pointer, "sources"), for_each, spec, report)
    included = _read_included(value.get("include", {}), below(pointer, "include"), spec, report)
    names = frozenset((KEY, *(f"${each.name}" for each in sources), *(f"${each[0]}" for each in included)))
    place = below(pointer, "select")
    select = _select(value.get("select", {}), place, _Reader(names, report))
    if not isinstance(select, ObjectOf):
        report.add("wrong_type", place, "`select` is an object: the fields of a row.")
        select = ObjectOf(())
    return Join(for_each, substreams is True, sources, included, select)


def _type(value: object, pointer: str, spec: Spec, report: Report) -> str:
    if not isinstance(value, str):
        report.add("wrong_type", pointer, "A name must be a string.")
        return ""
    if value not in spec.aggregate_types:
        why = f"There is no aggregate type {shown(value)}. {proposal(value, spec.aggregate_types)}"
        report.add("undeclared", pointer, why, accepted_before=value == "")
        return ""
    return value


def _is_name(name: str, pointer: str, report: Report) -> bool:
    if _NAME.fullmatch(name) and name != "key":
        return True
    report.add(
        "invalid_name",
        pointer,
        f"{shown(name)} is not a valid name of a source; names are `{_NAME.pattern}`.",
    )
    return False


def _read_sources(
    value: object, pointer: str, for_each: str, spec: Spec, report: Report
) -> tuple[Source, ...]:
    if not isinstance(value, dict) or len(value) > SOURCES_MAX:
        report.add("wrong_type", pointer, f"`sources` is an object of at most {SOURCES_MAX} names.")
        return ()
    read: list[Source] = []
    for name, each in value.items():
        place = below(pointer, name)
        if not _is_name(name, place, report):
            continue
        if each == KEY:
            read.append(Source(name, for_each, None))
        elif isinstance(each, dict):
            source = _read_source(name, each, place, read, spec, report)
            if source is not None:
                read.append(source)
        else:
            report.add("wrong_type", place, 'A source is "$key" or an object with `type` and `id`.')
    return tuple(read)


def _read_source(
    name: str, value: dict[str, object], pointer: str, before: list[Source], spec: Spec, report: Report
) -> Source | None:
    check_keys(value, pointer, _SOURCE_KEYS, report)
    for key in ("type", "id"):
        if key not in value:
            report.add("missing_key", pointer, f"A source needs `{key}`.")
            return None
    mode = value.get("mode", "single")
    if mode not in ("single", "array"):
        report.add("invalid_value", below(pointer, "mode"), '`mode` is "single" or "array".')
    of = _type(value["type"], below(pointer, "type"), spec, report)
    names = frozenset((KEY, *(f"${each.name}" for each in before)))
    path = _path(value["id"], below(pointer, "id"), _Reader(names, report))
    if path is not None and EACH in path.fields and mode == "single":
        report.add("invalid_path", below(pointer, "id"), 'This leads to several ids: say `"mode": "array"`.')
    return None if path is None else Source(name, of, path, mode == "array")


def _read_included(
    value: object, pointer: str, spec: Spec, report: Report
) -> tuple[tuple[str, str, str], ...]:
    if not isinstance(value, dict) or len(value) > SOURCES_MAX:
        report.add("wrong_type", pointer, f"`include` is an object of at most {SOURCES_MAX} names.")
        return ()
    read = []
    for name, each in value.items():
        place = below(pointer, name)
        found = _INCLUDED.fullmatch(each) if isinstance(each, str) else None
        if not _is_name(name, place, report):
            continue
        if found is None:
            report.add("invalid_value", place, "A singleton is its type and its name, as in `rules:global`.")
            continue
        of = _type(found[1], place, spec, report)
        if found[2] != GLOBAL and found[2] not in spec.singletons:
            known = proposal(found[2], spec.singletons)
            report.add("undeclared", place, f"There is no singleton {shown(found[2])}. {known}")
        read.append((name, of, found[2]))
    return tuple(read)


def _select(value: object, pointer: str, reader: _Reader) -> Selected:
    if isinstance(value, dict) and "$map" in value:
        return _read_map(value, pointer, reader)
    if isinstance(value, dict) and "$lookup" in value:
        return _read_lookup(value, pointer, reader)
    if isinstance(value, dict) and not any(key.startswith("$") for key in value):
        fields = ((key, _select(each, below(pointer, key), reader)) for key, each in value.items())
        return ObjectOf(tuple(fields))
    return read_template(_bound(value), pointer, reader.scope(), reader.report)


def _read_map(value: dict[str, object], pointer: str, reader: _Reader) -> Selected:
    check_keys(value, pointer, _MAP_KEYS, reader.report)
    for key in ("as", "to"):
        if key not in value:
            reader.report.add("missing_key", pointer, f"`$map` needs `{key}`.")
    path = _path(value["$map"], below(pointer, "$map"), reader)
    name = value.get("as", "$item")
    if not isinstance(name, str) or not _ITEM.fullmatch(name) or name in reader.names:
        why = "`as` is a name of its own, as in `$item`."
        reader.report.add("invalid_name", below(pointer, "as"), why)
        name = "$item"
    inner = replace(reader, names=reader.names | {name})
    to = _select(value.get("to"), below(pointer, "to"), inner)
    return Constant(None) if path is None else MapOf(path, name, to)


def _read_lookup(value: dict[str, object], pointer: str, reader: _Reader) -> Selected:
    check_keys(value, pointer, _LOOKUP_KEYS, reader.report)
    path = _path(value["$lookup"], below(pointer, "$lookup"), reader)
    place = below(pointer, "where")
    where = value.get("where")
    if "where" not in value:
        reader.report.add("missing_key", pointer, "`$lookup` needs `where`.")
    elif not isinstance(where, dict) or not where:
        why = '`where` is an object of fields and values, as in {"id": "$item.product_id"}.'
        reader.report.add("wrong_type", place, why)
    where = where if isinstance(where, dict) else {}
    tests = tuple(
        (
            tuple(field.split(".")),
            read_template(_bound(each), below(place, field), reader.scope(), reader.report),
        )
        for field, each in where.items()
    )
    chosen = value.get("select", "$")
    written = chosen
    if isinstance(chosen, str) and _OF_ITEM.match(chosen):
        written = f"{FOUND}{chosen[1:]}"
    inner = Scope(True, None, names=frozenset((FOUND,)), paths=_OF_FOUND)
    select = read_path(written, below(pointer, "select"), inner, reader.report)
    return Constant(None) if path is None else LookupOf(path, tests, select)


def _path(value: object, pointer: str, reader: _Reader) -> Path | None:
    faults = len(reader.report)
    path = read_path(_bound(value), pointer, reader.scope(), reader.report)
    return path if len(reader.report) == faults else None


def _bound(value: object) -> object:
    """With `$.name` as `$name`, which is how the handler language calls what is bound; within lists and
    `$merge` too."""
    if isinstance(value, str):
        return f"${value[2:]}" if value.startswith("$.") else value
    if isinstance(value, list):
        return [_bound(each) for each in value]
    if isinstance(value, dict) and "$literal" not in value:
        return {key: _bound(each) for key, each in value.items()}
    return value
