"""From the `schema` of an event to a `CompiledSchema`, or the faults that keep it from being one.

JSON Schema 2020-12 by jsonschema-rs, narrowed so that no schema can reach outside itself or take without end:
references stay inside, regular expressions run in linear time, and the work for one value is bounded. Data
have as much work as they have values, times the weight of their schema (violations.py): that is bounded by
those who check.
`format` is an annotation, as 2020-12 has it: it documents and refuses nothing.
"""

from __future__ import annotations

import functools

import jsonschema_rs

from spec.errors import Report, below, shown
from spec.subschemas import (
    ANCHORS,
    REFERENCES,
    UNFOLDED_DEPTH_MAX,
    Places,
    Schema,
    is_circular,
    places,
    weight,
)
from spec.violations import CompiledSchema, compiled

DIALECT = "https://json-schema.org/draft/2020-12/schema"

SCHEMA_WEIGHT_MAX = 10_000
"""Subschemas that one value may be checked against, references unfolded: about 0.2 ms of checking."""

_NO_LINEAR_MATCH = (
    "is not a regular expression that takes linear time and little memory: close every bracket, and "
    "write it without lookaround, without backreferences and without large counted repeats (`maxLength` "
    "counts)."
)


def compile_schema(schema: object, pointer: str, report: Report) -> CompiledSchema | None:
    """`schema`, which stands at `pointer`, ready to check data; or None, with faults in `report`."""
    if not isinstance(schema, dict | bool):
        report.add("wrong_type", pointer, "`schema` must be a JSON Schema: an object, true or false.")
        return None
    faults_before = len(report)
    _check_vocabulary(schema, pointer, report)
    found = places(schema)
    for place, subschema in found.schemas.items():
        if isinstance(subschema, dict):
            _check_resource(subschema, place, pointer, report)
            _check_references(subschema, pointer + place, found, report)
            _check_patterns(subschema, pointer + place, report)
    _check_anchors(found, pointer, report)
    if is_circular(found):
        report.add("circular_ref", pointer, _CIRCULAR)
    elif weight(found, SCHEMA_WEIGHT_MAX) > SCHEMA_WEIGHT_MAX:
        report.add("schema_too_complex", pointer, _TOO_COMPLEX)
    if len(report) > faults_before:
        return None
    return _built(schema, found, pointer, report)


@functools.cache
def any_value() -> CompiledSchema:
    """The schema `true`."""
    return CompiledSchema.of(True, places(True))


_CIRCULAR = (
    "A `$ref` of this schema leads back to itself without going into a property or an item, so checking "
    "would never end; break the circle."
)
_TOO_COMPLEX = (
    f"With its references unfolded, this schema has over {SCHEMA_WEIGHT_MAX} subschemas, or a chain of over "
    f"{UNFOLDED_DEPTH_MAX}; refer to fewer definitions from each definition."
)


_TYPES = (
    "`type` is one of array, boolean, integer, null, number, object, string, or a list of some of these, "
    "none of them twice."
)


@functools.cache
def _dialect() -> jsonschema_rs.Draft202012Validator:
    return compiled({"$ref": DIALECT})


def _check_vocabulary(schema: Schema, pointer: str, report: Report) -> None:
    """What the 2020-12 meta-schema says. It reports a place once for every vocabulary: keep one."""
    if _dialect().is_valid(schema):
        return
    seen: set[str] = set()
    for error in _dialect().iter_errors(schema):
        place = below(pointer, *error.instance_path)
        if place not in seen:
            seen.add(place)
            keyword = error.instance_path[-1] if error.instance_path else ""
            why = (
                _TYPES
                if keyword == "type"
                else f"In JSON Schema 2020-12 this is written differently: {error.message}."
            )
            report.add("invalid_schema", place, why)


def _check_resource(schema: dict[str, object], place: str, pointer: str, report: Report) -> None:
    """One dialect, one resource; and no keyword of older dialects that the validator would still obey."""
    if "dependencies" in schema:
        why = "`dependencies` is not in JSON Schema 2020-12; write `dependentRequired` or `dependentSchemas`."
        report.add("invalid_schema", below(pointer + place, "dependencies"), why)
    if place == "":
        dialect = schema.get("$schema", DIALECT)
        if isinstance(dialect, str) and dialect not in (DIALECT, DIALECT + "#"):
            why = f"Schemas here are JSON Schema 2020-12; rewrite this one and say {shown(DIALECT)}."
            report.add("invalid_schema", below(pointer, "$schema"), why)
        return
    for keyword in ("$id", "$schema"):
        if keyword in schema:
            why = f"`{keyword}` inside a schema starts another one; remove it and refer to `#/$defs/…`."
            report.add("invalid_schema", below(pointer + place, keyword), why)


def _check_references(schema: dict[str, object], pointer: str, found: Places, report: Report) -> None:
    for keyword in REFERENCES:
        reference = schema.get(keyword)
        if not isinstance(reference, str) or found.resolve(reference) is not None:
            continue
        if reference.startswith("#"):
            why = f"{shown(reference)} leads to no subschema; define it under `$defs`, percent-encoded here."
            report.add("unresolved_ref", below(pointer, keyword), why)
        else:
            why = f"{shown(reference)} leaves the schema; copy it under `$defs` and refer to `#/$defs/…`."
            report.add("remote_ref", below(pointer, keyword), why)


def _check_patterns(schema: dict[str, object], pointer: str, report: Report) -> None:
    if isinstance(pattern := schema.get("pattern"), str) and not _is_linear(pattern):
        report.add("invalid_pattern", below(pointer, "pattern"), f"{shown(pattern)} {_NO_LINEAR_MATCH}")
    if isinstance(patterns := schema.get("patternProperties"), dict):
        for pattern in patterns:
            if not _is_linear(pattern):
                place = below(pointer, "patternProperties", pattern)
                report.add("invalid_pattern", place, f"{shown(pattern)} {_NO_LINEAR_MATCH}")


def _is_linear(pattern: str) -> bool:
    try:
        compiled({"pattern": pattern})
    except ValueError:
        return False
    return True


def _check_anchors(found: Places, pointer: str, report: Report) -> None:
    first: set[str] = set()
    for place, schema in found.schemas.items():
        for keyword in ANCHORS:
            name = schema.get(keyword) if isinstance(schema, dict) else None
            if not isinstance(name, str):
                continue
            if name in first:
                why = f"The anchor {shown(name)} is declared twice; rename one."
                report.add("invalid_schema", below(pointer + place, keyword), why)
            first.add(name)


def _built(schema: Schema, found: Places, pointer: str, report: Report) -> CompiledSchema | None:
    try:
        return CompiledSchema.of(schema, found)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        # All that is known to be left is an `$id` that is no URI.
        why = f"The schema can't be used: {shown(str(error).partition(chr(10))[0])}."
        report.add("invalid_schema", pointer, why)
        return None
