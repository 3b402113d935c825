"""The client with asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from time import monotonic
from typing import Unpack

from gateway.client import bulk, calls, imports
from gateway.client.async_feed import AsyncFeedReader
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


class AsyncClient(AsyncFeedReader):
    """Calls repeat by themselves what may be repeated, for as long as `patience` says. Each raises Refused
    for what the service refuses, Unavailable where it gives no answer in time. Making one raises Refused
    for an API key that no header can carry, ValueError for a URL that is none.
    Threads may share a `Client`."""

    # -- appends

    async def append(
        self,
        aggregate_type: str,
        key: str,
        event_type: str,
        data: object = None,
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """One event, exactly once: the call carries an Idempotency-Key and is repeated with it. `data` is
        whatever msgspec can encode; msgspec.Raw where it is JSON already.

        Raises Conflict where `previous_length` does not hold; NotCommitted or OutcomeUnknown in place of
        Unavailable.
        """
        call = calls.append(aggregate_type, key, event_type, data, new_key(), options)
        return await self._carry_out(call)

    async def append_many(
        self,
        aggregate_type: str,
        key: str,
        events: Sequence[tuple[str, object]],
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Several of one aggregate, all or none: (event type, data) each. Otherwise as `append`."""
        return await self._carry_out(calls.append_many(aggregate_type, key, events, new_key(), options))

    async def append_all(
        self,
        events: Sequence[NewEvent],
        *,
        condition: Condition | None = None,
        **options: Unpack[AppendAllOptions],
    ) -> ReceiptOfAll:
        """Events of several aggregates, all or none, and only if the condition holds. Raises ConditionFailed
        where it does not; otherwise as `append`."""
        return await self._carry_out(calls.append_all(events, condition, new_key(), options))

    async def create(
        self,
        aggregate_type: str,
        events: Sequence[tuple[str, object]],
        **options: Unpack[CreateOptions],
    ) -> Receipt:
        """The same for a new aggregate, whose key the gateway mints and the receipt has. With `parent` it is
        the child of that one."""
        return await self._carry_out(calls.append_many(aggregate_type, None, events, new_key(), options))

    async def bulk(self, appends: Iterable[BulkAppend]) -> AsyncGenerator[bulk.Outcome, None]:
        """Many appends, each for itself, in parts of 1,000: what became of each, in their order. Those of one
        aggregate are appended in their order. An outcome is a Receipt, or what `append` would have raised.

        Raises Refused where a request as a whole is refused.
        """
        for part in bulk.parts(appends):
            steps = bulk.attempts_of(bulk.appends_of(part), self._patience, monotonic, chance)
            for outcome in await self._follow_steps(steps):
                yield outcome

    async def import_records(
        self,
        aggregate_type: str,
        records: Iterable[imports.Record],
        **options: Unpack[ImportOptions],
    ) -> AsyncGenerator[imports.Outcome, None]:
        """Records of a foreign system, each a mapping or its JSON text: each goes to the aggregate of its
        external ref, else of its content, else to a new one, and is an event where it says something new.
        What became of each, in their order: an Imported, or what `append` would have raised. All records are
        held in memory; importing them again is safe at any time.

        Raises Refused where the import as a whole is refused.
        """
        importing = imports.Import(aggregate_type, records, options)
        for refs in importing.announced:
            await self._carry_out(importing.announcement(refs))
        for part in importing.parts:
            steps = bulk.attempts_of(importing.lines(part), self._patience, monotonic, chance)
            for outcome in imports.outcomes_of(part, await self._follow_steps(steps)):
                yield outcome

    async def receipt(
        self, *, idempotency_key: str | None = None, event_id: str | None = None
    ) -> Receipt | ReceiptOfAll | None:
        """Of the committed append with this key, or this event, in the form in which it was given; None where
        there is none, which says nothing of one that is still under way."""
        try:
            return await self._carry_out(calls.receipt(idempotency_key, event_id))
        except Refused as refused:
            if refused.code != "not_found":
                raise
            return None

    # -- reads

    async def state(
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
        """As its events make it: all of them, those up to a time (`at`: with a zone, RFC 3339, or Unix
        seconds) or the first `at_length`; once there are `min_length`. With `aliases` as asked, else as its
        type says; with `keyless` they stand in place of its key. Raises Refused (404) for an aggregate that
        was never written."""
        return await self._carry_out(
            calls.state(aggregate_type, key, at, at_length, min_length, aliases, keyless)
        )

    async def length(self, aggregate_type: str, key: str) -> int:
        """0 where nothing was ever written."""
        return await self._carry_out(calls.length(aggregate_type, key))

    async def events(
        self,
        aggregate_type: str,
        key: str,
        *,
        start: int = 1,
        aliases: bool | None = None,
        keyless: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """An aggregate's events from a version on, to where they end now; aliases as of `state`. Raises
        Refused (404) for one that was never written."""
        following: int | None = start
        while following is not None:
            page, following = await self._carry_out(
                calls.events(aggregate_type, key, following, aliases, keyless)
            )
            for event in page:
                yield event

    async def event(self, event_id: str, *, aliases: bool | None = None, keyless: bool = False) -> Event:
        """By its id; aliases as of `state`."""
        return await self._carry_out(calls.event(event_id, aliases, keyless))

    async def resolve(self, alias: str) -> Resolved:
        """Which aggregate an alias names, with its `@` or without. Raises Refused (404) where none."""
        return await self._carry_out(calls.resolve(alias))

    async def aliases(self, aggregate_type: str, key: str) -> tuple[str, ...]:
        """Of an aggregate, the oldest first."""
        return await self._carry_out(calls.aliases(aggregate_type, key))

    async def children(self, aggregate_type: str, key: str) -> AsyncGenerator[Child, None]:
        """Of an aggregate with a hash id, by their numbers."""
        page, after = await self._carry_out(calls.children(aggregate_type, key, None))
        while True:
            for child in page:
                yield child
            if after is None:
                return
            page, after = await self._carry_out(calls.children(aggregate_type, key, after))

    async def stands_for(self, source: Source) -> StandsFor:
        """What a foreign system's id stands for. Raises Refused (404) where it stands for nothing."""
        return await self._carry_out(calls.stands_for(source))

    async def link(self, source: Source, aggregate_type: str, key: str) -> StandsFor:
        """Lets it stand for an aggregate. Raises Refused (409) where it stands for another one."""
        return await self._carry_out(calls.link(source, aggregate_type, key))

    async def keys_of(
        self, sources: Sequence[Source], *, aggregate_type: str | None = None, mint: bool = False
    ) -> tuple[str | None, ...]:
        """The keys of many, in their order; None for what stands for nothing, unless that is minted."""
        return await self._carry_out(calls.keys_of(sources, aggregate_type, mint))

    async def sources_of(self, key: str) -> tuple[Source, ...]:
        """What foreign systems call an aggregate."""
        return await self._carry_out(calls.sources_of(key))

    async def hashes(
        self, content: Mapping[str, object], context: Mapping[str, object] | None = None
    ) -> Hashes:
        """Of a content, `{"text": …}` or `{"json": …}`, and of its context, which may have `name`, `type` and
        `properties`."""
        return await self._carry_out(calls.hashes(content, context))

    async def new_ids(self, kind: str = "humane", count: int = 1) -> tuple[str, ...]:
        """Fresh ones: `humane` codes, or `base62`."""
        return await self._carry_out(calls.new_ids(kind, count))

    async def tenant(self) -> Tenant:
        """Whose key this is."""
        return await self._carry_out(calls.tenant())

    # -- tenants, by a key of scope operator

    async def tenants(self) -> AsyncGenerator[Provisioned, None]:
        """All of the instance, by name."""
        page, after = await self._carry_out(calls.tenants(None))
        while True:
            for tenant in page:
                yield tenant
            if after is None:
                return
            page, after = await self._carry_out(calls.tenants(after))

    async def provision(self, tenant_id: str, name: str) -> Provisioned:
        """Makes a tenant with an id of your own, a UUIDv7, and its first key, which is told this once. One
        that is there already is told as it is. Raises Refused (409) where it has another name."""
        return await self._carry_out(calls.provision(tenant_id, name))

    async def provisioned(self, tenant_id: str) -> Provisioned:
        """As it is. Raises Refused (404) where there is none."""
        return await self._carry_out(calls.provisioned("GET", tenant_id))

    async def suspend(self, tenant_id: str) -> Provisioned:
        """Its keys are refused until it resumes."""
        return await self._carry_out(calls.provisioned("POST", tenant_id, "suspend"))

    async def resume(self, tenant_id: str) -> Provisioned:
        """Its keys are honoured again."""
        return await self._carry_out(calls.provisioned("POST", tenant_id, "resume"))

    async def delete(self, tenant_id: str) -> Provisioned:
        """All of it goes, step by step: `provisioned` tells how far."""
        return await self._carry_out(calls.provisioned("DELETE", tenant_id))

    # -- lists and projections

    def rows(self, aggregate_type: str, **options: Unpack[RowOptions]) -> AsyncGenerator[Row, None]:
        """All aggregates of a type with a list, page by page. Raises Unavailable where the list does not
        cover `after` in time."""
        return self._rows((aggregate_type,), options)

    def projection(self, name: str, **options: Unpack[RowOptions]) -> AsyncGenerator[Row, None]:
        """All rows of a projection, likewise."""
        return self._rows(("_", "projections", name), options)

    async def row(self, name: str, key: str, *, after: str | None = None, wait_s: int = 2) -> Row | None:
        """One row of a projection; None where there is none."""
        try:
            return await self._carry_out(calls.row(name, key, after, wait_s))
        except Refused as refused:
            if refused.code != "not_found":
                raise
            return None

    async def _rows(self, path: tuple[str, ...], options: RowOptions) -> AsyncGenerator[Row, None]:
        cursor: str | None = None
        while True:
            page, cursor = await self._carry_out(calls.rows(path, calls.PAGE_ROWS, cursor, options))
            for row in page:
                yield row
            if cursor is None:
                return

    # -- pull subscriptions

    async def claim(
        self,
        subscription: str,
        *,
        limit: int = 100,
        wait_s: float = 0.0,
        lease_s: float | None = None,
        aliases: bool | None = None,
        keyless: bool = False,
    ) -> Claim:
        """Events that no other consumer gets while they are leased; waits up to `wait_s`, at most 20, for the
        first. What is not acked in time is handed out again. With `aliases` as asked, else as the
        subscription says; with `keyless` they stand in place of keys."""
        return await self._carry_out(calls.claim(subscription, limit, wait_s, lease_s, aliases, keyless))

    async def ack(
        self, subscription: str, claim: Claim | str | None = None, *, ids: Collection[str] = ()
    ) -> None:
        """What was claimed is done: a whole claim, or the events with these ids."""
        await self._carry_out(calls.ack(subscription, claim, ids))

    # -- webhooks in

    async def replay(self, *deliveries: str) -> tuple[Replayed, ...]:
        """Processes stored deliveries, up to 100 by their ids, by the spec of today. What is an event already
        stays that event. Takes a key of scope admin."""
        return await self._carry_out(calls.replay(deliveries))

    # -- anything else

    async def call(self, call: Call[T]) -> T:
        """A request that has no method here, repeated and refused as the others."""
        return await self._carry_out(call)
