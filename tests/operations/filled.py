"""An instance with a few streams in it, and audits of it."""

from __future__ import annotations

from typing import Any

from gateway.events import Stream
from gateway.log.log import Log
from gateway.operations.audit import audit
from gateway.operations.place import Place
from gateway.operations.report import Report
from gateway.partitions import partition_of
from tests.support.drive import append, appended, lane, new_stream, new_tenant, until


class Counting:
    """A watcher that only adds up."""

    def __init__(self) -> None:
        self.expected = self.done = 0

    def begin(self, rows: int) -> None:
        self.expected = rows

    def advance(self, rows: int) -> None:
        self.done += rows

    def now(self, doing: str) -> None:
        return


async def audited(place: Place, **how: Any) -> Report:
    return await audit(place, Counting(), **how)


async def fill(log: Log, tenants: int = 3) -> list[Stream]:
    """Two streams a tenant, 7 events in each, in appends of 1, 4 and 2; one of these under a key. Each tenant
    is the only one in its partition."""
    streams: list[Stream] = []
    while len(streams) < 2 * tenants:
        tenant = new_tenant()
        if lane(log, Stream(tenant, "order", "a")) in [lane(log, each) for each in streams]:
            continue
        for name in ("a", "b"):
            stream = new_stream(tenant, name)
            for one in (append(stream), append(stream, 4, key=name.encode()), append(stream, 2)):
                await appended(log, one)  # a call, and so an entry of the journal, of its own
            streams.append(stream)
    partitions = [each.partition for each in log._lanes]
    await until(lambda: all(each.open and each.watermark == each.committed_seq for each in partitions))
    return streams


def p_of(place: Place, stream: Stream) -> int:
    return partition_of(stream.tenant, place.instance.partitions)
