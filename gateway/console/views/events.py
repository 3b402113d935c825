"""An event with what led to it and what it led to; and the feed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from gateway.console.api import path_of, read_event, read_rows
from gateway.console.drawing import causes
from gateway.console.live_feed import place_of
from gateway.console.pages import Page, Visit
from gateway.console.views.parts import (
    PAGE,
    glance,
    moment,
    part,
    shown,
    tags_of_event,
    types_of,
    whole,
    words,
)

_CAUSES_MAX: Final = 10
_BEFORE_S: Final = 3600.0


async def event(visit: Visit) -> Page:
    """1. The event. 2. What led to it, one by one. 3. What else has its correlation, as far as a page of the
    feed finds it."""
    answer = await visit.api.get(path_of("_", "events", visit.name("id")), read=read_event)
    if not answer.done:
        return Page("problem.html", {"error": answer.error}, answer.status)
    found = answer.body["event"]
    correlation = found["metadata"]["correlation_id"]
    wanted = {"correlation_id": correlation, "from_time": _began(found), "limit": PAGE}
    related = await visit.api.get("/_/feed", wanted, read=read_rows)
    page: Mapping[str, Any] = related.body if related.done else {"events": [], "caught_up": False}
    before = await _causes(visit, found)
    together = {each["id"]: each for each in [*before, *page["events"], found]}
    return Page(
        "event.html",
        {
            "event": found,
            "drawn": causes(together.values(), found["id"]),
            "whole": page["caught_up"],
            "tags": tags_of_event(await types_of(visit), whole(found)),
            "shown": shown,
            "moment": moment,
            "correlation": correlation,
        },
    )


def _began(event: Mapping[str, Any]) -> float:
    """Unix seconds: no event of this one's correlation is older. The gateway's own correlation ids tell; of a
    client's own it is a guess."""
    correlation = UUID(event["metadata"]["correlation_id"])
    told: float = event["metadata"]["timestamp"]
    return (
        min(told, (correlation.int >> 80) / 1000) if correlation.version == 7 else max(told - _BEFORE_S, 0.0)
    )


async def _causes(visit: Visit, event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The event's cause, and that one's, and so on."""
    found: list[Mapping[str, Any]] = []
    cause = event["metadata"]["causation_id"]
    while cause is not None and len(found) < _CAUSES_MAX:
        answer = await visit.api.get(path_of("_", "events", cause))
        if not answer.done:
            break
        found.append(answer.body["event"])
        cause = found[-1]["metadata"]["causation_id"]
    return found


async def feed(visit: Visit) -> Page:
    """The newest first; `after` leads to earlier ones. Where the page ends is read before its events: a live
    feed continues it without a hole."""
    asked = {
        name: visit.query[name]
        for name in ("types", "event_types", "tags", "correlation_id", "after")
        if visit.query.get(name)
    }
    end = None if "after" in asked else await part(visit, "/_/feed", "position", {"after": "now", "limit": 1})
    answer = await visit.api.get("/_/feed", {**asked, "order": "desc", "limit": PAGE}, read=read_rows)
    page: Mapping[str, Any] = answer.body if answer.done else {"events": [], "caught_up": True}
    newest = [each["position"] for each in page["events"][:1]]
    return Page(
        "feed.html",
        {
            "asked": asked,
            "events": page["events"],
            "position": max([end or "", *newest], key=place_of),
            "live": end is not None,
            "earlier": None if page["caught_up"] else page["position"],
            "error": None if answer.done else words(answer),
            "glance": glance,
        },
        answer.status,
    )
