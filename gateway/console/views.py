"""What each page shows and each act does: the API's answers, put in order for people.

An endpoint that this release does not have, or that the key may not ask, leaves its part of a page empty.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from gateway.console.api import Answer, Query, path_of
from gateway.console.drawing import causes, leads
from gateway.console.fields import data_of, fields_of
from gateway.console.rates import Rate
from gateway.console.site import Goto, Page, View, Visit

PAGE: Final = 50
SHOWN_CHARS_MAX: Final = 64 * 1024
"""Of one value: more is for the API, which the page links to."""
_TAG: Final = re.compile(r"[a-z][a-z0-9_]{0,31}:.{1,128}")
_NEVER: Final = "0" * 32


def shown(value: object) -> str:
    """JSON for people, cut."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return (
        text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "\n… cut: ask the API for the rest"
    )


def views() -> dict[tuple[str, str], View]:
    return {
        ("GET", "/overview"): overview,
        ("GET", "/find"): find,
        ("GET", "/aggregates"): aggregates,
        ("GET", "/aggregates/{type}"): of_type,
        ("GET", "/aggregates/{type}/{id}"): aggregate,
        ("GET", "/aggregates/{type}/{id}/append"): form,
        ("POST", "/aggregates/{type}/{id}/append"): append,
        ("GET", "/events/{id}"): event,
        ("GET", "/feed"): feed,
        ("GET", "/spec"): spec,
        ("POST", "/spec"): deploy,
        ("GET", "/projections"): projections,
        ("GET", "/projections/{name}"): projection,
        ("GET", "/webhooks"): webhooks,
        ("POST", "/webhooks/discard"): discard,
        ("POST", "/webhooks/replay"): replay,
        ("GET", "/schedules"): schedules,
        ("POST", "/schedules/{id}/{act}"): act_on_schedule,
        ("GET", "/sagas"): sagas,
        ("POST", "/sagas/{id}/{act}"): act_on_saga,
        ("GET", "/keys"): keys,
        ("POST", "/keys"): make_key,
        ("POST", "/keys/{handle}/rotate"): rotate_key,
        ("POST", "/keys/{handle}/revoke"): revoke_key,
        ("GET", "/out"): out,
        ("GET", "/out/{name}"): subscription,
        ("POST", "/out/{name}/{act}"): act_on_subscription,
    }


async def _part(visit: Visit, path: str, named: str, query: Query | None = None) -> Any:
    """A member of the answer, or None."""
    answer = await visit.api.get(path, query)
    return (answer.body or {}).get(named) if answer.done else None


# ---- overview ----


