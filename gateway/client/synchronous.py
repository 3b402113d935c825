# Made by deploy/synchronous.py from asynchronous.py: change that one.
"""The client with plain calls."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from time import monotonic
from typing import Unpack

from gateway.client import bulk, calls, imports
from gateway.client.connection import (
    chance,
    new_key,
)
from gateway.client.errors import Refused
from gateway.client.model import (
    BulkAppend,
    Child,
    Claim,
    Condition,
    Event,
    Hashes,
    NewEvent,
    Provisioned,
    Receipt,
    ReceiptOfAll,
    Replayed,
    Resolved,
    Row,
    Source,
    StandsFor,
    State,
    Tenant,
)
from gateway.client.options import (
    AppendAllOptions,
    AppendOptions,
    CreateOptions,
    ImportOptions,
    RowOptions,
)
from gateway.client.retry import Call, T
from gateway.client.sync_feed import FeedReader


class Client(FeedReader):
    """Calls are retried for as long as `patience` allows. Each raises Refused if the service refuses it, and
    Unavailable if there is no answer in time. The constructor raises Refused for an API key that no header
    can contain, ValueError for an invalid URL. Threads may share a `Client`."""

    # -- appends

    def append(
        self,
        aggregate_type: str,
        key: str,
        event_type: str,
        data: object = None,
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Appends one event, exactly once: retries have the same Idempotency-Key. `data` is any value that
        msgspec can encode, or msgspec.Raw if it is JSON already. Raises Conflict if `previous_length` does
        not match; NotCommitted or OutcomeUnknown instead of Unavailable; ValueError for NaN and infinities,
        which JSON can't express."""
        call = calls.append(aggregate_type, key, event_type, data, new_key(), options)
        return self._carry_out(call)

    def append_many(
        self,
        aggregate_type: str,
        key: str,
        events: Sequence[tuple[str, object]],
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Appends several events, (event type, data) each, to one aggregate, all or none. Otherwise as
        `append`."""
        return self._carry_out(calls.append_many(aggregate_type, key, events, new_key(), options))

    def append_all(
        self,
        events: Sequence[NewEvent],
        *,
        condition: Condition | None = None,
        **options: Unpack[AppendAllOptions],
    ) -> ReceiptOfAll:
        """Appends events of several aggregates, all or none, and only if the condition holds; raises
        ConditionFailed if it does not. Otherwise as `append`."""
        return self._carry_out(calls.append_all(events, condition, new_key(), options))

    def create(
        self,
        aggregate_type: str,
        events: Sequence[tuple[str, object]],
        **options: Unpack[CreateOptions],
    ) -> Receipt:
        """As `append_many`, for a new aggregate: the gateway mints its key, which the receipt has. With
        `parent` it is a child of that aggregate."""
        return self._carry_out(calls.append_many(aggregate_type, None, events, new_key(), options))

    def bulk(self, appends: Iterable[BulkAppend]) -> Generator[bulk.Outcome, None, None]:
        """Makes many appends, each on its own, in requests of 1,000, and yields their outcomes in order.
        Appends to one aggregate are made in their order. An outcome is a Receipt, or the error that `append`
        would have raised. Raises Refused if a request as a whole is refused."""
        for part in bulk.parts(appends):
            steps = bulk.attempts_of(bulk.appends_of(part), self._patience, monotonic, chance)
            for outcome in self._follow_steps(steps):
                yield outcome

    def import_records(
        self,
        aggregate_type: str,
        records: Iterable[imports.Record],
        **options: Unpack[ImportOptions],
    ) -> Generator[imports.Outcome, None, None]:
        """Imports records of a foreign system, each a mapping or its JSON text: each goes to the aggregate of
        its external ref, else of its content, else to a new one, and becomes an event if its content is new.
        Yields the outcomes in order: an Imported, or the error that `append` would have raised. All records
        are held in memory; importing them again is safe at any time. Raises Refused if the import as a whole
        is refused."""
        importing = imports.Import(aggregate_type, records, options)
        for refs in importing.announced:
            self._carry_out(importing.announcement(refs))
        for part in importing.parts:
            steps = bulk.attempts_of(importing.lines(part), self._patience, monotonic, chance)
            for outcome in imports.outcomes_of(part, self._follow_steps(steps)):
                yield outcome

    def receipt(
        self, *, idempotency_key: str | None = None, event_id: str | None = None
    ) -> Receipt | ReceiptOfAll | None:
        """The receipt of the committed append with this key, or with this event, in its original form. None
        if there is none; such an append may still be under way."""
        try:
            return self._carry_out(calls.receipt(idempotency_key, event_id))
        except Refused as refused:
            if refused.code != "not_found":
                raise
            return None

    # -- reads

    def state(
        self,
        aggregate_type: str,
        key: str,
        *,
        at: datetime | float | str | None = None,
        at_length: int | None = None,
        min_length: int | None = None,
        aliases: bool | None = None,
        keyless: bool = False,
    ) -> State:
        """The aggregate's state after all events, after those up to a time (`at`: with a zone, RFC 3339, or
        Unix seconds), or after the first `at_length`; waits until there are `min_length`. `aliases`: include
        them or not, default: as the type declares; with `keyless` they replace the key. Raises Refused (404)
        for an aggregate without events."""
        return self._carry_out(calls.state(aggregate_type, key, at, at_length, min_length, aliases, keyless))

    def length(self, aggregate_type: str, key: str) -> int:
        """The number of events of an aggregate, 0 if it has none."""
        return self._carry_out(calls.length(aggregate_type, key))

    def events(
        self,
        aggregate_type: str,
        key: str,
        *,
        start: int = 1,
        aliases: bool | None = None,
        keyless: bool = False,
    ) -> Generator[Event, None, None]:
        """An aggregate's events from a version on, up to the present end; `aliases` as of `state`. Raises
        Refused (404) for an aggregate without events."""
        following: int | None = start
        while following is not None:
            page, following = self._carry_out(calls.events(aggregate_type, key, following, aliases, keyless))
            for event in page:
                yield event

    def event(self, event_id: str, *, aliases: bool | None = None, keyless: bool = False) -> Event:
        """The event with this id; `aliases` as of `state`."""
        return self._carry_out(calls.event(event_id, aliases, keyless))

    def resolve(self, alias: str) -> Resolved:
        """The aggregate of an alias, with or without its `@`. Raises Refused (404) if there is none."""
        return self._carry_out(calls.resolve(alias))

    def aliases(self, aggregate_type: str, key: str) -> tuple[str, ...]:
        """The aliases of an aggregate, oldest first."""
        return self._carry_out(calls.aliases(aggregate_type, key))

    def children(self, aggregate_type: str, key: str) -> Generator[Child, None, None]:
        """The children of an aggregate with a hash id, by their numbers."""
        page, after = self._carry_out(calls.children(aggregate_type, key, None))
        while True:
            for child in page:
                yield child
            if after is None:
                return
            page, after = self._carry_out(calls.children(aggregate_type, key, after))

    def stands_for(self, source: Source) -> StandsFor:
        """The aggregate to which a foreign id is mapped. Raises Refused (404) if it is not mapped."""
        return self._carry_out(calls.stands_for(source))

    def link(self, source: Source, aggregate_type: str, key: str) -> StandsFor:
        """Maps a foreign id to an aggregate. Raises Refused (409) if it is mapped to another one."""
        return self._carry_out(calls.link(source, aggregate_type, key))

    def keys_of(
        self, sources: Sequence[Source], *, aggregate_type: str | None = None, mint: bool = False
    ) -> tuple[str | None, ...]:
        """The keys of many foreign ids, in their order; None for an unmapped one, unless a key is minted for
        it."""
        return self._carry_out(calls.keys_of(sources, aggregate_type, mint))

    def sources_of(self, key: str) -> tuple[Source, ...]:
        """The ids of an aggregate in foreign systems."""
        return self._carry_out(calls.sources_of(key))

    def hashes(self, content: Mapping[str, object], context: Mapping[str, object] | None = None) -> Hashes:
        """The hashes of a content, `{"text": …}` or `{"json": …}`, and of its context, which may have `name`,
        `type` and `properties`."""
        return self._carry_out(calls.hashes(content, context))

    def new_ids(self, kind: str = "humane", count: int = 1) -> tuple[str, ...]:
        """New ids: `humane` codes, or `base62`."""
        return self._carry_out(calls.new_ids(kind, count))

    def tenant(self) -> Tenant:
        """The tenant of the key."""
        return self._carry_out(calls.tenant())

    # -- tenants, by a key of scope operator

    def tenants(self) -> Generator[Provisioned, None, None]:
        """All tenants of the instance, by name."""
        page, after = self._carry_out(calls.tenants(None))
        while True:
            for tenant in page:
                yield tenant
            if after is None:
                return
            page, after = self._carry_out(calls.tenants(after))

    def provision(self, tenant_id: str, name: str) -> Provisioned:
        """Creates a tenant with an id of your choice, a UUIDv7, and its first key, which is shown only once.
        If the tenant exists, returns it as it is. Raises Refused (409) if it has another name."""
        return self._carry_out(calls.provision(tenant_id, name))

    def provisioned(self, tenant_id: str) -> Provisioned:
        """The tenant with this id. Raises Refused (404) if there is none."""
        return self._carry_out(calls.provisioned("GET", tenant_id))

    def suspend(self, tenant_id: str) -> Provisioned:
        """Suspends a tenant: its keys are refused until `resume`."""
        return self._carry_out(calls.provisioned("POST", tenant_id, "suspend"))

    def resume(self, tenant_id: str) -> Provisioned:
        """Resumes a tenant: its keys are accepted again."""
        return self._carry_out(calls.provisioned("POST", tenant_id, "resume"))

    def delete(self, tenant_id: str) -> Provisioned:
        """Deletes a tenant with all its data, step by step: `provisioned` has the progress."""
        return self._carry_out(calls.provisioned("DELETE", tenant_id))

    # -- lists and projections

    def rows(self, aggregate_type: str, **options: Unpack[RowOptions]) -> Generator[Row, None, None]:
        """All aggregates of a type with a list, page by page. Raises Unavailable if the list does not cover
        `after` in time."""
        return self._rows((aggregate_type,), options)

    def projection(self, name: str, **options: Unpack[RowOptions]) -> Generator[Row, None, None]:
        """All rows of a projection, page by page. Otherwise as `rows`."""
        return self._rows(("_", "projections", name), options)

    def row(self, name: str, key: str, *, after: str | None = None, wait_s: int = 2) -> Row | None:
        """One row of a projection; None if it has none with this key. Raises Refused (404) if there is
        no such projection."""
        try:
            return self._carry_out(calls.row(name, key, after, wait_s))
        except Refused as refused:
            if refused.code != "not_found" or refused.path == "name":
                raise
            return None

    def _rows(self, path: tuple[str, ...], options: RowOptions) -> Generator[Row, None, None]:
        cursor: str | None = None
        while True:
            page, cursor = self._carry_out(calls.rows(path, calls.PAGE_ROWS, cursor, options))
            for row in page:
                yield row
            if cursor is None:
                return

    # -- pull subscriptions

    def claim(
        self,
        subscription: str,
        *,
        limit: int = 100,
        wait_s: float = 0.0,
        lease_s: float | None = None,
        aliases: bool | None = None,
        keyless: bool = False,
    ) -> Claim:
        """Claims events of a pull subscription: no other consumer gets them during the lease. Waits up to
        `wait_s`, at most 20, for the first. Events that are not acked in time are claimed again. `aliases`:
        include them or not, default: as the subscription declares; with `keyless` they replace keys."""
        return self._carry_out(calls.claim(subscription, limit, wait_s, lease_s, aliases, keyless))

    def ack(self, subscription: str, claim: Claim | str | None = None, *, ids: Collection[str] = ()) -> None:
        """Confirms that claimed events are processed: a whole claim, or the events with these ids."""
        self._carry_out(calls.ack(subscription, claim, ids))

    # -- webhooks in

    def replay(self, *deliveries: str) -> tuple[Replayed, ...]:
        """Processes stored webhook deliveries, up to 100 by their ids, by the deployed spec. Those that are
        events stay unchanged. Needs a key of scope admin."""
        return self._carry_out(calls.replay(deliveries))

    # -- anything else

    def call(self, call: Call[T]) -> T:
        """Sends a request that has no method here, with the same retries and errors."""
        return self._carry_out(call)
