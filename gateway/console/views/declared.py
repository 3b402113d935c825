"""The spec as a picture and as text, tried and deployed; and the read models that it declares."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gateway.console.api import Answer, path_of
from gateway.console.drawing import leads
from gateway.console.site import Goto, Page, Visit
from gateway.console.views.parts import PAGE, changes, part, shown, words
from gateway.follow.standing import LIST_PREFIX


async def spec(visit: Visit) -> Page:
    return await _spec(visit, None, "")


async def _spec(visit: Visit, said: Answer | None, text: str, tried: Answer | None = None) -> Page:
    wanted = visit.query.get("revision")
    answer = await visit.api.get("/_/spec", {"revision": wanted} if wanted else None)
    declared = answer.body["spec"] if answer.done else {}
    history = await part(visit, "/_/spec/history", "revisions") or []
    other = visit.query.get("against")
    against = await part(visit, "/_/spec", "spec", {"revision": other}) if other else None
    return Page(
        "spec.html",
        {
            "revision": answer.body["revision"] if answer.done else 0,
            "declared": declared,
            "text": text or (shown(declared) if declared else ""),
            "drawn": leads(declared),
            "history": history,
            "changes": changes(against, declared) if against is not None else [],
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
    declared: Mapping[str, Any] = (await part(visit, "/_/spec", "spec")) or {}
    types = declared.get("aggregate_types", {})
    listed = types.get(name.removeprefix(LIST_PREFIX), {}).get("list") or {}
    by = (listed if name.startswith(LIST_PREFIX) else declared.get("projections", {}).get(name, {})).get(
        "by", []
    )
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
            "error": None if answer.done else words(answer),
            "query": visit.query,
            "shown": shown,
        },
        answer.status,
    )
