"""The paths of subscriptions. Pure."""

from __future__ import annotations

from gateway.http.api.subscriptions import ACKED_MAX, WAIT_S_MAX
from gateway.http.openapi.operations import JSON, answer, operation, request
from gateway.http.openapi.parameters import EXAMPLE_EVENT_ID
from gateway.http.openapi.schemas import ANY_UUID, LENGTH, NAMED, OK, Schema, list_of, object_of, or_null, ref
from gateway.relay.documents import HIDDEN
from gateway.relay.pull import CLAIM_EVENTS_MAX
from spec.filter_items import ITEMS_MAX
from spec.subscriptions import FILTER_NAMES_MAX
from spec.targets.form import Form
from spec.targets.pull import LEASE_S_MAX
from spec.targets.table import FORMS

TAG = "/_/"
_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_TIME: Schema = {"type": "number", "description": "Unix seconds."}
_NAME = ("subscription",)
_KEYS: Schema = {
    "const": "alias",
    "description": "Events have aliases, and no key if the aggregate has an alias.",
}
_EXAMPLE: Schema = {
    "filter": {"types": ["order"]},
    "start": "now",
    "target": {
        "type": "webhook",
        "url": "https://hooks.example.com/orders",
        "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    },
}


def subscription_paths() -> dict[str, Schema]:
    """By path."""
    one = "/_/subscriptions/{name}"
    return {
        "/_/subscriptions": {"get": _list()},
        one: {"get": _get(), "put": _put(), "delete": _delete()},
        f"{one}/waiting": {"get": _waiting()},
        f"{one}/attempts": {"get": _attempts()},
        f"{one}/pause": {
            "post": _switch("pause", "Pause a subscription: nothing is sent until it is resumed")
        },
        f"{one}/resume": {"post": _switch("resume", "Resume a subscription that was paused or disabled")},
        f"{one}/replay": {"post": _replay()},
        f"{one}/skip": {"post": _skip()},
        f"{one}/test": {"post": _test()},
        f"{one}/claim": {"post": _claim()},
        f"{one}/ack": {"post": _ack()},
    }


def subscription_schemas() -> dict[str, Schema]:
    """Components, by name."""
    names = list_of(
        {"type": "string", "pattern": "^_?[a-z][a-z0-9_]{0,63}$"}, minItems=1, maxItems=FILTER_NAMES_MAX
    )
    undeclared: Schema = {"type": "boolean", "description": "Also accept names of withdrawn types."}
    items = list_of({"type": "object"}, minItems=1, maxItems=ITEMS_MAX, description="Items as in a query.")
    filters = {"types": names, "event_types": names, "include_undeclared": undeclared, "items": items}
    filtered = object_of({}, _or_nulls(filters), closed=True)
    start = {
        "type": "string",
        "pattern": "^[!-~]{1,1024}$",
        "description": "`beginning`, `now` or a position.",
    }
    aliases: Schema = {
        "type": "boolean",
        "description": "Whether events have aliases; default: as their aggregate types declare.",
    }
    target = {"anyOf": [_target(form) for form in FORMS]}
    return {
        "Subscription": object_of(
            {"target": target},
            _or_nulls({"aliases": aliases, "filter": filtered, "keys": _KEYS, "start": start}),
            closed=True,
        ),
        "StandingSubscription": object_of(
            {
                "name": _TEXT,
                "aliases": or_null({"type": "boolean"}),
                "keys": or_null({"const": "alias"}),
                "filter": {"type": "object"},
                "start": _TEXT,
                "target": {"type": "object", "description": "Secrets are shown as `***`."},
                "declared": {"type": "boolean", "description": "Declared in the spec."},
                "state": {"enum": ["active", "paused", "disabled"]},
                "why": or_null(_TEXT),
                "position": {
                    "type": "string",
                    "description": "The feed position after all settled events.",
                },
                "lag_events": _COUNT,
                "lag_s": {"type": "number"},
                "retrying": _COUNT,
                "claimed": _COUNT,
                "parked": _COUNT,
                "failing_since": or_null(_TIME),
                "confirmed_at": or_null(_TIME),
            }
        ),
    }


def _target(form: Form) -> Schema:
    """As it is PUT: null counts as absent, and a secret that is shown may be sent back as it is."""
    required = {
        name: {"anyOf": [schema, {"const": HIDDEN}]} if name in form.secrets else dict(schema)
        for name, schema in form.required.items()
    }
    return object_of({"type": {"const": form.kind}, **required}, _or_nulls(dict(form.optional)), closed=True)


def _one(description: str) -> Schema:
    return answer(description, {"allOf": [object_of({"ok": OK}), ref("StandingSubscription")]})


def _list() -> Schema:
    schema = object_of({"ok": OK, "subscriptions": list_of(ref("StandingSubscription"))})
    done = {"200": answer("All subscriptions, by name.", schema)}
    return operation("subscriptions", "All subscriptions (scope admin)", tag=TAG, done=done, refused="system")


def _get() -> Schema:
    return operation(
        "subscription",
        "A subscription and its status (scope admin)",
        tag=TAG,
        parameters=_NAME,
        done={"200": _one("The subscription.")},
        refused="subscription",
    )


def _put() -> Schema:
    return operation(
        "subscription.put",
        "Create or change a subscription (scope admin)",
        tag=TAG,
        parameters=_NAME,
        body=request(ref("Subscription"), _EXAMPLE),
        done={"200": _one("Changed."), "201": _one("Created.")},
        refused="subscription.put",
    )


def _delete() -> Schema:
    return operation(
        "subscription.delete",
        "Delete a subscription (scope admin)",
        tag=TAG,
        parameters=_NAME,
        done={"200": answer("Deleted.", object_of({"ok": OK}))},
        refused="subscription.delete",
    )


def _waiting() -> Schema:
    each = object_of(
        {
            "event_id": ANY_UUID,
            "aggregate_type": _TEXT,
            "version": LENGTH,
            "state": {"enum": ["retrying", "claimed", "parked"]},
            "attempts": _COUNT,
            "since": _TIME,
            "due_at": or_null(_TIME),
            "error": or_null(_TEXT),
        },
        NAMED,
    )
    return operation(
        "subscription.waiting",
        "Events that are retrying, claimed or parked, oldest first (scope admin)",
        tag=TAG,
        parameters=(*_NAME, "state", "listed-limit", "aliases", "keys"),
        done={"200": answer("The events.", object_of({"ok": OK, "waiting": list_of(each)}))},
        refused="subscription",
    )


def _attempts() -> Schema:
    each = object_of(
        {
            "event_id": ANY_UUID,
            "attempt": _COUNT,
            "at": _TIME,
            "took_ms": _COUNT,
            "outcome": {"enum": ["confirmed", "failed", "gone"]},
            "status": or_null({"type": "integer"}),
            "error": or_null(_TEXT),
            "response": {"type": "string", "description": "The first 4 KiB of the response."},
        }
    )
    return operation(
        "subscription.attempts",
        "Delivery attempts, newest first (scope admin)",
        tag=TAG,
        parameters=(*_NAME, "of-event", "listed-limit"),
        done={"200": answer("The attempts.", object_of({"ok": OK, "attempts": list_of(each)}))},
        refused="subscription",
    )


def _switch(name: str, summary: str) -> Schema:
    return operation(
        f"subscription.{name}",
        f"{summary} (scope admin)",
        tag=TAG,
        parameters=_NAME,
        done={"200": _one("The subscription, with its new state.")},
        refused="subscription.act",
    )


def _replay() -> Schema:
    return operation(
        "subscription.replay",
        "Deliver parked events again: all, or one (scope admin)",
        tag=TAG,
        parameters=_NAME,
        body=_optional(object_of({}, _or_nulls({"event_id": ANY_UUID}), closed=True)),
        done={"200": answer("The number of events.", object_of({"ok": OK, "replayed": _COUNT}))},
        refused="subscription.send",
    )


def _skip() -> Schema:
    return operation(
        "subscription.skip",
        "Skip a parked event; later events of its aggregate are delivered (scope admin)",
        tag=TAG,
        parameters=_NAME,
        body=request(object_of({"event_id": ANY_UUID}, closed=True), {"event_id": EXAMPLE_EVENT_ID}),
        done={"200": answer("Skipped.", object_of({"ok": OK}))},
        refused="subscription.send",
    )


def _test() -> Schema:
    came_back = {
        "ok": OK,
        "event_id": ANY_UUID,
        "outcome": {"enum": ["confirmed", "failed", "gone"]},
        "status": or_null({"type": "integer"}),
        "took_ms": _COUNT,
        "error": or_null(_TEXT),
        "response": {"type": "string", "description": "The first 4 KiB of the response."},
    }
    return operation(
        "subscription.test",
        "Send a marked test message to the target now; nothing else changes (scope admin)",
        tag=TAG,
        parameters=_NAME,
        body=_optional(object_of({}, closed=True)),
        done={"200": answer("The target's response.", object_of(came_back))},
        refused="subscription.test",
    )


def _claim() -> Schema:
    wanted = object_of(
        {},
        _or_nulls(
            {
                "aliases": {"type": "boolean", "description": "Default: as the subscription declares."},
                "keys": _KEYS,
                "limit": {"type": "integer", "minimum": 1, "maximum": CLAIM_EVENTS_MAX, "default": 100},
                "lease_s": {"type": "number", "minimum": 0.001, "maximum": LEASE_S_MAX},
                "wait": {"type": "number", "minimum": 0, "maximum": WAIT_S_MAX, "default": 0},
            }
        ),
        closed=True,
    )
    claimed = object_of(
        {
            "ok": OK,
            "claim": or_null(ANY_UUID),
            "lease_s": {"type": "number"},
            "events": list_of(ref("FedEvent")),
        }
    )
    return operation(
        "subscription.claim",
        "Claim events of a pull subscription (scope write)",
        tag=TAG,
        parameters=_NAME,
        body=_optional(wanted),
        done={"200": answer("Events that are yours until the lease ends; `claim` acks them all.", claimed)},
        refused="subscription.send",
    )


def _ack() -> Schema:
    either = {"claim": ANY_UUID, "ids": list_of(ANY_UUID, maxItems=ACKED_MAX)}
    given = [object_of({name: schema}) for name, schema in either.items()]
    acked = {**object_of({}, _or_nulls(either), closed=True), "anyOf": given}
    return operation(
        "subscription.ack",
        "Acknowledge claimed events (scope write)",
        tag=TAG,
        parameters=_NAME,
        body=request(acked, {"ids": [EXAMPLE_EVENT_ID]}),
        done={
            "200": answer(
                "The number of aggregates that continue.", object_of({"ok": OK, "aggregates": _COUNT})
            )
        },
        refused="subscription.send",
    )


def _or_nulls(optional: Schema) -> Schema:
    return {name: or_null(schema) for name, schema in optional.items()}


def _optional(schema: Schema) -> Schema:
    return {"required": False, "content": {JSON: {"schema": schema}}}
