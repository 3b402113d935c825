"""The paths of tenants. Pure."""

from __future__ import annotations

from gateway.catalog.tenants import NAME_RULE
from gateway.http.openapi.operations import answer, operation, request
from gateway.http.openapi.schemas import OK, Schema, list_of, object_of, or_null

TAG = "/_/"
_TEXT: Schema = {"type": "string"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_ID: Schema = {"type": "string", "format": "uuid"}


def tenant_paths() -> dict[str, Schema]:
    """By path."""
    one = "/_/tenants/{id}"
    return {
        "/_/tenant": {"get": _mine()},
        "/_/tenants": {"get": _every()},
        one: {"get": _get(), "put": _put(), "delete": _delete()},
        f"{one}/suspend": {
            "post": _switch("suspend", "Suspend a tenant: its requests are refused until it is resumed")
        },
        f"{one}/resume": {"post": _switch("resume", "Resume a tenant: its requests are accepted again")},
    }


def _tenant(more: dict[str, Schema] | None = None) -> Schema:
    deletion = object_of(
        {"requested_at": _TIME, "events": _COUNT, "events_deleted": _COUNT, "finished_at": or_null(_TIME)}
    )
    told = {
        "id": _ID,
        "name": or_null(_TEXT),
        "handle": _TEXT,
        "status": {"enum": ["active", "suspended", "deleting", "deleted"]},
        "created_at": or_null(_TIME),
    }
    return object_of(told, {"deletion": deletion, **(more or {})})


def _one(more: dict[str, Schema] | None = None) -> Schema:
    return {"allOf": [object_of({"ok": OK}), _tenant(more)]}


def _mine() -> Schema:
    schema = object_of({"ok": OK, "id": _ID, "name": _TEXT, "handle": _TEXT})
    return operation(
        "tenant",
        "The tenant of the key",
        tag=TAG,
        done={"200": answer("The tenant.", schema)},
        refused="system",
    )


def _every() -> Schema:
    schema = object_of({"ok": OK, "tenants": list_of(_tenant()), "next": or_null(_TEXT)})
    return operation(
        "tenants",
        "All tenants by name (scope operator, as all of these)",
        tag=TAG,
        parameters=("after-name", "tenants-limit"),
        done={"200": answer("A page.", schema)},
        refused="ids",
    )


def _get() -> Schema:
    return operation(
        "tenants.get",
        "A tenant, also while it is being deleted and afterwards",
        tag=TAG,
        parameters=("tenant_id",),
        done={"200": answer("The tenant.", _one())},
        refused="tenant",
    )


def _put() -> Schema:
    named = object_of({"name": {"type": "string", "pattern": f"^{NAME_RULE}$"}}, closed=True)
    first = {
        "key": {**_TEXT, "description": "The tenant's first key, of scope admin, shown only once."},
        "key_handle": _TEXT,
    }
    return operation(
        "tenants.put",
        "Create a tenant with an id of your choice; a repeat changes nothing",
        tag=TAG,
        parameters=("tenant_id",),
        body=request(named, {"name": "acme"}),
        done={"200": answer("The tenant exists already.", _one()), "201": answer("It is new.", _one(first))},
        refused="tenant.put",
    )


def _delete() -> Schema:
    return operation(
        "tenants.delete",
        "Delete a tenant with all its data; GET shows the progress",
        tag=TAG,
        parameters=("tenant_id",),
        done={"202": answer("The tenant's keys are invalid, and the deletion has begun.", _one())},
        refused="tenant",
    )


def _switch(name: str, summary: str) -> Schema:
    return operation(
        f"tenants.{name}",
        summary,
        tag=TAG,
        parameters=("tenant_id",),
        done={"200": answer("The tenant's present state.", _one())},
        refused="tenant",
    )
