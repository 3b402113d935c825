"""A second fold, slow and plain, written only from spec/handlers.py: what `gateway.state` must agree with.

Values are what `json` reads, but that a number is a Number, which keeps its digits. Every operation copies
the whole state. Knows no limits: its tests stay far below them.
"""

from __future__ import annotations

import copy
import enum
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

from gateway.events import Event, Recorded
from spec import handlers as h


class Nothing(enum.Enum):
    """A member of an enum is itself when it is copied."""

    ABSENT = "absent"


ABSENT = Nothing.ABSENT
CONTEXT = Context(prec=5000)


@dataclass(frozen=True)
class Number:
    digits: str

    @property
    def value(self) -> Decimal:
        return Decimal(self.digits)


class DoesNotFit(Exception):
    pass


def parse(text: bytes | str) -> Any:
    return json.loads(text, parse_int=Number, parse_float=Number)


def reference(events: Iterable[Recorded], handler_of: Callable[[str], h.Handler]) -> tuple[Any, list[Any]]:
    """The state, and for each operation that did not fit its event's version and its index."""
    state: Any = {}
    errors = []
    for recorded in events:
        if recorded.event.payload is None:
            continue
        scene = {
            h.Root.DATA: parse(recorded.event.payload),
            h.Root.KEY: recorded.stream.key,
            h.Root.TYPE: recorded.event.type,
            h.Root.METADATA: metadata(recorded.event),
        }
        handler = handler_of(recorded.event.type)
        for index, operation in enumerate(handler):
            state = applied(operation, state, scene, lambda: errors.append((recorded.version, index)))  # noqa: B023
    return state, errors


def applied(operation: h.Operation, state: Any, scene: Any, misfit: Callable[[], None]) -> Any:
    """The next state, which is the one before where the operation does not fit."""
    changed = copy.deepcopy(state)
    try:
        return apply(operation, changed, {**scene, h.Root.STATE: changed}, misfit)
    except DoesNotFit:
        misfit()
        return state


def applied_each(handler: h.Handler, state: Any, scene: Any, misfit: Callable[[], None]) -> Any:
    for operation in handler:
        state = applied(operation, state, scene, misfit)
    return state


def metadata(event: Event) -> Any:
    def party(kind: str | None, identifier: str | None) -> Any:
        return None if kind is None else {"type": kind, "id": identifier}

    return {
        "actor": party(event.actor_type, event.actor_id),
        "target": party(event.target_type, event.target_id),
        "timestamp": Number(f"{event.recorded_at_ms / 1000:.3f}"),
        "correlation_id": str(UUID(bytes=event.correlation_id)),
        "causation_id": event.causation_id and str(UUID(bytes=event.causation_id)),
        "extra": event.extra and parse(event.extra),
    }


def apply(operation: h.Operation, state: Any, scene: Any, misfit: Callable[[], None]) -> Any:
    """The next state; `state` may be used up."""
    match operation:
        case h.Remove():
            return remove(operation.target, operation.where, state, scene)
        case h.Conditional():
            chosen = operation.then if true(operation.test, scene) else operation.otherwise
            return applied_each(chosen, state, scene, misfit)
        case h.Let():
            for name, template in operation.names:
                scene = {**scene, name: copy.deepcopy(evaluate(template, scene))}
            return applied_each(operation.do, state, scene, misfit)
        case h.Filter() | h.Map() | h.UpdateWhere():
            return of_items(operation, state, scene, misfit)
    key: tuple[str, ...] = ()
    if isinstance(operation, h.SetAt | h.MergeAt | h.RemoveAt | h.IncrementAt):
        named = evaluate(operation.key, scene)
        if named is ABSENT:
            return state
        if not isinstance(named, str | Number):
            raise DoesNotFit
        key = (named if isinstance(named, str) else named.digits,)
        if isinstance(operation, h.RemoveAt):
            return remove((*operation.target, *key), None, state, scene)
    counts = isinstance(operation, h.Increment | h.Decrement | h.IncrementAt)
    value = evaluate(operation.by if counts else operation.value, scene)
    if value is ABSENT:
        return state
    return put(operation, (*operation.target, *key), state, copy.deepcopy(value))


def of_items(
    operation: h.Filter | h.Map | h.UpdateWhere, state: Any, scene: Any, misfit: Callable[[], None]
) -> Any:
    if not operation.target:
        raise DoesNotFit
    holder = state
    for name in operation.target[:-1]:
        holder = holder.get(name, {})
        if not isinstance(holder, dict):
            raise DoesNotFit
    last = operation.target[-1]
    if not isinstance(holder.get(last), list):
        raise DoesNotFit
    made = []
    for item in holder[last]:
        of_item = {**scene, h.Root.ITEM: item}
        wanted = isinstance(operation, h.Map) or true(operation.where, of_item)
        if isinstance(operation, h.Filter):
            made += [item] if wanted else []
        elif not wanted:
            made.append(item)
        else:
            try:
                made.append(changed_item(operation, item, scene, misfit))
            except DoesNotFit:
                misfit()
                made.append(item)
    holder[last] = made
    return state


def changed_item(operation: h.Map | h.UpdateWhere, item: Any, scene: Any, misfit: Callable[[], None]) -> Any:
    if operation.value is None:
        if not isinstance(item, dict):
            raise DoesNotFit
        return applied_each(operation.do, item, scene, misfit)
    value = copy.deepcopy(evaluate(operation.value, {**scene, h.Root.ITEM: item}))
    if value is ABSENT:
        return item
    if isinstance(operation, h.Map):
        return value
    if not isinstance(item, dict) or not isinstance(value, dict):
        raise DoesNotFit
    return {**item, **value}


