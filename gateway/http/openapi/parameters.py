"""The parameters and headers that paths share, by component name. Pure."""

from __future__ import annotations

from typing import Any

from gateway.admit.preconditions import LENGTH_MAX
from gateway.admit.query import UNIX_SECONDS_MAX, UNIX_SECONDS_MIN
from gateway.catalog.spec_history import REVISION_MAX
from gateway.catalog.tenants import TENANTS_PAGE_MAX
from gateway.http.api.deliveries import VERDICTS
from gateway.http.api.feed_query import FROM_BEGINNING, FROM_NOW, WAIT_S_MAX
from gateway.http.api.ids import IDS_MAX
from gateway.http.api.reads import MIN_LENGTH_WAIT_S, PAGE_EVENTS_DEFAULT, PAGE_EVENTS_MAX
from gateway.http.api.sagas import STATES as SAGA_STATES
from gateway.http.api.schedules import STATES as SCHEDULE_STATES
from gateway.http.api.specs import TRIED_EVENTS_MAX
from gateway.http.api.subscriptions import LISTED_DEFAULT, LISTED_MAX
from gateway.http.openapi.schemas import ANY_UUID, Schema, ref
from spec.identifiers import NAME_GRAMMAR
from spec.subscriptions import NAME_GRAMMAR as SUBSCRIPTION_NAME

EXAMPLE_ID = "a0000000-0000-4000-a000-000000000001"
EXAMPLE_EVENT_ID = "01a1feb3-0000-7000-8000-000000000001"
RECEIPT = {
    "ok": True,
    "key": EXAMPLE_ID,
    "event_id": EXAMPLE_EVENT_ID,
    "stream_id": "6-0",
    "length": 6,
    "position": "AQAGAAAAAAAAAAF2MsH7",
}

_ETAG_OF_LENGTH = r'^("(0|[1-9][0-9]{0,17})(\.r[0-9]{1,10})?(\.e[1-9][0-9]{0,18})?"|\*)$'
_ETAG_OF_REVISION = r'^("(0|[1-9][0-9]{0,8})"|\*)$'
_TEXT: Schema = {"type": "string"}
_VERSION: Schema = {"type": "integer", "minimum": 1, "maximum": LENGTH_MAX}
_LENGTH: Schema = {"type": "integer", "minimum": 0, "maximum": LENGTH_MAX}
ALIAS: Schema = {"type": "string", "pattern": "^@[0-9A-Za-z.-]{1,100}$", "description": "Alias."}
_ID: Schema = {"anyOf": [ref("Identifier"), ALIAS]}
_INSTANT: Schema = {
    "anyOf": [
        {"type": "number", "minimum": UNIX_SECONDS_MIN, "maximum": UNIX_SECONDS_MAX},
        {"type": "string", "format": "date-time"},
    ]
}
_REVISION: Schema = {"type": "integer", "minimum": 1, "maximum": REVISION_MAX}
_KEY: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}


