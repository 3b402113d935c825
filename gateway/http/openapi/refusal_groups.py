"""What each kind of request can be refused with: a table of refusals as the service words them.

Pure. `refusals` makes documented responses of it.
"""

from __future__ import annotations

from gateway.errors import Refusal
from gateway.http.openapi.parameters import EXAMPLE_EVENT_ID

_CALLER = (
    Refusal("bad_request", "A request has exactly one Host header; this one has 2."),
    Refusal("bad_request", "The request has more than 100 headers.", status=431),
    Refusal("unauthorized", "Send a valid key as `Authorization: Bearer <key>`."),
    Refusal("forbidden", "This key has the scope read; the request needs write."),
    Refusal("tenant_suspended", "This tenant is suspended. Ask the operator of the gateway."),
    Refusal("rate_limited", "This key may send 100 requests per second; try again in 1 s."),
    Refusal("unknown_parameter", 'This path has no query parameter "limt" (did you mean `limit`?).', "limt"),
)
_UNKNOWN_ALIAS = Refusal("unknown_alias", 'There is no order with the alias "VNO-42".', "key")
_AMBIGUOUS_ALIAS = Refusal(
    "ambiguous_alias",
    '"k86g" is ambiguous: it abbreviates more than one alias; write more of it.',
    "key",
    candidates=("bd-k86gaq", "bd-k86gm2"),
)
_PATH = (
    Refusal(
        "unknown_aggregate_type",
        "The spec declares no aggregate type 'ordr' (did you mean `order`?).",
        "type",
    ),
    Refusal("invalid_identifier", '"order-1" is not a declared singleton; use a UUID.', "key"),
    _UNKNOWN_ALIAS,
    _AMBIGUOUS_ALIAS,
)
_SENT = (
    Refusal("bad_request", "The body did not arrive within 30 s.", status=408),
    Refusal("too_large", "The body is larger than 1048576 bytes."),
    Refusal(
        "unsupported_media_type", "Send the body as Content-Type: application/json in UTF-8.", "Content-Type"
    ),
)
_BODY = (
    *_SENT,
    Refusal("invalid_json", "The body is not valid JSON: Expecting value at line 1, column 1."),
)
_ENVELOPE = (
    Refusal("missing_field", "`metadata.actor` is missing.", "metadata.actor"),
    Refusal("unknown_field", "`metadata.actr` is not a field (did you mean `actor`?).", "metadata.actr"),
    Refusal("invalid_field", '`If-Match` must be one length in quotes, like "5".', "If-Match"),
)
_STORAGE_FULL = Refusal(
    "storage_full", "The stored events and specs of this tenant have reached the limit of 1000000000 bytes."
)
_METADATA = (
    Refusal("invalid_identifier", '"ada" is not a declared singleton; use a UUID.', "metadata.actor.id"),
    Refusal(
        "unknown_actor_type",
        "The spec's agent_types do not name 'usr' (did you mean `user`?).",
        "metadata.actor.type",
    ),
    Refusal(
        "unknown_target_type",
        "The spec's target_types do not name 'ordr' (did you mean `order`?).",
        "metadata.target.type",
    ),
    Refusal("schema_violation", "This property is required.", "data.total"),
    Refusal("invalid_tag", "A value of the tag `customer` has at most 128 bytes.", "data.customer_id"),
    Refusal(
        "invalid_claim", "A value of the claim `email` must be a string, a number or a boolean.", "data.email"
    ),
    _STORAGE_FULL,
    Refusal("idempotency_mismatch", "This Idempotency-Key or event_id belongs to another request."),
)
_NOT_COMMITTED = Refusal("not_committed", "The event will never appear: Postgres does not answer.")
_OUTCOME = (
    Refusal("content_differs", "The content differs from the last record's, and `unchanged` refuses that."),
    Refusal("version_conflict", "Concurrent write detected. Stream has 6 events, expected 5."),
    Refusal("rule_violated", "Only 2 are left.", "rules[0]"),
    Refusal("not_unique", "Another aggregate has this value: user ABC123XYZ.", "data.email"),
    Refusal("content_differs", "The aggregate was made with other content, which can't change."),
    Refusal("key_taken", "Another project has the key VNO.", "data.key"),
    _NOT_COMMITTED,
    Refusal("outcome_unknown", "The event may or may not be there."),
)
_UNKNOWN_EVENT = "The spec declares no event 'was_plced' for 'order' (did you mean `was_placed`?)."
_INVALID_PARAMETER = Refusal(
    "invalid_field", "The query parameter `limit` must be a whole number from 1 to 1000.", "limit"
)
_UNAVAILABLE = Refusal("unavailable", "Postgres does not answer, and this read needs it. Try again shortly.")
_OF_THE_FEED = (
    _INVALID_PARAMETER,
    Refusal("unknown_aggregate_type", "The spec declares no aggregate type 'ordr'.", "types", status=422),
    Refusal("unknown_event_type", _UNKNOWN_EVENT, "event_types", status=422),
    Refusal(
        "unknown_actor_type", "The spec's agent_types do not name 'usr' (did you mean `user`?).", "actor"
    ),
    Refusal("invalid_identifier", '"ada" is not an id that an actor can have.', "actor"),
    Refusal("invalid_position", "`after` is not a position in this feed.", "after"),
    Refusal("unknown_tag", "The spec declares no tag and no aggregate type 'studnt'.", "tags"),
)
_APPEND = (*_CALLER, *_PATH, *_BODY, *_ENVELOPE, *_METADATA, *_OUTCOME)
_BATCH = (
    *_APPEND,
    Refusal("reserved_event_type", "Event types that start with `_` are reserved.", "events[1].type"),
    Refusal("unknown_event_type", _UNKNOWN_EVENT, "events[1].type", status=422),
)  # fmt: skip
_SEVERAL = (
    Refusal("bad_request", "Require a length by `previous_length` of an event here.", "If-Match"),
    *(each for each in _BATCH if each.path not in ("type", "key")),
    Refusal("unknown_aggregate_type", "The spec declares no type 'ordr'.", "events[0].aggregate_type"),
    Refusal("unknown_aggregate_type", "The spec declares no type 'ordr'.", "condition", status=422),
    Refusal("invalid_identifier", "A UUID has a digit too many.", "events[0].key"),
    Refusal("unknown_alias", 'There is no order with the alias "ORD-42".', "events[0].key"),
    Refusal("contradiction", "An earlier event is of the same aggregate.", "events[2].previous_length"),
    Refusal("source_taken", "'tu1' is mapped to another aggregate.", "events[0].source"),
    Refusal("unknown_tag", "The spec declares no tag and no aggregate type 'studnt'.", "condition"),
    Refusal("invalid_position", "`after` is not a position in this feed.", "condition.after"),
    Refusal("condition_failed", "An event that the condition excludes is committed.", "condition"),
)
_PARENT = (
    Refusal("unknown_alias", 'There is no aggregate with the alias "bd-k86gaq".', "parent"),
    Refusal("depth_exceeded", "bd-k86gaq.1.2.3 is 3 levels deep and can't have children.", "parent"),
)
_SYSTEM = (*_CALLER, _UNAVAILABLE)
_TENANT = (
    Refusal("not_found", f"There is no tenant {EXAMPLE_EVENT_ID}."),
    Refusal("invalid_identifier", "A tenant's id is a UUIDv7.", "id"),
)
_LIST = (
    *_SYSTEM,
    Refusal("unknown_aggregate_type", "The spec declares no aggregate type 'ordr'.", "type"),
    Refusal("not_listed", "'colour' is not listed; there are status, total.", "filter[colour]"),
    _INVALID_PARAMETER,
    Refusal("invalid_position", "'x' is not a position of the feed.", "after"),
    Refusal("behind", "The rows have not reached the requested position. Try again, with a longer `wait`."),
)
_NO_SUBSCRIPTION = Refusal("not_found", "There is no subscription 'billing'.")
_DECLARED = Refusal("declared_by_spec", "'billing' is declared in the spec; remove it there.", "name")

