"""Timers and sagas, and what a person does about one."""

from __future__ import annotations

from gateway.console.api import Answer, path_of
from gateway.console.pages import Goto, Page, Visit
from gateway.console.views.parts import PAGE, filter_of, number, shown, words


async def schedules(visit: Visit) -> Page:
    return await _reactions(visit, "schedules", None)


async def sagas(visit: Visit) -> Page:
    return await _reactions(visit, "sagas", None)


async def _reactions(
    visit: Visit, which: str, said: Answer | None, asked: tuple[str, str] | None = None
) -> Page:
    wanted = _wanted(visit)
    answer = await visit.api.get(f"/_/{which}", {**wanted, "limit": PAGE})
    failed = said if said is not None and not said.done else None if answer.done else answer
    return Page(
        f"{which}.html",
        {
            "listed": answer.body["items"] if answer.done else [],
            "next": answer.body.get("next") if answer.done else None,
            "wanted": wanted,
            "filter": filter_of(wanted),
            "asked": asked,
            "error": None if failed is None else words(failed),
            "shown": shown,
        },
        200 if failed is None else failed.status,
    )


def _wanted(visit: Visit) -> dict[str, str]:
    """The part of the list that is shown, also where an act was sent from it."""
    return {each: visit.query[each] for each in ("state", "cursor") if visit.query.get(each)}


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
    due_at = visit.form.get("due_at", "")
    seconds = number(due_at, -1)  # Unix, as the API takes them, too
    body = {"due_at": due_at if seconds < 0 else seconds} if act == "move" else {}
    answer = await visit.api.ask("POST", path_of("_", which, identifier, act), body=body)
    return (
        Goto(f"/{which}{filter_of(_wanted(visit))}")
        if answer.done
        else await _reactions(visit, which, answer)
    )