def put(operation: h.Operation, target: tuple[str, ...], state: Any, value: Any) -> Any:
    box = {"state": state}
    holder: Any = box
    *way, last = ("state", *target)
    for name in way:
        holder = holder.setdefault(name, {})
        if not isinstance(holder, dict):
            raise DoesNotFit
    holder[last] = changed(operation, holder.get(last, ABSENT), value)
    if not isinstance(box["state"], dict):
        raise DoesNotFit
    return box["state"]


def changed(operation: h.Operation, there: Any, value: Any) -> Any:
    match operation:
        case h.Set() | h.SetAt():
            return value
        case h.Merge() | h.MergeAt():
            there = {} if there is ABSENT else there
            if not isinstance(there, dict) or not isinstance(value, dict):
                raise DoesNotFit
            return {**there, **value}
        case h.Append() | h.AppendUnique() | h.Upsert():
            there = [] if there is ABSENT else there
            if not isinstance(there, list):
                raise DoesNotFit
            return listed(operation, there, value)
    there = Number("0") if there is ABSENT else there
    if not isinstance(there, Number) or not isinstance(value, Number):
        raise DoesNotFit
    minus = isinstance(operation, h.Decrement)
    total = (CONTEXT.subtract if minus else CONTEXT.add)(there.value, value.value)
    return Number(str(total))


def listed(operation: h.Append | h.AppendUnique | h.Upsert, items: list[Any], value: Any) -> list[Any]:
    if isinstance(operation, h.Append):
        return [*items, value]
    key = operation.key
    if key is None:
        return items if any(same(item, value) for item in items) else [*items, value]
    if not isinstance(value, dict) or key not in value:
        raise DoesNotFit
    for n, item in enumerate(items):
        if isinstance(item, dict) and key in item and same(item[key], value[key]):
            merged = {**item, **value}
            return items if isinstance(operation, h.AppendUnique) else [*items[:n], merged, *items[n + 1 :]]
    return [*items, value]


def remove(target: tuple[str, ...], where: h.Predicate | None, state: Any, scene: Any) -> Any:
    if not target:
        if where is not None:
            raise DoesNotFit
        return {}
    holder = state
    for name in target[:-1]:
        if name not in holder:
            return state
        holder = holder[name]
        if not isinstance(holder, dict):
            raise DoesNotFit
    last = target[-1]
    if last not in holder:
        return state
    if where is None:
        del holder[last]
    elif not isinstance(holder[last], list):
        raise DoesNotFit
    else:
        holder[last] = [item for item in holder[last] if not true(where, {**scene, h.Root.ITEM: item})]
    return state


def find(path: h.Path, scene: Any) -> Any:
    value = scene.get(path.root, ABSENT)
    if path.root == "$.metadata" and path.fields:
        value = {name: part for name, part in value.items() if part is not None}
    return walk(value, path.fields)


def walk(value: Any, steps: tuple[h.Step, ...]) -> Any:
    if not steps or value is ABSENT:
        return value
    step, *rest = steps
    if isinstance(step, str):
        return walk(value.get(step, ABSENT) if isinstance(value, dict) else ABSENT, tuple(rest))
    if not isinstance(value, list):
        return ABSENT
    if isinstance(step, int):
        within = -len(value) <= step < len(value)
        return walk(value[step] if within else ABSENT, tuple(rest))
    found = [walk(item, tuple(rest)) for item in value]
    if h.EACH in rest:  # lists within: one flat list
        return [part for each in found if each is not ABSENT for part in each]
    return [each for each in found if each is not ABSENT]


def evaluate(template: h.Template, scene: Any) -> Any:
    match template:
        case h.Path():
            found = copy.deepcopy(find(template, scene))  # shares nothing, not even with another path
            return None if found is ABSENT and not template.optional else found
        case h.Constant(value):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return Number(repr(value)) if number else value
        case h.ObjectTemplate(fields):
            made = {name: evaluate(part, scene) for name, part in fields}
            return {name: part for name, part in made.items() if part is not ABSENT}
        case h.ListTemplate(items):
            return [part for item in items if (part := evaluate(item, scene)) is not ABSENT]
    merged: dict[str, Any] = {}
    for part in template.parts:
        value = evaluate(part, scene)
        merged.update(value if isinstance(value, dict) else {})
    return merged


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one.value == other.value if isinstance(one, Number) else one == other)


def true(predicate: h.Predicate, scene: Any) -> bool:
    match predicate:
        case h.Exists(path):
            return find(path, scene) is not ABSENT
        case h.All(parts):
            return all(true(part, scene) for part in parts)
        case h.Any(parts):
            return any(true(part, scene) for part in parts)
        case h.Not(part):
            return not true(part, scene)
    one, other = evaluate(predicate.left, scene), evaluate(predicate.right, scene)
    return one is not ABSENT and other is not ABSENT and compares(predicate.by, one, other)


def compares(by: h.Comparison, one: Any, other: Any) -> bool:
    if by.startswith("not_"):
        return not compares(h.Comparison(by.removeprefix("not_")), one, other)
    if by == "equals":
        return same(one, other)
    if by == "in":
        return isinstance(other, list) and any(same(one, item) for item in other)
    if type(one) is not type(other) or not isinstance(one, str | Number):
        return False
    if isinstance(one, Number):
        one, other = one.value, other.value
    return bool({"gt": one > other, "gte": one >= other, "lt": one < other, "lte": one <= other}[by])
