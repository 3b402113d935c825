"""What followers fold does not hold the event loop, however few events they are."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from gateway.events import Recorded, Stream
from gateway.follow.lists import ListOutput
from gateway.follow.model import Event
from gateway.follow.projections import ProjectionOutput
from gateway.follow.row_cache import RowCache
from gateway.follow.states import AggregateStates
from gateway.follow.threads import LIGHT_BYTES, LIGHT_EVENTS, folding
from gateway.relay.position import Place
from gateway.state import Budget
from spec.errors import Faults
from spec.model import Spec
from spec.parse import parse
from tests.http.lag import holds_up_no_other
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


def spec() -> Spec:
    found = parse(SPEC)
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
    of = spec()

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
    def folds(budget: Budget) -> Any:
        budget.work(work)
        return threading.current_thread()

    by = await folding(count, size, folds)
    assert (by is not threading.main_thread()) is beside
