"""What an identifier names, and where that is shown."""

from __future__ import annotations

import re
from typing import Any, Final
from uuid import UUID

from gateway.console.api import path_of
from gateway.console.site import Goto, Page, Visit
from gateway.console.views.parts import types_of

_TAG: Final = re.compile(r"[a-z][a-z0-9_]{0,31}:.{1,128}")


async def find(visit: Visit) -> Page | Goto:
    text = visit.query.get("q", "").strip()
    found = [each async for each in _found(visit, text)] if text else []
    places = list(dict.fromkeys(place for _, place in found))
    if len(places) == 1:
        return Goto(places[0])
    error = None
    if text and not found:
        checked = await visit.api.ask("POST", "/_/ids/check", body={"ids": [text]})
        verdicts = (checked.body or {}).get("ids") or [{}]
        error = verdicts[0].get("error") or "Nothing of this tenant has this name."
    return Page("find.html", {"q": text, "found": found, "error": error}, 404 if error else 200)


async def _found(visit: Visit, text: str) -> Any:
    """What it may be, and where that is shown."""
    alias = await visit.api.get(path_of("_", "resolve", "@" + text.removeprefix("@")))
    if alias.done:
        yield "alias", path_of("aggregates", alias.body["aggregate_type"], alias.body["key"])
    if text.startswith("@"):
        return
    if _is_uuid(text):
        if (event := await visit.api.get(path_of("_", "events", text))).done:
            yield "event", path_of("events", event.body["event"]["id"])
        same = await visit.api.get("/_/feed", {"correlation_id": text.lower(), "limit": 1})
        if same.done and same.body["events"]:
            yield "correlation", f"/feed?correlation_id={text.lower()}"
    for aggregate_type in await types_of(visit):
        answer = await visit.api.get(path_of(aggregate_type, text, "length"))
        if answer.done and answer.body["length"]:
            yield aggregate_type, path_of("aggregates", aggregate_type, text)
    if _TAG.fullmatch(text):
        tagged = await visit.api.get("/_/feed", {"tags": text, "limit": 1})
        if tagged.done and tagged.body["events"]:
            yield "tag", f"/feed?tags={text}"


def _is_uuid(text: str) -> bool:
    try:
        return len(text) == 36 and bool(UUID(text))
    except ValueError:
        return False
