"""The object that a gateway counts with: one counter or histogram for each row of the table of metrics.

An append pays less than a microsecond: a batch of appends is counted by one call, on children that are bound
once; requests are counted in a plain dictionary, which is read when the metrics are scraped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway import __version__
from gateway.appends import Appended
from gateway.outcomes import (
    ConditionFailed,
    Conflict,
    Declined,
    ImplicationRefused,
    Mismatch,
    NotCommitted,
    NotUnique,
    Outcome,
    OutcomeUnknown,
    Quarantined,
    RuleViolated,
    Unchanged,
    UnknownPosition,
)
from gateway.telemetry.log_events import LOG_EVENTS
from gateway.telemetry.metric_rows import METRICS
from gateway.telemetry.tallies import WebhookCounts, WebhookTallies, counted
from spec.tables import complete
from spec.targets.table import SENT

Limit = Literal[
    "requests", "rate", "unknown_keys", "look_ups", "bodies", "connections", "unread", "write_timeout",
    "followers", "filters",
]  # fmt: skip
"""What refuses more than a setting allows."""

AUDITED: Final = ("rows", "order", "chain", "tenants")
"""Invariants that the audit beside a gateway's work looks at."""

Delivery = Literal["confirmed", "failed", "gone"]
"""What became of an attempt to deliver an event."""

DELIVERIES: Final[tuple[Delivery, ...]] = get_args(Delivery)

_OUTCOMES: Final[Mapping[type[Outcome], str]] = complete(
    get_args(Outcome),
    {
        Appended: "committed",
        Conflict: "conflict",
        ConditionFailed: "condition_failed",
        UnknownPosition: "unknown_position",
        RuleViolated: "rule_violated",
        NotUnique: "not_unique",
        ImplicationRefused: "implication_refused",
        Mismatch: "mismatch",
        NotCommitted: "not_committed",
        OutcomeUnknown: "unknown",
        Quarantined: "quarantined",
        Unchanged: "unchanged",
        Declined: "declined",
    },
)
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


@dataclass(frozen=True, slots=True)
class Reading:
    """A gauge's value at this moment, its labels in the order of its row."""

    metric: str
    value: float
    labels: tuple[str, ...] = ()


