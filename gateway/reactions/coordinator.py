"""The sagas of a tenant: begins them with an event, continues them, and ends what has waited too long.

Owns: what happens, for each committed event in order, to the sagas that it concerns. Each turn of a saga is
one append, with what it emits, for the length that its stream had: of two processes that take the same turn,
one does. Turns of several sagas are taken beside each other, those of one in the order of the events. The
table `saga` says how sagas stand as of the reactor's place.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final
from uuid import UUID

import asyncpg
import msgspec
from asyncpg.pgproto.pgproto import UUID as PgUUID

from gateway.admit.append import SCHEMA_WORK_MAX
from gateway.appends import Append, Appended
from gateway.catalog.model import Deployed
from gateway.events import Stream
from gateway.follow import threads
from gateway.follow.model import Event
from gateway.follow.threads import Steps, folding, making, taking
from gateway.outcomes import Conflict, NotCommitted, Outcome, OutcomeUnknown
from gateway.postgres.errors import PostgresTrouble
from gateway.reactions import sagas
from gateway.reactions.database import fetch
from gateway.reactions.outputs import Origin, append_of_saga, are_light, why_refused
from gateway.reactions.sagas import State, Turn, decode_state
from gateway.reactions.waiting import Due, Stands, Turns, Waiting
from gateway.state import Budget
from spec.sagas import SAGA_TYPE, Saga

logger = logging.getLogger("sluice.reactions")

DUE_AT_ONCE: Final = 100
TURNS_AT_ONCE: Final = 64
"""Of a tenant: so many sagas' appends are committed together."""
WAITING_AT_ONCE: Final = 1_000
WAITING_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of the sagas that wait for the events of a page, those that are read at a time; one more may be longer."""
AGAIN_S: Final = 0.2
_SAGA_LOOKS: Final = 4
_SAGAS_A_LOOK: Final = 32
"""What a turn of a short saga takes, in tests of items; to compare so many triggers takes as long as one."""
_FIRST: Final = PgUUID(bytes(16))
APPEND_S: Final = 5.0
"""For how long a turn is tried; afterwards its page of events is looked at again later."""
_encode: Final = msgspec.json.Encoder().encode

Submit = Callable[[Append], Awaitable[Outcome]]
SpecOf = Callable[[bytes, int], Awaitable[Deployed | None]]


class Coordinator:
    """`spec_of` is the spec of a tenant at a revision."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        submit: Submit,
        spec_of: SpecOf,
        event_bytes_max: int,
        schema_work_max: int = SCHEMA_WORK_MAX,
    ) -> None:
        self._pool = pool
        self._submit = submit
        self._spec_of = spec_of
        self._event_bytes_max, self._schema_work_max = event_bytes_max, schema_work_max

    async def look(self, tenant: bytes, events: Sequence[Event]) -> list[tuple[object, ...]]:
        """Takes the turns that these events bring; the rows of the sagas whose events are among them, to be
        written with the place behind the events. Raises PostgresTrouble."""
        turns = Turns(partial(self._take_all, tenant))
        changed: dict[bytes, Stands] = {}
        waiting = Waiting()
        for event in events:
            if event.recorded.stream.aggregate_type == SAGA_TYPE:
                found = await self._stands(tenant, event)
                if found is not None:
                    changed[found.id] = found
                    waiting.put(found)
                    await turns.add(await self._next(tenant, found, event))
                continue
            await turns.add(await self._begun(tenant, event))
            await self._came_to(tenant, waiting, event, turns)
        async for others in self._concerned(tenant, events, changed):
            for event in events:
                await self._came_to(tenant, others, event, turns)
        await turns.take()
        return [_row(tenant, each) for each in changed.values()]

    async def late(self, tenant: bytes, looked_at: datetime) -> None:
        """Fails steps that had waited too long at a time up to which all events of the tenant were looked at.
        Raises PostgresTrouble."""
        turns = Turns(partial(self._take_all, tenant))
        for row in await fetch(
            self._pool, "due_sagas", PgUUID(tenant), DUE_AT_ONCE, looked_at, WAITING_BYTES_MAX
        ):
            state = await _read(row["data"])
            saga = await self._saga(tenant, state)
            if saga is not None:
                why = f"Step {saga.steps[state.step].name} timed out."
                stands = Stands(row["id"].bytes, state, row["length"])
                await turns.add([Due(saga, stands, await _failed(saga, state, why), _cause(state))])
        await turns.take()

    async def retry(self, tenant: bytes, saga_id: bytes) -> bool:
        """Compensates a stuck saga once more; False where it is not stuck. Raises PostgresTrouble."""
        stands = await self._stuck(tenant, saga_id)
        saga = None if stands is None else await self._saga(tenant, stands.state)
        if stands is None or saga is None:
            return False
        turn = await _failed(saga, stands.state, stands.state.reason or "")
        await self._take(tenant, Due(saga, stands, turn, _cause(stands.state)))
        return True

    async def abandon(self, tenant: bytes, saga_id: bytes) -> bool:
        """Ends a stuck saga without further compensations; False where it is not stuck. Raises
        PostgresTrouble."""
        stands = await self._stuck(tenant, saga_id)
        saga = None if stands is None else await self._saga(tenant, stands.state)
        if stands is None or saga is None:
            return False
        after = msgspec.structs.replace(stands.state, state="abandoned")
        await self._take(tenant, Due(saga, stands, Turn("_was_abandoned", after), _cause(stands.state)))
        return True

    async def _stuck(self, tenant: bytes, saga_id: bytes) -> Stands | None:
        rows = await fetch(self._pool, "get_saga", PgUUID(tenant), PgUUID(saga_id))
        if not rows or rows[0]["state"] != "stuck":
            return None
        return Stands(saga_id, await _read(rows[0]["data"]), rows[0]["length"])

    # ---- events ----

    async def _concerned(
        self, tenant: bytes, events: Sequence[Event], known: Mapping[bytes, Stands]
    ) -> AsyncIterator[Waiting]:
        """Those that may wait for one of these events, some at a time; those that are `known` from events of
        their own, which are newer, are left out."""
        others = [each.recorded for each in events if each.recorded.stream.aggregate_type != SAGA_TYPE]
        if not others:
            return
        wanted = (
            [each.stream.aggregate_type for each in others], [each.stream.key for each in others],
            [PgUUID(each) for each in {each.event.correlation_id for each in others}],
        )  # fmt: skip
        behind = _FIRST
        while rows := await fetch(
            self._pool, "waiting_sagas", PgUUID(tenant), *wanted, behind, WAITING_AT_ONCE, WAITING_BYTES_MAX
        ):
            waiting = Waiting()
            for row in rows:
                saga_id = row["id"].bytes
                if saga_id not in known:
                    waits = (row["waits_type"], row["waits_key"], frozenset(row["waits_events"]))
                    waiting.put(Stands(saga_id, await _read(row["data"]), row["length"], waits=waits))
            behind = rows[-1]["id"]
            yield waiting

    async def _stands(self, tenant: bytes, event: Event) -> Stands | None:
        """What an event of a saga's stream says."""
        recorded = event.recorded
        data = recorded.event.payload or b"{}"
        state = await _read(data)
        stands = Stands(UUID(recorded.stream.key).bytes, state, recorded.version, event.place.seq, data)
        saga = await self._saga(tenant, state)
        if saga is None or state.state != "running" or state.step < 0:
            return stands
        step, emitted = saga.steps[state.step], state.steps[saga.steps[state.step].name]
        if step.awaited is not None and emitted.awaited is None:
            of = step.awaited.aggregate_type
            key = emitted.key if emitted.aggregate_type == of else None
            stands.waits = (of, key, frozenset(step.awaited.event_types))
            stands.timeout_s = None if step.timeout_ms is None else step.timeout_ms / 1000
        return stands

    async def _next(self, tenant: bytes, stands: Stands, event: Event) -> list[Due]:
        """Its next turn, where nothing has to come first."""
        saga = await self._saga(tenant, stands.state)
        if saga is None or stands.state.state != "running" or stands.waits is not None:
            return []
        failing = _failing(saga, stands.state)
        if failing is not None:
            turn = await _failed(saga, stands.state, failing)
        else:
            turn = await _decided(stands.state, partial(sagas.next_turn, saga, stands.state))
        return [Due(saga, stands, turn, event.recorded.event.id)]

    async def _begun(self, tenant: bytes, event: Event) -> list[Due]:
        """The first turns of the sagas that this event triggers, by the spec that it was appended under."""
        recorded = event.recorded
        deployed = await self._spec_of(tenant, recorded.event.spec_rev)
        if deployed is None:
            return []
        await taking(1 + len(deployed.spec.sagas) // _SAGAS_A_LOOK)
        found = []
        trigger = (recorded.stream.aggregate_type, recorded.event.type)
        for saga in deployed.spec.sagas.values():
            if saga.trigger == trigger:
                await taking(_SAGA_LOOKS)
                cause = recorded.event.id
                correlation = str(UUID(bytes=recorded.event.correlation_id))
                state = sagas.begun(
                    saga, recorded.event.spec_rev, recorded, str(UUID(bytes=cause)), correlation
                )
                stands = Stands(sagas.saga_id(saga.name, cause), state, 0)
                found.append(Due(saga, stands, Turn("_was_started", state), cause))
        return found

    async def _came_to(self, tenant: bytes, waiting: Waiting, event: Event, turns: Turns) -> None:
        await taking(1)
        for each in waiting.take(event):
            await taking(_SAGA_LOOKS)
            await turns.add(await self._came(tenant, each, event))

    async def _came(self, tenant: bytes, stands: Stands, event: Event) -> list[Due]:
        """What a step waits for. That it came is an event of its own: the next turn follows from that."""
        saga = await self._saga(tenant, stands.state)
        if saga is None:
            return []
        said = sagas.said_of(event.recorded, str(UUID(bytes=event.recorded.event.id)))
        after = sagas.awaited(saga, stands.state, said)
        return [Due(saga, stands, Turn("_step_was_awaited", after), event.recorded.event.id)]

    # ---- turns ----

    async def _saga(self, tenant: bytes, state: State) -> Saga | None:
        """As it was declared when it began."""
        deployed = await self._spec_of(tenant, state.spec_rev)
        return None if deployed is None else deployed.spec.sagas.get(state.saga)

    async def _take_all(self, tenant: bytes, due: Sequence[Due]) -> None:
        """Raises PostgresTrouble once all have ended."""
        of: dict[bytes, list[Due]] = {}
        for each in due:
            of.setdefault(each.stands.id, []).append(each)
        room = asyncio.Semaphore(TURNS_AT_ONCE)

        async def in_order(turns: list[Due]) -> None:
            async with room:
                for each in turns:
                    await self._take(tenant, each)

        taken = await asyncio.gather(*map(in_order, of.values()), return_exceptions=True)
        for outcome in taken:
            if outcome is not None:
                raise outcome

    async def _take(self, tenant: bytes, due: Due) -> None:
        """Appends a turn. One that is refused makes the saga fail; one that compensates, makes it stuck."""
        saga, stands, turn, cause = due.saga, due.stands, due.turn, due.cause
        refused = await self._append(tenant, stands, turn, cause)
        if refused is None:
            return
        if turn.said == "_was_compensated":
            turn = sagas.stuck(stands.state, f"It can't be compensated: {refused}")
        else:
            turn = await _failed(saga, stands.state, f"{turn.step} was refused: {refused}")
        again = await self._append(tenant, stands, turn, cause)
        if again is not None:
            why = f"It can't be compensated: {again}"
            await self._append(tenant, stands, sagas.stuck(stands.state, why), cause)

    async def _append(self, tenant: bytes, stands: Stands, turn: Turn, cause: bytes) -> str | None:
        """Why it is refused; None where it was appended, or where the saga went on without it. Raises
        PostgresTrouble where it could not be appended in time: tried again, it is the same append."""
        until = time.monotonic() + APPEND_S
        stream = sagas.stream_of(tenant, str(UUID(bytes=stands.id)))

        def data(streams: Sequence[Stream], ids: Sequence[str]) -> bytes:
            return _encode(sagas.with_emitted(turn, streams, ids))

        while True:
            deployed = await self._spec_of(tenant, 0)
            if deployed is None or deployed.revision < stands.state.spec_rev:
                raise PostgresTrouble("the spec by which a saga began is not known here yet")
            origin = Origin(
                deployed,
                turn.actor,
                UUID(stands.state.correlation_id).bytes,
                cause,
                time.time_ns() // 1_000_000,
                self._event_bytes_max,
                self._schema_work_max,
            )
            make = partial(append_of_saga, origin, stream, stands.length, turn.emissions, (turn.said, data))
            append = await making(turn.size, make, light=are_light(deployed, turn.emissions))
            refused: str | None = None
            if isinstance(append, str):
                refused = append
            else:
                match await self._submit(append):
                    case Appended() | Conflict():
                        return None
                    case NotCommitted() | OutcomeUnknown():
                        pass
                    case outcome:
                        refused = why_refused(outcome)
            if refused is not None and not deployed.removing:
                return refused
            if time.monotonic() >= until:
                raise PostgresTrouble("a turn of a saga could not be appended in time")
            await asyncio.sleep(AGAIN_S)


async def _read(data: bytes) -> State:
    """What was stored, read where that holds up nothing else."""
    return await making(len(data), partial(decode_state, data))


async def _failed(saga: Saga, state: State, reason: str) -> Turn:
    return await _decided(state, partial(sagas.failed, saga, state, reason))


async def _decided(state: State, decide: Callable[[Budget], Turn]) -> Turn:
    """A turn, decided where that holds up nothing else."""

    def work(within: threads.Turn) -> Steps[Turn]:
        yield
        return decide(within.budget)

    return await folding(1, state.size, work)


def _failing(saga: Saga, state: State) -> str | None:
    """Why the newest step has failed by what came, if it has."""
    if state.step < 0:
        return None
    step = saga.steps[state.step]
    came = state.steps[step.name].awaited
    return (
        f"Step {step.name}: {came.type} was appended."
        if came is not None and came.type in step.fail_on
        else None
    )


def _cause(state: State) -> bytes:
    return UUID(state.trigger.id).bytes


def _row(tenant: bytes, stands: Stands) -> tuple[object, ...]:
    of, key, types = stands.waits or (None, None, frozenset[str]())
    return (
        PgUUID(stands.id), PgUUID(tenant), stands.state.saga, stands.state.state, stands.length, stands.seq,
        stands.data, of, key, sorted(types), UUID(stands.state.correlation_id), stands.timeout_s,
    )  # fmt: skip
