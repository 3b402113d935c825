"""The spec as a picture and as text, tried and deployed; and the read models that it declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.console.api import Answer, path_of, read_rows
from gateway.console.drawing import leads
from gateway.console.line_changes import changes, text_of
from gateway.console.pages import Goto, Page, Visit
from gateway.console.views.parts import PAGE, SHOWN_CHARS_MAX, glance, moment, number, part, shown, words
from gateway.follow.standing import LIST_PREFIX


async def spec(visit: Visit) -> Page:
    return await _spec(visit, None, "")


async def _spec(visit: Visit, said: Answer | None, text: str, tried: Answer | None = None) -> Page:
    """1. The revision that is looked at. 2. What it is compared with. 3. Which there are. A tenant may have
    no spec yet: that is no fault."""
    wanted, other = visit.query.get("revision"), visit.query.get("against")
    answer = await visit.api.get("/_/spec", {"revision": wanted} if wanted else None)
    against = await visit.api.get("/_/spec", {"revision": other}) if other else None
    failed = next((each for each in (answer, against) if each is not None and not each.done), None)
    if failed is not None and failed.status == 404 and not wanted and not other:
        failed = None
    declared = answer.body["spec"] if answer.done else {}
    before = number(visit.query.get("before"), 0)
    history = await visit.api.get("/_/spec/history", {"before": before} if before else None)
    whole = text_of(declared) if declared else ""
    return Page(
        "spec.html",
        {
            "revision": answer.body["revision"] if answer.done else 0,
            "declared": declared,
            "text": text or ("" if len(whole) > SHOWN_CHARS_MAX else whole),
            "too_long": not text and len(whole) > SHOWN_CHARS_MAX,
            "drawn": leads(declared),
            "history": history.body["revisions"] if history.done else [],
            "earlier": history.body["next"] if history.done else None,
            "changes": changes(against.body["spec"], declared) if against is not None and not failed else [],
            "against": None if failed else other,
            "error": None if failed is None else words(failed),
            "moment": moment,
            "said": said,
            "tried": None if tried is None else tried.body,
            "shown": shown,
        },
        said.status if said is not None else 200 if failed is None else failed.status,
    )


async def deploy(visit: Visit) -> Page | Goto:
    """The text goes to the API as it is: what is wrong with it, the API says."""
    text = visit.form.get("spec", "")
    document = msgspec.Raw(text.encode())
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
        answer.status,
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
    answer = await visit.api.get(path_of("_", "projections", name), {**asked, "limit": PAGE}, read=read_rows)
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
            "glance": glance,
            "shown": shown,
        },
        answer.status,
    )