async def overview(visit: Visit) -> Page:
    rates = visit.rates
    waiting = [each async for each in _waiting(visit)]
    up = {dict(labels)["server"]: value > 0 for labels, value in rates.gauge("sluice_backend_up").items()}
    states = {dict(labels)["state"]: int(value) for labels, value in rates.gauge("sluice_partitions").items()}
    direct = sum(value > 0 for value in rates.gauge("sluice_direct_mode").values())
    last = rates.rates[-1] if rates.rates else None
    return Page(
        "overview.html",
        {
            "waiting": waiting,
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


async def _waiting(visit: Visit) -> Any:
    """What needs a person: a sentence and where to go."""
    for each in await _part(visit, "/_/subscriptions", "subscriptions") or ():
        if each.get("state") == "disabled":
            yield f"Subscription {each['name']} is disabled.", f"/out/{each['name']}"
        if parked := each.get("parked"):
            yield f"Subscription {each['name']} has {parked} parked.", f"/out/{each['name']}"
    for each in (
        await _part(visit, "/_/deliveries", "deliveries", {"verdict": "quarantined", "limit": 1}) or ()
    ):
        yield f"Deliveries of {each['source']} are in quarantine.", "/webhooks?verdict=quarantined"
    for each in await _part(visit, "/_/projections", "projections") or ():
        if each.get("does_not_fit"):
            yield f"Projection {each['name']} has events that do not fit.", f"/projections/{each['name']}"
    for _ in await _part(visit, "/_/schedules", "schedules", {"state": "parked", "limit": 1}) or ():
        yield "Timers are parked.", "/schedules?state=parked"
    for _ in await _part(visit, "/_/sagas", "sagas", {"state": "stuck", "limit": 1}) or ():
        yield "Sagas are stuck.", "/sagas?state=stuck"
    halted = dict(visit.rates.gauge("sluice_partitions")).get((("state", "halted"),), 0)
    if halted:
        yield f"{int(halted)} partitions are halted: Postgres lost commits.", "/overview"


# ---- find ----


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
    for aggregate_type in await _types(visit):
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


async def _types(visit: Visit) -> dict[str, Any]:
    declared: dict[str, Any] = (await _part(visit, "/_/spec", "spec")) or {}
    return dict(declared.get("aggregate_types", {}))


# ---- aggregates ----


async def aggregates(visit: Visit) -> Page:
    declared = (await _part(visit, "/_/spec", "spec")) or {}
    types, singletons = declared.get("aggregate_types", {}), declared.get("singletons", ())
    return Page("aggregates.html", {"types": types, "singletons": singletons})


async def of_type(visit: Visit) -> Page:
    aggregate_type = visit.name("type")
    types = await _types(visit)
    asked = {name: text for name, text in visit.query.items() if name.startswith("filter[")}
    asked |= {name: visit.query[name] for name in ("sort", "cursor") if visit.query.get(name)}
    answer = await visit.api.get(path_of(aggregate_type), {**asked, "limit": PAGE})
    listed = types.get(aggregate_type, {}).get("list") or {}
    newest: list[Any] = []
    if not answer.done:
        query: dict[str, str | int] = {"types": aggregate_type, "order": "desc", "limit": PAGE}
        newest = await _part(visit, "/_/feed", "events", query) or []
    return Page(
        "of_type.html",
        {
            "type": aggregate_type,
            "by": listed.get("by", []),
            "items": answer.body.get("items", []) if answer.done else [],
            "next": answer.body.get("next") if answer.done else None,
            "newest": _once(newest),
            "error": answer.error if not answer.done and listed else None,
            "query": visit.query,
            "shown": shown,
        },
        200 if aggregate_type in types else 404,
    )


def _once(events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The newest event of each aggregate."""
    return list({each["key"]: each for each in reversed(list(events))}.values())[::-1]


async def aggregate(visit: Visit) -> Page:
    """1. What it is. 2. The version that is shown. 3. The states around it, its names, a page of events."""
    at = path_of(visit.name("type"), visit.name("id"))
    newest = await visit.api.get(at)
    if not newest.done:
        return Page("problem.html", {"error": newest.error}, newest.status)
    last = newest.body["metadata"]["length"]
    version = min(max(_number(visit.query.get("version"), last), 0), last)
    start = max(version - PAGE // 2, 0)
    state, before, aliases, events, children = await asyncio.gather(
        _state(visit, at, version),
        _state(visit, at, version - 1),
        _part(visit, f"{at}/aliases", "aliases"),
        _part(visit, f"{at}/events", "events", {"from": start + 1, "limit": PAGE}),
        _part(visit, f"{at}/children", "children"),
    )
    return Page(
        "aggregate.html",
        {
            "type": visit.name("type"),
            "key": newest.body["key"],
            "id": visit.name("id"),
            "length": last,
            "version": version,
            "state": shown(state),
            "changes": _changes(before, state),
            "aliases": aliases or [],
            "children": children or [],
            "events": events or [],
            "start": start,
            "page": PAGE,
            "event": next((each for each in events or () if each["version"] == version), None),
            "shown": shown,
            "types": (await _types(visit)).get(visit.name("type"), {}).get("events", {}),
        },
    )


async def _state(visit: Visit, at: str, version: int) -> Any:
    if version <= 0:
        return {}
    return await _part(visit, at, "data", {"at_length": version})


def _changes(before: object, after: object) -> list[tuple[str, str]]:
    """Lines of a diff, each with its mark: what an event changed."""
    lines = difflib.unified_diff(shown(before).splitlines(), shown(after).splitlines(), n=1, lineterm="")
    kept = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    return [(line[:1], line[1:]) for line in kept[:400]]


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 12 else otherwise


async def form(visit: Visit) -> Page:
    return await _form(visit, {}, None)


async def _form(visit: Visit, given: Mapping[str, str], error: str | None) -> Page:
    types = (await _types(visit)).get(visit.name("type"), {}).get("events", {})
    event_type = given.get("event_type") or visit.query.get("event_type") or next(iter(types), "")
    spec: Mapping[str, Any] = (await _part(visit, "/_/spec", "spec")) or {}
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
        422 if error else 200,
    )


async def append(visit: Visit) -> Page | Goto:
    types = (await _types(visit)).get(visit.name("type"), {}).get("events", {})
    event_type = visit.form.get("event_type", "")
    data, fault = data_of(types.get(event_type, {}).get("schema", {}), visit.form)
    if fault:
        return await _form(visit, visit.form, fault)
    body = {
        "data": data,
        "metadata": {
            "actor": {"type": visit.form.get("actor_type", ""), "id": visit.form.get("actor_id", "").strip()}
        },
    }
    if previous := visit.form.get("previous_length"):
        body["previous_length"] = _number(previous, -1)
    path = path_of(visit.name("type"), visit.name("id"), event_type)
    answer = await visit.api.ask("POST", path, body=body, idempotency_key=visit.form.get("once", _NEVER))
    if not answer.done:
        return await _form(visit, visit.form, _words(answer))
    return Goto(path_of("aggregates", visit.name("type"), visit.name("id")))


def _words(answer: Answer) -> str:
    path = (answer.body or {}).get("path")
    return f"{path}: {answer.error}" if path else answer.error


async def event(visit: Visit) -> Page:
    answer = await visit.api.get(path_of("_", "events", visit.name("id")))
    if not answer.done:
        return Page("problem.html", {"error": answer.error}, answer.status)
    found = answer.body["event"]
    correlation = found["metadata"]["correlation_id"]
    related = await _part(visit, "/_/feed", "events", {"correlation_id": correlation, "limit": PAGE}) or []
    drawn = causes([each for each in related if each["id"] != found["id"]] + [found], found["id"])
    return Page("event.html", {"event": found, "drawn": drawn, "shown": shown, "correlation": correlation})


# ---- the feed, the spec ----


async def feed(visit: Visit) -> Page:
    asked = {
        name: visit.query[name]
        for name in ("types", "event_types", "tags", "correlation_id", "after")
        if visit.query.get(name)
    }
    newest = {} if "after" in asked else {"order": "desc"}
    answer = await visit.api.get("/_/feed", {**asked, **newest, "limit": PAGE})
    return Page(
        "feed.html",
        {
            "asked": asked,
            "events": answer.body["events"] if answer.done else [],
            "next": answer.body.get("next") if answer.done else None,
            "error": None if answer.done else _words(answer),
            "shown": shown,
        },
        answer.status,
    )


async def spec(visit: Visit) -> Page:
    return await _spec(visit, None, "")


async def _spec(visit: Visit, said: Answer | None, text: str, tried: Answer | None = None) -> Page:
    wanted = visit.query.get("revision")
    answer = await visit.api.get("/_/spec", {"revision": wanted} if wanted else None)
    declared = answer.body["spec"] if answer.done else {}
    history = await _part(visit, "/_/spec/history", "revisions") or []
    other = visit.query.get("against")
    against = await _part(visit, "/_/spec", "spec", {"revision": other}) if other else None
    return Page(
        "spec.html",
        {
            "revision": answer.body["revision"] if answer.done else 0,
            "declared": declared,
            "text": text or (shown(declared) if declared else ""),
            "drawn": leads(declared),
            "history": history,
            "changes": _changes(against, declared) if against is not None else [],
            "against": other,
            "said": said,
            "tried": None if tried is None else tried.body,
            "shown": shown,
        },
        said.status if said is not None else 200,
    )


async def deploy(visit: Visit) -> Page | Goto:
    text = visit.form.get("spec", "")
    try:
        document = json.loads(text)
    except ValueError as fault:
        answer = Answer(400, {}, {"error": f"This is not JSON: {fault}."})
        return await _spec(visit, answer, text)
    if visit.form.get("act") == "try":
        answer = await visit.api.ask("POST", "/_/spec/try", body=document)
        return await _spec(visit, None if answer.done else answer, text, answer if answer.done else None)
    answer = await visit.api.ask("PUT", "/_/spec", body=document)
    return Goto("/spec") if answer.done else await _spec(visit, answer, text)


# ---- read models ----


async def projections(visit: Visit) -> Page:
    answer = await visit.api.get("/_/projections")
    listed = answer.body if answer.done else {}
    return Page(
        "projections.html",
        {
            "projections": listed.get("projections", []),
            "lists": listed.get("lists", []),
            "error": None if answer.done else answer.error,
        },
    )


async def projection(visit: Visit) -> Page:
    name = visit.name("name")
    declared: Mapping[str, Any] = (await _part(visit, "/_/spec", "spec")) or {}
    by = declared.get("projections", {}).get(name, {}).get("by", [])
    asked = {each: text for each, text in visit.query.items() if each.startswith("filter[") and text}
    asked |= {each: visit.query[each] for each in ("sort", "cursor") if visit.query.get(each)}
    answer = await visit.api.get(path_of("_", "projections", name), {**asked, "limit": PAGE})
    found = answer.body if answer.done else {}
    return Page(
        "projection.html",
        {
            "name": name,
            "by": by,
            "items": found.get("items", []),
            "next": found.get("next"),
            "stands": {each: value for each, value in found.items() if each not in ("items", "ok", "next")},
            "error": None if answer.done else _words(answer),
            "query": visit.query,
            "shown": shown,
        },
        answer.status,
    )


# ---- webhooks in ----


async def webhooks(visit: Visit) -> Page:
    return await _webhooks(visit, None)


async def _webhooks(visit: Visit, said: Answer | None, asked: str | None = None) -> Page:
    wanted = {each: visit.query[each] for each in ("source", "verdict", "before") if visit.query.get(each)}
    answer = await visit.api.get("/_/deliveries", {**wanted, "limit": PAGE})
    declared: Mapping[str, Any] = (await _part(visit, "/_/spec", "spec")) or {}
    failed = said if said is not None and not said.done else None if answer.done else answer
    return Page(
        "webhooks.html",
        {
            "sources": list(declared.get("webhooks", {})),
            "deliveries": answer.body["deliveries"] if answer.done else [],
            "next": answer.body.get("next") if answer.done else None,
            "wanted": wanted,
            "asked": asked,
            "replayed": said.body["replayed"] if said is not None and said.done else [],
            "error": None if failed is None else _words(failed),
            "shown": shown,
        },
        200 if failed is None else failed.status,
    )


async def discard(visit: Visit) -> Page | Goto:
    delivery = visit.form.get("id", "")
    if visit.form.get("sure") != "yes":
        return await _webhooks(visit, None, delivery)
    answer = await visit.api.ask("POST", "/_/deliveries/discard", body={"ids": [delivery]})
    return Goto("/webhooks?verdict=quarantined") if answer.done else await _webhooks(visit, answer)


async def replay(visit: Visit) -> Page:
    """Says what became of it. It can be done again: no delivery becomes two events."""
    body = {"ids": [visit.form.get("id", "")]}
    return await _webhooks(visit, await visit.api.ask("POST", "/_/deliveries/replay", body=body))


# ---- timers and sagas ----


async def schedules(visit: Visit) -> Page:
    return await _reactions(visit, "schedules", None)


async def sagas(visit: Visit) -> Page:
    return await _reactions(visit, "sagas", None)


async def _reactions(
    visit: Visit, which: str, said: Answer | None, asked: tuple[str, str] | None = None
) -> Page:
    wanted = {each: visit.query[each] for each in ("state", "cursor") if visit.query.get(each)}
    answer = await visit.api.get(f"/_/{which}", {**wanted, "limit": PAGE})
    failed = said if said is not None and not said.done else None if answer.done else answer
    return Page(
        f"{which}.html",
        {
            "listed": answer.body[which] if answer.done else [],
            "next": answer.body.get("next") if answer.done else None,
            "wanted": wanted,
            "asked": asked,
            "error": None if failed is None else _words(failed),
            "shown": shown,
        },
        200 if failed is None else failed.status,
    )


async def act_on_schedule(visit: Visit) -> Page | Goto:
    return await _act_on_reaction(visit, "schedules", frozenset({"run", "cancel", "move"}), {"cancel"})


async def act_on_saga(visit: Visit) -> Page | Goto:
    return await _act_on_reaction(visit, "sagas", frozenset({"retry", "abandon"}), {"abandon"})


async def _act_on_reaction(visit: Visit, which: str, acts: frozenset[str], for_good: set[str]) -> Page | Goto:
    act, identifier = visit.name("act"), visit.name("id")
    if act not in acts:
        return Page("problem.html", {"error": "There is no such act."}, 404)
    if act in for_good and visit.form.get("sure") != "yes":
        return await _reactions(visit, which, None, (identifier, act))
    body = {"due_at": visit.form.get("due_at", "")} if act == "move" else {}
    answer = await visit.api.ask("POST", path_of("_", which, identifier, act), body=body)
    return Goto(f"/{which}") if answer.done else await _reactions(visit, which, answer)


# ---- keys ----


async def keys(visit: Visit) -> Page:
    return await _keys(visit, None)


async def _keys(visit: Visit, said: Answer | None, asked: str | None = None) -> Page:
    answer = await visit.api.get("/_/keys")
    failed = said if said is not None and not said.done else None if answer.done else answer
    return Page(
        "keys.html",
        {
            "keys": answer.body["keys"] if answer.done else [],
            "made": said.body if said is not None and said.done else None,
            "asked": asked,
            "error": None if failed is None else _words(failed),
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


# ---- what goes out ----


async def out(visit: Visit) -> Page:
    answer = await visit.api.get("/_/subscriptions")
    listed = answer.body["subscriptions"] if answer.done else []
    return Page("out.html", {"subscriptions": listed, "error": None if answer.done else answer.error})


async def subscription(visit: Visit) -> Page:
    return await _subscription(visit, None)


async def _subscription(
    visit: Visit, said: Answer | None, asked: str | None = None, tested: Answer | None = None
) -> Page:
    at = path_of("_", "subscriptions", visit.name("name"))
    answer = await visit.api.get(at)
    if not answer.done:
        return Page("problem.html", {"error": answer.error}, answer.status)
    found = answer.body.get("subscription", answer.body)
    waiting, attempts = await asyncio.gather(
        _part(visit, f"{at}/waiting", "waiting"), _part(visit, f"{at}/attempts", "attempts")
    )
    return Page(
        "subscription.html",
        {
            "name": visit.name("name"),
            "found": found,
            "waiting": waiting or [],
            "attempts": attempts or [],
            "said": said,
            "asked": asked,
            "tested": None if tested is None else tested.body,
            "shown": shown,
        },
        said.status if said is not None else 200,
    )


_FOR_GOOD: Final = frozenset({"skip"})
"""Acts that can't be undone: each is asked for once more."""


async def act_on_subscription(visit: Visit) -> Page | Goto:
    act = visit.name("act")
    if act not in ("pause", "resume", "replay", "skip", "test"):
        return Page("problem.html", {"error": "There is no such act."}, 404)
    if act in _FOR_GOOD and visit.form.get("sure") != "yes":
        return await _subscription(visit, None, act)
    body: dict[str, object] = {}
    if event_id := visit.form.get("event_id"):
        body["event_id"] = event_id
    path = path_of("_", "subscriptions", visit.name("name"), act)
    answer = await visit.api.ask("POST", path, body=body)
    if not answer.done:
        return await _subscription(visit, answer)
    if act == "test":
        return await _subscription(visit, None, tested=answer)
    return Goto(path_of("out", visit.name("name")))