class Metrics:
    """Counts for one gateway, in `registry`. Labels are bound here, once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        ProcessCollector(registry=registry)
        outcomes = _counter(registry, "sluice_appends_total")
        self._outcomes = {outcome: outcomes.labels(word) for outcome, word in _OUTCOMES.items()}
        self._committed = self._outcomes[Appended]
        self._replayed = outcomes.labels("replayed")
        self._events = _counter(registry, "sluice_events_committed_total")
        self._wait_s = _histogram(registry, "sluice_append_wait_seconds")
        self.sequence_appends = _histogram(registry, "sluice_sequence_batch_appends")
        self.sequence_s = _histogram(registry, "sluice_sequence_seconds")
        self.commit_rows = _histogram(registry, "sluice_commit_batch_rows")
        self.commit_s = _histogram(registry, "sluice_commit_seconds")
        swaps = _counter(registry, "sluice_commit_swaps_total")
        self.swaps_succeeded, self.swaps_failed = swaps.labels("succeeded"), swaps.labels("failed")
        self.swaps_unanswered = swaps.labels("unanswered")
        self.busy_appends = _counter(registry, "sluice_busy_appends_total")
        kept = _counter(registry, "sluice_kept_states_total")
        self.kept_written, self.kept_used = kept.labels("written"), kept.labels("used")
        self.judged_again = _counter(registry, "sluice_rules_judged_again_total")
        epochs = _counter(registry, "sluice_epoch_changes_total")
        self.sealed = epochs.labels("sealed")
        self.swept_appends = _counter(registry, "sluice_swept_appends_total")
        self.cold_streams = _counter(registry, "sluice_cold_streams_total")
        self.streams_evicted = _counter(registry, "sluice_streams_evicted_total")
        self.streams_cleared = _counter(registry, "sluice_streams_cleared_total")
        self.identity_lookups = _counter(registry, "sluice_identity_lookups_total")
        reads = _counter(registry, "sluice_reads_total")
        self.reads_redis, self.reads_postgres = reads.labels("redis"), reads.labels("postgres")
        limited = _counter(registry, "sluice_limited_total")
        self.limited: Final[dict[Limit, Counter]] = {
            limit: limited.labels(limit) for limit in get_args(Limit)
        }
        self.loop_lag_s = _histogram(registry, "sluice_loop_lag_seconds")
        self.audit_rows = _counter(registry, "sluice_audit_rows_total")
        self.audit_passes = _counter(registry, "sluice_audit_passes_total")
        violations = _counter(registry, "sluice_audit_violations_total")
        self.audit_violations = {kind: violations.labels(kind) for kind in AUDITED}
        self._webhooks = WebhookTallies(METRICS)
        registry.register(self._webhooks)
        lines = _counter(registry, "sluice_log_events_total")
        self._lines = {event: lines.labels(event) for event in LOG_EVENTS}
        build = METRICS["sluice_build_info"]
        Gauge(build.name, build.meaning, build.labels, registry=registry).labels(__version__).set(1)
        self.responses: defaultdict[tuple[str, int], int] = defaultdict(int)
        """Answers by method and status, as they were begun."""
        deliveries = _counter(registry, "sluice_relay_deliveries_total")
        self._deliveries: dict[tuple[str, Delivery], Counter] = {
            (target, outcome): deliveries.labels(target, outcome) for target in SENT for outcome in DELIVERIES
        }
        self._sources: list[Callable[[], Iterable[Reading]]] = []
        registry.register(_AtScrape(self.responses, self._sources))

    def told(self, outcome: Outcome) -> None:
        """A caller was given this outcome. Those of a commit are counted together: `committed`."""
        if type(outcome) is Appended and outcome.replayed:
            self._replayed.inc()
        else:
            self._outcomes[type(outcome)].inc()

    def committed(self, appends: int, events: int, wait_s: float) -> None:
        """So many callers were answered by one commit; `events` counts also what no caller waited for any
        more, `wait_s` is the longest wait."""
        self._committed.inc(appends)
        self._events.inc(events)
        self._wait_s.observe(wait_s)

    def delivered(self, target: str, outcome: Delivery) -> None:
        """The relay tried to deliver an event."""
        self._deliveries[target, outcome].inc()

    def logged(self, event: str) -> None:
        self._lines[event].inc()

    def webhooks(self, tenant: str, source: str) -> WebhookCounts:
        """Those of one source that a deployed spec declares: never a name out of a request."""
        return self._webhooks.of(tenant, source)

    def read(self) -> Collector:
        """All of it as it is now, to be written by another thread: what is looked at is this thread's."""
        return _Read(list(self.registry.collect()))

    def read_at_scrape(self, source: Callable[[], Iterable[Reading]]) -> None:
        """`source` is called whenever the metrics are asked for."""
        self._sources.append(source)


class _Read(Collector):
    """Metrics as they were read."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Sequence[Metric]:
        return self._metrics


class _AtScrape(Collector):
    """What is not counted but looked at, when scraped."""

    def __init__(
        self, responses: dict[tuple[str, int], int], sources: list[Callable[[], Iterable[Reading]]]
    ) -> None:
        self._responses = responses
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        yield self._told_responses()
        gauges: dict[str, GaugeMetricFamily] = {}
        for source in self._sources:
            for reading in source():
                row = METRICS[reading.metric]
                if row.name not in gauges:
                    gauges[row.name] = GaugeMetricFamily(row.name, row.meaning, labels=row.labels)
                gauges[row.name].add_metric(reading.labels, reading.value)
        yield from gauges.values()

    def _told_responses(self) -> Metric:
        told: defaultdict[tuple[str, ...], int] = defaultdict(int)
        for (method, status), count in self._responses.items():
            told[method if method in _METHODS else "other", str(status)] += count
        return counted(METRICS["sluice_http_responses_total"], told)


def _counter(registry: CollectorRegistry, name: str) -> Counter:
    row = METRICS[name]
    return Counter(row.name, row.meaning, row.labels, registry=registry)


def _histogram(registry: CollectorRegistry, name: str) -> Histogram:
    row = METRICS[name]
    return Histogram(row.name, row.meaning, row.labels, registry=registry, buckets=row.buckets)
