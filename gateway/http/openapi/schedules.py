"""The paths of timers. Pure."""

from __future__ import annotations

from gateway.http.api.schedules import STATES
from gateway.http.openapi.operations import answer, operation, request
from gateway.http.openapi.outgoing import TAG
from gateway.http.openapi.parameters import EXAMPLE_ID
from gateway.http.openapi.schemas import ANY_UUID, OK, Schema, list_of, object_of, or_null

_TEXT: Schema = {"type": "string"}
_DUE: Schema = {"type": ["string", "number"], "description": "RFC 3339, or Unix seconds."}
_WATCHED = object_of({"aggregate_type": _TEXT, "key": _TEXT, "event_type": _TEXT})
_EMIT = object_of({"aggregate_type": _TEXT, "id": or_null(_TEXT), "event_type": _TEXT, "data": True})
_TRIGGER = object_of({"event_id": ANY_UUID, "aggregate_type": _TEXT, "key": _TEXT, "type": _TEXT})
_SCHEDULE = object_of(
    {
        "id": ANY_UUID,
        "state": {"enum": list(STATES)},
        "due_at": _TEXT,
        "reason": or_null(_TEXT),
        "emit": _EMIT,
        "cancel_on": list_of(_WATCHED),
        "created_at": _TEXT,
    },
    {"trigger": _TRIGGER, "fired_event": ANY_UUID, "ended_at": _TEXT},
)
_ONE = {"allOf": [object_of({"ok": OK, "schedule": _SCHEDULE}), _SCHEDULE]}


def schedule_paths() -> dict[str, Schema]:
    """By path."""
    due = request(object_of({"due_at": _DUE}, closed=True), {"due_at": "2030-01-01T00:00:00Z"})
    return {
        "/_/schedules": {"get": _every(), "post": _create()},
        "/_/schedules/{id}": {"get": _act("get", "A timer")},
        "/_/schedules/{id}/cancel": {"post": _act("cancel", "Cancel a timer")},
        "/_/schedules/{id}/run": {"post": _act("run", "Fire a timer now, or a parked one again")},
        "/_/schedules/{id}/move": {"post": _act("move", "Change the time at which a timer is due", due)},
    }


def _every() -> Schema:
    page = object_of({"ok": OK, "items": list_of(_SCHEDULE), "next": or_null(_TEXT)})
    return operation(
        "schedules",
        "Timers by the time at which they are due (scope admin)",
        tag=TAG,
        parameters=("schedule-state", "trigger-type", "trigger-key", "listed-limit", "listed-cursor"),
        done={"200": answer("A page.", page)},
        refused="ids",
    )


def _create() -> Schema:
    fields = {"due_at": _DUE, "delay": {"type": ["string", "integer"]}, "cancel_on": {"type": "array"}}
    emit = object_of({"aggregate_type": _TEXT, "event_type": _TEXT}, {"id": True, "data": True}, closed=True)
    example = {
        "delay": "24h",
        "emit": {"aggregate_type": "order", "id": EXAMPLE_ID, "event_type": "had_expired", "data": {}},
    }
    return operation(
        "createSchedule",
        "Set a timer (scope write)",
        tag=TAG,
        parameters=("Idempotency-Key-required",),
        body=request(object_of({"emit": emit}, fields, closed=True), example),
        done={"201": answer("Set.", _ONE, ("Location",))},
        refused="create_schedule",
    )


def _act(name: str, summary: str, body: Schema | None = None) -> Schema:
    return operation(
        f"{name}Schedule",
        f"{summary} (scope admin)",
        tag=TAG,
        parameters=("schedule-id",),
        body=body,
        done={"200": answer("The timer.", _ONE)},
        refused="schedule",
    )
