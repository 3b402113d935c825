"""Stored events: the values that the log keeps and readers get.

Owns: what an event is, the stream it belongs to, what an append says of its events beside them.
Must not know: how they are packed (gateway/appends.py), HTTP, Redis, Postgres, clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec


class Event(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What is stored of one event, but for its place (partition, seq, version) and its aggregate.

    UUIDs are their 16 bytes. The id stays first: the scripts read it at a fixed offset of the packed form.
    `payload` is the client's `data`, byte for byte, and None only after an erasure. `revision` is that of the
    event type that it was appended under; where it is another than 1, the event is a RevisedEvent.
    """

    revision: ClassVar[int] = 1

    id: bytes
    type: str
    actor_type: str
    actor_id: str
    target_type: str | None
    target_id: str | None
    correlation_id: bytes
    causation_id: bytes | None
    spec_rev: int
    recorded_at_ms: int
    extra: bytes | None
    payload: bytes | None


class RevisedEvent(Event, array_like=True, frozen=True, gc=False):
    """Packed, it has one part more, so that all others are packed, and digested, as they always were."""

    revision: int  # type: ignore[misc]


def revised(event: Event, revision: int) -> Event:
    """The same event of this revision."""
    if revision == 1:
        return event
    return RevisedEvent(*msgspec.structs.astuple(event)[:12], revision)  # type: ignore[call-arg]


class Stream(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The name of one aggregate's stream. `key` is canonical, `tenant` a UUID's 16 bytes."""

    tenant: bytes
    aggregate_type: str
    key: str


Tags = tuple[tuple[str, ...], ...]
"""The declared tags of each event of an append, in the order of the events; empty where none has any. An
event's own tag, `<aggregate type>:<key>`, is not among them: its stream says it."""


class Spread(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Which streams an append to several has: each once, in the order of their first events, and for each
    event the number of its stream among them."""

    streams: tuple[Stream, ...]
    order: tuple[int, ...]

    def stream_of(self, n: int) -> Stream:
        """Of the append's event `n`."""
        return self.streams[self.order[n]]

    @property
    def each_stream(self) -> Sequence[Stream]:
        """Of each event of the append."""
        streams, order = self.streams, self.order
        if len(streams) == len(order):  # one event each
            return streams
        return [streams[which] for which in order]

    def versions(self, firsts: Sequence[int]) -> tuple[int, ...]:
        """Of each event, where those to each stream begin at these."""
        if len(firsts) == len(self.order):  # one event each
            return tuple(firsts)
        following = list(firsts)
        versions = []
        for which in self.order:
            versions.append(following[which])
            following[which] += 1
        return tuple(versions)


class Claim(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What event `event` of an append claims for its aggregate under a name: a value, as its hash, within a
    scope; or None: it releases what the aggregate has under the name, in any scope."""

    event: int
    name: str
    scope: bytes
    value: bytes | None


def event_bytes(event: Event) -> int:
    """The parts of it that can be large."""
    return len(event.payload or b"") + len(event.extra or b"")


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """A committed event in its place, as readers get it."""

    stream: Stream
    version: int
    event: Event


class Joined(msgspec.Struct, frozen=True, gc=False):
    """The data of the first events of a stream, `count` texts with a NUL byte between them, and the times of
    the first and the last."""

    count: int
    first_at_ms: int
    last_at_ms: int
    data: bytes


class Page(msgspec.Struct, frozen=True, gc=False):
    """Committed events of a stream in the order asked for, and the stream's committed length."""

    length: int
    events: tuple[Recorded, ...] = ()
    joined: Joined | None = None
    """In place of events, where no more of them was wanted."""
