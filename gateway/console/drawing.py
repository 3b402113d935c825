"""Pictures of what leads to what: boxes in columns, and lines between them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from gateway.console.api import path_of

BOXES_MAX: Final = 300
"""In one picture: beyond that nobody sees anything."""
_WIDTH, _HEIGHT, _GAP, _STEP = 230, 30, 90, 42


class Box(NamedTuple):
    name: str
    kind: str
    link: str
    x: int
    y: int


class Drawing(NamedTuple):
    boxes: tuple[Box, ...]
    lines: tuple[tuple[int, int, int, int], ...]
    width: int
    height: int


def drawn(columns: Iterable[Iterable[tuple[str, str, str]]], arrows: Iterable[tuple[str, str]]) -> Drawing:
    """Columns of (name, kind, link), and arrows between names."""
    boxes: dict[str, Box] = {}
    tallest = 0
    for x, column in enumerate(columns):
        for y, (name, kind, link) in enumerate(column):
            if len(boxes) < BOXES_MAX:
                boxes.setdefault(name, Box(name, kind, link, x * (_WIDTH + _GAP), y * _STEP))
                tallest = max(tallest, y + 1)
    lines = tuple(
        (boxes[a].x + _WIDTH, boxes[a].y + _HEIGHT // 2, boxes[b].x, boxes[b].y + _HEIGHT // 2)
        for a, b in dict.fromkeys(arrows)
        if a in boxes and b in boxes
    )
    widest = max((box.x for box in boxes.values()), default=0)
    return Drawing(tuple(boxes.values()), lines, widest + _WIDTH, tallest * _STEP)


def causes(events: Iterable[Mapping[str, Any]], at: str) -> Drawing:
    """Events of one correlation, each one column behind what caused it. `at` is the one that is looked at."""
    by_id = {event["id"]: event for event in events}

    def depth(event: Mapping[str, Any]) -> int:
        found, seen = 0, set[str]()
        cause = event["metadata"].get("causation_id")
        while cause in by_id and cause not in seen:
            seen.add(cause)
            found, cause = found + 1, by_id[cause]["metadata"].get("causation_id")
        return found

    columns: dict[int, list[tuple[str, str, str]]] = {}
    for event in by_id.values():
        kind = "here" if event["id"] == at else "event"
        place = (_named(event), kind, path_of("events", event["id"]))
        columns.setdefault(depth(event), []).append(place)
    arrows = [
        (_named(by_id[cause]), _named(event))
        for event in by_id.values()
        if (cause := event["metadata"].get("causation_id")) in by_id
    ]
    return drawn([columns[each] for each in sorted(columns)], arrows)


def _named(event: Mapping[str, Any]) -> str:
    return f"{event['aggregate_type']}.{event['type']} · {event['id'][-6:]}"


def leads(declared: Mapping[str, Any]) -> Drawing:
    """What a spec says leads to what: sources to events, events to what they imply, start or feed."""
    events = [
        (f"{type_}.{event}", "event", path_of("aggregates", type_))
        for type_, body in declared.get("aggregate_types", {}).items()
        for event in body.get("events", {})
    ]
    sources = [(name, "source", "/webhooks") for name in declared.get("webhooks", {})]
    readers = [(name, "projection", "/projections") for name in declared.get("projections", {})]
    sagas = declared.get("sagas") or declared.get("modules", {}).get("sagas", {})
    readers += [(name, "saga", "/sagas") for name in sagas]
    readers += [(name, "subscription", path_of("out", name)) for name in declared.get("subscriptions", {})]
    return drawn([sources, events, readers], _arrows(declared, sagas, [name for name, *_ in events]))


def _arrows(
    declared: Mapping[str, Any], sagas: Mapping[str, Any], events: list[str]
) -> Iterator[tuple[str, str]]:
    for name, source in declared.get("webhooks", {}).items():
        to = source.get("to", {})
        for event in [to.get("event", ""), *to.get("types", {}).values()]:
            if event.startswith("$"):  # each delivery names one of the type's events
                yield from ((name, each) for each in events if each.startswith(f"{to.get('type')}."))
            else:
                yield name, f"{to.get('type')}.{event}"
    for type_, body in declared.get("aggregate_types", {}).items():
        for event, said in body.get("events", {}).items():
            for emit in _emits(said.get("implications", ())):
                yield f"{type_}.{event}", f"{emit.get('aggregate_type')}.{emit.get('event_type')}"
    for name, projection in declared.get("projections", {}).items():
        for event in projection.get("on", {}):
            yield event, name
    for name, saga in sagas.items():
        trigger = saga.get("trigger", {})
        yield f"{trigger.get('aggregate_type')}.{trigger.get('event_type')}", name
    for name, subscription in declared.get("subscriptions", {}).items():
        wanted = subscription.get("filter", {})
        for event in events:
            type_, _, kind = event.partition(".")
            if type_ in wanted.get("types", [type_]) and kind in wanted.get("event_types", [kind]):
                yield event, name


def _emits(value: object) -> Iterator[Mapping[str, Any]]:
    """Every `emit` within."""
    if isinstance(value, Mapping):
        if isinstance(value.get("emit"), Mapping):
            yield value["emit"]
        for each in value.values():
            yield from _emits(each)
    elif isinstance(value, list):
        for each in value:
            yield from _emits(each)
