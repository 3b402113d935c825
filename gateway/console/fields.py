"""A form made from a JSON Schema, and the data that a form sends. Pure.

Texts, numbers, switches and choices at the top have fields of their own; all else is JSON in one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from gateway.admit import strict_json

FIELDS_MAX: Final = 50
CHOICES_MAX: Final = 200
"""Of one field: of more, its value is written as JSON."""
_REST: Final = "data"


class Field(NamedTuple):
    """`kind` is text, number, switch, choice or json; `value` as it was sent before."""

    name: str
    kind: str
    needed: bool
    value: str
    choices: tuple[str, ...] = ()
    about: str = ""


def fields_of(schema: object, given: Mapping[str, str]) -> list[Field]:
    properties = _properties(schema)
    if properties is None:
        return [Field(_REST, "json", True, given.get(_REST, "{}"))]
    assert isinstance(schema, Mapping)
    needed = schema.get("required", ())
    return [_field(name, each, name in needed, given) for name, each in properties.items()]


def _field(name: str, schema: object, needed: bool, given: Mapping[str, str]) -> Field:
    value = given.get(f"field.{name}", "")
    said = schema if isinstance(schema, Mapping) else {}
    about = str(said.get("description", ""))
    enum = said.get("enum")
    if isinstance(enum, list) and len(enum) <= CHOICES_MAX:
        choices = tuple(json.dumps(each, ensure_ascii=False) for each in enum)
        return Field(f"field.{name}", "choice", needed, value, choices, about)
    kinds = {"string": "text", "integer": "number", "number": "number", "boolean": "switch"}
    kind = said.get("type")
    return Field(
        f"field.{name}",
        kinds.get(kind, "json") if isinstance(kind, str) else "json",
        needed,
        value,
        (),
        about,
    )


def data_of(schema: object, form: Mapping[str, str]) -> tuple[Any, str | None]:
    """The data, or what is wrong with a field. An empty field is left out; JSON stays as it was written, a
    number with all of its digits."""
    data: dict[str, Any] = {}
    for field in fields_of(schema, form):
        text = form.get(field.name, "")
        if not text:
            continue
        if field.kind == "text":
            value: Any = text
        else:
            written = text.encode()
            found = strict_json.decode(written)
            if isinstance(found, strict_json.Malformed):
                return None, f"{field.name.removeprefix('field.')}: {found.reason}"
            value = msgspec.Raw(written)
        if field.name == _REST:
            return value, None
        data[field.name.removeprefix("field.")] = value
    return data, None


def _properties(schema: object) -> Mapping[str, Any] | None:
    """Of an object whose parts can have fields of their own."""
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, Mapping) and 0 < len(found) <= FIELDS_MAX else None
