"""Specs as they are deployed: one revision after the other, a removal only once nothing can be in its way.

Removing is two steps. What the next revision no longer declares is first closed for appends (`spec_closing`)
and, when every gateway follows that, looked for again in the outbox; only then is the revision written. An
append admitted before its gateway closed and committed later than the second look is kept and stays readable.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from gateway.catalog.claim_history import ClaimHistory, claimed_by
from gateway.catalog.closing import close, open_afterwards
from gateway.catalog.database import Database, change, connection, statement
from gateway.catalog.model import CatalogError
from gateway.catalog.spec_examples import upcast_faults
from gateway.catalog.spec_use import Conflict, Notice, Use, of_itself, stored_use
from gateway.catalog.tag_history import look_for_tags
from gateway.partitions import partition_of
from spec.changes import Removal, reclaimed, removals, takings
from spec.document import read
from spec.errors import Faults, Report, TooManyFaults
from spec.model import Spec
from spec.parse import parse_deployed
from spec.webhooks.secrets import masked, restored
from spec.webhooks.sources import MASK

INVALID = "The spec has faults."
CONFLICT = "The spec would refuse or reinterpret what is already stored."

HIDDEN = f'{MASK}"'.encode()

ANY_REVISION = -1

IN_USE_S: Final = 30.0
"""Where an event type has no events, that is found by a look at all of its aggregate type: a second for two
million. An index for that would cost each append."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """This revision is deployed; `changed` is False where it was already."""

    revision: int
    changed: bool
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Not deployed; `revision` still is (0: none)."""

    revision: int
    conflicts: tuple[Conflict, ...]


@dataclass(frozen=True, slots=True)
class RevisionMismatch:
    """Not deployed: the caller expected another revision than `current` (0: none)."""

    current: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The deployed document as it was sent, not yet parsed."""

    revision: int
    document: bytes


Look = Callable[[Spec, str], Awaitable[Faults | None]]
"""Faults that only what is stored tells, their pointers below the one that leads to the spec."""


class InvalidSpec(CatalogError):
    """For callers that can only report; its text has a line for each fault."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        lines = (f"  {fault.pointer or '/'}  {fault.code}  {fault.error}" for fault in faults)
        super().__init__("\n".join((INVALID, *lines)))


async def deploy(
    database: Database,
    tenant_id: UUID,
    document: bytes,
    environ: Mapping[str, str],
    *,
    force: bool = False,
    expect_revision: int | None = None,
    look: Look | None = None,
) -> Accepted | Conflicts | Faults | RevisionMismatch:
    """Makes `document` the tenant's spec; every gateway serves by it within 5 s.

    `environ` holds the secrets that it names, `expect_revision` what the caller thinks is deployed (0: none;
    ANY_REVISION: there is one). With `force` what is stored is not looked at, except by `look`, which is
    asked of every change. Removals take up to a few seconds: see above. Not to be called within a
    transaction. Deployments for one tenant happen one after the other. A secret shown as `***` stands for
    the one that is deployed at its place.
    """
    while True:  # others may give it another secret meanwhile: each turn, one deployment is done
        outcome = await _deploy(
            database, tenant_id, document, environ, force=force, expect_revision=expect_revision, look=look
        )
        if outcome is not None:
            return outcome


