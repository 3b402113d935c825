"""What subscriptions send out: what was tried, what waits, and what a person does about it."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.console.api import Answer, path_of
from gateway.console.pages import Goto, Page, Visit
from gateway.console.views.parts import PAGE, moment, part, shown, words


async def out(visit: Visit) -> Page:
    answer = await visit.api.get("/_/subscriptions")
    listed = answer.body["subscriptions"] if answer.done else []
    error = None if answer.done else answer.error
    return Page("out.html", {"subscriptions": listed, "error": error}, answer.status)


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
        part(visit, f"{at}/waiting", "waiting"), part(visit, f"{at}/attempts", "attempts", {"limit": PAGE})
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
            "moment": moment,
        },
        said.status if said is not None else 200,
    )


async def delivery(visit: Visit) -> Page:
    return await _delivery(visit, visit.name("event_id"), None)


async def _delivery(
    visit: Visit, event_id: str, said: Answer | None, asked: tuple[str, str] | None = None
) -> Page:
    """One event of a subscription: each try of it, and what waits."""
    at = path_of("_", "subscriptions", visit.name("name"))
    attempts, waiting = await asyncio.gather(
        visit.api.get(f"{at}/attempts", {"event_id": event_id, "limit": PAGE}),
        part(visit, f"{at}/waiting", "waiting", {"limit": _WAITING_MAX}),
    )
    if not attempts.done:
        return Page("problem.html", {"error": words(attempts)}, attempts.status)
    return Page(
        "delivery.html",
        {
            "name": visit.name("name"),
            "event_id": event_id,
            "waits": next((each for each in waiting or () if each["event_id"] == event_id), None),
            "attempts": attempts.body["attempts"],
            "said": said,
            "asked": asked,
            "moment": moment,
        },
        said.status if said is not None else 200,
    )


_WAITING_MAX: Final = 1000
"""As many as the API lists: an event that waits is looked for among them."""
_FOR_GOOD: Final = frozenset({"skip"})
"""Acts that can't be undone: each is asked for once more."""


async def act_on_subscription(visit: Visit) -> Page | Goto:
    act = visit.name("act")
    if act not in ("pause", "resume", "replay", "skip", "test"):
        return Page("problem.html", {"error": "There is no such act."}, 404)
    if act in _FOR_GOOD and visit.form.get("sure") != "yes":
        return await _answered(visit, None, (act, visit.form.get("event_id", "")))
    body: dict[str, object] = {}
    if event_id := visit.form.get("event_id"):
        body["event_id"] = event_id
    path = path_of("_", "subscriptions", visit.name("name"), act)
    answer = await visit.api.ask("POST", path, body=body)
    if not answer.done:
        return await _answered(visit, answer)
    if act == "test":
        return await _subscription(visit, None, tested=answer)
    of_one = ("deliveries", visit.form["event_id"]) if visit.form.get("of") == "delivery" else ()
    return Goto(path_of("out", visit.name("name"), *of_one))


async def _answered(visit: Visit, said: Answer | None, asked: tuple[str, str] | None = None) -> Page:
    """The page that the act was sent from."""
    if visit.form.get("of") == "delivery":
        return await _delivery(visit, visit.form.get("event_id", ""), said, asked)
    return await _subscription(visit, said, asked)
