"""An event with what led to it and what it led to; and the feed."""

from __future__ import annotations

from gateway.console.api import path_of
from gateway.console.drawing import causes
from gateway.console.site import Page, Visit
from gateway.console.views.parts import PAGE, part, shown, words


async def event(visit: Visit) -> Page:
    answer = await visit.api.get(path_of("_", "events", visit.name("id")))
    if not answer.done:
        return Page("problem.html", {"error": answer.error}, answer.status)
    found = answer.body["event"]
    correlation = found["metadata"]["correlation_id"]
    related = await part(visit, "/_/feed", "events", {"correlation_id": correlation, "limit": PAGE}) or []
    drawn = causes([each for each in related if each["id"] != found["id"]] + [found], found["id"])
    return Page("event.html", {"event": found, "drawn": drawn, "shown": shown, "correlation": correlation})


async def feed(visit: Visit) -> Page:
    """The newest first; `after` leads to earlier ones."""
    asked = {
        name: visit.query[name]
        for name in ("types", "event_types", "tags", "correlation_id", "after")
        if visit.query.get(name)
    }
    answer = await visit.api.get("/_/feed", {**asked, "order": "desc", "limit": PAGE})
    page = answer.body if answer.done else {"events": [], "caught_up": True}
    return Page(
        "feed.html",
        {
            "asked": asked,
            "events": page["events"],
            "earlier": None if page["caught_up"] else page["position"],
            "error": None if answer.done else words(answer),
            "shown": shown,
        },
        answer.status,
    )
