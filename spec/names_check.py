"""The parts of a spec that declare names: `public_ids`, `hash_ids`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from spec.errors import Report, below, shown
from spec.fields import check_keys, read_fields
from spec.handlers import EACH, Path, Root
from spec.model import Spec
from spec.names import (
    HASH_CHARS_MAX,
    HASH_CHARS_MIN,
    HASH_PREFIX_GRAMMAR,
    PUBLIC_KEY_GRAMMAR,
    HashedOf,
    HashIds,
    Projects,
    PublicIds,
)
from spec.templates import Scope, read_path


def check_public_ids(
    value: object, pointer: str, _environ: Mapping[str, str], spec: Spec, report: Report
) -> PublicIds | None:
    """`public_ids`: {"key": "VNO", "types": ["character"]}, or `projects` with `member`, or both; an empty
    object declares none. None where nothing is declared, or what is has a fault."""
    if not isinstance(value, dict) or not _PROJECTS & value.keys():
        read = _read(value, pointer, _PUBLIC, spec, report)
        return None if read is None else PublicIds(*read)
    before = len(report)
    projects = _projects(value, pointer, spec, report)
    rest = {key: each for key, each in value.items() if key not in _PROJECTS}
    one = _read(rest, pointer, _PUBLIC, spec, report) if rest else None
    if projects is None or len(report) > before:
        return None
    twice = set(projects.types) & set(() if one is None else one[1])
    for name in sorted(twice):
        why = f"{shown(name)} is in `types` too; an aggregate has one public id."
        report.add("duplicate_name", below(pointer, "member", name), why)
    return PublicIds(*(one or ("", ())), projects)


def _projects(value: dict[str, object], pointer: str, spec: Spec, report: Report) -> Projects | None:
    before = len(report)
    place = below(pointer, "projects")
    if "projects" not in value:
        report.add("missing_key", pointer, f"`member` needs `projects` as well: {_PROJECT_EXAMPLE}.")
        return None
    declared = read_fields(value["projects"], place, "`projects`", _PROJECT, (), report)
    if not isinstance(value["projects"], dict):
        return None
    for key in ("type", "key"):
        if key not in declared:
            report.add("missing_key", place, f"`projects` needs `{key}`: {_PROJECT_EXAMPLE}.")
    name = declared.get("type")
    if "type" in declared:
        _is_type(name, below(place, "type"), spec.aggregate_types, report)
    path = _path(declared.get("key", "$.data"), below(place, "key"), report)
    unique = declared.get("unique", "tenant")
    if unique not in ("tenant", "instance"):
        report.add("invalid_value", below(place, "unique"), '`unique` is "tenant" or "instance".')
    members = value.get("member")
    if not isinstance(members, dict) or not members:
        why = '`member` must say where each type names its project: {"character": "$.data.project_id"}.'
        if "member" in value:
            report.add("wrong_type", below(pointer, "member"), why)
        else:
            report.add("missing_key", pointer, why)
        return None
    for each in members:
        if each not in spec.aggregate_types:
            why = f"The spec declares no aggregate type {shown(each)}; declare it, or remove this."
            report.add("undeclared", below(pointer, "member", each), why)
    read = [
        (each, _path(path, below(pointer, "member", each), report, True)) for each, path in members.items()
    ]
    if len(report) > before:
        return None
    assert isinstance(name, str)
    return Projects(name, path, tuple(read), unique == "instance")


def check_hash_ids(
    value: object, pointer: str, _environ: Mapping[str, str], spec: Spec, report: Report
) -> HashIds | None:
    """`hash_ids`: {"prefix": "bd", "types": ["issue"]}, likewise; with `length` and `of`."""
    if not isinstance(value, dict):
        _read(value, pointer, _HASH, spec, report)
        return None
    before = len(report)
    length, of = value.get("length", HASH_CHARS_MIN), value.get("of", "key")
    if (
        isinstance(length, bool)
        or not isinstance(length, int)
        or not HASH_CHARS_MIN <= length <= HASH_CHARS_MAX
    ):
        why = f"`length` is a whole number from {HASH_CHARS_MIN} to {HASH_CHARS_MAX}."
        report.add("invalid_value", below(pointer, "length"), why)
    hashed = None if of == "key" else _hashed_of(of, below(pointer, "of"), report)
    rest = {key: each for key, each in value.items() if key not in ("length", "of")}
    read = _read(rest, pointer, _HASH, spec, report)
    if read is None or len(report) > before:
        return None
    assert isinstance(length, int)
    return HashIds(*read, length, hashed)


def _hashed_of(value: object, pointer: str, report: Report) -> HashedOf | None:
    declared = read_fields(value, pointer, "`of`", _OF, (), report)
    for key in sorted(_OF - declared.keys()) if isinstance(value, dict) else ():
        report.add("missing_key", pointer, f'`of` needs `{key}`, or is "key".')
    paths = {key: _path(each, below(pointer, key), report) for key, each in declared.items()}
    return HashedOf(**paths) if paths.keys() == _OF else None


_PROJECTS: Final = frozenset({"projects", "member"})
_PROJECT: Final = frozenset({"type", "key", "unique"})
_OF: Final = frozenset({"title", "description", "created"})
_PROJECT_EXAMPLE: Final = '{"type": "project", "key": "$.data.key"}'


def _path(value: object, pointer: str, report: Report, aggregate: bool = False) -> Path:
    path = read_path(value, pointer, Scope(True, None, aggregate=aggregate), report)
    if path.root not in (Root.DATA, Root.AGGREGATE) or EACH in path.fields:
        why = "This is a value of the creating event: `$.data.field`" + (
            " or `^.field`." if aggregate else "."
        )
        report.add("invalid_path", pointer, why)
    return path


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a part declares its kind of names."""

    part: str
    member: str
    grammar: str
    example: str


