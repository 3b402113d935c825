"""The paths of lists and of projections. Pure."""

from __future__ import annotations

from gateway.follow.query import LIMIT_DEFAULT, LIMIT_MAX
from gateway.http.api.contents import LIMIT_DEFAULT as CONTENTS_DEFAULT
from gateway.http.api.contents import LIMIT_MAX as CONTENTS_MAX
from gateway.http.api.list_query import WAIT_DEFAULT_S, WAIT_MAX_S
from gateway.http.openapi.operations import JSON, SSE, answer, operation, request
from gateway.http.openapi.refusals import responses_of
from gateway.http.openapi.schemas import LENGTH, NAMED, OK, Schema, list_of, object_of, or_null, ref
from spec.model import AggregateType

_ASKED = (
    "list-filter",
    "list-sort",
    "list-limit",
    "list-cursor",
    "list-fields",
    "list-count",
    "list-after",
    "list-wait",
)
_FRESH = ("list-after", "list-wait")
_TEXT: Schema = {"type": "string"}
_CURSOR = "The `next` of the previous page."


def list_parameters() -> dict[str, Schema]:
    """By component name."""
    return {
        "list-filter": _in_query(
            "filter[field]",
            _TEXT,
            "The value of a field of `by`; `filter[field][gte]` and the like compare, by ne, gt, gte, lt, "
            "lte, in, prefix and exists.",
        ),
        "list-sort": _in_query(
            "sort", _TEXT, "Up to 3 fields of `by`; `-` before a field sorts it in descending order."
        ),
        "list-limit": _in_query(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT},
            "Rows of a page.",
        ),
        "list-cursor": _in_query("cursor", _TEXT, _CURSOR),
        "list-fields": _in_query("fields", _TEXT, "Fields of `data` to send, separated by commas."),
        "list-count": _in_query("count", {"type": "boolean"}, "Whether to count the rows, up to 10,000."),
        "list-after": _in_query("after", _TEXT, "A position that the answer must cover, as of a receipt."),
        "list-wait": _in_query(
            "wait",
            {"type": "integer", "minimum": 0, "maximum": WAIT_MAX_S, "default": WAIT_DEFAULT_S},
            "Seconds to wait until the answer covers `after`.",
        ),
        "projection-name": _in_path("name", "A projection's name."),
        "projection-key": _in_path("key", "A row's key."),
    }


def list_schemas() -> dict[str, Schema]:
    """By component name."""
    metadata = object_of(
        {"length": LENGTH, "created_at": {"type": "integer"}, "updated_at": {"type": "integer"}}
    )
    row = {"data": {"type": "object"}, "metadata": metadata}
    count = {"anyOf": [LENGTH, object_of({"at_least": LENGTH})]}
    page = {"ok": OK, "items": list_of(ref("Row")), "next": or_null(_TEXT)}
    position = {
        "type": "string",
        "description": "The feed position up to which the rows have counted events.",
    }
    figures = {"position": position, "behind": LENGTH, "rows": LENGTH, "does_not_fit": LENGTH}
    build = object_of(figures, {"rate": {"type": "number"}, "eta_s": or_null({"type": "number"})})
    standing = {
        "name": _TEXT,
        "state": {"enum": ["live", "building", "paused", "dropped"]},
        "misfits": list_of({"type": "object"}),
        "build": or_null(ref("Build")),
    }
    return {
        "Row": object_of(row, NAMED),
        "ContentPage": object_of(
            {
                "ok": OK,
                "items": list_of(object_of({"key": _TEXT, "event_id": ref("EventId")})),
                "next": or_null(_TEXT),
            }
        ),
        "RowPage": object_of({**page, "position": position}, {"count": count}),
        "Build": build,
        "Standing": {"allOf": [ref("Build"), object_of(standing)]},
        "Projection": {"allOf": [ref("Standing"), object_of(page, {"count": count})]},
    }