def parameters() -> dict[str, Schema]:
    return {
        "id": _in_path(
            "id",
            _ID,
            "The aggregate's key, an identifier of one of the four kinds, or `@` and an alias.",
            EXAMPLE_ID,
        ),
        "alias": _in_path("alias", ALIAS, "An alias with its sigil.", "@VNO-42"),
        "version": _in_path("version", _VERSION, "The event's version in the stream, from 1.", 1),
        "event_id": _in_path("event_id", ref("EventId"), "The event's id.", EXAMPLE_EVENT_ID),
        **_of_appends(),
        **_of_reads(),
        **_of_feed(),
        "after-child": _in_query(
            "after", {"type": "integer", "minimum": 0}, "The `next` of the previous page."
        ),
        "aliases": _in_query("aliases", {"type": "boolean"}, "Include the aliases of each aggregate."),
        "keys": _in_query(
            "keys", {"enum": ["alias"]}, "`alias`: an aggregate with an alias is shown without its key."
        ),
        "source-of": _in_path("source", _TEXT, "A foreign system.", "xliff"),
        "scope-of": _in_path("scope", _TEXT, "The scope within the system: a file, a project.", "a.xlf"),
        "source_id": _in_path("source_id", _TEXT, "The id, as the foreign system spells it.", "tu1"),
        "of-aggregate": {**_in_query("key", ref("Identifier"), "The aggregate's key."), "required": True},
        **_of_import(),
        "tenant_id": _in_path(
            "id", {"type": "string", "format": "uuid"}, "The tenant's id, a UUIDv7.", EXAMPLE_EVENT_ID
        ),
        "after-name": _in_query("after", _TEXT, "The `next` of the previous page."),
        "tenants-limit": _in_query(
            "limit", {"type": "integer", "minimum": 1, "maximum": TENANTS_PAGE_MAX}, "At most this many."
        ),
        "tenant": _in_path("tenant", _TEXT, "The tenant's name.", "main"),
        "source": _in_path("source", _TEXT, "A source of webhooks that the spec declares.", "stripe"),
        "subscription": _in_path(
            "name",
            {"type": "string", "pattern": f"^{SUBSCRIPTION_NAME}$"},
            "The subscription's name.",
            "billing",
        ),
        "state": _in_query(
            "state", {"enum": ["retrying", "claimed", "parked"]}, "Only events in this state."
        ),
        "saga-id": _in_path("id", ANY_UUID, "The saga's id.", EXAMPLE_EVENT_ID),
        "saga-state": _in_query("state", {"enum": list(SAGA_STATES)}, "Only sagas in this state."),
        "schedule-id": _in_path("id", ANY_UUID, "The timer's id.", EXAMPLE_EVENT_ID),
        "schedule-state": _in_query("state", {"enum": list(SCHEDULE_STATES)}, "Only timers in this state."),
        "trigger-type": _in_query("type", _TEXT, "Only timers set by events of this aggregate type."),
        "trigger-key": _in_query("key", _TEXT, "Only timers set by events of this aggregate."),
        "listed-cursor": _in_query("cursor", _TEXT, "The `next` of the previous page."),
        "Idempotency-Key-required": {
            "name": "Idempotency-Key",
            "in": "header",
            "required": True,
            "schema": _KEY,
            "description": "Repeated requests with this key set one timer.",
        },
        "of-key": _in_query("idempotency_key", _KEY, "The Idempotency-Key of the append."),
        "of-event": _in_query("event_id", ANY_UUID, "Only attempts of this event."),
        "listed-limit": _in_query(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": LISTED_MAX, "default": LISTED_DEFAULT},
            "At most this many.",
        ),
        "tried-limit": _in_query(
            "limit",
            {
                "type": "integer",
                "minimum": 1,
                "maximum": TRIED_EVENTS_MAX,
                "default": TRIED_EVENTS_MAX,
            },
            "At most this many events.",
        ),
        "count": _in_query(
            "count", {"type": "integer", "minimum": 1, "maximum": IDS_MAX}, "The number of ids."
        ),
        "of-source": _in_query("source", _TEXT, "Only deliveries of this source."),
        "verdict": _in_query("verdict", {"enum": list(VERDICTS)}, "Only deliveries with this result."),
        "reason": _in_query("reason", _TEXT, "Only deliveries in quarantine for this reason."),
        "delivery-id": _in_path("id", ANY_UUID, "The delivery's id.", EXAMPLE_EVENT_ID),
        "before-delivery": _in_query("before", ANY_UUID, "The `next` of the previous page."),
        "handle": _in_path(
            "handle", {"type": "string", "pattern": "^[0-9A-Za-z]+$"}, "A key's handle.", "8f3kq2vN"
        ),
        "ticket": _in_query(
            "ticket",
            _TEXT,
            "A ticket for this path instead of a key; the response is `text/event-stream`.",
        ),
        "revision": _in_query("revision", _REVISION, "An earlier revision; default: the deployed one."),
        "before": _in_query("before", _REVISION, "Only revisions before this one."),
        "force": _in_query("force", {"type": "boolean"}, "Deploy even if stored events do not match."),
        "If-Match-revision": _header(
            "If-Match",
            {"type": "string", "pattern": _ETAG_OF_REVISION},
            'The revision that must be deployed, `"0"` for none, `*` for any; otherwise 409.',
        ),
        "If-None-Match-spec": _header("If-None-Match", {"const": "*"}, "No spec must be deployed yet."),
        "If-None-Match": _header("If-None-Match", _TEXT, "The ETag of your copy: 304 if it is current."),
    }


