"""The log, behind a last look at each append: one that the spec of this moment would admit otherwise, or that
is of a tenant which is suspended or going, is not placed.

Between a request and this look lie the states that rules read, other appends of the aggregate, names that are
looked up; a deployment, and a deletion, wait only for what the log has (docs/decisions/0045). Must not know:
what an append waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from gateway.aggregates.judging import DeployedOf, is_current
from gateway.appends import Append
from gateway.catalog.model import tenant_of
from gateway.log.append.pending import Link, Waiter
from gateway.log.log import Log
from gateway.outcomes import NotCommitted, Outcome
from gateway.telemetry.metrics import Metrics

_OTHERWISE: Final = NotCommitted("a deployment changes, or has changed, how its events are admitted")
_RESTING: Final = NotCommitted("its tenant is suspended or deleted")


class Placing:
    """`rests`: whether a tenant is suspended, or going."""

    def __init__(
        self, log: Log, deployed_of: DeployedOf, metrics: Metrics, rests: Callable[[UUID], bool]
    ) -> None:
        self._log = log
        self._deployed_of = deployed_of
        self._metrics = metrics
        self._rests = rests
        self._loop = asyncio.get_running_loop()

    def append(self, append: Append) -> asyncio.Future[Outcome]:
        """As the log's."""
        refused = self._refused(append)
        if refused is None:
            return self._log.append(append)
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self._tell(future, refused)
        return future

    def append_each(self, tenant: bytes, asked: Iterable[tuple[Append, Waiter]]) -> None:
        """As the log's."""
        taken: list[tuple[Append, Waiter]] = []
        for append, waiter in asked:
            refused = self._refused(append)
            if refused is None:
                taken.append((append, waiter))
            else:
                self._tell(waiter, refused)
        self._log.append_each(tenant, taken)

    def append_linked(self, append: Append, waiter: Waiter, link: Link, deadline: float) -> None:
        """As the log's."""
        refused = self._refused(append)
        if refused is None:
            self._log.append_linked(append, waiter, link, deadline)
        else:
            self._tell(waiter, refused)

    def _refused(self, append: Append) -> NotCommitted | None:
        tenant = tenant_of(append.stream.tenant)
        deployed = self._deployed_of(tenant)
        if deployed is not None and not is_current(append, deployed):
            return _OTHERWISE
        return _RESTING if self._rests(tenant) else None

    def _tell(self, waiter: Waiter, refused: NotCommitted) -> None:
        """What the log has not counted."""
        if not waiter.done():
            waiter.set_result(refused)
            self._metrics.told(refused)
