"""The paths under /_/: bulk, the feed, events by id, identifiers, the spec, subscriptions, health. Pure."""

from __future__ import annotations

from gateway.config import Config
from gateway.http.api.bulk import LINES_MAX
from gateway.http.openapi.deliveries import delivery_paths
from gateway.http.openapi.keys import key_paths
from gateway.http.openapi.operations import (
    CLOUD_EVENTS,
    NDJSON,
    SSE,
    answer,
    lines,
    not_modified,
    operation,
    request,
    shared,
)
from gateway.http.openapi.outgoing import TAG, subscription_paths
from gateway.http.openapi.parameters import EXAMPLE_ID, header_refs
from gateway.http.openapi.sagas import saga_paths
from gateway.http.openapi.schedules import schedule_paths
from gateway.http.openapi.schemas import (
    ANY_RECEIPT,
    OK,
    POSITION,
    Schema,
    ids_to_check,
    list_of,
    object_of,
    or_null,
    ref,
)
from gateway.http.openapi.sources import source_paths
from gateway.http.openapi.specs import spec_paths
from gateway.http.openapi.tenants import tenant_paths

_OPEN: list[Schema] = [{}]  # needs no key
_OF_FEED = (
    "after", "from_time", "feed-order", "types", "event_types", "correlation_id", "actor", "tags",
    "include_undeclared", "feed-limit", "wait", "upcast", "aliases", "keys", "feed-Last-Event-ID",
)  # fmt: skip


def system_paths(config: Config) -> dict[str, Schema]:
    """By path."""
    return {
        "/_/append": {"post": _append()},
        "/_/bulk": {"post": _bulk(config)},
        "/_/feed": {"get": _feed()},
        "/_/feed/query": {"post": _feed_query()},
        "/_/capabilities": {"get": _capabilities()},
        "/_/webhooks/{tenant}/{source}": {"post": _webhook(config)},
        "/_/events/{event_id}": {"get": _event()},
        "/_/receipts": {"get": _receipts()},
        "/_/resolve/{alias}": {"get": _resolve()},
        "/_/ids/humane": {"get": _humane()},
        "/_/ids/base62": {"get": _base62()},
        "/_/ids/check": {"post": _check()},
        "/_/ids/hash": {"post": _hash()},
        **spec_paths(),
        **source_paths(),
        **tenant_paths(),
        **delivery_paths(),
        **key_paths(),
        **schedule_paths(),
        **saga_paths(),
        **subscription_paths(),
        "/_/openapi.json": {"get": _this()},
        "/_/health/live": {"get": _live()},
        "/_/health/ready": {"get": _ready()},
    }


def _append() -> Schema:
    return operation(
        "append",
        "Append events to several aggregates, all or nothing",
        tag=TAG,
        parameters=("Idempotency-Key", "X-Correlation-Id", "Prefer"),
        body=request(ref("Append")),
        done=shared("201", "appended-to-several"),
        refused="several",
    )


def _bulk(config: Config) -> Schema:
    answered = (
        "One per request line: `line` from 1, `status`, then as a single response; `replayed` for a repeat."
    )
    sent = f"At most {LINES_MAX} lines, {config.bulk_bytes_max} bytes; {config.body_bytes_max} a line."
    return operation(
        "bulk",
        "Append many events, each line on its own; lines of one aggregate in their order",
        tag=TAG,
        parameters=("X-Correlation-Id",),
        body={"required": True, "content": {NDJSON: lines(ref("BulkLine"), sent)}},
        done={
            "200": {
                "description": "Streamed as events commit, in the order of the request.",
                "headers": header_refs("X-Correlation-Id"),
                "content": {NDJSON: lines(_bulk_answer(), answered)},
            }
        },
        refused="bulk",
    )


def _bulk_answer() -> Schema:
    place = object_of({"line": {"type": "integer"}, "status": {"type": "integer"}})
    return {"allOf": [place, {"anyOf": [ref("Receipt"), ref("Refusal")]}]}


def _feed() -> Schema:
    return operation(
        "feed",
        "All committed events of the tenant, in the order of their commits",
        tag=TAG,
        parameters=(*_OF_FEED, "ticket"),
        done={"200": _fed()},
        refused="feed",
    )


def _feed_query() -> Schema:
    return operation(
        "feed_query",
        "The events of the feed that a query matches; also as `QUERY /_/feed`",
        tag=TAG,
        parameters=_OF_FEED,
        body=request(ref("Query"), {"items": [{"tags": [f"order:{EXAMPLE_ID}"]}]}),
        done={"200": _fed()},
        refused="feed_query",
    )


def _capabilities() -> Schema:
    return operation(
        "capabilities",
        "The specifications of others that this gateway supports: `dcb` is dcb.events",
        tag=TAG,
        done={"200": answer("The list.", object_of({"ok": OK, "dcb": {"type": "object"}}))},
        refused="system",
    )


def _fed() -> Schema:
    page = answer("A page.", ref("FeedPage"))
    page["content"] |= {
        NDJSON: lines(ref("FedEvent"), "All committed events, or `limit` of them: one per line."),
        SSE: {
            "schema": {
                "description": "Committed events, then live ones: `id:` is the position, `data:` the event."
            }
        },
        CLOUD_EVENTS: {"schema": list_of({"type": "object"})},
    }
    return page


