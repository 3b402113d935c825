"""The specs of tenants as they are deployed, as far as this gateway can read them.

Owns: which spec is used where the newest revision can't be read here, and that this is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from gateway.catalog.model import Deployed, tenant_of
from gateway.catalog.secrets import SecretsOf
from gateway.catalog.specs import closed, readable
from spec.changes import admitted_alike
from spec.errors import Fault, Faults
from spec.model import Spec
from spec.parse import parse_deployed
from spec.subscriptions import PermissiveEnviron

logger = logging.getLogger("sluice.catalog")

FAULTS_TOLD_MAX = 10  # in a log line; `sluice spec check` tells all


class DeclaredSpecs:
    """`of` has the spec of each tenant, `unreadable` the newest revisions that can't be read, or not all of
    them. `secrets_of` has the secrets that specs name."""

    def __init__(self, secrets_of: SecretsOf) -> None:
        self._secrets_of = secrets_of
        self.of: dict[UUID, Deployed] = {}
        self.unreadable: dict[UUID, tuple[int, Faults]] = {}

    def clear(self) -> None:
        self.of.clear()
        self.unreadable.clear()

    def forget(self, tenants: Iterable[UUID]) -> None:
        for tenant in tenants:
            self.of.pop(tenant, None)
            self.unreadable.pop(tenant, None)

    async def follow(self, specs: Sequence[Any], closing: Sequence[Any]) -> dict[UUID, Deployed]:
        """By what is served now: without what is being removed. Specs take long to read, which a thread does;
        then all of them count at once."""
        read = [await asyncio.to_thread(self._read, row) for row in specs]
        # What verifies webhooks does not matter to what is closed.
        removals = [await asyncio.to_thread(_parsed, row["document"]) for row in closing]
        for row, found in zip(specs, read, strict=True):
            self._declare(row, *found)
        serving = dict(self.of)
        for row, following in zip(closing, removals, strict=True):
            tenant_id = tenant_of(row["tenant"].bytes)
            deployed = self.of.get(tenant_id)
            if deployed is not None and not isinstance(following, Faults):
                left = closed(deployed.spec, following)
                serving[tenant_id] = replace(deployed, spec=left, whole=deployed.spec)
        return serving

    def _secrets(self, row: Any) -> PermissiveEnviron:
        """What is deployed stays readable; whether a target may be reached is looked at when it is."""
        return PermissiveEnviron(self._secrets_of(row["name"]))

    def _read(self, row: Any) -> _Read:
        found = _parsed(row["document"], environ := self._secrets(row))
        rest = readable(row["document"], found, environ) if isinstance(found, Faults) else None
        spec = rest[0] if rest is not None else None if isinstance(found, Faults) else found
        before = self.of.get(tenant_of(row["tenant"].bytes))
        if before is None or spec is None:
            return found, rest, {}
        alike = admitted_alike(before.spec, spec)
        return found, rest, {each: before.since.get(each, before.revision) for each in alike}

    def _declare(self, row: Any, found: Spec | Faults, rest: _Rest | None, since: _Since) -> None:
        tenant_id, revision = tenant_of(row["tenant"].bytes), row["revision"]
        document, salt = row["document"], row["salt"]
        told = {"tenant": str(tenant_id), "revision": revision}
        match found:
            case Faults() as faults:
                self.unreadable[tenant_id] = (revision, faults)
                logger.error("spec_unreadable", extra={**told, "faults": _shown(faults)})
                if rest is not None:
                    self.of[tenant_id] = Deployed(revision, rest[0], document, rest[1], salt, since=since)
            case spec:
                if spec.outdated:
                    logger.warning("spec_outdated", extra={**told, "faults": _shown(spec.outdated)})
                if self.unreadable.pop(tenant_id, None) is not None:
                    logger.info("spec_readable", extra=told)
                self.of[tenant_id] = Deployed(revision, spec, document, salt=salt, since=since)


_Rest = tuple[Spec, frozenset[str]]
"""What `readable` leaves of a spec with faults."""
_Since = Mapping[tuple[str, str], int]
_Read = tuple[Spec | Faults, _Rest | None, _Since]


def _parsed(document: bytes, *environ: Mapping[str, str]) -> Spec | Faults:
    """A bug that one tenant's document meets must not keep the specs and keys of all from being followed."""
    try:
        return parse_deployed(document, *environ)
    except Exception as bug:
        logger.exception("task_restarted")
        return Faults((Fault("invalid_value", "", f"A bug: {type(bug).__name__}."),))


def _shown(faults: Sequence[Fault]) -> list[str]:
    """As the log has them."""
    return [f"{fault.pointer}: {fault.code}" for fault in faults[:FAULTS_TOLD_MAX]]