async def _deploy(
    database: Database,
    tenant_id: UUID,
    sent: bytes,
    environ: Mapping[str, str],
    *,
    force: bool,
    expect_revision: int | None,
    look: Look | None,
) -> Accepted | Conflicts | Faults | RevisionMismatch | None:
    """None where secrets that it leaves as they are were changed while it waited for its turn."""
    document = await with_secrets(database, tenant_id, sent)
    parsed = await asyncio.to_thread(parse_deployed, document, environ)  # up to seconds
    if isinstance(parsed, Faults):
        return parsed
    digest = digest_of(document)
    async with (
        connection(database) as conn, _turn(conn, tenant_id), open_afterwards(conn, tenant_id),
    ):  # fmt: skip
        if await with_secrets(conn, tenant_id, sent) != document:
            return None
        current = await stored(conn, tenant_id)
        revision = current.revision if current else 0
        unchanged = current is not None and digest_of(current.document) == digest
        if parsed.outdated and not unchanged:
            return Faults(parsed.outdated)
        if not _as_expected(revision, expect_revision):
            return RevisionMismatch(revision)
        if unchanged:
            return Accepted(revision, changed=False)
        faults = None if look is None else await look(parsed, pointer_of(document))
        faults = faults or await upcast_faults(conn, tenant_id, parsed, pointer_of(document))
        if faults is not None:
            return faults
        notices = await asyncio.to_thread(of_itself, parsed)
        if current is not None and not force:
            deployed = await readable_now(current)
            if isinstance(deployed, Conflict):
                return Conflicts(revision, (deployed,))
            use = await stored_use(conn, tenant_id, deployed, parsed)
            await look_for_tags(conn, tenant_id, deployed, parsed, use)
            conflicts = await _remove(conn, tenant_id, document, deployed, parsed, use.conflicts)
            if conflicts:
                return Conflicts(revision, conflicts)
            notices += tuple(use.notices)
        history = None
        before = None if current is None else await readable_now(current)
        if isinstance(before, Spec):
            history = await claimed_by(conn, tenant_id, before, parsed, force=force)
            if history is not None and history.collisions and not force:
                return Conflicts(revision, tuple(history.collisions))
        async with change(conn) as (_, clock):
            if history is not None:
                await history.write(conn)
            await conn.execute("DELETE FROM spec_closing WHERE tenant = $1", tenant_id)
            await conn.execute(statement("create_spec"), tenant_id, revision + 1, document, digest, clock)
            if parsed.reacts and (current is None or (isinstance(before, Spec) and not before.reacts)):
                await _begin_reacting(conn, tenant_id)
    return Accepted(revision + 1, True, notices)


async def _begin_reacting(conn: Any, tenant_id: UUID) -> None:
    """Events set timers and begin sagas by the spec that they were appended under, so none that is committed
    does: reactions begin behind them."""
    p = partition_of(tenant_id.bytes, await conn.fetchval("SELECT partitions FROM instance"))
    await conn.execute(statement("begin_reacting"), tenant_id, p)


async def readable_now(current: Stored) -> Spec | Conflict:
    """What is deployed, or why it can't be compared. What verifies webhooks does not matter here."""
    deployed = await asyncio.to_thread(parse_deployed, current.document)
    return _unreadable(current, deployed) if isinstance(deployed, Faults) else deployed


async def in_the_way(conn: Any, tenant_id: UUID, deployed: Spec, following: Spec) -> Use:
    """What is stored and in the way of `following` now, and what it reads differently. Changes nothing."""
    use = await stored_use(conn, tenant_id, deployed, following)
    await look_for_tags(conn, tenant_id, deployed, following, use)
    gone = (*removals(deployed, following), *takings(deployed, following))
    history = ClaimHistory(tenant_id, following, reclaimed(deployed, following))
    if history.of_any:
        await history.read_on(conn)
    conflicts = [*await _in_use(conn, tenant_id, gone), *use.conflicts, *history.collisions]
    return Use(conflicts, use.notices)


def pointer_of(document: bytes) -> str:
    """To the spec in a document that may be wrapped."""
    return "/spec" if "spec" in msgspec.json.decode(document, type=dict[str, msgspec.Raw]) else ""


def _as_expected(revision: int, expected: int | None) -> bool:
    if expected is None:
        return True
    return revision > 0 if expected == ANY_REVISION else revision == expected


def stale(current: int) -> str:
    """The sentence of a RevisionMismatch."""
    if not current:
        return "No spec is deployed yet."
    return f"Revision {current} is deployed, not the one expected."


