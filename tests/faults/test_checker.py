"""The checker tells of what is broken, however broken it is."""

from __future__ import annotations

from gateway.events import Stream
from tests.faults.checker import check
from tests.faults.evidence import Evidence, Row, Standing
from tests.faults.history import History, Operation, Receipt, StreamName, Try

STREAM = StreamName(0, "order", "a")


def test_a_batch_without_its_first_event_is_lost_and_no_riddle() -> None:
    payloads = tuple(b'{"op": "w1.1#%d", "n": 1}' % n for n in range(2))
    told = Receipt("a", ("1", "2"), 1, 2)
    batch = Operation("w1.1", "batch", 0, "order", "a", payloads, tries=[Try(0, 1.0, 2.0, 201, receipt=told)])
    row = Row(0, 1, 1, STREAM, "2", b"", b"", payloads[1], Stream(b"", "order", "a"), b"")
    found = check(History([batch]), Evidence([row], {0: Standing(1, 1, "")}), digests=False)
    assert ("lost", "of w1.1 only 1 of 2 events are stored") in found
