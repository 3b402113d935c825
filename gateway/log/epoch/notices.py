"""Log lines for events that are noticed often: a server that does not answer, partitions that changed
together."""

from __future__ import annotations

import logging
import time

from gateway.telemetry.metrics import Metrics

logger = logging.getLogger("sluice.log")

FIRST_EPOCH = 1
"""What `sluice migrate` begins a partition with. A seal of it with nothing committed is an installation."""


class Outage:
    """Whether a server answers. Its loss is logged when it is noticed first, its return once."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._since: float | None = None

    @property
    def lasts(self) -> bool:
        return self._since is not None

    def noticed(self, why: str) -> None:
        if self._since is None:
            self._since = time.monotonic()
            logger.error("backend_unavailable", extra={"server": self._server, "reason": why})

    def over(self) -> None:
        if self._since is not None:
            after_s = time.monotonic() - self._since
            self._since = None
            logger.warning("backend_recovered", extra={"server": self._server, "after_s": after_s})


class EpochChanges:
    """Gathers what became of partitions until `tell`: all of them change together when Redis does."""

    def __init__(self, metrics: Metrics, partitions: int) -> None:
        self._metrics = metrics
        self._unopened = partitions
        self._begun = time.monotonic()
        self._sealed: list[int] = []
        self._installed = 0
        self._kept_by: list[str] = []
        self._direct: list[int] = []
        self._returned: list[int] = []

    def sealed(self, partition: int, epoch: int, seq: int) -> None:
        """`epoch` ended with `seq` committed, and the next one was begun in Redis."""
        self._metrics.sealed.inc()
        if epoch == FIRST_EPOCH and seq == 0:
            self._installed += 1
        else:
            self._sealed.append(partition)

    def mode(self, partition: int, *, direct: bool) -> None:
        """Appends to it take no Redis from now on; or take it again."""
        (self._direct if direct else self._returned).append(partition)

    def kept_by(self, gateways: list[str]) -> None:
        """The gateways that can't reach Redis though this one can. Logged when they change."""
        if gateways and gateways != self._kept_by:
            logger.warning("direct_mode_held_by_peer", extra={"gateways": gateways})
        self._kept_by = gateways

    def tell(self, opened: int) -> None:
        """Logs what was gathered, a line a kind; and that all partitions are open, the first time."""
        if self._sealed:
            logger.warning("partitions_sealed", extra={"partitions": sorted(self._sealed)})
        self._sealed = []
        if self._direct:
            logger.warning("direct_mode_begun", extra={"partitions": sorted(self._direct)})
        if self._returned:
            logger.warning("direct_mode_ended", extra={"partitions": sorted(self._returned)})
        self._direct, self._returned = [], []
        if self._unopened and opened == self._unopened:
            after_s = time.monotonic() - self._begun
            told = {"partitions": opened, "installed": self._installed, "after_s": after_s}
            self._unopened = 0
            logger.info("partitions_opened", extra=told)