def list_paths(declared: AggregateType) -> dict[str, Schema]:
    """Of a type with a list, or with content. QUERY has no place in OpenAPI 3.1; POST of `/_query` takes the
    same."""
    name = declared.name
    if declared.listed is None:
        return {} if declared.identity is None else {f"/{name}": {"get": _found(name)}}
    page = answer("A page.", ref("RowPage"))
    live = answer("A page, or live rows.", ref("RowPage"))
    live["content"] |= _LIVE
    body = object_of(
        {},
        {
            "where": {"type": "object", "description": "A test of the handler language; `@` is the row."},
            "sort": list_of(_TEXT),
            "limit": {"type": "integer"},
            "cursor": _TEXT,
            "fields": list_of(_TEXT),
            "count": {"type": "boolean"},
            "after": _TEXT,
            "wait": {"type": "number"},
        },
        closed=True,
    )
    listed = operation(
        f"list.{name}",
        f"All aggregates of {name}",
        tag=name,
        parameters=(*_ASKED[1:], "aliases", "keys", "ticket"),
        done={"200": live},
        refused="list",
    )
    listed["parameters"] += [_filter(field) for field in declared.listed.by]
    if declared.identity is not None:
        listed["parameters"] += _CONTENT
        either = {"schema": {"anyOf": [ref("RowPage"), ref("ContentPage")]}}
        listed["responses"]["200"]["content"][JSON] = either
    queried = operation(
        f"query.{name}",
        f"All aggregates of {name}, by tests",
        tag=name,
        parameters=("aliases", "keys"),
        body=request(body),
        done={"200": page},
        refused="list.query",
    )
    return {f"/{name}": {"get": listed}, f"/{name}/_query": {"post": queried}}


def _found(name: str) -> Schema:
    found = operation(
        f"find.{name}",
        f"All aggregates of {name} whose last record has this content, or this context",
        tag=name,
        done={"200": answer("A page, by key.", ref("ContentPage"))},
        refused="list",
    )
    limit: Schema = {"type": "integer", "minimum": 1, "maximum": CONTENTS_MAX, "default": CONTENTS_DEFAULT}
    paged = [_in_query("limit", limit, "Aggregates of a page."), _in_query("cursor", _TEXT, _CURSOR)]
    without = responses_of("method")
    return {**found, "parameters": [*_CONTENT, *paged], "responses": found["responses"] | without}


def _filter(field: str) -> Schema:
    what = (
        f"The value of `{field}`; `filter[{field}][gte]` and the like compare, by ne, gt, gte, lt, lte, in, "
    )
    what += "prefix and exists."
    return _in_query(f"filter[{field}]", _TEXT, what)


_LIVE: Schema = {
    SSE: {
        "schema": {
            "description": "The present rows, then `upsert` and `delete` by key; `id:` is the position."
        }
    }
}


def projection_paths(tag: str) -> dict[str, Schema]:
    every = object_of({"ok": OK, "projections": list_of(ref("Standing")), "lists": list_of(ref("Standing"))})
    row = object_of({"ok": OK, "position": _TEXT, "key": _TEXT, "data": {"type": "object"}, "metadata": {}})
    page, one = answer("The projection's rows and its status.", ref("Projection")), answer("The row.", row)
    page["content"] |= _LIVE
    one["content"] |= _LIVE
    return {
        "/_/projections": {
            "get": operation(
                "projections",
                "The status of all lists and projections",
                tag=tag,
                done={"200": answer("The status of each.", every)},
                refused="projections",
            )
        },
        "/_/projections/{name}": {
            "get": operation(
                "projection",
                "A projection's rows and its status",
                tag=tag,
                parameters=("projection-name", *_ASKED, "ticket"),
                done={"200": page},
                refused="projection",
            )
        },
        "/_/projections/{name}/{key}": {
            "get": operation(
                "projection.row",
                "One row of a projection",
                tag=tag,
                parameters=("projection-name", "projection-key", "list-fields", *_FRESH, "ticket"),
                done={"200": one},
                refused="projection",
            )
        },
    }


def _in_query(name: str, schema: Schema, description: str) -> Schema:
    return {"name": name, "in": "query", "schema": schema, "description": description}


_DIGEST: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_CONTENT = [
    _in_query("content", _DIGEST, "The content hash of the aggregates' last record."),
    _in_query("context", _DIGEST, "Its context hash. One of the two is needed, or both."),
]


def _in_path(name: str, description: str) -> Schema:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": _TEXT,
        "description": description,
        "example": "customer_totals",
    }
