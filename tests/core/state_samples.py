"""Events for the tests of the fold."""

from __future__ import annotations

from gateway.events import Event, Recorded, Stream
from gateway.state import EMPTY, Folded, fold
from spec.handlers import Handler, Operation

STREAM = Stream(b"\x01" * 16, "order", "ABC123XYZ")

NUMBERS = (
    *("0", "-0", "1", "1.0", "1e0", "1.10", "-3", "0.1", "0.2", "1e400", "-1e400", "1e-7"),
    *("10E+2", "123456789012345678901234567890", "0.30000000000000004", "9" * 40 + "." + "7" * 40),
)


def recorded(
    version: int,
    payload: bytes | None,
    event_type: str = "was_placed",
    *,
    extra: bytes | None = None,
    with_all: bool = False,
) -> Recorded:
    """The event `version`, at `1700000000.123 + version` seconds; `with_all` has a target and a cause."""
    event = Event(
        id=version.to_bytes(16, "big"),
        type=event_type,
        actor_type="user",
        actor_id="global",
        target_type="order" if with_all else None,
        target_id="ABC123XYZ" if with_all else None,
        correlation_id=b"\xc0" * 16,
        causation_id=b"\xca" * 16 if with_all else None,
        spec_rev=1,
        recorded_at_ms=1_700_000_000_123 + 1000 * version,
        extra=b'{"a": [1.10]}' if with_all and extra is None else extra,
        payload=payload,
    )
    return Recorded(STREAM, version, event)


def folded(*payloads: bytes | None, by: Handler | Operation, on: Folded = EMPTY) -> Folded:
    """Folds events of these data, each by the same handler or by one operation."""
    handler = by if isinstance(by, tuple) else (by,)
    events = [recorded(on.length + index, payload) for index, payload in enumerate(payloads, 1)]
    return fold(on, events, lambda _: handler)
