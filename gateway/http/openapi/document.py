"""A tenant's spec as an OpenAPI 3.1 document: what /_/openapi.json answers.

Pure: the same spec, revision and settings give the same document. Nothing in it refers outside.
"""

from __future__ import annotations

from typing import Any

from gateway import __version__
from gateway.config import Config
from gateway.http.openapi.aggregates import (
    LINE,
    aggregate_paths,
    append_schema,
    event_schemas,
    line_schemas,
    named_events,
)
from gateway.http.openapi.answers import shared_answers
from gateway.http.openapi.lists import list_parameters, list_paths, list_schemas, projection_paths
from gateway.http.openapi.outgoing import TAG, subscription_schemas
from gateway.http.openapi.parameters import headers, parameters
from gateway.http.openapi.refusals import shared_responses
from gateway.http.openapi.schemas import Schema, shared_schemas
from gateway.http.openapi.system import system_paths
from spec.model import Spec
from spec.schemas import DIALECT

OPENAPI = "3.1.0"
# Read once: the release that is running.
RELEASE = __version__


def document(spec: Spec, revision: int, config: Config) -> dict[str, Any]:
    """What can be asked of this gateway by a tenant that declares `spec`."""
    declared = spec.aggregate_types.values()
    paths: dict[str, Schema] = {}
    for each in declared:
        paths |= aggregate_paths(spec, each)
        for path, item in list_paths(each).items():
            paths[path] = item | paths.get(path, {})
    return {
        "openapi": OPENAPI,
        "jsonSchemaDialect": DIALECT,
        "info": {
            "title": "Sluice",
            "version": f"{RELEASE}+spec.{revision}",
            "summary": "Event sourcing over plain HTTP.",
            "description": _description(config),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "tags": [
            *({"name": each.name} for each in declared),
            {"name": TAG, "description": "The service and its tenant, apart from aggregates."},
        ],
        "paths": paths | system_paths(config) | projection_paths(TAG),
        "components": {
            "schemas": shared_schemas(spec) | subscription_schemas() | list_schemas() | _events(spec),
            "parameters": parameters() | list_parameters(),
            "headers": headers(),
            "responses": shared_answers() | shared_responses(),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": _KEYS}},
        },
    }


def _events(spec: Spec) -> dict[str, Any]:
    """The schemas that come of the spec's events. A line of /_/bulk can be any of them, if there are any."""
    found: dict[str, Any] = {}
    possible: list[Schema] = []
    named: list[Schema] = []
    for declared in spec.aggregate_types.values():
        found |= event_schemas(declared)
        possible += line_schemas(declared)
        named += named_events(declared)
    lines: Schema = {"anyOf": [*possible, append_schema(named, LINE)]} if possible else {"not": {}}
    return {"BulkLine": lines, "Append": append_schema(named), **found}


_KEYS = (
    "A key belongs to one tenant and has the scope `read`, `write` or `admin`; each includes the one before."
)


def _description(config: Config) -> str:
    return (
        "Where nothing else is said, GET needs the scope `read`, an append `write`, all else `admin`. "
        "Paths with GET also answer HEAD; other methods get a 405. An error has a `code` and a sentence; "
        "the first check that fails determines it. "
        f"Limits: {config.event_bytes_max} bytes of data per event, {config.body_bytes_max} a body, "
        f"{config.headers_max} headers of {config.header_bytes_max} bytes together. After a 503 or 504, "
        "retry an append with the same bytes and the same `Idempotency-Key`: its events are then appended "
        "exactly once."
    )
