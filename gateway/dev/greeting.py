"""The command that a newcomer pastes: an append that the tenant's spec accepts."""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs

DEPTH_MAX = 8
"""A schema nested deeper is not worth a greeting."""


def curl(base_url: str, key: str, key_file: Path | None, spec: object) -> str:
    """A curl command that appends one event: the first of the spec whose schema a simple value satisfies.

    It reads the key from the file, if one is given: what is no terminal keeps what it is sent. `spec` is a
    spec document, bare or wrapped. Where nothing simple does, the command reads the spec.
    """
    bearer = shlex.quote(f"Authorization: Bearer {key}")
    if key_file is not None:
        bearer = f'"Authorization: Bearer $(cat {shlex.quote(str(key_file))})"'
    request = _request(_bare(spec))
    if request is None:
        return f"curl {shlex.quote(base_url + '/_/spec')} -H {bearer}"
    path, body = request
    more = shlex.join(["-H", "Content-Type: application/json", "-d", json.dumps(body)])
    return f"curl -X POST {shlex.quote(base_url + path)} -H {bearer} {more}"


def _request(spec: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    agents = spec.get("agent_types") or ()
    for aggregate_type, declared in _items(spec.get("aggregate_types")):
        for event_type, event in _items(_mapping(declared).get("events")):
            schema = _mapping(event).get("schema", True)
            data = sample(schema)
            if agents and _accepts(schema, data):
                actor = {"type": agents[0], "id": str(uuid.uuid4())}
                path = f"/{aggregate_type}/{uuid.uuid4()}/{event_type}"
                return path, {"data": data, "metadata": {"actor": actor}}
    return None


def sample(schema: object, depth: int = 0) -> Any:
    """A plain value of the kind that the JSON Schema describes; not necessarily one that it accepts."""
    schema = _mapping(schema)
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object" and depth < DEPTH_MAX:
        properties = _mapping(schema.get("properties"))
        wanted = schema.get("required") or list(properties)[:1]
        return {name: sample(properties.get(name), depth + 1) for name in wanted}
    if kind == "array" and depth < DEPTH_MAX:
        return [sample(schema.get("items"), depth + 1)] * int(schema.get("minItems", 0))
    return _scalar(kind, schema)


def _scalar(kind: object, schema: Mapping[str, Any]) -> Any:
    match kind:
        case "string":
            if schema.get("format") == "uuid":
                return str(uuid.uuid4())
            return "example".ljust(int(schema.get("minLength", 0)), ".")[: int(schema.get("maxLength", 80))]
        case "integer" | "number":
            return schema.get("minimum", schema.get("maximum", 42))
        case "boolean":
            return True
        case "object":
            return {}
        case "array":
            return []
    return None


def _accepts(schema: object, data: object) -> bool:
    try:
        return jsonschema_rs.is_valid(schema, data)  # type: ignore[arg-type]
    except (jsonschema_rs.ValidationError, ValueError):
        return False


def _bare(spec: object) -> Mapping[str, Any]:
    spec = _mapping(spec)
    return _mapping(spec["spec"]) if "spec" in spec else spec


def _items(value: object) -> list[tuple[str, Any]]:
    return list(_mapping(value).items())


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
