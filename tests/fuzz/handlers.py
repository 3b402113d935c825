"""Handlers and events as no application would have them.

Three kinds, by chance. *Small*: a written handler is read by the spec's parser and folds some events; the
fold must agree with the naive one (tests/core/state_reference.py), be the same however the stream is cut, and
keep its limits however low they are. *Heavy*: lists of thousands of items, names that double what they name,
operations on items of items, values of hundreds of kilobytes; one event must take a bounded time and leave a
bounded state, and what is folded at once must give up soon. *Broken*: the same, written wrong in some place;
the parser must answer with a spec or with faults, and the published schema must not refuse what it takes.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
import tracemalloc
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema_rs

from gateway.events import Recorded, revised
from gateway.state import AT_ONCE_LOOKS, EMPTY, STATE_BYTES_MAX, Folded, TakesLong, fold, upcast
from spec.errors import FAULTS_MAX, Faults
from spec.handlers import Comparison, Handler
from spec.model import EventType, Spec
from spec.parse import parse
from tests.core.state_reference import parse as read_exactly
from tests.core.state_reference import reference
from tests.core.state_samples import recorded

EVENT_S = 8.0
"""CPU seconds that one event may take, whatever its handler: about one on an idle core."""
AT_ONCE_S = 0.5
"""What is folded at once gives up in some 10 ms; here with what a busy machine adds."""
MEMORY_BYTES = 24 * STATE_BYTES_MAX

NAMES = ("a", "b", "c", "sku", "n")
PATHS = (
    *("$.data", "$.data.a", "$.data.b?", "$.data.list[0]", "$.data.list[-1]?", "$.data.list[*]"),
    *("$.data.list[*].a", "$.data.list[*].b[*]", "$.metadata.actor.id", "$.metadata.target.id?", "$.key"),
    *("@", "@.a", "@.b?", "@.sku", "@.list[0].n", "@.list[*].n", "@.a.b?", "$.type"),
)
KINDS = (
    *("set", "merge", "append", "append_unique", "remove", "increment", "decrement", "filter", "upsert"),
    *("set_at", "merge_at", "remove_at", "increment_at", "map", "update_where", "if", "let"),
)
COMPARISONS = [str(each) for each in Comparison]

Numbers = random.Random
Json = Any


def target(numbers: Numbers, *, whole: bool = False) -> str:
    if whole and numbers.random() < 0.2:
        return ""
    return numbers.choice(("list", "list", "list", "a", "b", "a.b", "o.list", "n", "o"))


def path(numbers: Numbers, names: tuple[str, ...]) -> str:
    if names and numbers.random() < 0.4:
        return f"${numbers.choice(names)}" + numbers.choice(("", "", ".a", "[0]", "?"))
    return numbers.choice(PATHS)


def scalar(numbers: Numbers) -> Json:
    return numbers.choice(("x", "", 0, 1, -2, 0.1, 1e400, 10**30, True, False, None, "b"))


def value(numbers: Numbers, names: tuple[str, ...], depth: int = 2) -> Json:
    kind = numbers.randrange(8 if depth else 4)
    if kind < 3:
        return path(numbers, names)
    if kind == 3:
        found = scalar(numbers)
        return 1 if found == float("inf") else found
    inner: Callable[[], Json] = lambda: value(numbers, names, depth - 1)  # noqa: E731
    if kind == 4:
        return [inner() for _ in range(numbers.randint(0, 3))]
    if kind == 5:
        return {"$merge": [object_of(numbers, names, depth - 1) for _ in range(numbers.randint(0, 3))]}
    if kind == 6:
        return {"$literal": numbers.choice(("$x", ["@"], {"$": 1}, 7))}
    return {numbers.choice(NAMES): inner() for _ in range(numbers.randint(0, 3))}


def object_of(numbers: Numbers, names: tuple[str, ...], depth: int = 1) -> Json:
    if numbers.random() < 0.3:
        return numbers.choice(("$.data", "@", "$.data.a"))
    return {numbers.choice(NAMES): value(numbers, names, max(depth, 0)) for _ in range(numbers.randint(0, 3))}


def test_of(numbers: Numbers, names: tuple[str, ...], depth: int = 2) -> Json:
    kind = numbers.randrange(7 if depth else 3)
    if kind == 0:
        return {numbers.choice(NAMES): numbers.choice(("$.data.a", "$.data.n", 1, "x"))}
    if kind == 1:
        return {"exists": path(numbers, names)}
    if kind < 5:
        return {numbers.choice(COMPARISONS): [value(numbers, names, 1), value(numbers, names, 1)]}
    if kind == 5:
        return {"not": test_of(numbers, names, depth - 1)}
    return {
        numbers.choice(("and", "or")): [
            test_of(numbers, names, depth - 1) for _ in range(numbers.randint(0, 3))
        ]
    }


def key_of(numbers: Numbers, names: tuple[str, ...]) -> Json:
    return numbers.choice(("k", "a.b", "$.data.sku", "$.data.n", 7, "@.sku?", {"$literal": "$x"}, "$.key"))


def operation(numbers: Numbers, names: tuple[str, ...] = (), depth: int = 3) -> Json:
    """One operation, as it is written."""
    kind = numbers.choice(KINDS if depth else KINDS[:13])
    do: Callable[[tuple[str, ...]], Json] = lambda bound: [  # noqa: E731
        operation(numbers, bound, depth - 1) for _ in range(numbers.randint(0, 3))
    ]
    match kind:
        case "if":
            written: Json = {"if": test_of(numbers, names), "then": do(names)}
            if numbers.random() < 0.5:
                written["else"] = do(names)
            return written if numbers.random() < 0.7 else {"conditional": written}
        case "let":
            bound: dict[str, Json] = {}
            seen = names
            for name in numbers.sample(("x", "y", "z"), numbers.randint(0, 3)):
                bound[name] = value(numbers, seen)
                seen = (*seen, name)
            return {"let": bound, "do": do(seen)}
    whole = kind in ("set", "merge", "set_at", "merge_at", "remove_at", "increment_at")
    arguments: Json = {"target": target(numbers, whole=whole)}
    if kind.endswith("_at"):
        arguments["key"] = key_of(numbers, names)
    match kind:
        case "set" | "set_at" if arguments["target"] == "" and kind == "set":
            arguments["value"] = object_of(numbers, names)
        case "merge" | "merge_at":
            arguments["value"] = object_of(numbers, names)
        case "set" | "append" | "set_at":
            arguments["value"] = value(numbers, names)
        case "append_unique":
            arguments["value"] = value(numbers, names)
            if numbers.random() < 0.5:
                arguments |= {"key": numbers.choice(NAMES), "value": object_of(numbers, names)}
        case "upsert":
            arguments |= {"key": numbers.choice(NAMES), "value": object_of(numbers, names)}
        case "increment" | "decrement" | "increment_at":
            if numbers.random() < 0.7:
                arguments[numbers.choice(("by", "value"))] = numbers.choice((1, -2.5, "$.data.n", "@.n?"))
        case "remove":
            if numbers.random() < 0.7:
                arguments["where"] = test_of(numbers, names)
        case "filter":
            arguments["where"] = test_of(numbers, names)
        case "map" | "update_where":
            if kind == "update_where":
                arguments["where"] = test_of(numbers, names)
            if numbers.random() < 0.6:
                arguments["do"] = do(names)
            else:
                of = value if kind == "map" else object_of
                arguments["value"] = of(numbers, names)
    return {kind: arguments}


def data(numbers: Numbers, depth: int = 2) -> Json:
    """Of one event: an object mostly, with a list of objects that operations meet."""
    made: Json = {name: datum(numbers, depth) for name in numbers.sample(NAMES, numbers.randint(0, 3))}
    if numbers.random() < 0.7:
        made["list"] = [datum(numbers, depth) for _ in range(numbers.randint(0, 4))]
    return made if numbers.random() < 0.95 else datum(numbers, depth)


def datum(numbers: Numbers, depth: int) -> Json:
    if depth == 0 or numbers.random() < 0.4:
        found = scalar(numbers)
        return 3 if found == float("inf") else found
    if numbers.random() < 0.4:
        return [datum(numbers, depth - 1) for _ in range(numbers.randint(0, 3))]
    return {name: datum(numbers, depth - 1) for name in numbers.sample(NAMES, numbers.randint(0, 3))}


def declared(handler: Json, **event: Json) -> EventType | Faults:
    made = {"schema": True, "handler": handler, **event}
    found = parse({"aggregate_types": {"order": {"events": {"was_placed": made}}}, "agent_types": []})
    if isinstance(found, Spec):
        return found.aggregate_types["order"].events["was_placed"]
    return found


def wrong(seed: int) -> str | None:
    """A sentence where something is not as it must be."""
    numbers = random.Random(seed)
    kind = numbers.choices((small, heavy, broken), (0.7, 0.02, 0.28))[0]
    try:
        found = kind(numbers)
    except Exception as fault:
        found = f"{fault!r}"
    return None if found is None else f"seed {seed}, {kind.__name__}: {found}"


# ---- small ----


def small(numbers: Numbers) -> str | None:
    written = [operation(numbers) for _ in range(numbers.randint(1, 4))]
    steps = [operation(numbers, depth=1) for _ in range(numbers.randint(0, 2))]
    begin = [{"append": {"target": "list", "value": "$.data"}}, {"set": {"target": "o", "value": "$.data"}}]
    of = declared([*begin[: numbers.randint(0, 2)], *written])
    if isinstance(of, Faults):
        return f"{of[0]} in {json.dumps(written)}"
    events = [
        recorded(version, json.dumps(data(numbers)).encode()) for version in range(1, numbers.randint(2, 6))
    ]
    if numbers.random() < 0.3:
        events = _brought(events, steps)
    folded = _fold(EMPTY, events, of.handler)
    state, errors = reference(events, lambda _: of.handler)
    shown = f"{json.dumps(written)} over {[each.event.payload for each in events]}"
    if repr(read_exactly(folded.data_json)) != repr(state):
        return f"{folded.data_json!r} is not {state!r} by {shown}"
    if [(each.version, each.operation) for each in folded.errors] != errors[-20:]:
        return f"{folded.errors} are not {errors} by {shown}"
    cut = numbers.randint(0, len(events))
    if _fold(_fold(EMPTY, events[:cut], of.handler), events[cut:], of.handler) != folded:
        return f"cut at {cut} it is another state, by {shown}"
    return _limited(numbers, events, of.handler, shown)


def _limited(numbers: Numbers, events: list[Recorded], handler: Handler, shown: str) -> str | None:
    """With a low limit: either the state, or none from the first version on that is over it."""
    bytes_max = numbers.randint(8, 200)
    by_one, over = EMPTY, None
    for version, event in enumerate(events, 1):
        whole = _fold(EMPTY, events[:version], handler)
        by_one = fold(by_one, [event], lambda _: handler, bytes_max=bytes_max)
        over = over or (version if len(whole.data_json) > bytes_max else None)
        if any("would be longer" in each.error for each in by_one.errors):
            return None  # names and what is compared are bounded by the same limit: another state is right
        if len(by_one.data_json) > bytes_max:
            return f"{len(by_one.data_json)} bytes of {bytes_max}, by {shown}"
        if over is not None and by_one.too_large_at != over and by_one.too_large_at is None:
            return f"too large at {over}, not said, by {shown}"
        if by_one.too_large_at is None and by_one.data_json != whole.data_json:
            return f"below {bytes_max} bytes another state, by {shown}"
    at_once = fold(EMPTY, events, lambda _: handler, bytes_max=bytes_max)
    return None if at_once == by_one else f"cut, another too large state, by {shown}"


def _brought(events: list[Recorded], steps: list[Json]) -> list[Recorded]:
    """As a present revision sees them; steps that read the state are none, and change nothing here."""
    of = declared([], revision=2, upcast={"1": steps})
    if isinstance(of, Faults):
        return events
    old = [Recorded(each.stream, each.version, revised(each.event, 1)) for each in events]
    return [upcast(each, of) for each in old]


def _fold(before: Folded, events: list[Recorded], handler: Handler) -> Folded:
    return fold(before, events, lambda _: handler)


# ---- heavy ----


def _items(numbers: Numbers, most: int) -> list[Json]:
    count = numbers.choice((100, 1000, most))
    text = "x" * numbers.choice((1, 1, 20, 300))
    return [
        {"sku": f"s{n}", "n": n, "a": text, "list": [{"n": k} for k in range(n % 4)]} for n in range(count)
    ]


def _doubling(numbers: Numbers, depth: int) -> Json:
    inner: Json = [operation(numbers, ("x",), 1)]
    for _ in range(depth):
        inner = {
            "let": {"x": numbers.choice((["$x", "$x"], {"a": "$x", "b": "$x"}, ["$x", "$.data"]))},
            "do": inner,
        }
    return {"let": {"x": numbers.choice(("@", "$.data", "@.list"))}, "do": inner}


def _nested(numbers: Numbers, depth: int) -> Json:
    if not depth:
        return [operation(numbers, (), 1) for _ in range(3)]
    return [
        {"map": {"target": "list", "do": _nested(numbers, depth - 1)}} for _ in range(numbers.randint(1, 3))
    ]


def _literal(numbers: Numbers) -> Json:
    many = [numbers.randrange(100) for _ in range(numbers.choice((10, 1000, 20_000)))]
    where = {"in": [["@.n", "$.data.b"], many]} if numbers.random() < 0.5 else {"in": ["@.n", many]}
    return {
        "update_where": {"target": "list", "where": where, "do": [{"set": {"target": "a", "value": many}}]}
    }


def _large(numbers: Numbers) -> Json:
    compared = numbers.choice((["$.data", "@"], {"a": "@", "b": "$.data"}, "@"))
    return numbers.choice(
        (
            {"remove": {"target": "list", "where": {"equals": [compared, "$.data.a"]}}},
            {"map": {"target": "list", "value": numbers.choice((["@", "@"], "$.data", ["$.data.a", "@.n"]))}},
            {
                "map": {
                    "target": "list",
                    "do": {"set": {"target": "b", "value": numbers.choice(("$.data", "@"))}},
                }
            },
            {"set": {"target": "b", "value": ["@", "@"]}},
            {"upsert": {"target": "list", "key": "sku", "value": {"sku": "s7", "b": "@"}}},
            {"set": {"target": "b", "value": "@.list[*].list[*].n"}},
        )
    )


def heavy(numbers: Numbers, *, with_memory: bool = True) -> str | None:
    """`with_memory`: one in five is run once more to see what it takes, ten times as slow."""
    written: list[Json] = [
        numbers.choice((
            lambda: _doubling(numbers, numbers.choice((3, 10, 24))),
            lambda: {"map": {"target": "list", "do": _nested(numbers, numbers.choice((0, 1, 2)))}},
            lambda: _literal(numbers),
            lambda: _large(numbers),
        ))()
        for _ in range(numbers.choice((1, 2, 5)))
    ]  # fmt: skip
    of = declared(written)
    if isinstance(of, Faults):
        return f"{of[0]} in {json.dumps(written)[:2000]}"
    before = json.dumps({"list": _items(numbers, 10_000), "a": 1}).encode()
    begun = fold(EMPTY, [recorded(1, before)], lambda _: declared_default().handler)
    sent = {"a": "y" * numbers.choice((1, 1000, 200_000)), "b": numbers.randrange(100), "n": 2, "list": [1]}
    event = recorded(2, json.dumps(sent).encode())
    shown = json.dumps(written)[:2000]
    checks = [_bounded, _gives_up, _remembers][: 3 if with_memory and numbers.random() < 0.2 else 2]
    return next((found for each in checks if (found := each(begun, event, of.handler, shown))), None)


@cache
def declared_default() -> EventType:
    found = declared([{"merge": {"target": "", "value": "$.data"}}])
    assert isinstance(found, EventType)
    return found


def _bounded(begun: Folded, event: Recorded, handler: Handler, shown: str) -> str | None:
    started = time.process_time()
    folded = _fold(begun, [event], handler)
    took = time.process_time() - started
    if took > EVENT_S:
        return f"one event took {took:.1f} s, by {shown}"
    if len(folded.data_json) > STATE_BYTES_MAX or len(folded.errors) > 20:
        return f"a state of {len(folded.data_json)} bytes, {len(folded.errors)} errors, by {shown}"
    return None


def _gives_up(begun: Folded, event: Recorded, handler: Handler, shown: str) -> str | None:
    """What decodes the state comes on top: that is estimated beforehand (`is_light`), and short here."""
    started = time.process_time()
    with contextlib.suppress(TakesLong):
        fold(begun, [event], lambda _: handler, at_once=AT_ONCE_LOOKS)
    took = time.process_time() - started
    return f"at once it took {took:.2f} s, by {shown}" if took > AT_ONCE_S else None


def _remembers(begun: Folded, event: Recorded, handler: Handler, shown: str) -> str | None:
    tracemalloc.start()
    try:
        _fold(begun, [event], handler)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return f"it took {peak} bytes of memory, by {shown}" if peak > MEMORY_BYTES else None


# ---- broken ----


@cache
def _published() -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        json.loads((files("spec") / "schema.json").read_bytes()), offline=True
    )


def broken(numbers: Numbers) -> str | None:
    handler: Json = [operation(numbers) for _ in range(numbers.randint(1, 3))]
    event: Json = {
        "schema": True,
        "handler": handler,
        "revision": 2,
        "upcast": {"1": [operation(numbers, depth=1)]},
    }
    spec: Json = {"aggregate_types": {"order": {"events": {"was_placed": event}}}, "agent_types": []}
    for _ in range(numbers.randint(1, 3)):
        _break(numbers, event)
    text = json.dumps(spec)
    found = parse(text.encode())
    if isinstance(found, Faults):
        pointers = [fault.pointer for fault in found]
        return (
            None
            if len(found) <= FAULTS_MAX + 1 and all(map(_leads, pointers))
            else f"{pointers[:3]} of {text}"
        )
    return None if _published().is_valid(spec) else f"the published schema refuses {text}"


def _leads(pointer: str) -> bool:
    return pointer == "" or pointer.startswith("/")


def _break(numbers: Numbers, value: Json) -> None:
    """Changes something at some depth."""
    while True:
        keys: list[Json] = [*value] if isinstance(value, dict) else [*range(len(value))]
        if not keys:
            return
        key = numbers.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and numbers.random() < 0.8:
            value = value[key]
            continue
        kind = numbers.randrange(4)
        if kind == 0:
            value[key] = numbers.choice(
                (None, 7, "x", "$.data.", "$q", [], {}, True, "@.a[", {"$": 1}, ["@"])
            )
        elif kind == 1 and isinstance(value, dict):
            value[numbers.choice(("targt", "if", "let", "do", "by", "key", "where", "$merge"))] = value[key]
        elif kind == 2 and isinstance(value, dict):
            del value[key]
        else:
            value[key] = [value[key]] if numbers.random() < 0.5 else {"set": value[key]}
        return