_NO_SPEC = Refusal("not_found", "No spec was deployed yet; PUT one here.")
_INVALID_SPEC = Refusal("invalid_spec", "The spec has faults.")
_DEPLOY = (
    *_SYSTEM,
    *_BODY,
    Refusal("invalid_field", '`If-Match` must be one revision in quotes, like "3".', "If-Match"),
    _INVALID_SPEC,
    Refusal("spec_conflict", "The spec would refuse or reinterpret what is already stored."),
    Refusal("version_conflict", "Revision 3 is deployed, not the one expected."),
    _STORAGE_FULL,
)

GROUPS: dict[str, tuple[Refusal, ...]] = {
    "append": (*_APPEND, Refusal("unknown_event_type", _UNKNOWN_EVENT, "event_type")),
    "batch": _BATCH,
    "several": _SEVERAL,
    "mint": (
        *(each for each in _BATCH if each.path != "key"),
        *_PARENT,
        Refusal("source_taken", "'tu1' is mapped to another aggregate, and that never changes.", "source"),
    ),
    "read": (
        *_CALLER,
        *_PATH,
        _INVALID_PARAMETER,
        Refusal("not_found", "No event was ever written to order ABC123XYZ."),
        _UNAVAILABLE,
    ),
    "state": (
        *_CALLER,
        *_PATH,
        _INVALID_PARAMETER,
        Refusal("not_found", "No event was ever written to order ABC123XYZ."),
        Refusal("state_too_large", "With version 812 the state is larger than it may be."),
        _UNAVAILABLE,
    ),
    "bulk": (
        *_CALLER,
        *_SENT,
        Refusal(
            "bad_request", "`If-Match` is of one append: each line says `metadata` by itself.", "If-Match"
        ),
        _NOT_COMMITTED,
    ),
    "system": _SYSTEM,
    "ids": (*_SYSTEM, _INVALID_PARAMETER),
    "delivery": (
        *_SYSTEM,
        Refusal("invalid_field", "A UUID is needed here.", "id"),
        Refusal("not_found", f"There is no delivery {EXAMPLE_EVENT_ID}."),
    ),
    "schedule": (
        *_SYSTEM,
        *_BODY,
        Refusal("not_found", "There is no such schedule."),
        Refusal("missing_field", "Send `due_at`, the new time.", "due_at"),
        Refusal("invalid_field", "`due_at` is a time: RFC 3339, or Unix seconds.", "due_at"),
        Refusal("schedule_ended", "The timer cannot be changed any more: it is fired."),
    ),
    "saga": (
        *_SYSTEM,
        Refusal("invalid_field", "An id is a UUID.", "id"),
        Refusal("not_found", "There is no such saga."),
        Refusal("saga_not_stuck", "Only a stuck saga can be retried or abandoned; this one is completed."),
    ),
    "create_schedule": (
        *_SYSTEM,
        *_BODY,
        Refusal("missing_field", "Send one of `due_at` and `delay`.", "due_at"),
        Refusal("unknown_field", "`emit` has no 'when'.", "emit.when"),
        Refusal(
            "reserved_event_type",
            "Event types that start with an underscore are reserved.",
            "emit.event_type",
        ),
        Refusal("invalid_field", "`due_at` is a time: RFC 3339, or Unix seconds.", "due_at"),
        Refusal("unknown_aggregate_type", "The spec declares no 'ordr'.", "emit.aggregate_type", status=422),
        Refusal("unknown_event_type", _UNKNOWN_EVENT, "emit.event_type", status=422),
        Refusal("invalid_identifier", "This is not an identifier.", "emit.id"),
        Refusal("schema_violation", "This is not of type integer.", "emit.data.total"),
        Refusal("invalid_tag", "A tag is at most 128 bytes.", "emit.data.name"),
        Refusal("invalid_claim", "A value of the claim `email` must be a string.", "emit.data.email"),
        Refusal("storage_full", "This tenant has 1000000 pending timers, which is the limit."),
        Refusal("idempotency_mismatch", "This Idempotency-Key belongs to another request."),
        Refusal("not_found", "No spec was deployed yet; PUT one at /_/spec."),
    ),
    "feed": (
        *_SYSTEM,
        *_OF_THE_FEED,
    ),
    "feed_query": (
        *_SYSTEM,
        *_BODY,
        Refusal("missing_field", "A query has `items`.", "items"),
        Refusal("invalid_identifier", '"ada" is not an id that an actor can have.', "actor"),
        Refusal("unknown_field", "An item has no field 'tag'.", "items[0].tag"),
        Refusal("invalid_field", "An item names `types`, `tags` or both.", "items[0]"),
        Refusal(
            "unknown_aggregate_type", "The spec declares no aggregate type 'ordr'.", "items[0].types[0]", 422
        ),
        Refusal("unknown_event_type", _UNKNOWN_EVENT, "items[0].types[0]", status=422),
        Refusal(
            "unknown_tag", "The spec declares no tag and no aggregate type 'studnt'.", "items[0].tags[0]"
        ),
        Refusal(
            "unknown_actor_type", "The spec's agent_types do not name 'usr' (did you mean `user`?).", "actor"
        ),
        Refusal("invalid_identifier", '"ada" is not an id that an actor can have.', "actor"),
        Refusal("invalid_position", "`after` is not a position in this feed.", "after"),
    ),
    "check": (*_CALLER, *_BODY, *_ENVELOPE, _NOT_COMMITTED),
    "webhook": (
        *_CALLER[:2],
        Refusal("unauthorized", "The request's signature is missing, too old or wrong."),
        Refusal("not_found", "There is no such source of webhooks: /_/webhooks/{tenant}/{source}."),
        *_SENT[:2],
        Refusal("unsupported_media_type", "Send the body as it is, without Content-Encoding."),
        Refusal("not_committed", "The event will never appear by this request: Postgres does not answer."),
        Refusal("outcome_unknown", "The event may or may not appear. Send it again.", status=503),
    ),
    "event": (
        *_SYSTEM,
        Refusal("not_found", f"There is no event {EXAMPLE_EVENT_ID}."),
        Refusal("invalid_field", "An event's id is a UUIDv7 or UUIDv5.", "event_id"),
    ),
    "receipt": (
        *_SYSTEM,
        Refusal("not_found", "No committed append has this Idempotency-Key."),
        Refusal(
            "missing_field", "Name the append by one of `idempotency_key` and `event_id`.", "idempotency_key"
        ),
        Refusal("invalid_field", "A UUID is needed here.", "event_id"),
    ),
    "resolve": (
        *_SYSTEM,
        Refusal("invalid_identifier", '"VNO-0" is not a public id: its number starts from 1.', "key"),
        _UNKNOWN_ALIAS,
        _AMBIGUOUS_ALIAS,
    ),
    "spec": (*_SYSTEM, _NO_SPEC),
    "spec.get": (*_SYSTEM, _NO_SPEC, _INVALID_PARAMETER),
    "deploy": _DEPLOY,
    "diff": (*_SYSTEM, *_BODY, _INVALID_SPEC),
    "try": (
        *_SYSTEM,
        *_BODY,
        _INVALID_SPEC,
        Refusal("invalid_field", "`limit` must be a whole number from 1 to 10000.", "limit"),
    ),
    "rollback": (
        *_DEPLOY,
        Refusal("not_found", "There is no revision 3 of the spec."),
        Refusal("missing_field", 'Name the revision to go back to: {"revision": 3}.', "revision"),
        Refusal("unknown_field", '"rev" is not a field here.', "rev"),
    ),
    "sources": (
        *_SYSTEM,
        _NOT_COMMITTED,
        Refusal("not_found", "xliff has no 'tu1' in scope 'a.xlf'."),
        Refusal("missing_field", "Name the aggregate by `?key=`.", "key"),
        Refusal("invalid_identifier", '"ada" is not a declared singleton; use a UUID.', "key"),
        Refusal("invalid_field", "The source id is longer than 1024 bytes.", "id"),
    ),
    "import": (
        *_SYSTEM,
        *_BODY,
        Refusal(
            "bad_request",
            "`If-Match` is of one append: records are known again by their refs and contents.",
            "If-Match",
        ),
        _NOT_COMMITTED,
        Refusal("missing_field", "Name the type of the aggregates by `?type=`.", "type"),
        Refusal("invalid_field", "`actor` is TYPE:ID, such as `user:global`.", "actor"),
        Refusal("unknown_aggregate_type", "The spec declares no aggregate type 'ordr'.", "type", status=422),
        Refusal("unknown_event_type", "The spec declares no event 'x' for 'order'.", "event", status=422),
    ),
    "sources.put": (
        *_SYSTEM,
        _NOT_COMMITTED,
        *_BODY,
        Refusal("not_found", "No such path."),
        Refusal("missing_field", "`sources` is missing.", "sources"),
        Refusal("unknown_field", "There is no field 'surces' here.", "surces"),
        Refusal("invalid_field", "`sources` lists at most 1000 of them.", "sources"),
        Refusal(
            "unknown_aggregate_type",
            "The spec declares no aggregate type 'ordr'.",
            "aggregate_type",
            status=422,
        ),
        Refusal("invalid_identifier", '"order-1" is not a declared singleton; use a UUID.', "key"),
        Refusal("source_taken", "'tu1' is mapped to another aggregate, and that never changes."),
    ),
    "tenant": (*_SYSTEM, _NOT_COMMITTED, *_TENANT),
    "tenant.put": (
        *_SYSTEM,
        *_BODY,
        *_TENANT,
        Refusal("missing_field", 'Send {"name": "acme"}.', "name"),
        Refusal("unknown_field", "There is no field 'nam' here.", "nam"),
        Refusal("invalid_field", "`name` must be a string.", "name"),
        Refusal("tenant_conflict", "There is a tenant 'acme' already, with another id."),
    ),
    "keys": (
        *_SYSTEM,
        *_BODY,
        Refusal("missing_field", "Say which `scope`: read, write or admin.", "scope"),
        Refusal("unknown_field", '"scop" is not a field here (did you mean `scope`?).', "scop"),
        Refusal("invalid_field", "`expires_in` is whole seconds, or 1h and the like.", "expires_in"),
        Refusal(
            "unknown_aggregate_type", "The spec declares no aggregate type 'ordr'.", "only[0]", status=422
        ),
        Refusal("unknown_event_type", _UNKNOWN_EVENT, "only[0]", status=422),
    ),
    "key": (*_SYSTEM, Refusal("not_found", 'There is no key "k1".')),
    "key.rotate": (
        *_SYSTEM,
        *_BODY,
        Refusal("not_found", 'There is no key "k1".'),
        Refusal("unknown_field", '"grac" is not a field here (did you mean `grace`?).', "grac"),
        Refusal("invalid_field", "Key k1 is revoked: create a new one instead.", "handle"),
    ),
    "tickets": (
        *_SYSTEM,
        *_BODY,
        *_PATH[:2],
        *_OF_THE_FEED,
        Refusal("missing_field", "`path` is that of a stream of server-sent events.", "path"),
        Refusal("unknown_field", '"url" is not a field here.', "url"),
        Refusal("invalid_field", "`path` is that of a stream of server-sent events.", "path"),
    ),
    "discard": (
        *_SYSTEM,
        *_BODY,
        Refusal("missing_field", "Name `ids`, a `source` or a `reason`.", "ids"),
        Refusal("unknown_field", '"id" is not a field here (did you mean `ids`?).', "id"),
        Refusal("invalid_field", "`ids` is a list of 1 to 1000 ids.", "ids"),
    ),
    "replay-deliveries": (
        *_SYSTEM,
        *_BODY,
        Refusal("missing_field", "Name `ids`.", "ids"),
        Refusal("unknown_field", '"id" is not a field here (did you mean `ids`?).', "id"),
        Refusal("invalid_field", "`ids` is a list of 1 to 100 ids.", "ids"),
        Refusal("not_found", f"There is no delivery {EXAMPLE_EVENT_ID}.", "ids[0]"),
    ),
    "subscription": (*_SYSTEM, _INVALID_PARAMETER, _NO_SUBSCRIPTION),
    "subscription.put": (
        *_SYSTEM,
        *_BODY,
        Refusal("not_found", "No such path."),
        Refusal("missing_field", "A target webhook needs `secret`.", "target.secret"),
        Refusal("unknown_field", '"urll" is not a known key here. Did you mean "url"?', "target.urll"),
        Refusal("invalid_field", "A target is reached over TLS: https://.", "target.url"),
        Refusal("invalid_position", "The start is not a position of this feed.", "start"),
        Refusal(
            "unknown_aggregate_type",
            "The spec declares no aggregate type 'ordr'.",
            "filter.types[0]",
            status=422,
        ),
        Refusal("unknown_event_type", _UNKNOWN_EVENT, "filter.event_types[0]", status=422),
        _DECLARED,
    ),
    "subscription.delete": (*_SYSTEM, _NO_SUBSCRIPTION, _DECLARED),
    "subscription.act": (*_CALLER, _UNAVAILABLE, _NOT_COMMITTED, _NO_SUBSCRIPTION),
    "subscription.send": (
        *_CALLER,
        *_BODY,
        _UNAVAILABLE,
        _NOT_COMMITTED,
        _NO_SUBSCRIPTION,
        Refusal("missing_field", "Name a `claim`, or events as `ids`.", "claim"),
        Refusal("unknown_field", "There is no field 'limt' here.", "limt"),
        Refusal("invalid_field", "`limit` must be a whole number from 1 to 1000.", "limit"),
    ),
    "subscription.test": (
        *_CALLER,
        *_BODY,
        _UNAVAILABLE,
        _NOT_COMMITTED,
        _NO_SUBSCRIPTION,
        Refusal("unknown_field", "There is no field 'event_id' here.", "event_id"),
        Refusal("invalid_field", "This is a pull subscription: nothing is sent to it.", "name"),
    ),
    "list": _LIST,
    "list.query": (*_LIST, *_BODY, Refusal("unknown_field", "There is no field 'limt' here.", "limt")),
    "projections": _SYSTEM,
    "projection": (
        *_LIST,
        Refusal("not_found", "There is no projection 'totals'.", "name"),
        Refusal("invalid_identifier", "Row keys are identifiers; this is not one.", "key"),
    ),
    "ready": (Refusal("unavailable", "No append could commit now: Postgres does not answer."),),
    "method": (Refusal("method_not_allowed", "This path supports only POST and OPTIONS."),),
}
"""What each kind of request can be refused with. `method` is what any other method than a path's gets."""
