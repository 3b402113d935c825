"""How the gateway, the instance and the tenant are; and what needs a person, first."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from gateway.console.api import Query, path_of
from gateway.console.instance import Instance
from gateway.console.pages import Page, Visit
from gateway.console.rates import Figures
from gateway.follow.standing import LIST_PREFIX
from gateway.relay.position import decode

LOOKED_AT: Final = 20
"""Items of a list that the overview counts: of more it says that there are more."""

Sentence = tuple[str, str]
"""For a person, and the page that it leads to."""


class Building(NamedTuple):
    """A list or projection that is built: how much of it, from 0 to 1, and how long it takes yet."""

    name: str
    path: str
    done: float
    behind: int
    left_s: float | None


async def overview(visit: Visit) -> Page:
    instance = await visit.instance.read()
    waiting, building, unknown = await _of_tenant(visit)
    figures = visit.rates.look()
    return Page(
        "overview.html",
        {
            "waiting": [*_of_instance(instance, figures), *waiting],
            "building": building,
            "unknown": unknown,
            "figures": figures,
            "gateways": instance.gateways,
            "tenant": visit.principal.tenant,
        },
    )


def _of_instance(instance: Instance, figures: Figures) -> Iterator[Sentence]:
    for alarm in instance.alarms:
        yield f"Partition {alarm.partition} is halted: {alarm.reason}", "/overview#halted"
    halted = figures.partitions.get("halted", 0)
    if halted > len(instance.alarms):
        yield f"{halted} partitions are halted in this gateway: Postgres lost commits.", "/overview#halted"
    for server, works in figures.up.items():
        if not works:
            yield f"{server.capitalize()} does not answer this gateway.", f"/overview#{server}"
    for each in instance.without_redis:
        yield (
            f"Gateway {each.gateway} cannot reach the Redis of {each.partitions} partitions.",
            "/overview#redis",
        )
    if figures.direct and all(figures.up.values()) and not instance.without_redis:
        yield f"{figures.direct} partitions still bypass Redis.", "/overview#redis"


def _of_subscriptions(listed: list[Any], more: bool) -> Iterator[Sentence]:
    for each in listed:
        at = path_of("out", each["name"])
        if each.get("state") == "disabled":
            yield f"Subscription {each['name']} is disabled: {each.get('why') or 'see there'}", at
        if parked := each.get("parked"):
            yield f"Subscription {each['name']} has {parked} parked.", at


def _of_deliveries(listed: list[Any], more: bool) -> Iterator[Sentence]:
    for source, count in Counter(each["source"] for each in listed).items():
        how_many = f"{count} or more deliveries" if more else _count(count, "delivery", "deliveries")
        is_are = "is" if count == 1 and not more else "are"
        at = f"/webhooks?verdict=quarantined&source={source}"
        yield f"{how_many} of {source} {is_are} in quarantine.", at


def _of_projections(listed: list[Any], more: bool) -> Iterator[Sentence]:
    for each in listed:
        at = _path_of(each)
        if each["does_not_fit"]:
            yield f"Projection {each['name']} has events that do not fit.", at
        if each["state"] == "paused":
            yield f"Projection {each['name']} is paused.", at


def _of_schedules(listed: list[Any], more: bool) -> Iterator[Sentence]:
    yield _waiting_there(listed, more, "timer", "parked"), "/schedules?state=parked"


def _of_sagas(listed: list[Any], more: bool) -> Iterator[Sentence]:
    yield _waiting_there(listed, more, "saga", "stuck"), "/sagas?state=stuck"


_LOOKS: Final[tuple[tuple[str, Query, Callable[[list[Any], bool], Iterable[Sentence]]], ...]] = (
    ("deliveries", {"verdict": "quarantined", "limit": LOOKED_AT}, _of_deliveries),
    ("subscriptions", {}, _of_subscriptions),
    ("schedules", {"state": "parked", "limit": LOOKED_AT}, _of_schedules),
    ("sagas", {"state": "stuck", "limit": LOOKED_AT}, _of_sagas),
    ("projections", {}, _of_projections),
)
"""What the API lists under this name, and what its items say."""


async def _of_tenant(visit: Visit) -> tuple[list[Sentence], list[Building], list[str]]:
    """What needs a person; what is built; and which lists this key could not read, with the reason."""
    waiting: list[Sentence] = []
    building: list[Building] = []
    unknown: list[str] = []
    answers = await asyncio.gather(*(visit.api.get(f"/_/{named}", query) for named, query, _ in _LOOKS))
    for (named, query, sentences), answer in zip(_LOOKS, answers, strict=True):
        if not answer.done:
            unknown.append(f"{named.capitalize()}: {answer.error}")
            continue
        listed = answer.body[named] if named in answer.body else answer.body["items"]
        listed += [{**each, "name": LIST_PREFIX + each["name"]} for each in answer.body.get("lists", ())]
        if listed:
            waiting += sentences(listed, len(listed) == query.get("limit"))
        if named == "projections":
            building = list(_built(listed))
    return waiting, building, unknown


def _built(listed: Iterable[Mapping[str, Any]]) -> Iterator[Building]:
    for each in listed:
        figures = each["build"] or (each if each["state"] == "building" else None)
        if figures is not None:
            done = _done(figures["position"], figures["behind"])
            yield Building(each["name"], _path_of(each), done, figures["behind"], figures["eta_s"])


def _path_of(listed: Mapping[str, Any]) -> str:
    return path_of("projections", listed["name"])


def _done(position: str, behind: int) -> float:
    """Of all that is committed, from 0 to 1; counted in places of the partition."""
    place = decode(position)
    seq = sum(each.seq for _, each in place.places) if place else 0
    return seq / (seq + behind) if behind else 1.0


def _waiting_there(listed: list[Any], more: bool, one: str, state: str) -> str:
    if more:
        return f"{len(listed)} or more {one}s are {state}."
    return f"{_count(len(listed), one, f'{one}s')} {'is' if len(listed) == 1 else 'are'} {state}."


def _count(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"
