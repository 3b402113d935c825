"""What third parties sent in: deliveries, quarantine, replays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.console.api import Answer, path_of
from gateway.console.pages import Page, Visit
from gateway.console.views.parts import PAGE, cut, filter_of, part, words

_FILTERS: Final = ("source", "verdict", "reason", "before")
_VERDICTS: Final = ("", "accepted", "duplicate", "quarantined", "replayed", "batch")
_CHOSEN: Final = "id."
_SURE: Final = "sure."
"""Before the id of a delivery, the names of its fields: it is chosen, it is discarded as was asked."""


async def webhooks(visit: Visit) -> Page:
    return await _webhooks(visit, None)


async def _webhooks(visit: Visit, said: Answer | None, asked: frozenset[str] = frozenset()) -> Page:
    """`asked`: those that are discarded once a person is sure."""
    wanted = {each: visit.query[each] for each in _FILTERS if visit.query.get(each)}
    answer = await visit.api.get("/_/deliveries", {**wanted, "limit": PAGE})
    declared: Mapping[str, Any] = (await part(visit, "/_/spec", "spec")) or {}
    failed = said if said is not None and not said.done else None if answer.done else answer
    done = said.body if said is not None and said.done else {}
    return Page(
        "webhooks.html",
        {
            "sources": list(declared.get("webhooks", {})),
            "verdicts": _VERDICTS,
            "deliveries": answer.body["deliveries"] if answer.done else [],
            "next": answer.body.get("next") if answer.done else None,
            "wanted": wanted,
            "filter": filter_of(wanted),
            "asked": asked,
            "replayed": done.get("replayed", []),
            "discarded": done.get("discarded"),
            "error": None if failed is None else words(failed),
        },
        200 if failed is None else failed.status,
    )


async def webhook(visit: Visit) -> Page:
    """One delivery, with its request as it came."""
    answer = await visit.api.get(path_of("_", "deliveries", visit.name("id")))
    if not answer.done:
        return Page("problem.html", {"error": answer.error}, answer.status)
    return Page("webhook.html", {"delivery": answer.body["delivery"], "cut": cut})


async def discard(visit: Visit) -> Page:
    """Those that were asked for before, and no other."""
    chosen = _named(visit, _CHOSEN)
    if not set(chosen) <= set(_named(visit, _SURE)):
        return await _webhooks(visit, None, frozenset(chosen))
    return await _webhooks(visit, await visit.api.ask("POST", "/_/deliveries/discard", body={"ids": chosen}))


async def replay(visit: Visit) -> Page:
    """Says what became of each. It can be done again: no delivery becomes two events."""
    body = {"ids": _named(visit, _CHOSEN)}
    return await _webhooks(visit, await visit.api.ask("POST", "/_/deliveries/replay", body=body))


def _named(visit: Visit, prefix: str) -> list[str]:
    return [name.removeprefix(prefix) for name in visit.form if name.startswith(prefix)]
