"""What schemas take to check implied events is bounded where everything else waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.aggregates.implied import Judged, Judging, SchemaWork
from gateway.catalog.model import Deployed
from gateway.events import Stream
from gateway.state import AT_ONCE_LOOKS, STATE_BYTES_MAX, TakesLong
from spec.errors import Faults
from spec.parse import parse
from tests.support.calls import new_id
from tests.support.drive import append, new_tenant

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
