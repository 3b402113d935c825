"""The paths of deliveries of webhooks. Pure."""

from __future__ import annotations

from gateway.http.api.deliveries import DELIVERIES_MAX, REPLAYED_MAX
from gateway.http.openapi.operations import answer, operation, request
from gateway.http.openapi.outgoing import TAG
from gateway.http.openapi.parameters import EXAMPLE_EVENT_ID
from gateway.http.openapi.schemas import ANY_UUID, OK, Schema, list_of, object_of, or_null

_TEXT: Schema = {"type": "string"}


def delivery_paths() -> dict[str, Schema]:
    """By path."""
    return {
        "/_/deliveries": {"get": _every()},
        "/_/deliveries/{id}": {"get": _one()},
        "/_/deliveries/discard": {"post": _discard()},
        "/_/deliveries/replay": {"post": _replay()},
    }


_WHOLE: Schema = {"type": "integer"}
_DELIVERY: dict[str, Schema] = {
    "id": ANY_UUID,
    "source": _TEXT,
    "delivery_id": _TEXT,
    "item": _WHOLE,
    "verdict": _TEXT,
    "reason": or_null(_TEXT),
    "error": or_null(_TEXT),
    "event_id": or_null(ANY_UUID),
    "received_at": _TEXT,
    "took_ms": _WHOLE,
    "secret": _WHOLE,
}


def _one() -> Schema:
    header = list_of(_TEXT, minItems=2, maxItems=2)
    sent = object_of({"target": _TEXT, "headers": list_of(header), "body": _TEXT})
    delivery = object_of({**_DELIVERY, "request": or_null(sent)})
    return operation(
        "delivery",
        "A webhook delivery, with its request as received (scope admin)",
        tag=TAG,
        parameters=("delivery-id",),
        done={"200": answer("The delivery.", object_of({"ok": OK, "delivery": delivery}))},
        refused="delivery",
    )


def _every() -> Schema:
    page = object_of({"ok": OK, "deliveries": list_of(object_of(_DELIVERY)), "next": or_null(ANY_UUID)})
    return operation(
        "deliveries",
        "Webhook deliveries, newest first (scope admin)",
        tag=TAG,
        parameters=("of-source", "verdict", "reason", "before-delivery", "listed-limit"),
        done={"200": answer("A page.", page)},
        refused="ids",
    )


def _discard() -> Schema:
    ids = list_of({"type": "string", "minLength": 1}, minItems=1, maxItems=DELIVERIES_MAX)
    text: Schema = {"type": "string", "minLength": 1, "maxLength": 255}
    fields = {"ids": or_null(ids), "source": or_null(text), "reason": or_null(text)}
    gone = object_of({"id": ANY_UUID, "source": _TEXT, "delivery_id": _TEXT})
    more: Schema = {"type": "boolean", "description": "More deliveries may match: send the request again."}
    return operation(
        "discard",
        "Discard deliveries in quarantine, with their requests (scope admin)",
        tag=TAG,
        body=request(object_of({}, fields, closed=True), {"ids": [EXAMPLE_EVENT_ID]}),
        done={
            "200": answer(
                "The discarded deliveries.", object_of({"ok": OK, "discarded": list_of(gone), "more": more})
            )
        },
        refused="discard",
    )


def _replay() -> Schema:
    ids = list_of(ANY_UUID, minItems=1, maxItems=REPLAYED_MAX)
    became = object_of(
        {
            "id": ANY_UUID,
            "source": or_null(_TEXT),
            "delivery_id": or_null(_TEXT),
            "event_id": or_null(ANY_UUID),
            "duplicate": {"type": "boolean", "description": "The delivery had become this event before."},
            "reason": or_null(_TEXT),
            "error": or_null(_TEXT),
        }
    )
    return operation(
        "replay-deliveries",
        "Process stored deliveries by the deployed spec (scope admin)",
        tag=TAG,
        body=request(object_of({"ids": ids}, closed=True), {"ids": [EXAMPLE_EVENT_ID]}),
        done={
            "200": answer("The result of each delivery.", object_of({"ok": OK, "replayed": list_of(became)}))
        },
        refused="replay-deliveries",
    )
