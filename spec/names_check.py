"""The parts of a spec that declare names: `public_ids`, `hash_ids`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from spec.errors import Report, below, proposal, shown
from spec.model import Spec
from spec.names import HASH_PREFIX_GRAMMAR, PUBLIC_KEY_GRAMMAR, HashIds, PublicIds


def check_public_ids(
    value: object, pointer: str, _environ: Mapping[str, str], spec: Spec, report: Report
) -> PublicIds | None:
    """`public_ids`: {"key": "VNO", "types": ["character"]}; an empty object declares none. None where nothing
    is declared, or what is has a fault."""
    read = _read(value, pointer, _PUBLIC, spec, report)
    return None if read is None else PublicIds(*read)


def check_hash_ids(
    value: object, pointer: str, _environ: Mapping[str, str], spec: Spec, report: Report
) -> HashIds | None:
    """`hash_ids`: {"prefix": "bd", "types": ["issue"]}, likewise."""
    read = _read(value, pointer, _HASH, spec, report)
    return None if read is None else HashIds(*read)


def check_prefixes(spec: Spec, pointer: str, report: Report) -> None:
    """One registry of prefixes for all kinds, in which upper and lower case are the same, as they are in what
    people type."""
    public_ids, hash_ids = spec.public_ids, spec.hash_ids
    if public_ids is not None and hash_ids is not None and public_ids.key == hash_ids.prefix.upper():
        why = f"{shown(hash_ids.prefix)} is the key of `public_ids` already; take another prefix."
        report.add("duplicate_prefix", below(pointer, _HASH.part, _HASH.member), why)


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
    for key in value:
        if key not in keys:
            why = f"{shown(key)} means nothing here. {proposal(key, frozenset(keys))}"
            report.add("unknown_key", below(pointer, key), why)
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
        if not isinstance(name, str):
            report.add("wrong_type", place, "A name must be a string.")
        elif name in found:
            report.add("duplicate_name", place, f"{shown(name)} stands above already; remove one.")
        elif name not in declared:
            why = f"The spec declares no aggregate type {shown(name)}; declare it, or remove this."
            report.add("undeclared", place, why)
        else:
            found[name] = None
    return tuple(found)
