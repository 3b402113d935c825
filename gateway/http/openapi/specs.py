"""The paths under /_/spec: the deployed spec, its history, what another one would change. Pure."""

from __future__ import annotations

from gateway.http.openapi.operations import (
    answer,
    not_modified,
    operation,
    request,
)
from gateway.http.openapi.outgoing import TAG
from gateway.http.openapi.schemas import (
    LENGTH,
    OK,
    Schema,
    list_of,
    object_of,
    or_null,
)


def spec_paths() -> dict[str, Schema]:
    """By path."""
    return {
        "/_/spec": {"get": _spec(), "put": _deploy()},
        "/_/spec/history": {"get": _history()},
        "/_/spec/diff": {"post": _diff()},
        "/_/spec/try": {"post": _try_out()},
        "/_/spec/rollback": {"post": _roll_back()},
    }


def _spec() -> Schema:
    schema = object_of({"ok": OK, "revision": LENGTH, "spec": {"type": "object"}})
    return operation(
        "spec",
        "The deployed spec, or an earlier revision, as it was sent",
        tag=TAG,
        parameters=("revision", "If-None-Match"),
        done={"200": answer("The spec.", schema, ("ETag",)), "304": not_modified()},
        refused="spec.get",
    )


_TEXT: Schema = {"type": "string"}


_NOTICES = list_of(object_of({"pointer": _TEXT, "notice": _TEXT}))


_DOCUMENT: Schema = {
    "type": "object",
    "description": 'A spec, bare or as `{"spec": {…}}`. `sluice spec check` lists every fault of one.',
}


_DEPLOYED = object_of({"ok": OK, "revision": LENGTH, "changed": {"type": "boolean"}}, {"notices": _NOTICES})


def _history() -> Schema:
    at: Schema = {"type": "number", "description": "Unix seconds."}
    revision = object_of({"revision": LENGTH, "deployed_at": at, "bytes": LENGTH})
    following = or_null({**LENGTH, "description": "The `before` of the next page; null at the end."})
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
        "The changes and conflicts of deploying a spec; nothing is deployed (scope admin)",
        tag=TAG,
        body=request(_DOCUMENT),
        done={
            "200": answer("With `conflicts`, a deployment would be refused.", object_of({"ok": OK, **plan}))
        },
        refused="diff",
    )


def _try_out() -> Schema:
    count: Schema = {"type": "integer", "minimum": 0}

    def first(counted: str, **more: Schema) -> Schema:
        return object_of({counted: count, "first": list_of(object_of({"key": _TEXT, **more}))})

    found = {
        "events": count,
        "aggregates": count,
        "whole": {"type": "boolean", "description": "Whether all stored events were read."},
        "undeclared": count,
        "refused": first("count", version=LENGTH, event_type=_TEXT, path=_TEXT, error=_TEXT),
        "states": first("differ", length=LENGTH, too_large_at=or_null(LENGTH), diff=list_of(_CHANGE)),
        "misfits": first("count", version=LENGTH, event_type=_TEXT, operation={}, error=_TEXT),
        "largest_state_bytes": count,
        "seconds": {"type": "number"},
    }
    return operation(
        "try",
        "Fold stored events by a spec that is not deployed; nothing is stored (scope admin)",
        tag=TAG,
        parameters=("tried-limit",),
        body=request(_DOCUMENT),
        done={"200": answer("What the spec would refuse and change.", object_of({"ok": OK, **found}))},
        refused="try",
    )


def _roll_back() -> Schema:
    body = object_of({"revision": LENGTH}, {"force": {"type": "boolean"}}, closed=True)
    return operation(
        "rollback",
        "Deploy an earlier revision once more, as the next one (scope admin)",
        tag=TAG,
        parameters=("If-Match-revision", "If-None-Match-spec", "force"),
        body=request(body, {"revision": 1}),
        done={"200": answer("Deployed now or before.", _DEPLOYED, ("ETag",))},
        refused="rollback",
    )


def _deploy() -> Schema:
    return operation(
        "deploy",
        "Deploy a spec (scope admin); every gateway uses it within 5 s",
        tag=TAG,
        parameters=("If-Match-revision", "If-None-Match-spec", "force"),
        body=request(_DOCUMENT),
        done={"200": answer("Deployed now or before.", _DEPLOYED, ("ETag",))},
        refused="deploy",
    )