async def stored(database: Database, tenant_id: UUID) -> Stored | None:
    """What is deployed; None where the tenant has no spec."""
    async with connection(database) as conn:
        row = await conn.fetchrow(statement("current_spec"), tenant_id)
    return Stored(row["revision"], row["document"]) if row else None


async def current_revision(database: Database, tenant_id: UUID) -> int:
    """The number of the deployed revision, 0 where the tenant has no spec."""
    current = await stored(database, tenant_id)
    return current.revision if current else 0


def declared_events(document: bytes) -> dict[str, list[str]]:
    """The names of the event types by aggregate type, of a deployed document."""
    read = msgspec.json.decode(document)
    types = read.get("spec", read)["aggregate_types"]
    return {name: list(declared["events"]) for name, declared in types.items()}


def bare(document: bytes, *, queries_hidden: bool = False) -> bytes:
    """The spec of a document that may be wrapped as `{"spec": {…}}`: JSON text in one line, each token as it
    was sent, but secrets as `***`, and if asked the queries of targets."""
    wrapped = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    spec = bytes(wrapped.get("spec", document))
    members = msgspec.json.decode(spec, type=dict[str, msgspec.Raw])
    if any(part in members for part in _WITH_SECRETS):
        spec = _with_parts(members, partial(masked, queries=queries_hidden))
    return msgspec.json.format(spec, indent=-1)


_WITH_SECRETS = ("webhooks", "subscriptions")
_PART = re.compile("(?:/spec)?/(webhooks|subscriptions)/([^/]+)(?:/.*)?")


def _with_parts(members: dict[str, msgspec.Raw], change: Callable[[object], object]) -> bytes:
    """A spec with the parts that may hold secrets changed, the rest as it was sent."""
    changed: Any = change(
        {part: msgspec.json.decode(members[part]) for part in _WITH_SECRETS if part in members}
    )
    parts = {part: msgspec.Raw(msgspec.json.encode(value)) for part, value in changed.items()}
    return msgspec.json.encode({**members, **parts})


async def with_secrets(database: Database, tenant_id: UUID, document: bytes) -> bytes:
    """The document with the secrets that are deployed in place of each `***`, bare or wrapped as it was, all
    else as it was sent; itself where it has none, or can't be read, which parsing it says better."""
    if HIDDEN not in document:
        return document
    current = await stored(database, tenant_id)
    if current is None:
        return document
    return await asyncio.to_thread(_restored, document, current.document)  # up to seconds


