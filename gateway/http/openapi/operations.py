"""One operation of a path, as OpenAPI wants it written. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.http.openapi.parameters import header_refs, refer
from gateway.http.openapi.refusals import responses_of
from gateway.http.openapi.schemas import Schema

JSON = "application/json"
NDJSON = "application/x-ndjson"
SSE = "text/event-stream"
CLOUD_EVENTS = "application/cloudevents-batch+json"

NO_EXAMPLE = object()


def operation(
    operation_id: str,
    summary: str,
    *,
    tag: str,
    done: Schema,
    refused: str,
    parameters: Iterable[str] = (),
    body: Schema | None = None,
) -> Schema:
    """`done` are the responses to what is granted, `refused` the group of refusals of the rest."""
    found: Schema = {"operationId": operation_id, "summary": summary, "tags": [tag]}
    if names := tuple(parameters):
        found["parameters"] = refer(*names)
    if body is not None:
        found["requestBody"] = body
    return {**found, "responses": {**done, **responses_of(refused)}}


def answer(
    description: str, schema: Schema, headers: Iterable[str] = (), example: object = NO_EXAMPLE
) -> Schema:
    """A response in JSON."""
    return {
        "description": description,
        "headers": header_refs(*headers),
        "content": {JSON: _shown(schema, example)},
    }


def not_modified(*headers: str) -> Schema:
    return {"description": "Your copy is current.", "headers": header_refs("ETag", *headers)}


def shared(status: str, name: str) -> Schema:
    """By status, a reference to one of the shared responses."""
    return {status: {"$ref": f"#/components/responses/{name}"}}


def request(schema: Schema, example: object = NO_EXAMPLE, media_type: str = JSON) -> Schema:
    return {"required": True, "content": {media_type: _shown(schema, example)}}


def lines(item: Schema, description: str) -> Schema:
    """A media type whose content is one JSON value a line: no one schema fits the whole. OpenAPI 3.2 has
    `itemSchema` for it."""
    return {"schema": {"description": description}, "x-itemSchema": item}


def _shown(schema: Schema, example: object) -> dict[str, Any]:
    return {"schema": schema} if example is NO_EXAMPLE else {"schema": schema, "example": example}
