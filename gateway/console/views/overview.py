"""How the gateway and the tenant are, and what needs a person; and what an identifier names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from uuid import UUID

from gateway.console.api import Query, path_of
from gateway.console.rates import Rate
from gateway.console.site import Goto, Page, Visit
from gateway.console.views.parts import types_of

Sentence = tuple[str, str]
"""For a person, and the page that it leads to."""

_TAG: Final = re.compile(r"[a-z][a-z0-9_]{0,31}:.{1,128}")


async def overview(visit: Visit) -> Page:
    rates = visit.rates
    waiting, unknown = await _waiting(visit)
    up = {dict(labels)["server"]: value > 0 for labels, value in rates.gauge("sluice_backend_up").items()}
    states = {dict(labels)["state"]: int(value) for labels, value in rates.gauge("sluice_partitions").items()}
    direct = sum(value > 0 for value in rates.gauge("sluice_direct_mode").values())
    last = rates.rates[-1] if rates.rates else None
    return Page(
        "overview.html",
        {
            "waiting": waiting,
            "unknown": unknown,
            "up": up,
            "partitions": states,
            "direct": direct,
            "last": last,
            "series": _series(rates.rates),
            "tenant": visit.principal.tenant,
        },
    )


def _series(rates: Iterable[Rate]) -> str:
    """Columns for the chart, as JSON."""
    rows = list(rates)
    columns = [[round(getattr(each, name), 2) for each in rows] for name in ("at", "appends", "reads")]
    return json.dumps([*columns, [None if each.p99_ms is None else each.p99_ms for each in rows]])


def _of_subscription(found: Any) -> Iterator[Sentence]:
    if found.get("state") == "disabled":
        yield f"Subscription {found['name']} is disabled.", f"/out/{found['name']}"
    if parked := found.get("parked"):
        yield f"Subscription {found['name']} has {parked} parked.", f"/out/{found['name']}"


def _of_delivery(found: Any) -> Iterator[Sentence]:
    yield f"Deliveries of {found['source']} are in quarantine.", "/webhooks?verdict=quarantined"


def _of_projection(found: Any) -> Iterator[Sentence]:
    if found.get("does_not_fit"):
        yield f"Projection {found['name']} has events that do not fit.", f"/projections/{found['name']}"


_LOOKS: Final[tuple[tuple[str, Query, Callable[[Any], Iterable[Sentence]]], ...]] = (
    ("subscriptions", {}, _of_subscription),
    ("deliveries", {"verdict": "quarantined", "limit": 1}, _of_delivery),
    ("projections", {}, _of_projection),
    (
        "schedules",
        {"state": "parked", "limit": 1},
        lambda _: [("Timers are parked.", "/schedules?state=parked")],
    ),
    ("sagas", {"state": "stuck", "limit": 1}, lambda _: [("Sagas are stuck.", "/sagas?state=stuck")]),
)
"""What the API lists under this name, and what an item of it says."""


async def _waiting(visit: Visit) -> tuple[list[Sentence], list[str]]:
    """What needs a person; and which lists this key could not read, with the reason."""
    waiting: list[Sentence] = []
    unknown: list[str] = []
    for named, query, sentences in _LOOKS:
        answer = await visit.api.get(f"/_/{named}", query)
        if answer.done:
            waiting += [sentence for each in answer.body[named] for sentence in sentences(each)]
        else:
            unknown.append(f"{named.capitalize()}: {answer.error}")
    halted = dict(visit.rates.gauge("sluice_partitions")).get((("state", "halted"),), 0)
    if halted:
        waiting.append((f"{int(halted)} partitions are halted: Postgres lost commits.", "/overview"))
    return waiting, unknown


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
