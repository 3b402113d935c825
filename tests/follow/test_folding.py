"""What followers fold does not hold the event loop, however few events they are: what they test and copy
in one turn of it is counted."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any
from unittest.mock import AsyncMock

import pytest

from gateway.events import Recorded, Stream
from gateway.follow.drafts import LIGHT_COUNTS
from gateway.follow.joins import JoinOutput
from gateway.follow.lists import ListOutput
from gateway.follow.model import Changes, Event
from gateway.follow.projections import ProjectionOutput
from gateway.follow.row_cache import RowCache
from gateway.follow.states import AggregateStates
from gateway.follow.threads import LIGHT_BYTES, LIGHT_EVENTS, Steps, Turn, folding
from gateway.relay.position import Place
from gateway.state import AT_ONCE_LOOKS
from gateway.state.counters import Counters, Counts
from gateway.state.values import Fields
from spec.errors import Faults
from spec.model import Spec
from spec.parse import parse
from tests.follow.conftest import Turns
from tests.http.lag import holds_up_no_other
from tests.support.calls import new_id
from tests.support.drive import event, new_tenant

COUNTED = {"increment": {"target": "n"}}
SPEC = {
    "aggregate_types": {
        "double": {
            "list": {"by": ["n"]},
            "events": {
                "was_set": {"schema": {}},
                "had_doubled": {
                    "schema": {},
                    "handler": {"set": {"target": "a", "value": ["@.a", "@.a"]}},
                },
            },
        }
    },
    "projections": {
        "found": {
            "key_kind": "text",
            "on": {
                "double.was_set": {
                    "key": "$.type",
                    "do": [{"if": {"in": [1, "$.data.a"]}, "then": COUNTED}] * 4,
                },
                "double.had_doubled": {"key": "$.type", "do": {"if": {"exists": "^.a"}, "then": COUNTED}},
            },
        }
    },
    "agent_types": ["user"],
}
TENANT = new_tenant()


def parsed(declared: dict[str, Any]) -> Spec:
    found = parse(declared)
    assert not isinstance(found, Faults), found
    return found


def events(*of: tuple[str, bytes]) -> list[Event]:
    stream = Stream(TENANT, "double", "global")
    return [
        Event(Place(n, b""), Recorded(stream, n, event(type=name, payload=data)), b"")
        for n, (name, data) in enumerate(of, 1)
    ]


DOUBLING = events(("was_set", b'{"a":1}'), *[("had_doubled", b"{}")] * 18)
LONG = events(*[("was_set", b'{"a":[%b]}' % b",".join([b"7"] * 40_000))] * 2)


@pytest.mark.parametrize("followed", [DOUBLING, LONG])
@pytest.mark.parametrize("projected", [False, True])
async def test_few_events_that_are_much_work(followed: list[Event], projected: bool) -> None:
    of = parsed(SPEC)

    async def fold() -> None:
        states = AggregateStates(of, None, 0)  # type: ignore[arg-type]
        output = ProjectionOutput(of, "found", states) if projected else ListOutput(of, "double")
        rows = RowCache(None, 1, 10_000, empty=True)  # type: ignore[arg-type]
        changes = await output.fold(followed, followed[-1].place, rows)
        assert changes.puts

    await holds_up_no_other(fold)


@pytest.mark.parametrize(
    ("count", "size", "work", "beside"),
    [
        (LIGHT_EVENTS, LIGHT_BYTES, 0, False),
        (LIGHT_EVENTS + 1, 0, 0, True),
        (1, LIGHT_BYTES + 1, 0, True),
        (1, 0, 100_000, True),
    ],
)
async def test_only_what_is_light_is_folded_at_once(count: int, size: int, work: int, beside: bool) -> None:
    def folds(turn: Turn) -> Steps[Any]:
        turn.budget.work(work)
        yield
        return threading.current_thread()

    by = await folding(count, size, folds)
    assert (by is not threading.main_thread()) is beside


# ---- counted ----

NUMBERS = ",".join(["1"] * 100)
NESTED = f"[{','.join(['[' + NUMBERS + ']'] * 20)}]"
WIDE = {
    "aggregate_types": {"thing": {"events": {"was_set": {"schema": {}}}, "list": {"by": ["n"]}}},
    "projections": {
        "operations": {
            "key_kind": "text",
            "on": {"thing.was_set": {"key": "$.type", "do": [COUNTED] * 2000}},
        },
        "items": {
            "key_kind": "text",
            "on": {
                "thing.was_set": {
                    "key": "$.type",
                    "do": [
                        {"set": {"target": "rows", "value": "$.data.rows"}},
                        *[{"update_where": {"target": "rows", "where": {"exists": "@"}, "do": [COUNTED]}}]
                        * 20,
                    ],
                }
            },
        },
        "keys": {
            "key_kind": "text",
            "on": {
                "thing.was_set": {
                    "keys": "$.data.keys",
                    "do": [{"merge": {"target": "a", "value": {"a": 1}}}],
                }
            },
        },
        "deleted": {"key_kind": "text", "on": {"thing.was_set": {"keys": "$.data.keys", "do": "delete"}}},
        "sources": {
            "join": {
                "for_each": "thing",
                "sources": {
                    "thing": "$key",
                    "others": {"type": "thing", "id": "$.thing.deep[*][*]", "mode": "array"},
                },
                "select": {"id": "$.thing.id"},
            }
        },
        "maps": {
            "join": {
                "for_each": "thing",
                "sources": {"thing": "$key"},
                "select": {
                    "all": {
                        "$map": "$.thing.deep",
                        "as": "$each",
                        "to": {"$map": "$.thing.deep", "as": "$other", "to": {"a": "$other"}},
                    }
                },
            }
        },
    },
    "agent_types": ["user"],
}
DATA = {
    "operations": b"{}",
    "items": f'{{"rows":[{",".join(["{}"] * 300)}]}}'.encode(),
    "keys": f'{{"keys":[{",".join(map(str, range(1000)))}]}}'.encode(),
    "deleted": f'{{"keys":[{",".join(map(str, range(1000)))}]}}'.encode(),
    "sources": f'{{"deep":{NESTED}}}'.encode(),
    "maps": f'{{"deep":[{",".join(["{}"] * 100)}]}}'.encode(),
}


async def changes_of(found: Spec, name: str, data: bytes, count: int = 2) -> Changes:
    stream = Stream(TENANT, "thing", "global")
    followed = [
        Event(Place(n, b""), Recorded(stream, n, event(type="was_set", payload=data)), b"")
        for n in range(1, count + 1)
    ]
    states = AggregateStates(found, AsyncMock(stream=AsyncMock(return_value=followed)), 0)
    if found.projections[name].join is None:
        output: Any = ProjectionOutput(found, name, states)
    else:
        output = JoinOutput(found, name, TENANT, states, AsyncMock(return_value=[]))
    rows = RowCache(None, 1, 10_000, empty=True)  # type: ignore[arg-type]
    made: Changes = await output.fold(followed, followed[-1].place, rows)
    return made


@pytest.mark.parametrize("name", WIDE["projections"])
async def test_a_projection_does_little_in_one_turn_of_the_loop(name: str, turns: Turns) -> None:
    changes = await changes_of(parsed(WIDE), name, DATA[name])
    assert name == "deleted" or changes.puts
    assert not changes.misfits
    assert 0 < turns.most <= AT_ONCE_LOOKS


async def test_a_row_of_many_states_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    found = parsed(join({"id": "$.thing.id"}, others={"type": "thing", "id": "$.thing.a", "mode": "array"}))
    data = list_of(*[f'"{new_id()}"' for _ in range(1000)])
    recorded = [Recorded(Stream(TENANT, "thing", new_id()), 1, event(payload=data)) for _ in range(3)]
    followed = [Event(Place(n, b""), each, b"") for n, each in enumerate(recorded, 1)]
    asked, at = Turns(), AggregateStates.at

    async def counted(self: AggregateStates, *of: Any) -> Any:
        asked.add(1)
        return await at(self, *of)

    async def stream(of: Stream, *_: object) -> list[Event]:
        return [each for each in followed if each.recorded.stream == of]

    monkeypatch.setattr(AggregateStates, "at", counted)
    output = JoinOutput(
        found,
        "joined",
        TENANT,
        AggregateStates(found, AsyncMock(stream=stream), 0),
        AsyncMock(return_value=[]),
    )
    rows = RowCache(None, 1, 10_000, empty=True)  # type: ignore[arg-type]
    assert len((await output.fold(followed, followed[-1].place, rows)).puts) == 3
    assert 0 < asked.most <= AT_ONCE_LOOKS + 1  # one that finds no more of the turn begins the next


async def test_folds_share_a_turn_of_the_loop(turns: Turns) -> None:
    found = parsed(WIDE)
    await asyncio.gather(*(changes_of(found, "maps", b'{"deep":[]}') for _ in range(100)))
    assert 0 < turns.most <= AT_ONCE_LOOKS


async def test_a_fold_that_takes_long_lets_others_have_their_turn() -> None:
    ended = False

    def long(turn: Turn) -> Steps[bool]:
        for _ in range(10_000_000):
            if ended:
                return True
            yield
        return False

    running = asyncio.create_task(folding(LIGHT_EVENTS + 1, 0, long))
    await asyncio.sleep(0)
    await changes_of(parsed(WIDE), "items", b'{"rows":[]}', LIGHT_EVENTS + 1)
    ended = True
    assert await running


# ---- counting ----


def counting(fields: int) -> Spec:
    do = [{"increment": {"target": f"n{n}"}} for n in range(fields)]
    on = {"double.was_set": {"key": "$.type", "do": do}}
    return parsed({**SPEC, "projections": {"found": {"key_kind": "text", "on": on}}})


@pytest.mark.parametrize(
    ("fields", "data", "beside"),
    [
        (LIGHT_COUNTS, b"{}", False),
        (LIGHT_COUNTS + 1, b"{}", True),
        (1, b'{"a":[%b]}' % b",".join([b"[7]"] * (LIGHT_BYTES // 4)), True),
    ],
)
async def test_what_only_counts_is_folded_in_turns_of_the_loop(
    fields: int, data: bytes, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    by, add = set(), Counters.take

    def take(self: Counters, counts: Counts, of: Fields) -> bool:
        by.add(threading.current_thread() is not threading.main_thread())
        return add(self, counts, of)

    monkeypatch.setattr(Counters, "take", take)
    followed = events(*[("was_set", data)] * (LIGHT_EVENTS + 1))
    found = counting(fields)
    output = ProjectionOutput(found, "found", AggregateStates(found, None, 0))  # type: ignore[arg-type]
    rows = RowCache(None, 1, 10_000, empty=True)  # type: ignore[arg-type]
    (put,) = (await output.fold(followed, followed[-1].place, rows)).puts
    assert json.loads(put.row.data or b"") == {f"n{n}": LIGHT_EVENTS + 1 for n in range(fields)}
    assert by == {beside}


async def test_all_else_has_its_turn_while_events_are_counted(turns: Turns) -> None:
    found, count = counting(2), 5000

    async def fold() -> None:
        followed = events(*[("was_set", b"{}")] * count)
        output = ProjectionOutput(found, "found", AggregateStates(found, None, 0))  # type: ignore[arg-type]
        rows = RowCache(None, 1, 10_000, empty=True)  # type: ignore[arg-type]
        (put,) = (await output.fold(followed, followed[-1].place, rows)).puts
        assert put.row.length == count

    await asyncio.gather(*(fold() for _ in range(8)))
    assert 0 < turns.most <= AT_ONCE_LOOKS


def join(select: dict[str, Any], **sources: Any) -> dict[str, Any]:
    joined = {"for_each": "thing", "sources": {"thing": "$key", **sources}, "select": select}
    return {
        "aggregate_types": {"thing": {"events": {"was_set": {"schema": {}}}}},
        "projections": {"joined": {"join": joined}},
        "agent_types": ["user"],
    }


def list_of(*items: str) -> bytes:
    return f'{{"a":[{",".join(items)}]}}'.encode()


MANY = {"type": "thing", "id": "$.thing.a[*][*][*]", "mode": "array"}
LOOKED_UP = {"$lookup": "$.thing.a", "where": {"b": "$.thing.a"}, "select": "$.b"}


@pytest.mark.parametrize(
    ("declared", "data", "why"),
    [
        (
            join({"id": "$.thing.id"}, many=MANY),
            list_of(*["[" + ",".join(["[1,1]"] * 100) + "]"] * 100),
            "One event may test 25000 items; this would be more.",
        ),
        (
            join({"a": {"$map": "$.thing.a", "as": "$each", "to": {"all": "$.thing"}}}),
            list_of(*["1"] * 10_000),
            "The value would be longer than 8388608 bytes.",
        ),
        (
            join({"a": {"$map": "$.thing.a", "as": "$each", "to": LOOKED_UP}}),
            list_of(*["{}"] * 500),
            "One event may test 25000 items; this would be more.",
        ),
        (
            join({"a": LOOKED_UP}),
            list_of(*["1"] * 200_000),
            "A value of 400001 bytes is too long to be compared.",
        ),
    ],
)
async def test_a_row_that_is_too_much_work_does_not_fit(
    declared: dict[str, Any], data: bytes, why: str, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.state.budget.LOOKS_MAX", 25_000)
    changes = await changes_of(parsed(declared), "joined", data, 1)
    assert [each.error for each in changes.last_misfits] == [why]
    assert [put.row.data for put in changes.puts] == [b"{}"]
    assert turns.most <= AT_ONCE_LOOKS


async def test_a_row_of_too_long_states_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.follow.joins.ROW_STATES_BYTES_MAX", 100)
    other = {"type": "thing", "id": "$.thing.a"}
    declared = parsed(join({"id": "$.thing.id"}, other=other))
    assert not (await changes_of(declared, "joined", b'{"a":"global","b":"%b"}' % (b"b" * 20), 1)).misfits
    changes = await changes_of(declared, "joined", b'{"a":"global","b":"%b"}' % (b"b" * 40), 1)
    (misfit,) = changes.last_misfits
    assert misfit.error == "The states of the row are longer than 100 bytes together."


async def test_rows_of_long_states_are_made_after_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.follow.joins.BYTES_AT_ONCE", 1)
    other = {"type": "thing", "id": "$.thing.a"}
    found = parsed(join({"id": "$.thing.id", "other": "$.other.n"}, other=other))
    keys = [new_id() for _ in range(3)]
    data = [b'{"n":%d,"a":"%b"}' % (n, keys[n % 3].encode()) for n in (1, 2, 3)]
    recorded = [
        Recorded(Stream(TENANT, "thing", key), 1, event(type="was_set", payload=each))
        for key, each in zip(keys, data, strict=True)
    ]
    followed = [Event(Place(n, b""), each, b"") for n, each in enumerate(recorded, 1)]

    async def stream(of: Stream, *_: object) -> list[Event]:
        return [each for each in followed if each.recorded.stream == of]

    states = AggregateStates(found, AsyncMock(stream=stream), 0)
    output = JoinOutput(found, "joined", TENANT, states, AsyncMock(return_value=[]))
    rows = RowCache(None, 1, 10_000, empty=True)  # type: ignore[arg-type]
    changes = await output.fold(followed, followed[-1].place, rows)
    made = {put.key: json.loads(put.row.data or b"") for put in changes.puts}
    assert made == {key: {"id": key, "other": n % 3 + 1} for n, key in enumerate(keys, 1)}
    assert changes.sources.keys() == set(keys)
