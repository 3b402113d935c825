"""What calls can be given beside what they are about."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Required, TypedDict

from gateway.client.model import Actor, Target


class AppendOptions(TypedDict, total=False):
    """`previous_length`: append only if the stream has exactly this many events. `event_id`: a UUIDv7 or
    UUIDv5, for a single event. `idempotency_key`: a key that outlives this process, for calls that are
    repeated after a crash; default: `event_id`, else a new key for each call. `wait`: wait up to 5 s for the
    aliases of a new aggregate."""

    actor: Required[Actor]
    target: Target
    previous_length: int
    event_id: str
    causation_id: str
    correlation_id: str
    extra: Mapping[str, Any]
    idempotency_key: str
    wait: bool


class AppendAllOptions(TypedDict, total=False):
    """As of `append`. Each event has its own length and event id."""

    actor: Required[Actor]
    target: Target
    causation_id: str
    correlation_id: str
    extra: Mapping[str, Any]
    idempotency_key: str


class CreateOptions(AppendOptions, total=False):
    """`parent`: an exact alias with its `@`, or a key: the new aggregate is its child."""

    parent: str


class FeedOptions(TypedDict, total=False):
    """`after`: a position, `"beginning"` or `"now"`; default: the beginning. Filters; default: all events:
    aggregate `types`, `event_types`, `tags`, `correlation_id`, `actor` as `type:id`. `from_time` (RFC 3339 or
    Unix seconds) starts at the first event recorded then or later. `aliases`: include them or not, default:
    as the types declare; `keyless`: aliases replace keys."""

    after: str | None
    types: Collection[str]
    event_types: Collection[str]
    tags: Collection[str]
    correlation_id: str
    actor: str
    from_time: str
    aliases: bool | None
    keyless: bool


class ImportOptions(TypedDict, total=False):
    """`event`: the event type of a record, if the aggregate type has several; `ref`: the field that is a
    record's external ref; `actor`: default: the importer; `dry_run`: return the outcomes and write nothing.
    Several calls with one `import_id`, a UUID, are one import: first send all its refs by calls with
    `only_refs`, which import nothing."""

    event: str
    ref: str
    actor: Actor
    dry_run: bool
    import_id: str
    only_refs: bool


class RowOptions(TypedDict, total=False):
    """`filters`: for a field of `by` its value, or values by operator, as in `{"total": {"gte": 10}}`;
    `sort`: fields, `-` before one for descending order; `fields`: the fields of the data to send; `after`: a
    position, as of a receipt, that the rows must cover, waiting up to `wait_s`."""

    filters: Mapping[str, Any]
    sort: Sequence[str]
    fields: Sequence[str]
    after: str | None
    wait_s: int


def check_options(options: Mapping[str, object], form: type, needed: tuple[str, ...] = ()) -> None:
    """Raises TypeError, as for any argument, where `options` has one that `form` (a TypedDict) does not know,
    or lacks one that is `needed`."""
    known: frozenset[str] = frozenset(form.__annotations__)
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            more = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
            raise TypeError(f"unknown option {name!r}: {more}")
    for name in needed:
        if name not in options:
            raise TypeError(f"the option {name!r} is missing")
