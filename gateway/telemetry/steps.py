"""Batches on their way, watched: how large, how long, and for which requests.

Owns: what is measured of one script call or one commit. Tracing is a seam: without it nothing is kept of a
request, and a batch costs two observations.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from prometheus_client import CollectorRegistry, Histogram

from gateway.telemetry.metrics import Metrics

Link = object
"""A request's span, as the tracing that made it knows it."""


class Carried(Protocol):
    """Something in a batch that a request waits for."""

    @property
    def span(self) -> Link | None: ...


class BatchSpan(Protocol):
    def end(self, failure: BaseException | None) -> None: ...


class Tracing(Protocol):
    """Where spans go (gateway/telemetry/tracing.py)."""

    def current(self) -> Link | None:
        """The span of the request that calls; None when it is not recorded."""

    def begin_batch(self, name: str, partition: int, links: Sequence[Link]) -> BatchSpan:
        """A span linked to those of the requests that the batch carries."""


class Step:
    """One of the steps that take many appends at once."""

    def __init__(self, name: str, seconds: Histogram, size: Histogram, tracing: Tracing | None) -> None:
        self.name = name
        self.seconds = seconds
        self.size = size
        self.tracing = tracing

    def of(self, partition: int, size: int, carried: Sequence[Carried]) -> Batch:
        """`with step.of(…):` around the call. `size` is what the step counts; 0 is not counted."""
        return Batch(self, partition, size, carried)


class Batch:
    __slots__ = ("_begun", "_carried", "_partition", "_size", "_span", "_step")

    def __init__(self, step: Step, partition: int, size: int, carried: Sequence[Carried]) -> None:
        self._step = step
        self._partition = partition
        self._size = size
        self._carried = carried
        self._span: BatchSpan | None = None
        self._begun = 0.0

    def __enter__(self) -> None:
        tracing = self._step.tracing
        if tracing is not None:
            # By identity: the appends of one request have its one span.
            links = {id(each.span): each.span for each in self._carried if each.span is not None}
            if links:
                self._span = tracing.begin_batch(self._step.name, self._partition, list(links.values()))
        self._begun = time.perf_counter()

    def __exit__(
        self, _type: type[BaseException] | None, failure: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self._step.seconds.observe(time.perf_counter() - self._begun)
        if self._size:
            self._step.size.observe(self._size)
        if self._span is not None:
            self._span.end(failure)


class Telemetry:
    """What the log is watched with."""

    def __init__(self, metrics: Metrics, tracing: Tracing | None = None) -> None:
        self.metrics = metrics
        self.tracing = tracing
        self.sequencing = Step("sequence", metrics.sequence_s, metrics.sequence_appends, tracing)
        self.committing = Step("commit", metrics.commit_s, metrics.commit_rows, tracing)


def unwatched() -> Telemetry:
    """Counts that are not read, no traces."""
    return Telemetry(Metrics(CollectorRegistry()))
