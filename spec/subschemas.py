"""The places of one JSON Schema: its subschemas, what refers to what, and how much work checking is.

Pure walking over JSON. A place is named by its RFC 6901 pointer within the schema; "" is the schema itself.
A schema is one resource: a `$ref` is `#`, `#/pointer` or `#anchor`, so there is nothing it could fetch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Final, TypeGuard
from urllib.parse import unquote

from spec.errors import below
from spec.patterns import breadth

Schema = dict[str, object] | bool

UNFOLDED_DEPTH_MAX = 128
"""Longest chain of subschemas and references. The validator and this module recurse along it."""

ONE_SCHEMA = (
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
SCHEMA_MAPS = ("dependentSchemas", "patternProperties", "properties")
SAME_VALUE = frozenset({"allOf", "anyOf", "dependentSchemas", "else", "if", "not", "oneOf", "then"})
DEFINITIONS = ("$defs", "definitions")
_MAPS = frozenset((*SCHEMA_MAPS, *DEFINITIONS))
REFERENCES = ("$ref", "$dynamicRef")
ANCHORS = ("$anchor", "$dynamicAnchor")

_REFERENCE = re.compile(r"#(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*")


@dataclass(frozen=True, slots=True)
class Places:
    """`schemas` by pointer, in document order; `anchors` to pointers."""

    schemas: Mapping[str, Schema]
    anchors: Mapping[str, str]

    def resolve(self, reference: str) -> str | None:
        """The pointer that a `$ref` leads to, or None when it leads to no subschema of this schema."""
        if not _REFERENCE.fullmatch(reference):
            return None
        fragment = unquote(reference[1:], errors="replace")
        pointer = self.anchors.get(fragment, fragment)
        return pointer if pointer in self.schemas else None


def hashed(schema: Schema, kept: Collection[str], pointer: str = "") -> Schema:
    """The same schema for a validator, but that a choice among constants (`anyOf` of nothing but `const`) is
    an `enum`: that looks a value up, where each branch of an `anyOf` compares it. `kept` are the pointers
    that references lead to."""
    if not isinstance(schema, dict):
        return schema
    made: dict[str, object] = {}
    for keyword, value in schema.items():
        place = below(pointer, keyword)
        if keyword in ONE_SCHEMA and is_schema(value):
            made[keyword] = hashed(value, kept, place)
        elif keyword in SCHEMA_LISTS and isinstance(value, list):
            made[keyword] = [
                hashed(each, kept, below(place, n)) if is_schema(each) else each
                for n, each in enumerate(value)
            ]
        elif keyword in _MAPS and isinstance(value, dict):
            made[keyword] = {
                name: hashed(each, kept, below(place, name)) if is_schema(each) else each
                for name, each in value.items()
            }
        else:
            made[keyword] = value
    branches = schema.get("anyOf")
    if "enum" not in schema and are_constants(branches):
        assert isinstance(branches, list)
        place = below(pointer, "anyOf")
        if not any(each == place or each.startswith(f"{place}/") for each in kept):
            del made["anyOf"]
            made["enum"] = [branch["const"] for branch in branches]
    return made


def are_constants(branches: object) -> bool:
    """Whether it is a list of nothing but `{"const": …}`, none of them an object or a list."""
    return (
        isinstance(branches, list)
        and branches != []
        and all(
            isinstance(branch, dict)
            and branch.keys() == {"const"}
            and not isinstance(branch["const"], dict | list)
            for branch in branches
        )
    )


def is_schema(value: object) -> TypeGuard[Schema]:
    return isinstance(value, dict | bool)


def places(root: Schema) -> Places:
    """Every subschema of `root`, itself included. Skips what is no schema where one belongs."""
    schemas: dict[str, Schema] = {}
    anchors: dict[str, str] = {}
    waiting: list[tuple[str, Schema]] = [("", root)]
    while waiting:
        pointer, schema = waiting.pop()
        schemas[pointer] = schema
        if isinstance(schema, dict):
            waiting.extend(reversed([*applied(pointer, schema), *_defined(pointer, schema)]))
            for keyword in ANCHORS:
                if isinstance(name := schema.get(keyword), str):
                    anchors[name] = pointer
    return Places(schemas, anchors)


def applied(pointer: str, schema: dict[str, object]) -> Iterator[tuple[str, Schema]]:
    """The subschemas that checking a value against `schema` may check it, or a part of it, against."""
    for keyword in ONE_SCHEMA:
        if is_schema(found := schema.get(keyword)):
            yield below(pointer, keyword), found
    for keyword in SCHEMA_LISTS:
        if isinstance(found := schema.get(keyword), list):
            for index, item in enumerate(found):
                if is_schema(item):
                    yield below(pointer, keyword, index), item
    yield from _mapped(pointer, schema, SCHEMA_MAPS)


def _defined(pointer: str, schema: dict[str, object]) -> Iterator[tuple[str, Schema]]:
    yield from _mapped(pointer, schema, DEFINITIONS)


def _mapped(
    pointer: str, schema: dict[str, object], keywords: tuple[str, ...]
) -> Iterator[tuple[str, Schema]]:
    for keyword in keywords:
        if isinstance(found := schema.get(keyword), dict):
            for name, item in found.items():
                if is_schema(item):
                    yield below(pointer, keyword, name), item


def is_circular(all_places: Places) -> bool:
    """Whether some place leads back to itself for one and the same value, which no validator can end.

    A schema may well be recursive, but every round must go into a property or an item.
    """
    steps = {pointer: [*_steps(all_places, pointer, same_value=True)] for pointer in all_places.schemas}
    try:
        TopologicalSorter(steps).prepare()
    except CycleError:
        return True
    return False


def _one(_schema: Schema) -> int:
    return 1


def weight(all_places: Places, limit: int, of: Callable[[Schema], int] = _one) -> int:
    """How many subschemas one value may be checked against, references unfolded; above `limit`, some number
    above `limit`. `of` says what one subschema counts, without those below it.

    A chain of definitions that each refer twice to the next doubles at every step, and so does the time that
    the validator takes. A reference back to a schema that is being unfolded counts nothing: the validator
    remembers the answers of recursive schemas.
    """
    weights: dict[str, int] = {}

    def unfold(pointer: str, depth: int) -> int:
        if pointer in weights:
            return weights[pointer]
        if depth > UNFOLDED_DEPTH_MAX:
            return limit + 1
        weights[pointer] = 0
        below_it = sum(unfold(following, depth + 1) for following in _steps(all_places, pointer))
        weights[pointer] = of(all_places.schemas[pointer]) + below_it
        return weights[pointer]

    return max(unfold(pointer, 0) for pointer in all_places.schemas)


_PLACES_TABLED: Final = 8
"""Of so few places, the library has all combinations in a table: a character takes a look."""
_PLACE_WORK: Final = 16
"""What comparing 32 characters with a place of a pattern takes, in fifths of a comparison: 20 ns each."""


def own_work(schema: Schema) -> int:
    """What checking a value by the keywords of `schema` takes that have no subschemas, in the time that one
    simple comparison takes, 0.2 µs."""
    if not isinstance(schema, dict):
        return 1
    work = 1
    for keyword in ("enum", "const"):
        if keyword in schema and not _is_hashed(schema[keyword]):
            work += _values_in(schema[keyword])
    for keyword in ("dependentRequired", "required"):
        if isinstance(found := schema.get(keyword), dict | list):
            work += len(found) // 8
    patterns = schema.get("patternProperties")
    for pattern in (schema.get("pattern"), *(patterns if isinstance(patterns, dict) else ())):
        if isinstance(pattern, str):
            work += max(breadth(pattern) - _PLACES_TABLED, 0) * _PLACE_WORK // 5
    return work + (5 if "multipleOf" in schema else 0)


def _is_hashed(constants: object) -> bool:
    """Whether the validator looks a value up among them, or has but one to compare with."""
    if not isinstance(constants, list):
        return not isinstance(constants, dict)
    kinds = {type(each) for each in constants}
    return kinds <= {str} or kinds <= {int}


def _values_in(value: object) -> int:
    waiting, count = [value], 0
    while waiting:
        each = waiting.pop()
        count += 1
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return count


def _steps(all_places: Places, pointer: str, *, same_value: bool = False) -> Iterator[str]:
    """Where checking continues from `pointer`; with `same_value`, only where it checks the same value."""
    schema = all_places.schemas[pointer]
    if isinstance(schema, bool):
        return
    for place, _ in applied(pointer, schema):
        if not same_value or place[len(pointer) + 1 :].split("/")[0] in SAME_VALUE:
            yield place
    for keyword in REFERENCES:
        reference = schema.get(keyword)
        if isinstance(reference, str) and (target := all_places.resolve(reference)) is not None:
            yield target
