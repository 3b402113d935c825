"""An event's JSON Schema inside another document: the same meaning, with references that lead there.

Pure. A spec's schema is one resource that refers to itself by `#…`; within an OpenAPI document `#` is the
whole document. Rewritten by place, as spec/subschemas.py finds them: what looks like a keyword inside an
`enum`, a `default` or a property's name stays as it is.
"""

from __future__ import annotations

import copy
from urllib.parse import quote

from spec.subschemas import Places, Schema, places

# What a fragment may hold unescaped (RFC 3986 section 3.5).
_FRAGMENT_SAFE = "/~!$&'()*+,;=:@?"
# They make a schema a resource, or name a place in one: here is one resource, and places have pointers.
_IDENTITY = ("$schema", "$id", "$anchor", "$dynamicAnchor", "$vocabulary")
# OpenAPI gives these a meaning of its own and an own grammar; in a spec they are annotations of any kind.
_OPENAPI_KEYWORDS = ("discriminator", "externalDocs", "xml")
# Data beside the rules: where it looks like a reference, some readers would follow it.
_ANNOTATIONS = ("default", "example", "examples")


def embedded(schema: Schema, home: str) -> Schema:
    """A copy of `schema` for the place `home`, a reference like `#/components/schemas/order.was_placed`.

    Every `$ref` of it is resolvable: spec/schemas.py accepts no other.
    """
    if isinstance(schema, bool):
        return (
            {} if schema else {"not": {}}
        )  # booleans stand here rightly, but many readers take only objects
    copied = copy.deepcopy(schema)
    found = places(copied)
    for subschema in found.schemas.values():
        if isinstance(subschema, dict):
            _rewrite(subschema, found, home)
    return copied


def _rewrite(schema: dict[str, object], found: Places, home: str) -> None:
    for keyword in (*_IDENTITY, *_OPENAPI_KEYWORDS):
        schema.pop(keyword, None)
    for keyword in _ANNOTATIONS:
        if _mentions_reference(schema.get(keyword)):
            del schema[keyword]
    if isinstance(reference := schema.get("$ref"), str):
        schema["$ref"] = _moved(reference, found, home)
    if isinstance(reference := schema.get("$dynamicRef"), str):
        del schema["$dynamicRef"]  # with one resource it leads where `$ref` does
        _add_reference(schema, _moved(reference, found, home))


def _add_reference(schema: dict[str, object], reference: str) -> None:
    if "$ref" not in schema:
        schema["$ref"] = reference
        return
    branches = schema.setdefault("allOf", [])
    assert isinstance(branches, list)  # by the meta-schema
    branches.append({"$ref": reference})


def _moved(reference: str, found: Places, home: str) -> str:
    pointer = found.resolve(reference)
    assert pointer is not None  # spec/schemas.py refuses others
    return home + quote(pointer, safe=_FRAGMENT_SAFE)


def _mentions_reference(value: object) -> bool:
    if isinstance(value, dict):
        return "$ref" in value or any(map(_mentions_reference, value.values()))
    return isinstance(value, list) and any(map(_mentions_reference, value))
