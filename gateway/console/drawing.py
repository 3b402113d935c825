"""Pictures of what leads to what: boxes in columns, and lines between them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from gateway.console.api import path_of

BOXES_MAX: Final = 300
"""In one picture: a larger one can't be read."""
LINES_MAX: Final = 1000
ARROWS_MAX: Final = 20_000
"""That are looked at for one picture: some milliseconds."""
_WIDTH, _HEIGHT, _GAP, _STEP = 230, 30, 90, 42


class Box(NamedTuple):
    name: str
    kind: str
    link: str
    x: int
    y: int


class Line(NamedTuple):
    """`how` something leads to something else: `schedules`, where a timer is between; else `leads`."""

    x1: int
    y1: int
    x2: int
    y2: int
    how: str


class Drawing(NamedTuple):
    """`cut`: how many boxes were left out; `tangled`: whether lines were, too."""

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    width: int
    height: int
    cut: int
    tangled: bool


Part = tuple[str, str, str]
"""Name, kind and link of a box. Parts of different kinds may have one name."""
End = tuple[str, str]
"""The name and the kind of a box that an arrow begins or ends at."""
Arrow = tuple[End, End, str]


def drawn(columns: Iterable[Iterable[Part]], arrows: Iterable[Arrow]) -> Drawing:
    """Boxes in columns from left to right, BOXES_MAX at most, and a line for each arrow between two."""
    boxes: dict[End, Box] = {}
    tallest = count = 0
    for x, column in enumerate(columns):
        for y, (name, kind, link) in enumerate(dict.fromkeys(column)):
            count += 1
            if len(boxes) < BOXES_MAX:
                boxes[name, kind] = Box(name, kind, link, x * (_WIDTH + _GAP), y * _STEP)
                tallest = max(tallest, y + 1)
    between: dict[Arrow, None] = {}
    looked_at = list(islice(arrows, ARROWS_MAX))
    for arrow in looked_at:
        if arrow[0] in boxes and arrow[1] in boxes:
            between[arrow] = None
            if len(between) > LINES_MAX:
                break
    lines = tuple(
        Line(boxes[a].x + _WIDTH, boxes[a].y + _HEIGHT // 2, boxes[b].x, boxes[b].y + _HEIGHT // 2, how)
        for a, b, how in list(between)[:LINES_MAX]
    )
    width = max((box.x for box in boxes.values()), default=0) + _WIDTH
    cut, tangled = count - len(boxes), len(between) > LINES_MAX or len(looked_at) == ARROWS_MAX
    return Drawing(tuple(boxes.values()), lines, width, tallest * _STEP, cut, tangled)


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

    def end(event: Mapping[str, Any]) -> End:
        return _named(event), "here" if event["id"] == at else "event"

    columns: dict[int, list[Part]] = {}
    for event in by_id.values():
        columns.setdefault(depth(event), []).append((*end(event), path_of("events", event["id"])))
    arrows = [
        (end(by_id[cause]), end(event), "leads")
        for event in by_id.values()
        if (cause := event["metadata"].get("causation_id")) in by_id
    ]
    return drawn([columns[each] for each in sorted(columns)], arrows)


def _named(event: Mapping[str, Any]) -> str:
    return f"{event['aggregate_type']}.{event['type']} · {event['id'][-6:]}"


def leads(declared: Mapping[str, Any]) -> Drawing:
    """What a spec says leads to what: sources to events; events to those that they imply or schedule, to
    sagas, projections and subscriptions; sagas to the events of their steps."""
    events = [
        (f"{type_}.{event}", "event", path_of("aggregates", type_))
        for type_, body in declared.get("aggregate_types", {}).items()
        for event in body.get("events", {})
    ]
    sources = [(name, "source", f"/webhooks?source={name}") for name in declared.get("webhooks", {})]
    sagas = declared.get("sagas") or declared.get("modules", {}).get("sagas", {})
    readers = [
        *((name, "projection", path_of("projections", name)) for name in declared.get("projections", {})),
        *((name, "saga", "/sagas") for name in sagas),
        *((name, "subscription", path_of("out", name)) for name in declared.get("subscriptions", {})),
    ]
    emitted = [
        (f"{type_}.{emit.get('event_type')}", "emitted", path_of("aggregates", type_))
        for saga in sagas.values()
        for emit, _ in _emits(saga.get("steps", ()))
        if (type_ := str(emit.get("aggregate_type"))) in declared.get("aggregate_types", {})
    ]
    return drawn([sources, events, readers, emitted], _arrows(declared, sagas, [name for name, *_ in events]))


def _arrows(declared: Mapping[str, Any], sagas: Mapping[str, Any], events: list[str]) -> Iterator[Arrow]:
    types = declared.get("aggregate_types", {})
    for name, source in declared.get("webhooks", {}).items():
        to = source.get("to", {})
        for event in [to.get("event", ""), *to.get("types", {}).values()]:
            # With a `$`, each delivery names one of the type's events.
            named = types.get(to.get("type"), {}).get("events", {}) if event.startswith("$") else (event,)
            for each in named:
                yield (name, "source"), (f"{to.get('type')}.{each}", "event"), "leads"
    for type_, body in declared.get("aggregate_types", {}).items():
        for event, said in body.get("events", {}).items():
            for emit, how in _emits(said.get("implications", ())):
                to_ = f"{emit.get('aggregate_type')}.{emit.get('event_type')}"
                yield (f"{type_}.{event}", "event"), (to_, "event"), how
    for name, projection in declared.get("projections", {}).items():
        for event in projection.get("on", {}):
            yield (event, "event"), (name, "projection"), "leads"
    for name, saga in sagas.items():
        trigger = saga.get("trigger", {})
        event = f"{trigger.get('aggregate_type')}.{trigger.get('event_type')}"
        yield (event, "event"), (name, "saga"), "leads"
        for emit, how in _emits(saga.get("steps", ())):
            event = f"{emit.get('aggregate_type')}.{emit.get('event_type')}"
            yield (name, "saga"), (event, "emitted"), how
    # No more of either are drawn.
    few = [(event, *event.split(".", 1)) for event in events[:BOXES_MAX]]
    for name, subscription in list(declared.get("subscriptions", {}).items())[:BOXES_MAX]:
        wanted, kinds = (
            None if (listed := subscription.get("filter", {}).get(each)) is None else frozenset(listed)
            for each in ("types", "event_types")
        )
        for event, type_, kind in few:
            if (wanted is None or type_ in wanted) and (kinds is None or kind in kinds):
                yield (event, "event"), (name, "subscription"), "leads"


_EMITS: Final = ("emit", "compensate")


def _emits(value: object, how: str = "leads") -> Iterator[tuple[Mapping[str, Any], str]]:
    """Every event that is emitted within, and how."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            if name in _EMITS and isinstance(each, Mapping):
                yield each, how
            else:
                yield from _emits(each, "schedules" if name == "schedule" else how)
    elif isinstance(value, list):
        for each in value:
            yield from _emits(each, how)
