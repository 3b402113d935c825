"""The paths of source ids. Pure."""

from __future__ import annotations

from gateway.http.api.imports import RECORDS_MAX
from gateway.http.api.sources import SOURCES_MAX
from gateway.http.openapi.operations import NDJSON, answer, lines, operation, request
from gateway.http.openapi.parameters import EXAMPLE_ID
from gateway.http.openapi.schemas import OK, Schema, list_of, object_of, or_null
from gateway.names.imported import Result

TAG = "/_/"
_TEXT: Schema = {"type": "string"}
_PART: Schema = {"type": "string", "maxLength": 1024}
_ID: Schema = {"anyOf": [{**_PART, "minLength": 1}, {"type": "integer"}]}
SOURCE: Schema = object_of({"source": {**_PART, "minLength": 1}, "id": _ID}, {"scope": _PART}, closed=True)
_STANDS_FOR = {"key": _TEXT, "aggregate_type": or_null(_TEXT)}
_LAST_RECORD = {"content": _TEXT, "context": or_null(_TEXT), "last_event": or_null(_TEXT)}
_NAMES = ("source-of", "scope-of", "source_id")


def source_paths() -> dict[str, Schema]:
    """By path."""
    return {
        "/_/import": {"post": _import()},
        "/_/sources": {"get": _of_key()},
        "/_/sources/resolve": {"post": _resolve()},
        "/_/sources/{source}/export": {"get": _export()},
        "/_/sources/{source}/{scope}/{source_id}": {"get": _get(), "put": _put()},
    }


def _import() -> Schema:
    told = object_of(
        {"line": {"type": "integer"}, "status": {"type": "integer"}, "ok": OK},
        {
            "result": {"enum": [each.value for each in Result]},
            "key": or_null(_TEXT),
            "was": _TEXT,
            "event_id": _TEXT,
        },
    )
    refusal: Schema = object_of({"line": {"type": "integer"}, "status": {"type": "integer"}})
    answered = lines(
        {"anyOf": [told, refusal]}, "`line` counts from 1; an error has the form of a bulk request's."
    )
    sent = lines({"type": "object"}, f"One record per line, at most {RECORDS_MAX}.")
    names = ("type", "event", "ref", "actor")
    return operation(
        "import",
        "Import records of a foreign system: each with new content becomes an event",
        tag=TAG,
        parameters=(*[f"import-{name}" for name in names], "import", "only_refs", "dry_run"),
        body={"required": True, "content": {NDJSON: sent}},
        done={"200": {"description": "One line per record, in order.", "content": {NDJSON: answered}}},
        refused="import",
    )


def _of_key() -> Schema:
    told = object_of(
        {"source": _TEXT, "scope": _TEXT, "id": _TEXT, "aggregate_type": or_null(_TEXT)},
    )
    return operation(
        "sources",
        "The ids of an aggregate in foreign systems",
        tag=TAG,
        parameters=("of-aggregate",),
        done={"200": answer("Sorted.", object_of({"ok": OK, "key": _TEXT, "sources": list_of(told)}))},
        refused="sources",
    )


def _resolve() -> Schema:
    body = object_of(
        {"sources": list_of(SOURCE, maxItems=SOURCES_MAX)},
        {"mint": {"type": "boolean", "default": False}, "aggregate_type": or_null(_TEXT)},
        closed=True,
    )
    example = {"sources": [{"source": "xliff", "scope": "a.xlf", "id": "tu1"}]}
    return operation(
        "sources.resolve",
        "The keys of many source ids, created for unknown ids if that is requested",
        tag=TAG,
        body=request(body, example),
        done={"200": answer("In order.", object_of({"ok": OK, "keys": list_of(or_null(_TEXT))}))},
        refused="sources.put",
    )


def _export() -> Schema:
    told = object_of({"source": _TEXT, "scope": _TEXT, "id": _TEXT, **_STANDS_FOR})
    content = {NDJSON: lines(told, "One id per line, with its mapping.")}
    return operation(
        "sources.export",
        "All ids of a source",
        tag=TAG,
        parameters=("source-of",),
        done={"200": {"description": "Streamed.", "content": content}},
        refused="system",
    )


def _get() -> Schema:
    return operation(
        "sources.get",
        "The aggregate that an id maps to",
        tag=TAG,
        parameters=_NAMES,
        done={"200": answer("The id's mapping.", object_of({"ok": OK, **_STANDS_FOR}, _LAST_RECORD))},
        refused="sources",
    )


def _put() -> Schema:
    body = object_of({"aggregate_type": _TEXT, "key": _TEXT}, closed=True)
    return operation(
        "sources.put",
        "Map an id to an aggregate; an existing mapping never changes",
        tag=TAG,
        parameters=_NAMES,
        body=request(body, {"aggregate_type": "order", "key": EXAMPLE_ID}),
        done={"200": answer("The id's mapping.", object_of({"ok": OK, **_STANDS_FOR}))},
        refused="sources.put",
    )
