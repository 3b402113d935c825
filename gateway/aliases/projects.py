"""Projects: the key that each claims, once, and which project an aggregate is of.

Owns the claims. A key is claimed before its project's first event is written, so that two can't have one; the
claim of a project that was never written is given up. What is claimed never changes, whatever a spec says
later. Numbers are given as all names are (assigner.py).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg

from gateway.aggregates.records import of_projects
from gateway.aliases.kinds import Aggregate, value_at
from gateway.aliases.store import ACQUIRE_S, Snapshot, statement
from gateway.appends import Append
from gateway.catalog.model import Deployed
from gateway.errors import Refusal
from gateway.events import Stream
from gateway.json_values import decode_data
from gateway.log.log import Log
from gateway.names.aliases import SIGIL, Malformed, parse_alias
from gateway.outcomes import Declined, NotCommitted
from gateway.postgres.connection_errors import mapped_to
from gateway.postgres.errors import PostgresTrouble
from spec.handlers import Path, Root
from spec.identifiers import canonicalize
from spec.model import Spec
from spec.names import PUBLIC_KEY_GRAMMAR, Projects

_KEY: Final = re.compile(PUBLIC_KEY_GRAMMAR)
_GIVEN_UP_S: Final = 5
"""When to try again: a claim of a project that is not written is given up after a minute."""

StateOf = Callable[[Stream, Deployed], Awaitable[object]]
"""The state of an aggregate, decoded. Raises PostgresTrouble."""


class ProjectKeys:
    """`pool` is the log's; `state_of` tells the states that `^` looks into."""

    def __init__(self, log: Log, pool: asyncpg.Pool, state_of: StateOf) -> None:
        self._log = log
        self._pool = pool
        self._state_of = state_of

    async def refused(self, spec: Spec, append: Append) -> Declined | NotCommitted | None:
        """Why an append may not create its projects: one has no key, or another's. Claims the keys otherwise.
        Raises PostgresTrouble."""
        public = spec.public_ids
        if public is None or public.projects is None:
            return None
        for which, begins in enumerate(of_projects(public.projects, append)):
            refused = await self._one_refused(public.projects, public.key, append, which) if begins else None
            if refused is not None:
                return refused if isinstance(refused, NotCommitted) else Declined(refused)
        return None

    async def _one_refused(
        self, projects: Projects, own: str | None, append: Append, which: int
    ) -> Refusal | NotCommitted | None:
        """Of the stream of that number. `own` is the key of the tenant's other public ids."""
        stream = append.streams[which]
        if await self._log.length(stream):
            return None
        first = 0 if append.spread is None else append.spread.order.index(which)
        key = value_at(projects.key, decode_data(append.events[first].payload or b"null"))
        data = "data" if append.is_single else f"events[{first}].data"
        path = ".".join([data, *map(str, projects.key.fields)])
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            why = f"A project's key is `{PUBLIC_KEY_GRAMMAR}`: 2 to 10 of A-Z and 0-9, a letter first."
            return Refusal("invalid_field", why, path)
        if key == own:
            why = f"The key {key} is that of the tenant's public ids without a project."
            return Refusal("key_taken", why, path)
        holder = await self._claimed(stream, key, projects)
        if holder == stream.key:
            return None
        if holder is None:
            return Refusal("key_taken", f"The key {key} belongs to a project of another tenant.", path)
        other = Stream(stream.tenant, projects.type, holder)
        if other not in append.streams and not await self._log.length(other):
            # Which is perhaps this request, sent before, with another key that was made for its project.
            return NotCommitted(
                f"another append was about to create a project with the key {key}", _GIVEN_UP_S
            )
        return Refusal("key_taken", f"The key {key} belongs to the {projects.type} {holder}.", path)

    async def keys_of(
        self, at: Snapshot, projects: Projects, aggregates: Sequence[Aggregate], deployed: Deployed
    ) -> dict[Aggregate, str]:
        """The keys of the projects that aggregates are of, in their order; without those that are of none."""
        paths, tenant = dict(projects.members), UUID(bytes=at.tenant)
        data = await at.first_data(aggregates)
        of: dict[Aggregate, str] = {}
        for each in aggregates:
            named = await self._named(at.tenant, each, paths[each[0]], data.get(each), deployed)
            if named is not None:
                of[each] = named
        keys = await at.project_keys(sorted(set(of.values())))
        for project in sorted(set(of.values()) - keys.keys()):
            found = await self._late(at, tenant, project, projects)
            if found is not None:
                keys[project] = found
        return {each: keys[project] for each, project in of.items() if project in keys}

    async def _named(
        self, tenant: bytes, aggregate: Aggregate, path: Path, data: object, deployed: Deployed
    ) -> str | None:
        """The key of the aggregate's project."""
        if path.root == Root.AGGREGATE:
            data = await self._state_of(Stream(tenant, *aggregate), deployed)
        found = value_at(path, data)
        if not isinstance(found, str):
            return None
        if found.startswith(SIGIL):
            return await self._aliased(tenant, found)
        return canonicalize(found, deployed.spec.singletons)

    async def _aliased(self, tenant: bytes, text: str) -> str | None:
        alias = parse_alias(text.removeprefix(SIGIL))
        if isinstance(alias, Malformed):
            return None
        rows = await self._fetch(
            "find_alias", UUID(bytes=tenant), alias.kind, alias.prefix, alias.body, alias.path, None
        )
        return rows[0]["aggregate_id"] if len(rows) == 1 else None

    async def _late(self, at: Snapshot, tenant: UUID, project: str, projects: Projects) -> str | None:
        """The key of a project that was written before its spec declared projects, or in another way than by
        an append of its own: it claims it now, if it is free."""
        data = (await at.first_data([(projects.type, project)])).get((projects.type, project))
        key = value_at(projects.key, data)
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            return None
        holder = await self._claimed(Stream(at.tenant, projects.type, project), key, projects)
        return key if holder == project else None

    async def _claimed(self, stream: Stream, key: str, projects: Projects) -> str | None:
        """Which project of the tenant has the key once this one has asked for it; None: one of another."""
        tenant = UUID(bytes=stream.tenant)
        found: str | None = None
        for _ in range(2):  # the first may have given up what was in the way
            args = (tenant, key, stream.key, projects.type, projects.everywhere)
            await self._fetch("claim_project_key", *args)
            rows = await self._fetch("find_project", tenant, key, stream.key)
            found = {row["key"]: row["aggregate_id"] for row in rows}.get(key)
            if found == stream.key:
                break
        return found

    async def _fetch(self, name: str, *args: object) -> list[Any]:
        with mapped_to(PostgresTrouble, "names: "):
            async with self._pool.acquire(timeout=ACQUIRE_S) as conn:
                return list(await conn.fetch(statement(name), *args))
