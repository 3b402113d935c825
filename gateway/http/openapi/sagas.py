"""The paths of sagas. Pure."""

from __future__ import annotations

from gateway.http.api.sagas import STATES
from gateway.http.openapi.aggregates import read_paths
from gateway.http.openapi.operations import answer, operation
from gateway.http.openapi.outgoing import TAG
from gateway.http.openapi.schemas import ANY_UUID, OK, Schema, list_of, object_of, or_null
from spec.sagas import SAGA_TYPE

_TEXT: Schema = {"type": "string"}
_SAGA = object_of(
    {
        "id": ANY_UUID,
        "name": _TEXT,
        "state": {"enum": list(STATES)},
        "length": {"type": "integer"},
        "data": {"type": "object"},
        "started_at": _TEXT,
        "changed_at": _TEXT,
    }
)
_ONE = {"allOf": [object_of({"ok": OK, "saga": _SAGA}), _SAGA]}


def saga_paths() -> dict[str, Schema]:
    """By path."""
    return {
        **read_paths(SAGA_TYPE, TAG),
        "/_/sagas": {"get": _every()},
        "/_/sagas/{id}": {"get": _act("get", "A saga")},
        "/_/sagas/{id}/retry": {"post": _act("retry", "Compensate a stuck saga once more")},
        "/_/sagas/{id}/abandon": {"post": _act("abandon", "End a stuck saga as it is")},
    }


def _every() -> Schema:
    return operation(
        "sagas",
        "Sagas, the most recently changed first (scope admin)",
        tag=TAG,
        parameters=("saga-state", "listed-limit", "listed-cursor"),
        done={
            "200": answer("A page.", object_of({"ok": OK, "items": list_of(_SAGA), "next": or_null(_TEXT)}))
        },
        refused="ids",
    )


def _act(name: str, summary: str) -> Schema:
    return operation(
        f"{name}Saga",
        f"{summary} (scope admin)",
        tag=TAG,
        parameters=("saga-id",),
        done={"200": answer("The saga.", _ONE)},
        refused="saga",
    )