def _restored(document: bytes, current: bytes) -> bytes:
    if not _is_readable(document):
        return document
    try:
        wrapped = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
        members = msgspec.json.decode(wrapped.get("spec", document), type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:  # not objects
        return document
    if not any(part in members for part in _WITH_SECRETS):
        return document
    earlier = msgspec.json.decode(current)
    spec = _with_parts(members, lambda value: restored(value, earlier.get("spec", earlier)))
    return msgspec.json.encode({**wrapped, "spec": msgspec.Raw(spec)}) if "spec" in wrapped else spec


def _is_readable(document: bytes) -> bool:
    """Whether it is JSON, and lawful: no key twice, no number out of range."""
    report = Report()
    with suppress(TooManyFaults):
        read(document, report)
    return not len(report)


def digest_of(document: bytes) -> bytes:
    """SHA-256 of a spec without the white space between its tokens, wrapped as `{"spec": {…}}` or not."""
    spec = msgspec.json.decode(document, type=dict[str, msgspec.Raw]).get("spec", document)
    return hashlib.sha256(msgspec.json.format(bytes(spec), indent=-1)).digest()


def readable(
    document: bytes, faults: Faults, environ: Mapping[str, str]
) -> tuple[Spec, frozenset[str]] | None:
    """The spec without its sources of webhooks and subscriptions that have these faults, as where a secret is
    not set, and the names of those sources. None where anything else is wrong with it."""
    places = [_PART.fullmatch(fault.pointer) for fault in faults]
    if None in places:
        return None
    value = msgspec.json.decode(document)
    spec = value.get("spec", value)
    for part, name in {place.groups() for place in places if place}:
        spec[part].pop(name, None)
    found = parse_deployed(value, environ)
    if isinstance(found, Faults):
        return None
    return found, frozenset(place[2] for place in places if place and place[1] == "webhooks")


def closed(spec: Spec, following: Spec) -> Spec:
    """`spec` without the types, events and singletons that `following` no longer has: what is served by while
    they are being removed."""
    kept = following.aggregate_types
    types = {
        name: replace(
            declared,
            events=MappingProxyType({e: t for e, t in declared.events.items() if e in kept[name].events}),
            closed=frozenset(declared.events.keys() - kept[name].events),
        )
        for name, declared in spec.aggregate_types.items()
        if name in kept
    }
    return replace(
        spec,
        aggregate_types=MappingProxyType(types),
        closed=frozenset(spec.aggregate_types.keys() - kept),
        singletons=spec.singletons & following.singletons,
        singleton_list=tuple(name for name in spec.singleton_list if name in following.singletons),
    )


async def _remove(
    conn: Any,
    tenant_id: UUID,
    document: bytes,
    deployed: Spec,
    following: Spec,
    others: Sequence[Conflict],
) -> tuple[Conflict, ...]:
    """Both steps of removing what `following` no longer has; the conflicts that keep it from going, with
    those that were found before."""
    removed = removals(deployed, following)
    conflicts = (*await _in_use(conn, tenant_id, (*removed, *takings(deployed, following))), *others)
    if conflicts or not removed:
        return conflicts
    await close(conn, tenant_id, document)
    return await _in_use(conn, tenant_id, removed)


async def _in_use(conn: Any, tenant_id: UUID, removed: Sequence[Removal]) -> tuple[Conflict, ...]:
    kinds = [removal.kind for removal in removed]
    first, second = ([removal.names[n : n + 1] for removal in removed] for n in (0, 1))
    rows = await conn.fetch(
        statement("in_use"),
        tenant_id,
        kinds,
        [name for (name,) in first],
        [(*name, None)[0] for name in second],
        timeout=IN_USE_S,
    )
    return tuple(_conflict(removed[row["n"] - 1], row["given"]) for row in rows)


def _conflict(removal: Removal, given: str | None) -> Conflict:
    match removal.kind, removal.names:
        case "aggregate_type", (name,):
            error = f"Aggregate type {name} has events."
        case "event_type", (name, event):
            error = f"Aggregate type {name} has {event} events."
        case "public_key", (name,):
            error = (
                f"Aggregates have public ids with the key {given}; {name} can't replace it. "
                "Without `public_ids` no more are assigned."
            )
        case _, (name, *_):
            error = f"Singleton {name} has a stream."
    return Conflict(removal.pointer, error)


def _unreadable(current: Stored, faults: Faults) -> Conflict:
    place = faults[0].pointer or "/"
    return Conflict(
        "",
        f"Revision {current.revision}, which is deployed, can't be read here, so it is unknown what this one "
        f"would remove ({place}: {faults[0].error})",
    )


def between_deployments(conn: Any, tenant_id: UUID) -> AbstractAsyncContextManager[None]:
    """For a process that follows no deployments: while it is in it, those of the tenant wait."""
    return _turn(conn, tenant_id, "_shared")


@asynccontextmanager
async def _turn(conn: Any, tenant_id: UUID, kind: Literal["", "_shared"] = "") -> AsyncIterator[None]:
    """Deployments of a tenant, one at a time. The lock is the session's: a removal takes two transactions."""
    key = f"sluice.spec.{tenant_id}"
    try:
        await conn.execute(f"SELECT pg_advisory_lock{kind}(hashtextextended($1, 0))", key)
        yield
        await conn.execute(f"SELECT pg_advisory_unlock{kind}(hashtextextended($1, 0))", key)
    except BaseException:  # whether it is held is not known: no pool gets a connection that may have it
        conn.terminate()
        raise
