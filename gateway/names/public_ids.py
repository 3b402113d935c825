"""Public ids: `VNO-42`, a key and a number. One counter a key, for aggregates of all its types.

Owns which numbers come next. Must not know how the counter is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from gateway.names.aliases import NUMBER_MAX, Kind
from gateway.names.changes import Given


def numbered(key: str, greatest: int, aggregates: Iterable[tuple[str, str]]) -> tuple[Given, ...]:
    """A name for each aggregate (type, key), in their order: the numbers after `greatest`, without gaps. It
    ends before a number that can't be stored."""
    room = max(0, NUMBER_MAX - greatest)
    return tuple(
        [
            Given(Kind.PUBLIC, key, str(number), "", aggregate_type, aggregate_id)
            for number, (aggregate_type, aggregate_id) in enumerate(islice(aggregates, room), greatest + 1)
        ]
    )
