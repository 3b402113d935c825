"""A value that an event's schema accepts, for examples: found by simple means, or not at all.

Pure. Every sample was checked by the schema itself; where nothing simple fits there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spec.errors import below
from spec.model import EventType
from spec.violations import CompiledSchema

NO_SAMPLE: Final = object()
"""What `sample` gives where it finds nothing."""

STEPS_MAX: Final = 300
"""Subschemas looked at for one sample: enough for a page of JSON, and a bound for recursive schemas."""

DEPTH_MAX: Final = 8
"""Levels of one sample: what is deeper is no example any more."""

_BY_FORMAT = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "email": "ada@example.com",
    "time": "12:00:00Z",
    "uri": "https://example.com/",
    "uuid": "c0000000-0000-4000-a000-000000000003",
}
_TEXTS = ("example", "EUR", "A-1", "EXAMPLE", "123", *_BY_FORMAT.values())
_NUMBERS = (42, 1, 0, 0.5, -1)
_PLAIN: tuple[object, ...] = ({}, [], "example", 42, True, None)


def sample(event_type: EventType) -> object:
    """Data of this type, or NO_SAMPLE. The same for the same schema."""
    built = _Builder(event_type.compiled).at("", 0)
    for candidate in (built, *_PLAIN):
        if candidate is not NO_SAMPLE and event_type.violation(candidate) is None:
            return candidate
    return NO_SAMPLE


class _Builder:
    def __init__(self, compiled: CompiledSchema) -> None:
        self._compiled = compiled
        self._steps = 0

    def at(self, pointer: str, depth: int) -> object:
        """A value for the subschema at `pointer` that it accepts, or NO_SAMPLE."""
        self._steps += 1
        if self._steps > STEPS_MAX or depth > DEPTH_MAX:
            return NO_SAMPLE
        schema = self._compiled.places.schemas[pointer]
        if isinstance(schema, bool):
            return {} if schema else NO_SAMPLE
        accepts = self._compiled.parts["#" + pointer].is_valid
        candidates = self._candidates(pointer, schema, depth)
        return next((each for each in candidates if each is not NO_SAMPLE and accepts(each)), NO_SAMPLE)

    def _candidates(self, pointer: str, schema: dict[str, object], depth: int) -> Iterator[object]:
        for keyword in ("examples", "enum"):
            if isinstance(named := schema.get(keyword), list):
                yield from named[:3]
        for keyword in ("const", "default"):
            if keyword in schema:
                yield schema[keyword]
        kind = schema.get("type")
        kinds = kind if isinstance(kind, list) else [kind]
        for each in kinds:
            if each in (None, "object"):
                yield self._object(pointer, schema, depth)
            elif each == "array":
                yield self._array(pointer, schema, depth)
            else:
                yield from _scalars(each, schema)
        yield from (self.at(place, depth + 1) for place in self._elsewhere(pointer, schema))

    def _elsewhere(self, pointer: str, schema: dict[str, object]) -> Iterator[str]:
        """Subschemas for this same value that may well describe it whole."""
        if isinstance(reference := schema.get("$ref"), str):
            target = self._compiled.places.resolve(reference)
            if target is not None:
                yield target
        for keyword in ("oneOf", "anyOf", "allOf"):
            if isinstance(branches := schema.get(keyword), list):
                yield from (below(pointer, keyword, index) for index in range(len(branches)))

    def _object(self, pointer: str, schema: dict[str, object], depth: int) -> dict[str, object]:
        """Each declared property for which there is a sample."""
        named = schema.get("properties")
        names = list(named) if isinstance(named, dict) else []
        built = {name: self.at(below(pointer, "properties", name), depth + 1) for name in names}
        required = schema.get("required")
        more = required if isinstance(required, list) else []
        found = {name: value for name, value in built.items() if value is not NO_SAMPLE}
        return {**found, **{name: "example" for name in more if name not in built}}

    def _array(self, pointer: str, schema: dict[str, object], depth: int) -> list[object]:
        first = schema.get("prefixItems")
        leading = [
            self.at(below(pointer, "prefixItems", index), depth + 1)
            for index in range(len(first) if isinstance(first, list) else 0)
        ]
        item = self.at(below(pointer, "items"), depth + 1) if "items" in schema else "example"
        wanted = schema.get("minItems", 1)
        count = min(wanted, 10) if isinstance(wanted, int) else 1
        items = [*leading, *[item] * (max(count, 1) - len(leading))]
        return [] if NO_SAMPLE in items else items


def _scalars(kind: object, schema: dict[str, object]) -> Iterator[object]:
    match kind:
        case "string":
            if (text := _BY_FORMAT.get(str(schema.get("format")))) is not None:
                yield text
            yield from _TEXTS
            length = schema.get("minLength", schema.get("maxLength"))
            yield "example" * 20 if not isinstance(length, int) else ("example" * 20)[: min(length, 140)]
        case "integer" | "number":
            yield from _NUMBERS
            bounds = [schema.get(name) for name in ("minimum", "maximum", "multipleOf")]
            open_bounds = (("exclusiveMinimum", 1), ("exclusiveMaximum", -1))
            yield from (bound for bound in bounds if isinstance(bound, int | float))
            for name, step in open_bounds:
                if isinstance(bound := schema.get(name), int | float):
                    yield bound + step
        case "boolean":
            yield True
        case "null":
            yield None
