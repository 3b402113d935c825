"""The paths of keys and tickets. Pure."""

from __future__ import annotations

from gateway.catalog.keys import NAME_CHARS_MAX
from gateway.catalog.narrowness import NAMES_MAX
from gateway.catalog.tickets import TICKET_S
from gateway.http.api.tickets import PATH_CHARS_MAX
from gateway.http.openapi.operations import JSON, answer, operation, request
from gateway.http.openapi.schemas import OK, Schema, list_of, object_of, or_null

TAG = "/_/"
_TEXT: Schema = {"type": "string"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_SCOPE: Schema = {"enum": ["read", "write", "admin"]}
_ONLY = list_of({"type": "string", "minLength": 1}, minItems=1, maxItems=NAMES_MAX)


def key_paths() -> dict[str, Schema]:
    """By path."""
    return {
        "/_/keys": {"get": _every(), "post": _make()},
        "/_/keys/{handle}": {"delete": _end()},
        "/_/keys/{handle}/rotate": {"post": _rotate()},
        "/_/tickets": {"post": _ticket()},
    }


def _every() -> Schema:
    key = object_of(
        {
            "handle": _TEXT,
            "scope": _TEXT,
            "only": or_null(_ONLY),
            "name": _TEXT,
            "status": {"enum": ["live", "expired", "revoked"]},
            "created_at": _TIME,
            "expires_at": or_null(_TIME),
            "last_used_at": or_null(_TIME),
            "revoked_at": or_null(_TIME),
            "rotated_from": or_null(_TEXT),
            "made_by": or_null(_TEXT),
        }
    )
    return operation(
        "keys",
        "The tenant's keys, without the keys themselves (scope admin)",
        tag=TAG,
        parameters=("after-name", "tenants-limit"),
        done={"200": answer("A page.", object_of({"ok": OK, "keys": list_of(key), "next": or_null(_TEXT)}))},
        refused="ids",
    )


_LIFETIME: Schema = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": 3_153_600_000},
        {"type": "string", "pattern": "^[1-9][0-9]{0,8}s$|^[1-9][0-9]?[mhdwy]$"},
    ],
    "description": "Seconds, or `90s`, `15m`, `1h`, `7d`, `4w`, `1y`.",
}
_MADE: Schema = {
    "ok": OK,
    "key": {"type": "string", "description": "The key, shown only once."},
    "handle": _TEXT,
    "scope": _TEXT,
    "only": or_null(_ONLY),
    "name": _TEXT,
    "expires_at": or_null(_TIME),
}


def _make() -> Schema:
    name: Schema = {"type": "string", "maxLength": NAME_CHARS_MAX, "pattern": "^[ -~]*$"}
    only = {**_ONLY, "description": "`order`, `order/{id}`, `order.was_paid`; not with scope admin."}
    body = object_of(
        {"scope": _SCOPE},
        {"name": or_null(name), "only": or_null(only), "expires_in": or_null(_LIFETIME)},
        closed=True,
    )
    return operation(
        "keys.make",
        "Create a key with at most the scope and names of the key that creates it",
        tag=TAG,
        body=request(body, {"scope": "read", "expires_in": "1h"}),
        done={"201": answer("Made.", object_of(_MADE), ("Location",))},
        refused="keys",
    )


def _end() -> Schema:
    return operation(
        "keys.end",
        "Revoke a key, and those that it created (scope admin)",
        tag=TAG,
        parameters=("handle",),
        done={"200": answer("Revoked.", object_of({"ok": OK}))},
        refused="key",
    )


def _rotate() -> Schema:
    body = object_of({}, {"grace": or_null(_LIFETIME)}, closed=True)
    made = object_of({**_MADE, "rotated_from": _TEXT})
    return operation(
        "keys.rotate",
        "Create a successor of a key (scope admin); the old one is valid until `grace` ends or it is revoked",
        tag=TAG,
        parameters=("handle",),
        body={"required": False, "content": {JSON: {"schema": body}}},
        done={"201": answer("Made.", made, ("Location",))},
        refused="key.rotate",
    )


def _ticket() -> Schema:
    path: Schema = {"type": "string", "minLength": 1, "maxLength": PATH_CHARS_MAX}
    made = {"ok": OK, "ticket": _TEXT, "path": _TEXT, "expires_in": {"const": TICKET_S}}
    return operation(
        "tickets.make",
        "Create a ticket that opens one stream, once, within a minute: for EventSource, as `?ticket=`",
        tag=TAG,
        body=request(object_of({"path": path}, closed=True), {"path": "/_/feed"}),
        done={"201": answer("Made.", object_of(made))},
        refused="tickets",
    )
