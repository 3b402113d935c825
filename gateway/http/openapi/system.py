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
    LENGTH,
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
        "/_/spec": {"get": _spec(), "put": _deploy()},
        "/_/spec/history": {"get": _history()},
        "/_/spec/diff": {"post": _diff()},
        "/_/spec/try": {"post": _try_out()},
        "/_/spec/rollback": {"post": _roll_back()},
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
    answered = "A line for each: `line` from 1, `status`, then as the single answer; `replayed` for a replay."
    sent = f"At most {LINES_MAX} lines, {config.bulk_bytes_max} bytes; {config.body_bytes_max} a line."
    return operation(
        "bulk",
        "Append many, each line on its own; lines of one aggregate in their order",
        tag=TAG,
        parameters=("X-Correlation-Id",),
        body={"required": True, "content": {NDJSON: lines(ref("BulkLine"), sent)}},
        done={
            "200": {
                "description": "Streamed as they commit, in the order of the request.",
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
        "What of others' specifications is here: `dcb` is dcb.events",
        tag=TAG,
        done={"200": answer("The list.", object_of({"ok": OK, "dcb": {"type": "object"}}))},
        refused="system",
    )


def _fed() -> Schema:
    page = answer("A page.", ref("FeedPage"))
    page["content"] |= {
        NDJSON: lines(ref("FedEvent"), "All that is committed, or `limit` events of it: one a line."),
        SSE: {
            "schema": {"description": "What there is, then live: `id:` is the position, `data:` the event."}
        },
        CLOUD_EVENTS: {"schema": list_of({"type": "object"})},
    }
    return page


def _webhook(config: Config) -> Schema:
    duplicate: Schema = {"type": "boolean", "description": "It came before; this is that event."}
    told = object_of({"ok": OK, "event_id": ref("EventId"), "duplicate": duplicate, "position": POSITION})
    held = object_of({"ok": OK, "quarantined": OK, "event_id": {"type": "null"}})
    ignored = object_of({"ok": OK, "ignored": OK, "event_id": {"type": "null"}})
    batch = object_of({"ok": OK, "events": list_of({"type": "object"})})
    sent = f"As the provider sends it, signed; at most {config.webhook_bytes_max} bytes."
    taken = operation(
        "webhook",
        "Take a webhook, exactly once; its signature is its key",
        tag=TAG,
        parameters=("tenant", "source"),
        body={"content": {"*/*": {"schema": {"description": sent}}}},
        done={
            "202": answer(
                "Committed, kept in quarantine, or by `to.when` and `to.types` ignored.",
                {"anyOf": [told, held, ignored, batch]},
            ),
            "200": {"description": "The answer to a handshake that the source declares."},
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
        "What a committed append was answered, by its Idempotency-Key or by the id of an event of it",
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
        done={"200": answer("What it names.", schema, ("Content-Location",))},
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
        "New ids of 8 base62 characters, for things of your own: no aggregate has such a key",
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
        "The content, context and record hash of a text or a JSON value",
        tag=TAG,
        body=request(body, {"text": "Hello world", "context": {"name": "greeting"}}),
        done={"200": answer("SHA-256, in hex.", told)},
        refused="check",
    )


def _check() -> Schema:
    return operation(
        "ids.check",
        "What each text is as an identifier, by the spec",
        tag=TAG,
        body=request(ids_to_check(), {"ids": [EXAMPLE_ID.upper(), "broadcast"]}),
        done={"200": answer("In the same order.", object_of({"ok": OK, "ids": list_of(ref("CheckedId"))}))},
        refused="check",
    )


def _spec() -> Schema:
    schema = object_of({"ok": OK, "revision": LENGTH, "spec": {"type": "object"}})
    return operation(
        "spec",
        "The deployed spec, or a former revision, as it was sent",
        tag=TAG,
        parameters=("revision", "If-None-Match"),
        done={"200": answer("The spec.", schema, ("ETag",)), "304": not_modified()},
        refused="spec.get",
    )


_TEXT: Schema = {"type": "string"}
_NOTICES = list_of(object_of({"pointer": _TEXT, "notice": _TEXT}))
_DOCUMENT: Schema = {
    "type": "object",
    "description": 'A spec, bare or as `{"spec": {…}}`. `sluice spec check` tells what one may hold.',
}
_DEPLOYED = object_of({"ok": OK, "revision": LENGTH, "changed": {"type": "boolean"}}, {"notices": _NOTICES})


def _history() -> Schema:
    at: Schema = {"type": "number", "description": "Unix seconds."}
    revision = object_of({"revision": LENGTH, "deployed_at": at, "bytes": LENGTH})
    following = or_null({**LENGTH, "description": "The `before` of the next page."})
    return operation(
        "history",
        "The revisions of the spec, the newest first",
        tag=TAG,
        parameters=("before", "listed-limit"),
        done={
            "200": answer("A page.", object_of({"ok": OK, "revisions": list_of(revision), "next": following}))
        },
        refused="ids",
    )


_CHANGE = object_of(
    {"change": {"enum": ["added", "removed", "changed"]}, "pointer": _TEXT}, {"was": True, "now": True}
)


def _diff() -> Schema:
    plan = {
        "revision": LENGTH,
        "changed": {"type": "boolean"},
        "changes": list_of(_CHANGE),
        "conflicts": list_of(object_of({"pointer": _TEXT, "error": _TEXT})),
        "notices": _NOTICES,
    }
    return operation(
        "diff",
        "What deploying a spec would change and meet; nothing is deployed (scope admin)",
        tag=TAG,
        body=request(_DOCUMENT),
        done={"200": answer("With `conflicts` it would be refused.", object_of({"ok": OK, **plan}))},
        refused="diff",
    )


def _try_out() -> Schema:
    count: Schema = {"type": "integer", "minimum": 0}

    def first(counted: str, **more: Schema) -> Schema:
        return object_of({counted: count, "first": list_of(object_of({"key": _TEXT, **more}))})

    found = {
        "events": count,
        "aggregates": count,
        "whole": {"type": "boolean", "description": "Nothing was left out."},
        "undeclared": count,
        "refused": first("count", version=LENGTH, event_type=_TEXT, path=_TEXT, error=_TEXT),
        "states": first("differ", length=LENGTH, too_large_at=or_null(LENGTH), diff=list_of(_CHANGE)),
        "misfits": first("count", version=LENGTH, event_type=_TEXT, operation={}, error=_TEXT),
        "largest_state_bytes": count,
        "seconds": {"type": "number"},
    }
    return operation(
        "try",
        "Stored events folded by a spec that is not deployed; nothing is stored (scope admin)",
        tag=TAG,
        parameters=("tried-limit",),
        body=request(_DOCUMENT),
        done={"200": answer("What it would refuse and change.", object_of({"ok": OK, **found}))},
        refused="try",
    )


def _roll_back() -> Schema:
    body = object_of({"revision": LENGTH}, {"force": {"type": "boolean"}}, closed=True)
    return operation(
        "rollback",
        "Deploy a former revision once more, as the next one (scope admin)",
        tag=TAG,
        parameters=("If-Match-revision", "If-None-Match-spec", "force"),
        body=request(body, {"revision": 1}),
        done={"200": answer("Deployed, or it was already.", _DEPLOYED, ("ETag",))},
        refused="rollback",
    )


def _deploy() -> Schema:
    return operation(
        "deploy",
        "Deploy a spec (scope admin); every gateway serves by it within 5 s",
        tag=TAG,
        parameters=("If-Match-revision", "If-None-Match-spec", "force"),
        body=request(_DOCUMENT),
        done={"200": answer("Deployed, or it was already.", _DEPLOYED, ("ETag",))},
        refused="deploy",
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
