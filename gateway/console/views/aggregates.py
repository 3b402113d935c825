"""Aggregates of a type, one over its versions, and the form that appends to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from gateway.console.api import Answer, path_of, read_exactly, read_rows, read_state
from gateway.console.fields import data_of, fields_of
from gateway.console.line_changes import changes
from gateway.console.pages import Goto, Page, Visit
from gateway.console.views.parts import (
    PAGE,
    field_of,
    moment,
    number,
    part,
    shown,
    tags_of_event,
    types_of,
    whole,
    words,
)

_NEVER: Final = "0" * 32
_NO_LIST: Final = 405
"""What the API answers to a read of a type without `list`."""


async def aggregates(visit: Visit) -> Page:
    singletons = ((await part(visit, "/_/spec", "spec")) or {}).get("singletons", ())
    shows = {"types": await types_of(visit), "singletons": singletons, "only": visit.principal.only}
    return Page("aggregates.html", shows)


async def of_type(visit: Visit) -> Page:
    aggregate_type = visit.name("type")
    types = await types_of(visit)
    asked = {name: text for name, text in visit.query.items() if name.startswith("filter[")}
    asked |= {name: visit.query[name] for name in ("sort", "cursor") if visit.query.get(name)}
    by = (types.get(aggregate_type, {}).get("list") or {}).get("by", [])
    if of_data := [each for each in by if not each.startswith("metadata.")]:
        asked["fields"] = ",".join(of_data)
    answer = await visit.api.get(path_of(aggregate_type), {**asked, "limit": PAGE}, read=read_rows)
    if aggregate_type not in types and not answer.done:
        return Page("problem.html", {"error": answer.error}, answer.status)
    has_list = answer.status != _NO_LIST
    newest: list[Any] = []
    if not answer.done:
        query: dict[str, str | int] = {"types": aggregate_type, "order": "desc", "limit": PAGE}
        newest = await part(visit, "/_/feed", "events", query, read_rows) or []
    items = answer.body.get("items", []) if answer.done else []
    return Page(
        "of_type.html",
        {
            "type": aggregate_type,
            "has_list": has_list,
            "by": by,
            "items": _with_values(items) if of_data else items,
            "next": answer.body.get("next") if answer.done else None,
            "newest": _once(newest),
            "error": None if answer.done or not has_list else words(answer),
            "query": visit.query,
            "field_of": field_of,
            "moment": moment,
        },
        answer.status if has_list else 200,
    )


def _with_values(items: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows of which only fields were asked for."""
    return [{**each, "data": read_exactly(each["data"])} for each in items]


def _once(events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The newest event of each aggregate."""
    return list({each["key"]: each for each in reversed(list(events))}.values())[::-1]


async def aggregate(visit: Visit) -> Page:
    """1. What it is. 2. The version that is shown. 3. The states around it, its names, a page of events."""
    at = path_of(visit.name("type"), visit.name("id"))
    newest, types = await asyncio.gather(visit.api.get(at, read=read_state), types_of(visit))
    if not newest.done:
        return Page("problem.html", {"error": newest.error}, newest.status)
    last = newest.body["metadata"]["length"]
    version = min(max(number(visit.query.get("version"), last), 0), last)
    start = max(version - PAGE // 2, 0)
    state, before, aliases, events, children = await asyncio.gather(
        _state(visit, at, version, newest),
        _state(visit, at, version - 1, newest),
        part(visit, f"{at}/aliases", "aliases"),
        part(visit, f"{at}/events", "events", {"from": start + 1, "limit": PAGE}, read_rows),
        part(visit, f"{at}/children", "children"),
    )
    event = next((each for each in events or () if each["version"] == version), None)
    return Page(
        "aggregate.html",
        {
            "type": visit.name("type"),
            "key": newest.body["key"],
            "id": visit.name("id"),
            "length": last,
            "version": version,
            "state": shown(state),
            "changes": changes(before, state),
            "aliases": aliases or [],
            "children": children or [],
            "events": events or [],
            "start": start,
            "page": PAGE,
            "event": event,
            "tags": [] if event is None else tags_of_event(types, whole(event)),
            "shown": shown,
            "moment": moment,
            "types": types.get(visit.name("type"), {}).get("events", {}),
        },
    )


async def _state(visit: Visit, at: str, version: int, newest: Answer) -> Any:
    if version <= 0:
        return {}
    if version == newest.body["metadata"]["length"]:
        return newest.body["data"]
    return await part(visit, at, "data", {"at_length": version}, read_state)


async def form(visit: Visit) -> Page:
    return await _form(visit, {}, None)


async def _form(visit: Visit, given: Mapping[str, str], error: str | None, status: int = 422) -> Page:
    """`error` and `status` are what the API answered to what was sent. There is a form only of an event type
    that the key may read of."""
    answer = await visit.api.get("/_/spec")
    if not answer.done:
        return Page("problem.html", {"error": error or answer.error}, answer.status)
    spec: Mapping[str, Any] = answer.body["spec"]
    types = spec.get("aggregate_types", {}).get(visit.name("type"), {}).get("events", {})
    event_type = given.get("event_type") or visit.query.get("event_type") or next(iter(types), "")
    if event_type not in types:
        why = error or f"The spec declares no event type {event_type!r} of {visit.name('type')!r}."
        return Page("problem.html", {"error": why}, 404)
    return Page(
        "append.html",
        {
            "type": visit.name("type"),
            "id": visit.name("id"),
            "types": list(types),
            "event_type": event_type,
            "fields": fields_of(types.get(event_type, {}).get("schema", {}), given),
            "agents": spec.get("agent_types", []),
            "given": given,
            "error": error,
        },
        status if error else 200,
    )


async def append(visit: Visit) -> Page | Goto:
    types = (await types_of(visit)).get(visit.name("type"), {}).get("events", {})
    event_type = visit.form.get("event_type", "")
    data, fault = data_of(types.get(event_type, {}).get("schema", {}), visit.form)
    if fault:
        return await _form(visit, visit.form, fault)
    metadata: dict[str, Any] = {
        "actor": {"type": visit.form.get("actor_type", ""), "id": visit.form.get("actor_id", "").strip()}
    }
    if previous := visit.form.get("previous_length"):
        metadata["previous_length"] = number(previous, -1)
    body = {"data": data, "metadata": metadata}
    path = path_of(visit.name("type"), visit.name("id"), event_type)
    answer = await visit.api.ask("POST", path, body=body, idempotency_key=visit.form.get("once", _NEVER))
    if not answer.done:
        return await _form(visit, visit.form, words(answer), answer.status)
    return Goto(path_of("aggregates", visit.name("type"), visit.name("id")))
