"""What schemas take to check implied events is bounded where everything else waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admit import several
from gateway.aggregates import implied
from gateway.aggregates.implied import Judged, Judging, SchemaWork
from gateway.catalog.model import Deployed
from gateway.events import Stream
from gateway.log.append.calls import _order
from gateway.state import AT_ONCE_LOOKS, EMPTY, STATE_BYTES_MAX, Folded, TakesLong
from gateway.state.rules import COMPARED_BYTES_MAX
from spec.errors import Faults
from spec.parse import parse
from spec.sagas import STEPS_MAX
from tests.support.calls import new_id
from tests.support.drive import append, append_to_all, new_tenant

EVENT_BYTES_MAX = 262_144


def judging(schema: Any, data: Any, count: int = 1) -> Judging:
    emit = {"aggregate_type": "checked", "id": "$.key", "event_type": "was_checked", "data": data}
    spec = parse(
        {
            "aggregate_types": {
                "order": {"events": {"was_placed": {"schema": {}, "implications": [{"emit": emit}] * count}}},
                "checked": {"events": {"was_checked": {"schema": schema}}},
            },
            "agent_types": ["user"],
        }
    )
    assert not isinstance(spec, Faults), spec
    asked = append(Stream(new_tenant(), "order", new_id()))
    return Judging(asked, Deployed(1, spec, b""), STATE_BYTES_MAX, EVENT_BYTES_MAX)


def alternatives(count: int) -> dict[str, Any]:
    each = {"anyOf": [{"type": "object", "required": [f"f{n}"]} for n in range(count)]}
    return {"type": "object", "properties": {"items": {"type": "array", "items": each}}}


@pytest.mark.parametrize(
    ("schema", "items", "count"), [(alternatives(400), 200, 1), (alternatives(100), 20, 20)]
)
def test_implied_events_that_schemas_check_for_long_are_judged_beside_the_event_loop(
    schema: Any, items: int, count: int
) -> None:
    data = {"items": [{"f0": n} for n in range(items)]}
    with pytest.raises(TakesLong):
        judging(schema, data, count).run(AT_ONCE_LOOKS)
    judged = judging(schema, data, count).run()
    assert isinstance(judged, Judged)
    assert len(judged.append.events) == 1 + count


def test_short_implied_events_are_judged_at_once() -> None:
    judged = judging({"type": "object"}, {"n": 1}, 50).run(AT_ONCE_LOOKS)
    assert isinstance(judged, Judged)
    assert len(judged.append.events) == 51


@pytest.mark.parametrize("count", [1, 20])
def test_implied_events_whose_checks_would_take_too_long_together_refuse_the_append(count: int) -> None:
    """As the events of a request do."""
    data = {"items": [{"f0": n} for n in range(400 // count)]}
    asked = judging(alternatives(100), data, count)
    asked.work = SchemaWork(30_000)
    for _ in range(2):  # the same whenever it is judged
        judged = asked.run()
        assert isinstance(judged, Judged)
        assert judged.refused is not None
        assert judged.refused.code == "schema_violation"
        assert judged.refused.error.startswith("Checking this against the schema of was_checked could take")
    asked.work = SchemaWork(300_000)
    judged = asked.run()
    assert isinstance(judged, Judged)
    assert len(judged.append.events) == 1 + count


class Counted(Judging, eq=False):
    verdicts: int = 0

    def _verdict(self, *judged: Any) -> Any:
        self.verdicts += 1
        return super()._verdict(*judged)


def of_several(aggregates: int, each: int, require: Any) -> Counted:
    """`each` events of the first aggregate, then of the next, all with a rule."""
    ruled = {"schema": {}, "rules": [{"require": require, "error": "It is not."}]}
    spec = parse({"aggregate_types": {"order": {"events": {"was_placed": ruled}}}, "agent_types": ["user"]})
    assert not isinstance(spec, Faults), spec
    tenant = new_tenant()
    streams = [Stream(tenant, "order", new_id()) for _ in range(aggregates)]
    asked = append_to_all([stream for stream in streams for _ in range(each)])
    return Counted(asked, Deployed(1, spec, b""), STATE_BYTES_MAX, EVENT_BYTES_MAX)


def judged_with(judging: Judging, at_once: int | None, most: int) -> Judged | None:
    """With states of as many aggregates as it takes, up to `most`."""
    for _ in range(most + 1):
        judged = judging.run(at_once)
        if isinstance(judged, Judged):
            return judged
        assert isinstance(judged, Stream)
        judging.states[judged] = EMPTY
    return None


def test_an_event_is_judged_once_however_many_states_are_read() -> None:
    asked = of_several(20, 5, {"not": {"exists": "@.closed"}})
    judged = judged_with(asked, AT_ONCE_LOOKS, 20)
    assert judged is not None
    assert (judged.violated, judged.pinned, asked.verdicts) == (None, dict.fromkeys(range(20), 0), 100)


def test_what_is_judged_with_another_bound_is_judged_from_the_beginning() -> None:
    asked = of_several(3, 2, {"not": {"exists": "@.closed"}})
    assert judged_with(asked, AT_ONCE_LOOKS, 1) is None
    judged = judged_with(asked, None, 3)
    assert judged is not None
    assert (judged.violated, len(judged.pinned), asked.verdicts) == (None, 3, 2 + 6)


def test_what_took_too_long_is_judged_from_the_beginning() -> None:
    asked = of_several(1, 1, {"in": ["$.data.n", "@.numbers"]})
    numbers = b"[" + b",".join(b"%d" % n for n in range(40_000)) + b"]"
    asked.states[asked.append.stream] = Folded(1, 0, 0, (), 0, b'{"numbers":%b}' % numbers)
    for _ in range(2):
        with pytest.raises(TakesLong):
            asked.run(AT_ONCE_LOOKS)
    judged = asked.run()
    assert isinstance(judged, Judged)
    assert judged.violated is None


def test_what_rules_compare_is_bounded_for_all_aggregates_of_an_append_together() -> None:
    asked = of_several(2, 15, {"not_in": ["$.data.n", "@.list"]})
    state = Folded(1, 0, 0, (), 0, b'{"list":["%b"]}' % (b"x" * 50_000))
    asked.states = dict.fromkeys(asked.append.streams, state)
    judged = asked.run()
    assert isinstance(judged, Judged)
    assert judged.violated is not None
    number, violated = judged.violated
    assert (number, violated.event) == (1, COMPARED_BYTES_MAX // 50_008)
    assert violated.error.startswith("This rule can't be judged. The rules of one append compare at most")


def test_no_append_has_more_aggregates_than_a_call_numbers_in_a_byte_each() -> None:
    """A client's has up to 100, a saga's one for each step beside its own; whatever they imply is counted."""
    assert len(_order(tuple(range(implied.AGGREGATES_MAX))).encode()) == implied.AGGREGATES_MAX
    assert max(several.AGGREGATES_MAX, STEPS_MAX + 1) <= implied.AGGREGATES_MAX
    for count, why in (
        (63, None),
        (64, "With its implied events the append has 128 aggregates, over 127."),
    ):
        found = judging({}, {})
        tenant = new_tenant()
        found.append = append_to_all([Stream(tenant, "order", new_id()) for _ in range(count)])
        judged = found.run()
        assert isinstance(judged, Judged)
        assert (None if judged.refused is None else judged.refused.error) == why
        assert len(judged.append.events) == (count if why else 2 * count)
