"""What does not fit is the same whether appends are folded together or one behind the other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway.events import Recorded, Stream
from gateway.follow import projections
from gateway.follow.events import Page
from gateway.follow.model import Event, Row, TooMuch
from gateway.follow.projections import ProjectionOutput
from gateway.follow.row_cache import ROW_BYTES, RowCache
from gateway.follow.states import AggregateStates
from gateway.relay.position import Place
from spec.errors import Faults
from spec.parse import parse
from tests.support.calls import new_id
from tests.support.drive import event, new_tenant

TENANT = new_tenant()
DATA = b'{"text":"%b"}' % (b"x" * 800)
COUNTED = [{"increment": {"target": "n"}}]
SHORTER = [{"set": {"target": "text", "value": ""}}, {"set": {"target": "more", "value": "$.data.more"}}]


def output(do: object) -> ProjectionOutput:
    spec = parse(
        {
            "aggregate_types": {"order": {"events": {"was_set": {"schema": {}}}}},
            "agent_types": ["user"],
            "projections": {
                "noted": {"key_kind": "text", "on": {"order.was_set": {"key": "$.data.to", "do": do}}}
            },
        }
    )
    assert not isinstance(spec, Faults), spec
    return ProjectionOutput(spec, "noted", AggregateStates(spec, None, 0))  # type: ignore[arg-type]


def appends(count: int) -> list[Event]:
    stream, data = Stream(TENANT, "order", new_id()), b'{"to":"a","more":"%b"}' % (b"y" * 500)
    return [
        Event(Place(n, b"mark"), Recorded(stream, n, event(type="was_set", payload=data)), b"%d" % n)
        for n in range(1, count + 1)
    ]


async def folded(do: object, pages: Sequence[Page]) -> tuple[bytes | None, int, list[str]]:
    """The row, how many events do not fit, and why."""
    kept, rows, unfit, why = output(do), RowCache(None, 1, 1 << 20, empty=True), 0, list[str]()  # type: ignore[arg-type]
    rows.put({"a": Row(1, 0, 0, DATA)})
    for each in pages:
        page, after = each, 0
        while after < each.reached.seq:
            events = [one for one in page.events if one.place.seq > after]
            try:
                changes = await kept.fold(events, page.reached, rows)
            except TooMuch:
                page = Page(events, page.reached, 0).first_half()
                continue
            rows.put({put.key: put.row for put in changes.puts})
            unfit += changes.misfits
            why += [misfit.error for misfit in changes.last_misfits]
            page, after = each, page.reached.seq
    (row,) = (await rows.load(["a"])).values()
    assert row is not None
    return row.data, unfit, why


@pytest.mark.parametrize(("do", "room"), [(COUNTED, 3), (SHORTER, 200)])
async def test_appends_fit_together_just_where_they_do_one_behind_the_other(
    monkeypatch: pytest.MonkeyPatch, do: object, room: int
) -> None:
    events = appends(4)
    singly = [Page([each], each.place, 0) for each in events]
    for most in range(ROW_BYTES + len(DATA) - 600, ROW_BYTES + len(DATA) + 70, room):
        monkeypatch.setattr(projections, "ROWS_BYTES_MAX", most)
        by_itself = await folded(do, singly)
        assert await folded(do, [Page(events, events[-1].place, 0)]) == by_itself
    assert by_itself[1] == 0
