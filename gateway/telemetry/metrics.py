"""Every metric of a gateway, in one table, and the object that the rest of the gateway counts with.

Owns: names, labels, buckets. No label is taken out of a request, so the number of series is bounded by the
number of partitions and of declared sources of webhooks. What an append pays is less than a microsecond: it
is counted by the batch, with children bound once, and requests in a plain dictionary that is read when
somebody asks. docs/observability.md shows the table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway import __version__
from gateway.events import (
    Appended,
    Conflict,
    Mismatch,
    NotCommitted,
    Outcome,
    OutcomeUnknown,
    Quarantined,
)
from gateway.telemetry.log_events import LOG_EVENTS
from gateway.telemetry.tallies import WebhookCounts, WebhookTallies, counted
from spec.subscriptions import KINDS, Kind
from spec.tables import complete

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_COUNTS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One row. A histogram has `buckets`; a counter's name ends in `_total`, as it is scraped."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str
    watch: str
    buckets: tuple[float, ...] = ()


_ROWS: Final = (
    MetricRow(
        "sluice_appends_total",
        "counter",
        ("outcome",),
        "Appends by what their callers were told: committed, replayed, conflict, mismatch, not_committed, "
        "unknown, quarantined.",
        "The rate of not_committed and unknown: 0 while Redis and Postgres are well. Any quarantined.",
    ),
    MetricRow(
        "sluice_events_committed_total",
        "counter",
        (),
        "Events that this gateway committed for its own callers.",
        "The load.",
    ),
    MetricRow(
        "sluice_append_wait_seconds",
        "histogram",
        (),
        "From admission to the answer, of the append of each commit that waited longest.",
        "Its 0.99 quantile is an upper bound for callers'. Above a second: see which of sequence and commit.",
        _SECONDS,
    ),
    MetricRow(
        "sluice_sequence_batch_appends",
        "histogram",
        (),
        "Appends a script call.",
        "It grows with load: large batches are the design, not a fault.",
        _COUNTS,
    ),
    MetricRow(
        "sluice_sequence_seconds",
        "histogram",
        (),
        "A script call, from sending it to its answer or failure.",
        "Above 10 ms: Redis is busy with something else, or far away.",
        _SECONDS,
    ),
    MetricRow(
        "sluice_commit_batch_rows",
        "histogram",
        (),
        "Rows a commit.",
        "At SLUICE_COMMIT_ROWS_MAX all the time: Postgres is the limit.",
        _COUNTS,
    ),
    MetricRow(
        "sluice_commit_seconds",
        "histogram",
        (),
        "A commit, from sending it to its answer or failure.",
        "Above 100 ms: Postgres' disk, or a synchronous standby.",
        _SECONDS,
    ),
    MetricRow(
        "sluice_commit_swaps_total",
        "counter",
        ("result",),
        "Commits by their outcome: succeeded, failed (another gateway was faster, or has yet to commit what "
        "comes before), unanswered.",
        "failed above succeeded: too many gateways share a partition. Any rate of unanswered.",
    ),
    MetricRow(
        "sluice_feed_followers",
        "gauge",
        (),
        "Who follows the feed live here: server-sent events, and requests that wait.",
        "More than this gateway was measured with: they are told of commits later and later.",
    ),
    MetricRow(
        "sluice_queue_appends",
        "gauge",
        (),
        "Appends that wait to be sequenced.",
        "Grows for minutes: more comes in than is committed.",
    ),
    MetricRow(
        "sluice_queue_bytes",
        "gauge",
        (),
        "What they hold of memory. Beyond SLUICE_QUEUE_BYTES_MAX, or a quarter of it in one partition, "
        "appends are refused.",
        "As above.",
    ),
    MetricRow(
        "sluice_busy_appends_total",
        "counter",
        (),
        "Times that an append had to wait because SLUICE_INFLIGHT_EVENTS_MAX events were not committed yet.",
        "Any steady rate: Postgres is behind.",
    ),
    MetricRow(
        "sluice_watermark_lag_events",
        "gauge",
        ("partition",),
        "Events sequenced in Redis and not yet marked as committed there (q - c), by whichever gateway; "
        "absent while Redis does not answer.",
        "Above 0 for seconds without load, or growing: nobody commits. See sluice_backend_up.",
    ),
    MetricRow(
        "sluice_direct_mode",
        "gauge",
        ("partition",),
        "1 while appends to the partition go through Postgres alone, because some gateway can't reach Redis; "
        "else 0.",
        "1 for longer than a minute: slower appends, and Postgres serves all reads. See sluice_backend_up.",
    ),
    MetricRow(
        "sluice_partitions",
        "gauge",
        ("state",),
        "Partitions by state in this gateway: open, closed (being verified), halted (a person must decide).",
        "closed above 0 for 10 s; halted above 0 at all: page.",
    ),
    MetricRow(
        "sluice_epoch_changes_total",
        "counter",
        ("kind",),
        "Partitions that this gateway sealed: Redis restarted, failed over or lost something.",
        "Any increase but at the first start: learn what happened to Redis.",
    ),
    MetricRow(
        "sluice_swept_appends_total",
        "counter",
        (),
        "Appends committed from the journal, that nobody was committing.",
        "Any increase: another gateway died or hangs.",
    ),
    MetricRow(
        "sluice_cold_streams_total",
        "counter",
        (),
        "Streams whose head was looked up in Postgres since Redis did not have them. New ones count too.",
        "Near the rate of appends on old streams: Redis holds too little.",
    ),
    MetricRow(
        "sluice_redis_fullness_ratio",
        "gauge",
        (),
        "Bytes that the fullest Redis uses, as a share of its bound (SLUICE_REDIS_BYTES_MAX).",
        "Above 0.85 streams are evicted, which is no harm; near 1 appends are refused.",
    ),
    MetricRow(
        "sluice_streams_evicted_total",
        "counter",
        (),
        "Streams that left Redis because nobody had touched them for long. Postgres has them.",
        "With sluice_cold_streams_total: what leaves and comes back at once is too much for this Redis.",
    ),
    MetricRow(
        "sluice_eviction_age_seconds",
        "gauge",
        (),
        "What nobody touched for so long was evicted last, streams and the front of journals.",
        "Far under SLUICE_JOURNAL_RETENTION_S: the journal is that short. Some seconds: Redis is too small.",
    ),
    MetricRow(
        "sluice_streams_cleared_total",
        "counter",
        (),
        "Streams unlinked because their epoch had ended.",
        "It grows after sluice_epoch_changes_total, and ends.",
    ),
    MetricRow(
        "sluice_identity_lookups_total",
        "counter",
        (),
        "Look-ups of appends in Postgres by their Idempotency-Key or event id; once more each time that one "
        "is sequenced again.",
        "The cost of idempotency.",
    ),
    MetricRow(
        "sluice_reads_total",
        "counter",
        ("source",),
        "Reads of events by what they needed: redis alone, or postgres too.",
        "Share of postgres: the working set does not fit, or Redis is not believed.",
    ),
    MetricRow(
        "sluice_http_responses_total",
        "counter",
        ("method", "status"),
        "Answers by method and status.",
        "5xx. Steady 401 or 429: a client with a wrong key, or without patience.",
    ),
    MetricRow(
        "sluice_limited_total",
        "counter",
        ("limit",),
        "What limits refused, by limit: requests (under way), rate, unknown_keys, look_ups (of keys), bodies "
        "(bytes of those being received), connections, unread (answers, and connections ended for them), "
        "write_timeout (connections ended), followers, filters (of live feeds).",
        "Any steady rate: limit_reached in the log says of whom; docs/operations.md which setting it is.",
    ),
    MetricRow(
        "sluice_requests_under_way",
        "gauge",
        (),
        "Requests of keys that are being answered, streams among them.",
        "Near SLUICE_REQUESTS_MAX.",
    ),
    MetricRow(
        "sluice_unread_bytes",
        "gauge",
        (),
        "Large answers that clients have not taken yet, in the gateway's memory.",
        "Near SLUICE_UNREAD_BYTES_MAX: limit_reached in the log says which key does not read.",
    ),
    MetricRow(
        "sluice_bodies_bytes",
        "gauge",
        (),
        "Bytes of bodies that are being received in more than one piece.",
        "Near SLUICE_BODIES_BYTES_MAX: slow clients.",
    ),
    MetricRow(
        "sluice_connections",
        "gauge",
        (),
        "Connections of clients.",
        "Near SLUICE_CONNECTIONS_MAX.",
    ),
    MetricRow(
        "sluice_tenant_bytes",
        "gauge",
        ("handle",),
        "What the events of a tenant take in Postgres, of the 20 that store the most, by tenant's handle.",
        "Near SLUICE_TENANT_BYTES_MAX: its appends will be refused.",
    ),
    MetricRow(
        "sluice_backend_up",
        "gauge",
        ("server",),
        "Whether redis and postgres answered when last asked, several times a second.",
        "0 for 10 s: page.",
    ),
    MetricRow(
        "sluice_catalog_age_seconds",
        "gauge",
        (),
        "Since Postgres last confirmed what this gateway knows of keys and specs.",
        "Above 5 no key is honoured any more: requests are answered 503.",
    ),
    MetricRow(
        "sluice_catalog_unreadable_specs",
        "gauge",
        (),
        "Tenants whose deployed spec this gateway can't use, or not all of it.",
        "Above 0: see spec_unreadable in the log.",
    ),
    MetricRow(
        "sluice_relay_deliveries_total",
        "counter",
        ("kind", "outcome"),
        "Attempts of this relay to deliver an event: confirmed, failed, gone.",
        "The rate of failed against confirmed.",
    ),
    MetricRow(
        "sluice_relay_subscriptions",
        "gauge",
        (),
        "Subscriptions that this relay holds now; each is held by one.",
        "Over all relays, as many as are active and not pulled.",
    ),
    MetricRow(
        "sluice_relay_lag_events",
        "gauge",
        ("kind",),
        "Events that the active subscription furthest behind has not had confirmed yet, counted to 10,000; "
        "what is parked is not among them. Of the whole instance: every relay says the same; take the "
        "greatest.",
        "A level that only grows: a receiver that is too slow.",
    ),
    MetricRow(
        "sluice_relay_lag_seconds",
        "gauge",
        ("kind",),
        "The age of the oldest event that an active subscription has not had confirmed yet, those that are "
        "tried again included, what is parked not. Of the whole instance.",
        "More than receivers may lag behind.",
    ),
    MetricRow(
        "sluice_relay_retrying",
        "gauge",
        ("kind",),
        "Aggregates whose next event failed and is tried again. Of the whole instance.",
        "A sudden rise: a receiver is down.",
    ),
    MetricRow(
        "sluice_relay_parked",
        "gauge",
        ("kind",),
        "Events whose schedule is used up, each with its aggregate behind it. Of the whole instance.",
        "Any: `sluice relay status` names them.",
    ),
    MetricRow(
        "sluice_relay_disabled",
        "gauge",
        ("kind",),
        "Subscriptions that nothing is sent to any more. Of the whole instance.",
        "Any.",
    ),
    MetricRow(
        "sluice_loop_lag_seconds",
        "histogram",
        (),
        "How late the process' one thread came to a timer, ten times a second.",
        "Its 0.99 quantile above 50 ms: the process is out of CPU; start another.",
        _SECONDS,
    ),
    MetricRow(
        "sluice_log_events_total",
        "counter",
        ("event",),
        "Lines of the log by event, those included that were left out for their number.",
        "Alert on the events of level critical and error.",
    ),
    MetricRow(
        "sluice_audit_rows_total",
        "counter",
        (),
        "Rows that the audit beside the gateway's work looked at; 0 unless SLUICE_AUDIT_ROWS_PER_S is set.",
        "It grows by about that many a second.",
    ),
    MetricRow(
        "sluice_audit_passes_total",
        "counter",
        (),
        "Times that it has come from the first row to the last.",
        "Its rate says how old a damage can be before it is noticed.",
    ),
    MetricRow(
        "sluice_audit_violations_total",
        "counter",
        ("kind",),
        "Broken invariants that it has found: rows, order, chain, tenants. Each pass finds them again.",
        "Any increase: page; see audit_violation in the log, then run `sluice audit`.",
    ),
    MetricRow(
        "sluice_webhook_deliveries_total",
        "counter",
        ("tenant", "source", "outcome"),
        "Webhooks by what became of them: accepted, duplicate and quarantined by the delivery; handshake and "
        "undecided (answered 503: the sender comes again), by the request.",
        "Any increase of quarantined: `sluice webhooks quarantine` says why. undecided: 0 while Redis and "
        "Postgres are well and certificates of Amazon SNS can be fetched.",
    ),
    MetricRow(
        "sluice_webhook_refused_total",
        "counter",
        ("tenant", "source", "reason"),
        "Requests answered 401, by what is wrong with them: no_signature, bad_header, bad_timestamp, "
        "outside_tolerance, no_valid_secret, covers_too_little, other_topic, bad_url, mismatch.",
        "A steady rate of mismatch: the provider's secret was changed. outside_tolerance: a clock is off.",
    ),
    MetricRow(
        "sluice_webhook_verified_total",
        "counter",
        ("tenant", "source", "secret"),
        "Verified requests by the secret that matched, counted from 1 in the order of the spec, or by the "
        "topic; 0: unsigned.",
        "While a secret rotates: the old one's rate falls to 0, then it can go.",
    ),
    MetricRow(
        "sluice_webhook_answer_seconds",
        "histogram",
        ("tenant", "source"),
        "From a whole request to its 202, commit included.",
        "Its 0.99 quantile near what a provider waits for: 3 s for Slack, 5 s for Shopify, 10 s for GitHub.",
        _SECONDS,
    ),
    MetricRow("sluice_build_info", "gauge", ("version",), "1; the release is its label.", "The rollout."),
)

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

METRICS: Final[dict[str, MetricRow]] = {row.name: row for row in _ROWS}

_OUTCOMES: Final[Mapping[type[Outcome], str]] = complete(
    get_args(Outcome),
    {
        Appended: "committed",
        Conflict: "conflict",
        Mismatch: "mismatch",
        NotCommitted: "not_committed",
        OutcomeUnknown: "unknown",
        Quarantined: "quarantined",
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
        self._deliveries: dict[tuple[Kind, Delivery], Counter] = {
            (target, outcome): deliveries.labels(target, outcome)
            for target in KINDS
            if target != "pull"  # which is never sent
            for outcome in DELIVERIES
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
        """So many callers were answered by one commit; `events` counts also what nobody waited for any
        more, `wait_s` is the longest wait."""
        self._committed.inc(appends)
        self._events.inc(events)
        self._wait_s.observe(wait_s)

    def delivered(self, target: Kind, outcome: Delivery) -> None:
        """The relay tried to deliver an event."""
        self._deliveries[target, outcome].inc()

    def logged(self, event: str) -> None:
        self._lines[event].inc()

    def webhooks(self, tenant: str, source: str) -> WebhookCounts:
        """Those of one source that a deployed spec declares: never a name out of a request."""
        return self._webhooks.of(tenant, source)

    def read_at_scrape(self, source: Callable[[], Iterable[Reading]]) -> None:
        """`source` is called whenever the metrics are asked for."""
        self._sources.append(source)


class _AtScrape(Collector):
    """What is not counted but looked at, when somebody asks."""

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
