"""What the service answers, as values. Fields that a later release adds are ignored."""

from __future__ import annotations

import builtins
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Actor(msgspec.Struct, frozen=True):
    """Who acts: a type of the spec's `agent_types`, and one of the four kinds of id."""

    type: str
    id: str


class Target(msgspec.Struct, frozen=True):
    """On whom or what: a type of the spec's `target_types`, and an id likewise."""

    type: str
    id: str


class Metadata(msgspec.Struct, frozen=True):
    """`timestamp` is in Unix seconds, when the gateway admitted the append."""

    actor: Actor
    target: Target | None
    timestamp: float
    correlation_id: str
    causation_id: str | None
    extra: dict[str, Any] | None


class Event(msgspec.Struct, frozen=True):
    """A committed event. `position` is there where the feed gave it, `aliases` where they were asked for;
    `key` is empty where they stand for it, which `keyless` asks for."""

    id: str
    version: int
    aggregate_type: str
    type: str
    raw: msgspec.Raw = msgspec.field(name="data")
    metadata: Metadata
    key: str = ""
    position: str | None = None
    aliases: tuple[str, ...] = ()

    @property
    def data(self) -> Any:
        """As JSON says: dict, list, str, int, float, bool or None. Decoded at each call."""
        return msgspec.json.decode(self.raw)

    def data_as(self, kind: builtins.type[T]) -> T:
        """Decoded and checked as this type (msgspec Struct, dataclass, TypedDict, …). Raises
        msgspec.ValidationError."""
        return msgspec.json.decode(self.raw, type=kind)


class Receipt(msgspec.Struct, frozen=True):
    """Committed: at versions `length - len(event_ids) + 1` to `length` of the stream of `key`. `replayed`
    when an earlier request of the same key or event id did it. `aliases` are a new aggregate's, where the
    append asked for them by `wait`; `position` is the feed's behind its last event, where it is known."""

    key: str
    length: int
    event_ids: tuple[str, ...]
    replayed: bool
    aliases: tuple[str, ...] = ()
    position: str | None = None

    @property
    def event_id(self) -> str:
        """The first event's."""
        return self.event_ids[0]


class NewEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event of `append_all`. It is of the aggregate with this `key`, or of what a `source` stands for,
    else of a new one; `previous_length` is the aggregate's, and stands on the first of its events; `target`
    stands in place of the append's."""

    aggregate_type: str
    type: str
    data: Any
    key: str | None = None
    previous_length: int | None = None
    event_id: str | None = None
    target: Target | None = None
    source: Source | None = None


class Imported(msgspec.Struct, frozen=True):
    """What became of a record: `result` is `new`, `unchanged`, `edited`, `renamed` or `linked`; `event_id`
    is of what was written, `was` the ref that a renamed one had. `key` is None for what would be new."""

    result: str
    key: str | None
    event_id: str | None = None
    was: str | None = None


class Appended(msgspec.Struct, frozen=True):
    """One event of an append to several aggregates; `length` is its aggregate's after it."""

    aggregate_type: str
    key: str
    event_id: str
    length: int


class ReceiptOfAll(msgspec.Struct, frozen=True):
    """Committed, all of it; `position` is the feed's behind the last event. `replayed` when an earlier
    request of the same key or event id did it."""

    events: tuple[Appended, ...]
    position: str
    replayed: bool = False


class Condition(msgspec.Struct, frozen=True):
    """Nothing is appended where an event behind `after` matches any of the items: each a mapping with
    `types`, like `"course.was_defined"`, `tags`, like `"course:c1"`, or both."""

    items: tuple[dict[str, Any], ...]
    after: str | None = None


class State(msgspec.Struct, frozen=True):
    """An aggregate as its events make it; times in Unix seconds, None where there is none. `aliases` and
    `key` are as an event's."""

    key: str
    data: dict[str, Any]
    length: int
    created_at: int | None
    updated_at: int | None
    aliases: tuple[str, ...] = ()


class Row(msgspec.Struct, frozen=True):
    """Of a list or projection; times in Unix seconds. `length` counts the events that went into it."""

    key: str
    data: dict[str, Any]
    length: int
    created_at: int
    updated_at: int


class FeedPage(msgspec.Struct, frozen=True):
    """Events in the order of their commits, the position to go on from, and whether that was all."""

    events: tuple[Event, ...]
    position: str
    caught_up: bool


class Resolved(msgspec.Struct, frozen=True):
    """The aggregate that an alias names, and the alias in its canonical spelling."""

    aggregate_type: str
    key: str
    alias: str


class Child(msgspec.Struct, frozen=True):
    """One of an aggregate's children."""

    alias: str
    aggregate_type: str
    key: str


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
    """A foreign system's id of something, within its scope: a file, a project."""

    source: str
    id: str | int
    scope: str = ""


class StandsFor(msgspec.Struct, frozen=True):
    """What a source id stands for, with its last record, if it has one."""

    key: str
    aggregate_type: str | None = None
    content: str | None = None
    context: str | None = None
    last_event: str | None = None


class Hashes(msgspec.Struct, frozen=True):
    """Of a content, of its context, and of both; the latter two only where a context was given."""

    content: str
    context: str | None = None
    record: str | None = None


class Provisioned(msgspec.Struct, frozen=True):
    """A tenant as its provisioner sees it: `status` is `active`, `suspended`, `deleting` or `deleted`; `key`
    is its first key, told once, when it is made."""

    id: str
    name: str
    handle: str
    status: str
    key: str | None = None
    deletion: dict[str, Any] | None = None


class Tenant(msgspec.Struct, frozen=True):
    """Whose key a client has."""

    id: str
    name: str
    handle: str


class Claim(msgspec.Struct, frozen=True):
    """Events of a pull subscription, leased for `lease_s`; `id` is None where there were none."""

    id: str | None = msgspec.field(name="claim")
    lease_s: float
    events: tuple[Event, ...]


class Replayed(msgspec.Struct, frozen=True):
    """What became of a stored webhook delivery; without an event, `reason` and `error` say why."""

    id: str
    event_id: str | None
    duplicate: bool
    reason: str | None
    error: str | None
    source: str | None = None
    delivery_id: str | None = None


class BulkAppend(msgspec.Struct, frozen=True):
    """One line of a bulk request, appended for itself. Without an `idempotency_key` the `event_id` is
    it, else it gets one."""

    aggregate_type: str
    key: str
    event_type: str
    data: Any
    actor: Actor
    target: Target | None = None
    previous_length: int | None = None
    event_id: str | None = None
    causation_id: str | None = None
    extra: dict[str, Any] | None = None
    idempotency_key: str | None = None