def _webhook(config: Config) -> Schema:
    duplicate: Schema = {"type": "boolean", "description": "The delivery came before; this is its event."}
    told = object_of({"ok": OK, "event_id": ref("EventId"), "duplicate": duplicate, "position": POSITION})
    held = object_of({"ok": OK, "quarantined": OK, "event_id": {"type": "null"}})
    ignored = object_of({"ok": OK, "ignored": OK, "event_id": {"type": "null"}})
    batch = object_of({"ok": OK, "events": list_of({"type": "object"})})
    sent = f"The signed request, as the provider sends it; at most {config.webhook_bytes_max} bytes."
    taken = operation(
        "webhook",
        "Accept a webhook delivery, exactly once; its signature authenticates it",
        tag=TAG,
        parameters=("tenant", "source"),
        body={"content": {"*/*": {"schema": {"description": sent}}}},
        done={
            "202": answer(
                "Committed, quarantined, or ignored by `to.when` or `to.types`.",
                {"anyOf": [told, held, ignored, batch]},
            ),
            "200": {"description": "The response to a handshake that the source declares."},
        },
        refused="webhook",
    )
    return {**taken, "security": _OPEN}


def _event() -> Schema:
    return operation(
        "event",
        "An event by its id",
        tag=TAG,
        parameters=("event_id", "upcast", "aliases", "keys"),
        done={"200": answer("The event.", object_of({"ok": OK, "event": ref("Event")}))},
        refused="event",
    )


def _receipts() -> Schema:
    return operation(
        "receipt",
        "The receipt of a committed append, by its Idempotency-Key or the id of one of its events",
        tag=TAG,
        parameters=("of-key", "of-event"),
        done={"200": answer("The receipt.", ANY_RECEIPT)},
        refused="receipt",
    )


def _resolve() -> Schema:
    text = {"type": "string"}
    schema = object_of(
        {"ok": OK, "aggregate_type": text, "key": text, "alias": text}, {"retired": {"const": True}}
    )
    return operation(
        "resolve",
        "The aggregate, of any type, that an alias names",
        tag=TAG,
        parameters=("alias",),
        done={"200": answer("The aggregate that the alias names.", schema, ("Content-Location",))},
        refused="resolve",
    )


def _humane() -> Schema:
    code = {"type": "string", "pattern": "^[0-9A-HJKMNP-TV-Z]{9}$"}
    return operation(
        "ids.humane",
        "New humane codes",
        tag=TAG,
        parameters=("count",),
        done={"200": answer("Fresh ones.", object_of({"ok": OK, "ids": list_of(code)}))},
        refused="ids",
    )


def _base62() -> Schema:
    text = {"type": "string", "pattern": "^[0-9A-Za-z]{8}$"}
    return operation(
        "ids.base62",
        "New ids of 8 base62 characters, for objects outside Sluice: no aggregate has such a key",
        tag=TAG,
        parameters=("count",),
        done={"200": answer("Fresh ones.", object_of({"ok": OK, "ids": list_of(text)}))},
        refused="ids",
    )


def _hash() -> Schema:
    digest = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    text: Schema = {"type": "string"}
    context = object_of({}, {"name": text, "type": text, "properties": {"type": "object"}}, closed=True)
    body: Schema = {
        "anyOf": [
            object_of({"text": text}, {"context": or_null(context)}, closed=True),
            object_of({"json": {}}, {"context": or_null(context)}, closed=True),
        ]
    }
    told = object_of({"ok": OK, "content": digest, "context": or_null(digest), "record": or_null(digest)})
    return operation(
        "ids.hash",
        "The content, context and record hash of a string or a JSON value",
        tag=TAG,
        body=request(body, {"text": "Hello world", "context": {"name": "greeting"}}),
        done={"200": answer("SHA-256, in hex.", told)},
        refused="check",
    )


def _check() -> Schema:
    return operation(
        "ids.check",
        "Classify strings as identifiers, by the spec",
        tag=TAG,
        body=request(ids_to_check(), {"ids": [EXAMPLE_ID.upper(), "broadcast"]}),
        done={
            "200": answer(
                "The results, in the same order.", object_of({"ok": OK, "ids": list_of(ref("CheckedId"))})
            )
        },
        refused="check",
    )


def _this() -> Schema:
    return operation(
        "openapi",
        "This document",
        tag=TAG,
        parameters=("If-None-Match",),
        done={"200": answer("OpenAPI 3.1.", {"type": "object"}, ("ETag",)), "304": not_modified()},
        refused="spec",
    )


def _live() -> Schema:
    done = {"200": answer("The process answers.", object_of({"ok": OK}))}
    return {
        "operationId": "live",
        "summary": "Whether the process answers",
        "tags": [TAG],
        "security": _OPEN,
    } | {"responses": done}


def _ready() -> Schema:
    schema = object_of({"ok": OK, "mode": {"type": "string"}})
    ready = operation(
        "ready",
        "Whether an append could commit now",
        tag=TAG,
        done={"200": answer("It could.", schema)},
        refused="ready",
    )
    return {**ready, "security": _OPEN}
