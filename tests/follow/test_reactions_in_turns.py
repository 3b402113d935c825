"""What timers and sagas take of one turn of the event loop is counted, and bounded as that of read models."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest.mock import AsyncMock
from uuid import UUID, uuid4

import msgspec
import pytest
from asyncpg.pgproto.pgproto import UUID as PgUUID

from gateway.catalog.model import Deployed
from gateway.events import Recorded, Stream
from gateway.follow.model import Event
from gateway.follow.threads import folding
from gateway.outcomes import Conflict
from gateway.reactions import coordinator as coordinator_module
from gateway.reactions.coordinator import Coordinator
from gateway.reactions.reactor import Reactor
from gateway.reactions.sagas import Emitted, begun, failed, next_turn
from gateway.reactions.specs import Specs
from gateway.reactions.timers import Faulty, Timer, timers_of
from gateway.reactions.waiting import Stands, Waiting
from gateway.relay.position import Place
from gateway.state import AT_ONCE_LOOKS, Budget
from spec.errors import Faults
from spec.model import Spec
from spec.parse import parse
from tests.follow.conftest import Turns
from tests.support.calls import new_id
from tests.support.drive import event, new_tenant

EVENT_BYTES_MAX = 262_144
TENANT = new_tenant()
EMIT: dict[str, Any] = {"aggregate_type": "thing", "id": "$.key", "event_type": "was_set"}
DEEP = ["$.data.deep[*].a[*].b?"] * 10
STEP: dict[str, Any] = {
    "name": "first",
    "emit": {**EMIT, "data": {"deep": DEEP}},
    "await": {"aggregate_type": "thing", "event_types": ["was_set"]},
    "compensate": {**EMIT, "data": {"deep": DEEP}},
}


def spec(*data: Any) -> Spec:
    emits = [{**EMIT, "data": each} for each in data]
    timers = [{"schedule": {"delay": "1s", "emit": each}} for each in emits]
    found = parse(
        {
            "aggregate_types": {
                "thing": {
                    "events": {
                        "was_set": {"schema": {}},
                        "was_timed": {"schema": {}, "implications": timers},
                        "was_begun": {"schema": {}},
                    }
                }
            },
            "agent_types": ["user"],
            "sagas": {
                "chain": {
                    "trigger": {"aggregate_type": "thing", "event_type": "was_begun"},
                    "steps": [STEP],
                }
            },
        }
    )
    assert not isinstance(found, Faults), found
    return found


def deep(count: int) -> bytes:
    return json.dumps({"deep": [{"a": [{}] * count}] * count}).encode()


def happened(kind: str, data: bytes, n: int = 1) -> Event:
    stream = Stream(TENANT, "thing", new_id())
    return Event(Place(n, b"mark"), Recorded(stream, 1, event(type=kind, payload=data)), b"")


async def timers(of: Spec, followed: Event, state: bytes = b"{}") -> list[Timer | Faulty]:
    implications = of.aggregate_types["thing"].events["was_timed"].implications
    size = len(followed.recorded.event.payload or b"") + len(state)
    work = partial(timers_of, followed, state, implications, of, EVENT_BYTES_MAX)
    return await folding(1, size, work)


async def test_timers_of_an_event_do_little_in_one_turn_of_the_loop(turns: Turns) -> None:
    made = await timers(spec(*[{"deep": DEEP}] * 3), happened("was_timed", deep(40)))
    assert [type(each) for each in made] == [Timer] * 3
    assert 0 < turns.most <= AT_ONCE_LOOKS


async def test_timers_of_an_event_share_its_budget(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.state.budget.LOOKS_MAX", 50_000)
    made = await timers(spec(*[{"deep": DEEP}] * 3), happened("was_timed", deep(40)))
    *set_, faulty = made
    assert [type(each) for each in set_] == [Timer] * 2
    assert isinstance(faulty, Faulty)
    assert faulty.path == "implications[2].schedule.emit.data"
    assert faulty.error == "One event may test 50000 items; this would be more."
    assert turns.most <= AT_ONCE_LOOKS


async def test_a_timer_whose_data_are_too_long_for_an_event_is_not_set() -> None:
    of = spec({"all": ["@.text", "@.text"]})
    (faulty,) = await timers(of, happened("was_timed", b"{}"), b'{"text":"%b"}' % (b"x" * 150_000))
    assert isinstance(faulty, Faulty)
    assert faulty.path == "implications[0].schedule.emit.data"
    assert faulty.error == "`data` is 300015 bytes; the limit is 262144."


async def test_timers_that_are_too_much_to_be_held_are_set_before_their_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.reactions.reactor.TIMERS_BYTES_MAX", 3_000)
    set_: list[int] = []

    async def fetch(pool: object, name: str, *columns: Any) -> list[Any]:
        assert name == "add_schedules"
        set_.append(len(columns[0]))
        return []

    monkeypatch.setattr("gateway.reactions.reactor.fetch", fetch)
    of = spec({}, {})
    reactor = Reactor.__new__(Reactor)
    reactor._pool = reactor._outbox = None  # type: ignore[assignment]
    reactor._event_bytes_max = EVENT_BYTES_MAX
    reactor._specs = Specs(None, AsyncMock(deployed=lambda _: Deployed(1, of, b"")))  # type: ignore[arg-type]
    reactor._folder = AsyncMock(at=AsyncMock(return_value=AsyncMock(data_json=b"{}")))
    reactor._specs._kept[TENANT, 1] = Deployed(1, of, b"")
    followed = [happened("was_timed", b"{}", n) for n in range(1, 11)]
    left = await reactor._timers(TENANT, followed, None)
    assert set_ == [6, 6, 6]
    assert len(left) == 2


async def test_a_turn_of_a_saga_does_little_in_one_turn_of_the_loop(turns: Turns) -> None:
    found = await taken(deep(40))
    assert found == ["_step_was_emitted"]
    assert 0 < turns.most <= AT_ONCE_LOOKS


def coordinating(of: Spec, said: list[str]) -> Coordinator:
    """Of a tenant with this spec. It appends nothing: `said` gets what it would."""
    coordinator = Coordinator(
        None,  # type: ignore[arg-type]
        AsyncMock(return_value=Conflict(1)),
        AsyncMock(return_value=Deployed(1, of, b"")),
        EVENT_BYTES_MAX,
    )

    async def take(tenant: bytes, due: Any) -> None:
        said.append(due.turn.said)

    coordinator._take = take  # type: ignore[method-assign]
    return coordinator


async def taken(data: bytes) -> list[str]:
    """What is said of a saga behind its first event."""
    of = spec()
    trigger = happened("was_begun", data).recorded
    saga = of.sagas["chain"]
    state = begun(saga, 1, trigger, str(uuid4()), str(uuid4()))
    stream = Stream(TENANT, "_saga", str(uuid4()))
    started = Event(
        Place(1, b"mark"),
        Recorded(stream, 1, event(type="_was_started", payload=msgspec.json.encode(state))),
        b"",
    )
    said: list[str] = []
    coordinator = coordinating(of, said)
    await coordinator.look(TENANT, [started])
    return said


def test_a_step_that_takes_too_much_is_compensated_or_the_saga_is_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.state.budget.LOOKS_MAX", 10_000)
    saga = spec().sagas["chain"]
    trigger = happened("was_begun", deep(40)).recorded
    state = begun(saga, 1, trigger, str(uuid4()), str(uuid4()))
    why = "steps[0].emit.data: One event may test 10000 items; this would be more."
    turn = next_turn(saga, state, Budget())
    assert (turn.said, turn.after.reason) == ("_was_compensated", why)
    later = msgspec.structs.replace(state, step=0, steps={"first": Emitted("", "thing", "", "was_set")})
    turn = failed(saga, later, "It timed out.", Budget())
    assert turn.said == "_was_stuck"
    assert turn.after.reason == (
        "It timed out. first.compensate.data: One event may test 10000 items; this would be more."
    )


async def test_an_event_is_compared_with_no_saga_that_waits(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, count = spec(), 300
    key = new_id()
    saga = of.sagas["chain"]
    state = begun(saga, 1, happened("was_begun", b"{}").recorded, str(uuid4()), str(uuid4()))
    steps = {"first": Emitted("", "thing", key, "was_set")}
    text = msgspec.json.encode(msgspec.structs.replace(state, step=0, steps=steps))

    stored = [
        {
            "id": PgUUID(n.to_bytes(16)),
            "data": text,
            "length": 2,
            "waits_type": "thing",
            "waits_key": key,
            "waits_events": ["was_set"],
        }
        for n in range(1, count + 1)
    ]
    read: list[int] = []

    async def fetch(pool: object, name: str, *args: Any) -> list[dict[str, Any]]:
        assert name == "waiting_sagas"
        behind, most, _ = args[-3:]
        rows = [row for row in stored if row["id"] > behind][:most]  # type: ignore[operator]
        read.append(len(rows))
        return rows

    monkeypatch.setattr("gateway.reactions.coordinator.fetch", fetch)
    monkeypatch.setattr("gateway.reactions.coordinator.WAITING_AT_ONCE", 128)
    monkeypatch.setattr("gateway.reactions.waiting.TURNS_MAX", 100)
    said: list[str] = []
    coordinator = coordinating(of, said)
    taken_at_once, take_all = list[int](), coordinator._take_all

    async def counted(tenant: bytes, due: Sequence[Any]) -> None:
        taken_at_once.append(len(due))
        await take_all(tenant, due)

    coordinator._take_all = counted  # type: ignore[method-assign]
    stream = Stream(TENANT, "thing", key)
    followed = [
        Event(Place(n, b"mark"), Recorded(stream, n, event(type="was_set", payload=b"{}")), b"")
        for n in range(1, count)
    ]
    await coordinator.look(TENANT, followed)
    assert said == ["_step_was_awaited"] * count
    assert read == [128, 128, 44, 0]
    assert taken_at_once == [100, 100, 100, 0]
    assert 0 < turns.most <= AT_ONCE_LOOKS


def test_a_correlation_id_is_waited_for_too() -> None:
    saga = spec().sagas["chain"]
    awaited = happened("was_set", b"{}")
    correlation = str(UUID(bytes=awaited.recorded.event.correlation_id))
    state = begun(saga, 1, happened("was_begun", b"{}").recorded, str(uuid4()), correlation)
    waiting = Waiting()
    old = Stands(b"1", state, 1, waits=("thing", None, frozenset({"was_set", "was_begun"})))
    waiting.put(old)
    assert not waiting.take(happened("was_timed", b"{}"))
    new = Stands(b"1", state, 2, waits=("thing", None, frozenset({"was_set"})))
    waiting.put(new)
    assert waiting.take(awaited) == [new]
    assert not waiting.take(awaited)


async def test_a_long_state_is_read_and_written_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names: dict[str, str] = {}

    def noted(name: str, function: Any) -> Any:
        def called(*args: Any, **named: Any) -> Any:
            names[name] = threading.current_thread().name
            return function(*args, **named)

        return called

    for name, module in (("decode_state", coordinator_module), ("append_of_saga", coordinator_module)):
        monkeypatch.setattr(module, name, noted(name, getattr(module, name)))
    of = spec()
    appends: list[Any] = []

    async def submit(append: Any) -> Any:
        appends.append(append)
        return Conflict(1)

    coordinator = Coordinator(
        None, submit, AsyncMock(return_value=Deployed(1, of, b"")), EVENT_BYTES_MAX  # type: ignore[arg-type]
    )  # fmt: skip
    trigger = happened("was_begun", b'{"text":"%b"}' % (b"x" * 200_000)).recorded
    state = begun(of.sagas["chain"], 1, trigger, str(uuid4()), str(uuid4()))
    payload = msgspec.json.encode(state)
    stream = Stream(TENANT, "_saga", str(uuid4()))
    started = Recorded(stream, 1, event(type="_was_started", payload=payload))
    (row,) = await coordinator.look(TENANT, [Event(Place(1, b"mark"), started, b"")])
    assert payload in row
    assert [each.type for each in appends[0].events] == ["was_set", "_step_was_emitted"]
    assert {name: thread.startswith("follow") for name, thread in names.items()} == {
        "decode_state": True,
        "append_of_saga": True,
    }
