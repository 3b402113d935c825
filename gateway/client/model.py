"""What the service answers, as values. Fields that a later release adds are ignored."""

from __future__ import annotations

import builtins
from typing import Any, TypeVar

import msgspec

from gateway.json_values import decode_data

T = TypeVar("T")


class Actor(msgspec.Struct, frozen=True):
    """The actor: a type of the spec's `agent_types`, and an id of one of the four kinds."""

    type: str
    id: str


class Target(msgspec.Struct, frozen=True):
    """What the actor acted on: a type of the spec's `target_types`, and an id of one of the four kinds."""

    type: str
    id: str


class Metadata(msgspec.Struct, frozen=True):
    """`timestamp` is the time at which the gateway admitted the append, in Unix seconds."""

    actor: Actor
    target: Target | None
    timestamp: float
    correlation_id: str
    causation_id: str | None
    extra: dict[str, Any] | None


class Event(msgspec.Struct, frozen=True):
    """A committed event. `position` is set if the event came from the feed, `aliases` if they were requested;
    `key` is empty if `keyless` was requested and there are aliases."""

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
        """As JSON says: dict, list, str, int, float, bool or None; a Decimal for a number that no float holds
        and for an integer of more than 4,300 digits. Decoded at each call."""
        return decode_data(self.raw)

    def data_as(self, kind: builtins.type[T]) -> T:
        """Decoded and checked as this type (msgspec Struct, dataclass, TypedDict, …). Raises
        msgspec.ValidationError."""
        return msgspec.json.decode(self.raw, type=kind)


class Receipt(msgspec.Struct, frozen=True):
    """The append is committed, at versions `length - len(event_ids) + 1` to `length` of the stream of `key`.
    `replayed`: an earlier request with the same key or event id appended it. `aliases` are those of a new
    aggregate, if `wait` requested them; `position` is the feed's, after the last event, if it is known."""

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
    """An event of `append_all`: of the aggregate with this `key`, or of the one to which `source` is mapped,
    else of a new one. `previous_length` is the aggregate's, on the first of its events; `target` replaces the
    append's."""

    aggregate_type: str
    type: str
    data: Any
    key: str | None = None
    previous_length: int | None = None
    event_id: str | None = None
    target: Target | None = None
    source: Source | None = None


class Imported(msgspec.Struct, frozen=True):
    """The outcome of a record: `result` is `new`, `unchanged`, `edited`, `renamed` or `linked`; `event_id` is
    that of the written event, `was` the earlier ref of a renamed record. `key` is None for a record that
    would be new."""

    result: str
    key: str | None
    event_id: str | None = None
    was: str | None = None


class Appended(msgspec.Struct, frozen=True):
    """One event of an append to several aggregates; `length` is its aggregate's after this event."""

    aggregate_type: str
    key: str
    event_id: str
    length: int


class ReceiptOfAll(msgspec.Struct, frozen=True):
    """All events are committed; `position` is the feed's, after the last event. `replayed`: an earlier
    request with the same key or event id appended them."""

    events: tuple[Appended, ...]
    position: str
    replayed: bool = False


class Condition(msgspec.Struct, frozen=True):
    """The append is rejected if an event after `after` matches one of the items: each a mapping with `types`,
    such as `"course.was_defined"`, `tags`, such as `"course:c1"`, or both."""

    items: tuple[dict[str, Any], ...]
    after: str | None = None


class State(msgspec.Struct, frozen=True):
    """The state of an aggregate; times in Unix seconds, None if it has no events. `aliases` and `key` are as
    those of an event."""

    key: str
    data: dict[str, Any]
    length: int
    created_at: int | None
    updated_at: int | None
    aliases: tuple[str, ...] = ()


class Row(msgspec.Struct, frozen=True):
    """A row of a list or projection; times in Unix seconds. `length` is the number of events that went into
    it."""

    key: str
    data: dict[str, Any]
    length: int
    created_at: int
    updated_at: int


class FeedPage(msgspec.Struct, frozen=True):
    """Events in the order of their commits, the position from which to continue, and whether no further event
    existed."""

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
    """A foreign system's id, within its scope: a file, a project."""

    source: str
    id: str | int
    scope: str = ""


class StandsFor(msgspec.Struct, frozen=True):
    """The aggregate to which a source id is mapped, with its last record, if there is one."""

    key: str
    aggregate_type: str | None = None
    content: str | None = None
    context: str | None = None
    last_event: str | None = None


class Hashes(msgspec.Struct, frozen=True):
    """The hashes of a content, of its context, and of both; the latter two only if a context was given."""

    content: str
    context: str | None = None
    record: str | None = None


class Provisioned(msgspec.Struct, frozen=True):
    """A tenant, as an operator's key sees it: `status` is `active`, `suspended`, `deleting` or `deleted`;
    `key` is its first key, shown only once, when the tenant is created."""

    id: str
    name: str
    handle: str
    status: str
    key: str | None = None
    deletion: dict[str, Any] | None = None


class Tenant(msgspec.Struct, frozen=True):
    """The tenant of a client's key."""

    id: str
    name: str
    handle: str


class Claim(msgspec.Struct, frozen=True):
    """Events of a pull subscription, leased for `lease_s`; `id` is None if there were none."""

    id: str | None = msgspec.field(name="claim")
    lease_s: float
    events: tuple[Event, ...]


class Replayed(msgspec.Struct, frozen=True):
    """The outcome of a stored webhook delivery; without an event, `reason` and `error` explain why."""

    id: str
    event_id: str | None
    duplicate: bool
    reason: str | None
    error: str | None
    source: str | None = None
    delivery_id: str | None = None


class BulkAppend(msgspec.Struct, frozen=True):
    """One line of a bulk request, appended on its own. Its key is `idempotency_key`, else `event_id`, else a
    new one."""

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