def _of_import() -> dict[str, Schema]:
    return {
        "import-type": {**_in_query("type", _TEXT, "The type of the aggregates."), "required": True},
        "import-event": _in_query(
            "event", _TEXT, "The event type of a record; default: the type's only one."
        ),
        "import-ref": _in_query("ref", _TEXT, "The field that is a record's external ref."),
        "import-actor": _in_query("actor", _TEXT, "The actor, as TYPE:ID; default: the gateway's importer."),
        "import": _in_query("import", ANY_UUID, "An id that all requests of one import share."),
        "only_refs": _in_query("only_refs", {"type": "boolean"}, "Only record which refs the import has."),
        "dry_run": _in_query(
            "dry_run", {"type": "boolean"}, "Show what would be written, and write nothing."
        ),
    }


def _of_appends() -> dict[str, Schema]:
    return {
        "Idempotency-Key": _header(
            "Idempotency-Key", _KEY, "A retry with the same key gets the original receipt."
        ),
        "If-Match": _header(
            "If-Match",
            {"type": "string", "pattern": _ETAG_OF_LENGTH},
            "The length that the stream must have, in quotes; `*` for at least one event.",
        ),
        "If-None-Match-any": _header("If-None-Match", {"const": "*"}, "The stream must be empty."),
        "X-Correlation-Id": _header(
            "X-Correlation-Id",
            _TEXT,
            "A lower-case UUID, stored with the events; any other value is ignored.",
        ),
        "Prefer": _header(
            "Prefer",
            _TEXT,
            "`return=minimal`: a 409 without missed events; `wait`: receipts with a new aggregate's aliases.",
        ),
        "Sluice-If-Unchanged": _header(
            "Sluice-If-Unchanged",
            {"const": "skip"},
            "Of types with content identity, as `if_unchanged` in the body: nothing is written for an "
            "unchanged record, and the answer is 200 with `unchanged`.",
        ),
    }


def _of_reads() -> dict[str, Schema]:
    return {
        "at_length": _in_query("at_length", _LENGTH, "The state after this many events."),
        "at": _in_query(
            "at", _INSTANT, "The state at this time: Unix seconds or RFC 3339. Not with `at_length`."
        ),
        "synchronous": _in_query("synchronous", {"type": "boolean"}, "Bypass any cache."),
        "upcast": _in_query(
            "upcast", {"type": "boolean"}, "Upcast data to the present revision, as handlers see it."
        ),
        "explain": _in_query(
            "explain", {"type": "boolean"}, "Include `misfits`: operations that did not fit. Scope admin."
        ),
        "consistency": _in_query("consistency", {"enum": ["strong"]}, "Read from Postgres instead of Redis."),
        "min_length": _in_query(
            "min_length",
            _LENGTH,
            f"Wait until the stream is that long, up to {MIN_LENGTH_WAIT_S} s, then 503.",
        ),
        "from": _in_query(
            "from", _VERSION, "The version to start at; default: the first, with `order=desc` the newest."
        ),
        "limit": _in_query(
            "limit",
            {
                "type": "integer",
                "minimum": 1,
                "maximum": PAGE_EVENTS_MAX,
                "default": PAGE_EVENTS_DEFAULT,
            },
            "Events per page.",
        ),
        "order": _in_query(
            "order", {"enum": ["asc", "desc"], "default": "asc"}, "`desc` starts at the newest."
        ),
        "Last-Event-ID": _header(
            "Last-Event-ID",
            _TEXT,
            "A version. With `text/event-stream`: continue after it; otherwise ignored.",
        ),
    }


