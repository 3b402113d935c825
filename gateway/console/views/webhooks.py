"""What third parties sent in, and what subscriptions send out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from gateway.console.api import Answer, path_of
from gateway.console.site import Goto, Page, Visit
from gateway.console.views.parts import PAGE, part, shown, words


async def webhooks(visit: Visit) -> Page:
    return await _webhooks(visit, None)


async def _webhooks(visit: Visit, said: Answer | None, asked: str | None = None) -> Page:
    wanted = {each: visit.query[each] for each in ("source", "verdict", "before") if visit.query.get(each)}
    answer = await visit.api.get("/_/deliveries", {**wanted, "limit": PAGE})
    declared: Mapping[str, Any] = (await part(visit, "/_/spec", "spec")) or {}
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
            "error": None if failed is None else words(failed),
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


async def out(visit: Visit) -> Page:
    answer = await visit.api.get("/_/subscriptions")
    listed = answer.body["subscriptions"] if answer.done else []
    return Page("out.html", {"subscriptions": listed, "error": None if answer.done else answer.error})


async def subscription(visit: Visit) -> Page:
    return await _subscription(visit, None)


async def _subscription(
    visit: Visit, said: Answer | None, asked: tuple[str, str] | None = None, tested: Answer | None = None
) -> Page:
    at = path_of("_", "subscriptions", visit.name("name"))
    answer = await visit.api.get(at)
    if not answer.done:
        return Page("problem.html", {"error": answer.error}, answer.status)
    found = answer.body.get("subscription", answer.body)
    waiting, attempts = await asyncio.gather(
        part(visit, f"{at}/waiting", "waiting"), part(visit, f"{at}/attempts", "attempts")
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
        return await _subscription(visit, None, (act, visit.form.get("event_id", "")))
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