_PUBLIC = _Kind("public_ids", "key", PUBLIC_KEY_GRAMMAR, '{"key": "VNO", "types": ["order"]}')
_HASH = _Kind("hash_ids", "prefix", HASH_PREFIX_GRAMMAR, '{"prefix": "bd", "types": ["issue"]}')


def _read(
    value: object, pointer: str, kind: _Kind, spec: Spec, report: Report
) -> tuple[str, tuple[str, ...]] | None:
    """Prefix and types."""
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, f"`{kind.part}` is an object: {kind.example}.")
        return None
    if not value:
        return None
    before = len(report)
    _check_keys(value, pointer, (kind.member, "types"), report)
    prefix = value.get(kind.member)
    if kind.member in value and not (isinstance(prefix, str) and re.fullmatch(kind.grammar, prefix)):
        code = "invalid_value" if isinstance(prefix, str) else "wrong_type"
        why = f"A {kind.member} of `{kind.part}` is `{kind.grammar}`, as in {kind.example}."
        report.add(code, below(pointer, kind.member), why)
    types = _types(value.get("types", []), below(pointer, "types"), spec.aggregate_types, report)
    return (prefix, types) if len(report) == before and isinstance(prefix, str) else None


def _check_keys(value: dict[str, object], pointer: str, keys: tuple[str, ...], report: Report) -> None:
    check_keys(value, pointer, keys, report)
    for key in keys:
        if key not in value:
            report.add("missing_key", pointer, f"`{key}` is missing here.")


def _types(value: object, pointer: str, declared: Collection[str], report: Report) -> tuple[str, ...]:
    """Distinct aggregate types of the spec."""
    if not isinstance(value, list):
        report.add("wrong_type", pointer, "`types` must be a list of aggregate types.")
        return ()
    found: dict[str, None] = {}
    for index, name in enumerate(value):
        place = below(pointer, index)
        if isinstance(name, str) and name in found:
            report.add("duplicate_name", place, f"{shown(name)} is listed above already; remove one.")
        elif _is_type(name, place, declared, report):
            found[name] = None
    return tuple(found)


def _is_type(name: object, pointer: str, declared: Collection[str], report: Report) -> bool:
    if not isinstance(name, str):
        report.add("wrong_type", pointer, "A name must be a string.")
        return False
    if name not in declared:
        why = f"The spec declares no aggregate type {shown(name)}; declare it, or remove this."
        report.add("undeclared", pointer, why)
        return False
    return True
