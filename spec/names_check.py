"""The parts of a spec that declare names: `public_ids`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from spec.errors import Report, below, proposal, shown
from spec.model import Spec
from spec.names import PUBLIC_KEY_GRAMMAR, PublicIds

_PUBLIC_KEY = re.compile(PUBLIC_KEY_GRAMMAR)


def check_public_ids(
    value: object, pointer: str, _environ: Mapping[str, str], spec: Spec, report: Report
) -> PublicIds | None:
    """`public_ids`: {"key": "VNO", "types": ["character"]}; an empty object declares none. None where nothing
    is declared, or what is has a fault."""
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, '`public_ids` is an object: {"key": "VNO", "types": ["order"]}.')
        return None
    if not value:
        return None
    before = len(report)
    _check_keys(value, pointer, ("key", "types"), report)
    key = value.get("key")
    if "key" in value and not (isinstance(key, str) and _PUBLIC_KEY.fullmatch(key)):
        why = f"A key of public ids is `{PUBLIC_KEY_GRAMMAR}`, like `VNO`."
        report.add("invalid_value" if isinstance(key, str) else "wrong_type", below(pointer, "key"), why)
    types = _types(value.get("types", []), below(pointer, "types"), spec.aggregate_types, report)
    return PublicIds(key, types) if len(report) == before and isinstance(key, str) else None


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
