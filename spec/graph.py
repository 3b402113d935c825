"""What leads to what by a spec: events to those that they imply or schedule, to sagas and projections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from spec.implications import Schedule
from spec.model import Spec

Form = Literal["text", "dot", "mermaid"]


class Arrow(NamedTuple):
    """`how` is implies, schedules, starts, emits, compensates or feeds."""

    source: str
    how: str
    to: str


def arrows(spec: Spec) -> Iterator[Arrow]:
    """In the order of the document."""
    for of in spec.aggregate_types.values():
        for event_type in of.events.values():
            for each in event_type.implications:
                how = "schedules" if isinstance(each.what, Schedule) else "implies"
                to = f"{each.emit.aggregate_type}.{each.emit.event_type}"
                yield Arrow(f"{of.name}.{event_type.name}", how, to)
    for saga in spec.sagas.values():
        yield Arrow(".".join(saga.trigger), "starts", f"saga {saga.name}")
        for step in saga.steps:
            yield Arrow(f"saga {saga.name}", "emits", f"{step.emit.aggregate_type}.{step.emit.event_type}")
        for step in reversed(saga.steps):
            if (undo := step.compensate) is not None:
                yield Arrow(f"saga {saga.name}", "compensates", f"{undo.aggregate_type}.{undo.event_type}")
    for name, projection in spec.projections.items():
        for on in projection.on:
            yield Arrow(".".join(on), "feeds", f"projection {name}")


def drawn(spec: Spec, form: Form) -> list[str]:
    """Lines of text, of a DOT graph or of a Mermaid flowchart."""
    found = list(dict.fromkeys(arrows(spec)))
    if form == "text":
        return [f"{each.source}  {each.how}  {each.to}" for each in found]
    if form == "dot":
        lines = [f'  "{each.source}" -> "{each.to}" [label="{each.how}"];' for each in found]
        return ["digraph spec {", "  rankdir=LR;", *lines, "}"]
    names = {
        name: f"n{n}" for n, name in enumerate(dict.fromkeys(x for e in found for x in (e.source, e.to)))
    }
    nodes = [f'  {short}["{name}"]' for name, short in names.items()]
    return ["flowchart LR", *nodes, *[f"  {names[e.source]} -- {e.how} --> {names[e.to]}" for e in found]]
