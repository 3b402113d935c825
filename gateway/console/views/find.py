"""What an identifier names, and where that is shown."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from gateway.console.api import path_of
from gateway.console.pages import Goto, Page, Visit
from gateway.console.views.parts import filter_of, part, types_of

Place = tuple[str, str]
"""What something is, and the page that shows it."""

KEY_CHARS_MAX: Final = 256
"""Of an idempotency key."""
_TAG: Final = re.compile(r"[a-z][a-z0-9_]{0,31}:.{1,128}")


async def find(visit: Visit) -> Page | Goto:
    text = visit.query.get("q", "").strip()
    found = [each async for each in _found(visit, text)] if text else []
    places = list(dict.fromkeys(place for _, place in found))
    if len(places) == 1:
        return Goto(places[0])
    error = await _fault(visit, text) if text and not found else None
    return Page("find.html", {"q": text, "found": found, "error": error}, 404 if error else 200)


async def _found(visit: Visit, text: str) -> AsyncIterator[Place]:
    """What it may be, and where that is shown."""
    alias = await visit.api.get(_alias(text))
    if alias.done:
        yield "alias", path_of("aggregates", alias.body["aggregate_type"], alias.body["key"])
    if text.startswith("@"):
        return
    if _is_uuid(text):
        if (event := await visit.api.get(path_of("_", "events", text))).done:
            yield "event", path_of("events", event.body["event"]["id"])
        same = {"correlation_id": text.lower()}
        if await _some(visit, same):
            yield "correlation id", f"/feed{filter_of(same)}"
    declared: Mapping[str, Any] = (await part(visit, "/_/spec", "spec")) or {}
    for aggregate_type in await types_of(visit):
        answer = await visit.api.get(path_of(aggregate_type, text, "length"))
        if answer.done and answer.body["length"]:
            yield aggregate_type, path_of("aggregates", aggregate_type, text)
    for source, scope, identity in _sources(declared, text):
        answer = await visit.api.get(path_of("_", "sources", source, scope, identity))
        if answer.done:
            at = path_of("aggregates", answer.body["aggregate_type"] or scope, answer.body["key"])
            yield f"source id of {source}", at
    if 0 < len(text) < KEY_CHARS_MAX and text.isascii() and text.isprintable():
        receipt = await visit.api.get("/_/receipts", {"idempotency_key": text})
        if receipt.done:
            first = receipt.body["events"][0] if "events" in receipt.body else receipt.body
            event_id = first.get("event_id") or first["event_ids"][0]
            yield "idempotency key", path_of("events", event_id)
    if _TAG.fullmatch(text) and await _some(visit, {"tags": text}):
        yield "tag", f"/feed{filter_of({'tags': text})}"


async def _some(visit: Visit, wanted: Mapping[str, str]) -> bool:
    """Whether the feed has such an event."""
    answer = await visit.api.get("/_/feed", {**wanted, "limit": 1})
    return answer.done and bool(answer.body["events"])


def _sources(declared: Mapping[str, Any], text: str) -> Iterator[tuple[str, str, str]]:
    """Source, scope and id that a text may mean: as it names them; or the id, of each webhook source that
    sends such."""
    if (named := _named(text)) is not None:
        yield named
    for name, webhook in declared.get("webhooks", {}).items():
        to = webhook.get("to", {})
        if "source_id" in to and "scope" not in to:
            yield name, to["type"], text


def _named(text: str) -> tuple[str, str, str] | None:
    """Source, scope and id with slashes between them; a scope may have some."""
    source, _, rest = text.partition("/")
    scope, _, identity = rest.rpartition("/")
    return (source, scope, identity) if source and scope and identity else None


async def _fault(visit: Visit, text: str) -> str:
    """Why it leads nowhere: what the API says of what it looks like."""
    if text.startswith("@"):
        return (await visit.api.get(_alias(text))).error
    if _TAG.fullmatch(text):
        answer = await visit.api.get("/_/feed", {"tags": text, "limit": 1})
        return f"No event has the tag {text}." if answer.done else answer.error
    if (named := _named(text)) is not None:
        return (await visit.api.get(path_of("_", "sources", *named))).error
    checked = await visit.api.ask("POST", "/_/ids/check", body={"ids": [text]})
    if not checked.done:
        return checked.error
    return (
        checked.body["ids"][0].get("error") or "It is well formed, and nothing that this key may read has it."
    )


def _alias(text: str) -> str:
    return path_of("_", "resolve", "@" + text.removeprefix("@"))


def _is_uuid(text: str) -> bool:
    try:
        return len(text) == 36 and bool(UUID(text))
    except ValueError:
        return False
