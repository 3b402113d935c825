"""The tenant's keys: made, rotated, revoked."""

from __future__ import annotations

from gateway.console.api import Answer, path_of
from gateway.console.pages import Goto, Page, Visit
from gateway.console.views.parts import words


async def keys(visit: Visit) -> Page:
    return await _keys(visit, None)


async def _keys(visit: Visit, said: Answer | None, asked: str | None = None) -> Page:
    after = visit.query.get("after")
    answer = await visit.api.get("/_/keys", {"after": after} if after else None)
    failed = said if said is not None and not said.done else None if answer.done else answer
    return Page(
        "keys.html",
        {
            "keys": answer.body["keys"] if answer.done else [],
            "next": answer.body["next"] if answer.done else None,
            "made": said.body if said is not None and said.done else None,
            "asked": asked,
            "error": None if failed is None else words(failed),
        },
        200 if failed is None else failed.status,
    )


async def make_key(visit: Visit) -> Page:
    """Shows the key, once."""
    body: dict[str, object] = {"scope": visit.form.get("scope", "read"), "name": visit.form.get("name", "")}
    if expires := visit.form.get("expires_in", "").strip():
        body["expires_in"] = expires
    if only := visit.form.get("only", "").split():
        body["only"] = only
    return await _keys(visit, await visit.api.ask("POST", "/_/keys", body=body))


async def rotate_key(visit: Visit) -> Page:
    """Shows the successor, once."""
    path = path_of("_", "keys", visit.name("handle"), "rotate")
    return await _keys(visit, await visit.api.ask("POST", path, body={}))


async def revoke_key(visit: Visit) -> Page | Goto:
    handle = visit.name("handle")
    if visit.form.get("sure") != "yes":
        return await _keys(visit, None, handle)
    answer = await visit.api.ask("DELETE", path_of("_", "keys", handle))
    return Goto("/keys") if answer.done else await _keys(visit, answer)