def _of_feed() -> dict[str, Schema]:
    names = {"type": "string", "pattern": f"^_?{NAME_GRAMMAR}(,_?{NAME_GRAMMAR})*$"}
    return {
        "after": _in_query(
            "after",
            _TEXT,
            f"A position of the feed, `{FROM_BEGINNING}` (the default) or `{FROM_NOW}`.",
        ),
        "types": _in_query("types", names, "Aggregate types, separated by commas; default: all."),
        "event_types": _in_query("event_types", names, "Event types, separated by commas; default: all."),
        "include_undeclared": _in_query(
            "include_undeclared", {"type": "boolean"}, "Also accept names of withdrawn types."
        ),
        "from_time": _in_query(
            "from_time",
            _INSTANT,
            "Start at the first event of this time or later; `desc`: end there. Unix seconds or RFC 3339.",
        ),
        "feed-order": _in_query(
            "order",
            {"enum": ["asc", "desc"], "default": "asc"},
            "`desc` starts at the newest event, and `after` then leads to older ones.",
        ),
        "correlation_id": _in_query("correlation_id", ANY_UUID, "Only events with this correlation id."),
        "actor": _in_query(
            "actor",
            {"type": "string", "pattern": f"^{NAME_GRAMMAR}:.+$"},
            "Only events of this actor, as `type:id`.",
        ),
        "tags": _in_query(
            "tags", _TEXT, "Only events with all these tags, such as `order:global`, separated by commas."
        ),
        "wait": _in_query(
            "wait",
            {"type": "integer", "minimum": 0, "maximum": WAIT_S_MAX, "default": 0},
            "Seconds to wait for an event if none is left to read.",
        ),
        "feed-Last-Event-ID": _header(
            "Last-Event-ID",
            _TEXT,
            "A position. With `text/event-stream`: replaces `after`; otherwise ignored.",
        ),
        "feed-limit": _in_query(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": PAGE_EVENTS_MAX, "default": PAGE_EVENTS_MAX},
            "At most this many events per page; a page may have fewer although more follow.",
        ),
    }


def headers() -> dict[str, Schema]:
    return {
        "Sluice-Api": _answered(
            {"const": "1"}, "The API's version; changes within version 1 only add.", required=True
        ),
        "ETag": _answered(_TEXT, "A value for `If-Match` and `If-None-Match`.", required=True),
        "Location": _answered(_TEXT, "The path of what was made.", required=True),
        "Content-Location": _answered(_TEXT, "`/{type}/{key}`, if an alias was requested."),
        "X-Correlation-Id": _answered(
            ANY_UUID, "The correlation id that was sent, or a new one.", required=True
        ),
        "Idempotency-Replayed": _answered({"const": "true"}, "The request is a repeat; nothing was written."),
        "Sluice-Position": _answered(_TEXT, "The position of the feed after this page.", required=True),
        "Sluice-Caught-Up": _answered(
            {"enum": ["true", "false"]}, "Whether no further event exists.", required=True
        ),
        "Cache-Control": _answered(_TEXT, "Whether the response may be cached."),
        "Retry-After": _answered({"type": "string", "pattern": "^[0-9]+$"}, "Seconds.", required=True),
        "WWW-Authenticate": _answered({"const": "Bearer"}, "How to authenticate.", required=True),
        "Allow": _answered(_TEXT, "The methods that the path supports.", required=True),
    }


def refer(*names: str) -> list[Schema]:
    return [{"$ref": f"#/components/parameters/{name}"} for name in names]


def header_refs(*names: str) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in ("Sluice-Api", *names)}


def _in_path(name: str, schema: Schema, description: str, example: object) -> Schema:
    shown = {"description": description, "example": example}
    return {"name": name, "in": "path", "required": True, "schema": schema, **shown}


def _in_query(name: str, schema: Schema, description: str) -> Schema:
    return {"name": name, "in": "query", "schema": schema, "description": description}


def _header(name: str, schema: Schema, description: str) -> Schema:
    return {"name": name, "in": "header", "schema": schema, "description": description}


def _answered(schema: Schema, description: str, *, required: bool = False) -> dict[str, Any]:
    header: Schema = {"description": description, "schema": schema}
    return {**header, "required": True} if required else header
