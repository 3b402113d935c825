"""Every metric of a gateway, in one table; docs/observability.md shows it.

Owns: names, labels, buckets, what each metric means and when it calls for action. No label is taken out of a
request, so the number of series is bounded by the number of partitions and of declared sources of webhooks.
Must not know: how a gateway counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

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
        "Appends by outcome: committed, replayed, conflict, condition_failed, unknown_position, "
        "rule_violated, not_unique, implication_refused, mismatch, not_committed, unknown, unchanged, "
        "declined, quarantined. An append that rules judge again because another was faster counts as a "
        "conflict each time.",
        "The rate of not_committed and unknown: 0 while Redis and Postgres are healthy. Any quarantined.",
    ),
    MetricRow(
        "sluice_kept_states_total",
        "counter",
        ("outcome",),
        "Kept states of long streams: written, and used in place of the events before them.",
        "None written although long streams grow: their first reads after a restart are slow.",
    ),
    MetricRow(
        "sluice_rules_judged_again_total",
        "counter",
        (),
        "Appends that rules judged again because another one was faster.",
        "A rate above that of the accepted appends: several gateways write to one aggregate with rules.",
    ),
    MetricRow(
        "sluice_events_committed_total",
        "counter",
        (),
        "Events that this gateway committed for its own clients.",
        "The load.",
    ),
    MetricRow(
        "sluice_append_wait_seconds",
        "histogram",
        (),
        "Time from admission to the answer, of the longest-waiting append of each commit.",
        "Its 0.99 quantile is an upper bound of the latency of all appends. Above a second: compare the "
        "sequence and commit histograms.",
        _SECONDS,
    ),
    MetricRow(
        "sluice_sequence_batch_appends",
        "histogram",
        (),
        "Appends per script call.",
        "Grows with load: large batches are by design.",
        _COUNTS,
    ),
    MetricRow(
        "sluice_sequence_seconds",
        "histogram",
        (),
        "Duration of a script call, until its answer or failure.",
        "Above 10 ms: Redis is busy with other work, or distant.",
        _SECONDS,
    ),
    MetricRow(
        "sluice_commit_batch_rows",
        "histogram",
        (),
        "Rows per commit.",
        "Constantly at SLUICE_COMMIT_ROWS_MAX: Postgres is the bottleneck.",
        _COUNTS,
    ),
    MetricRow(
        "sluice_commit_seconds",
        "histogram",
        (),
        "Duration of a commit, until its answer or failure.",
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
        "Live followers of the feed at this gateway: server-sent events, and requests that wait.",
        "More than docs/benchmarks.md measured: events reach followers later.",
    ),
    MetricRow(
        "sluice_queue_appends",
        "gauge",
        (),
        "Appends that wait to be sequenced.",
        "Grows for minutes: appends arrive faster than they commit.",
    ),
    MetricRow(
        "sluice_queue_bytes",
        "gauge",
        (),
        "Memory of the queued appends. Beyond SLUICE_QUEUE_BYTES_MAX, or a quarter of it in one partition, "
        "the gateway rejects appends.",
        "As above.",
    ),
    MetricRow(
        "sluice_busy_appends_total",
        "counter",
        (),
        "Appends that had to wait because SLUICE_INFLIGHT_EVENTS_MAX events were uncommitted.",
        "Any steady rate: Postgres is behind.",
    ),
    MetricRow(
        "sluice_watermark_lag_events",
        "gauge",
        ("partition",),
        "Events sequenced in Redis by any gateway and not yet marked as committed there (q - c); absent "
        "while Redis does not answer.",
        "Above 0 for seconds without load, or growing: no gateway commits. See sluice_backend_up.",
    ),
    MetricRow(
        "sluice_direct_mode",
        "gauge",
        ("partition",),
        "1 while appends to the partition bypass Redis (direct mode), because some gateway can't reach it; "
        "else 0.",
        "1 for longer than a minute: slower appends, and Postgres serves all reads. See sluice_backend_up.",
    ),
    MetricRow(
        "sluice_partitions",
        "gauge",
        ("state",),
        "Partitions by state in this gateway: open, closed (being verified), halted (needs an operator).",
        "closed above 0 for 10 s; halted above 0 at all: page.",
    ),
    MetricRow(
        "sluice_epoch_changes_total",
        "counter",
        ("kind",),
        "Epochs that this gateway sealed: Redis restarted, failed over or lost data.",
        "Any increase after the first start: find out what happened to Redis.",
    ),
    MetricRow(
        "sluice_swept_appends_total",
        "counter",
        (),
        "Appends that this gateway committed from the journal for another gateway.",
        "Any increase: another gateway died or hangs.",
    ),
    MetricRow(
        "sluice_cold_streams_total",
        "counter",
        (),
        "Streams whose head was read from Postgres because Redis did not hold them. New streams count too.",
        "Near the rate of appends to old streams: Redis is too small.",
    ),
    MetricRow(
        "sluice_redis_fullness_ratio",
        "gauge",
        (),
        "Memory use of the fullest Redis, as a share of its bound (SLUICE_REDIS_BYTES_MAX).",
        "Above 0.85 streams are evicted, which is harmless; near 1 gateways bypass Redis.",
    ),
    MetricRow(
        "sluice_streams_evicted_total",
        "counter",
        (),
        "Streams evicted from Redis as least recently used. Postgres keeps them.",
        "Rises with sluice_cold_streams_total: the working set exceeds this Redis.",
    ),
    MetricRow(
        "sluice_eviction_age_seconds",
        "gauge",
        (),
        "Idle time of what was evicted last: streams, and the front of journals.",
        "Far below SLUICE_JOURNAL_RETENTION_S: the journal is that short. A few seconds: Redis is too small.",
    ),
    MetricRow(
        "sluice_streams_cleared_total",
        "counter",
        (),
        "Streams unlinked because their epoch had ended.",
        "Grows after sluice_epoch_changes_total, then stops.",
    ),
    MetricRow(
        "sluice_identity_lookups_total",
        "counter",
        (),
        "Queries of Postgres for appends by Idempotency-Key or event id; one more each time an append is "
        "sequenced again. New keys mostly need none.",
        "Near the rate of appends with a key, SLUICE_IDENTITY_FILTER_BYTES_MAX may be spent.",
    ),
    MetricRow(
        "sluice_reads_total",
        "counter",
        ("source",),
        "Reads of events by source: only redis, or postgres too.",
        "The share of postgres: the working set does not fit into Redis, or Redis is not trusted.",
    ),
    MetricRow(
        "sluice_http_responses_total",
        "counter",
        ("method", "status"),
        "Answers by method and status.",
        "5xx. Steady 401 or 429: a client with a wrong key, or one that retries too fast.",
    ),
    MetricRow(
        "sluice_limited_total",
        "counter",
        ("limit",),
        "Requests rejected by limits, by limit: requests (concurrent), rate, unknown_keys, look_ups (of "
        "keys), bodies (bytes being received), connections, unread (answers, and connections closed for "
        "them), write_timeout (connections closed), followers, filters (of live feeds).",
        "Any steady rate: limit_reached in the log names the holder; docs/operations.md names the setting.",
    ),
    MetricRow(
        "sluice_requests_under_way",
        "gauge",
        (),
        "Requests with a key that are in progress, streams included.",
        "Near SLUICE_REQUESTS_MAX.",
    ),
    MetricRow(
        "sluice_unread_bytes",
        "gauge",
        (),
        "Large answers that clients have not read yet, in the gateway's memory.",
        "Near SLUICE_UNREAD_BYTES_MAX: limit_reached in the log says which key does not read.",
    ),
    MetricRow(
        "sluice_bodies_bytes",
        "gauge",
        (),
        "Bytes of request bodies that are being received in more than one piece.",
        "Near SLUICE_BODIES_BYTES_MAX: slow clients.",
    ),
    MetricRow(
        "sluice_connections",
        "gauge",
        (),
        "Client connections.",
        "Near SLUICE_CONNECTIONS_MAX.",
    ),
    MetricRow(
        "sluice_tenant_bytes",
        "gauge",
        ("handle",),
        "Storage of a tenant's events and spec revisions in Postgres, for the 20 tenants that store the "
        "most, by tenant handle.",
        "Near SLUICE_TENANT_BYTES_MAX: its appends and deployments will be rejected.",
    ),
    MetricRow(
        "sluice_backend_up",
        "gauge",
        ("server",),
        "Whether redis and postgres answered the last probe; several probes per second.",
        "0 for 10 s: page.",
    ),
    MetricRow(
        "sluice_catalog_age_seconds",
        "gauge",
        (),
        "Age of this gateway's knowledge of keys and specs, as Postgres last confirmed it.",
        "Above 5 the gateway accepts no key: it answers 503.",
    ),
    MetricRow(
        "sluice_catalog_unreadable_specs",
        "gauge",
        (),
        "Tenants whose deployed spec this gateway can't use, in whole or in part.",
        "Above 0: see spec_unreadable in the log.",
    ),
    MetricRow(
        "sluice_relay_deliveries_total",
        "counter",
        ("kind", "outcome"),
        "Delivery attempts of this relay by outcome: confirmed, failed, gone.",
        "The rate of failed against confirmed.",
    ),
    MetricRow(
        "sluice_relay_subscriptions",
        "gauge",
        (),
        "Subscriptions whose lease this relay holds; each has one holder.",
        "Summed over all relays: the number of active push subscriptions.",
    ),
    MetricRow(
        "sluice_relay_lag_events",
        "gauge",
        ("kind",),
        "Unconfirmed events of the active subscription furthest behind, counted up to 10,000, without "
        "parked ones. Of the whole instance: every relay reports the same; take the maximum.",
        "A value that only grows: a receiver that is too slow.",
    ),
    MetricRow(
        "sluice_relay_lag_seconds",
        "gauge",
        ("kind",),
        "Age of the oldest unconfirmed event of an active subscription, retries included, parked ones not. "
        "Of the whole instance.",
        "More than the acceptable delay of receivers.",
    ),
    MetricRow(
        "sluice_relay_retrying",
        "gauge",
        ("kind",),
        "Aggregates whose next event failed and is being retried. Of the whole instance.",
        "A sudden rise: a receiver is down.",
    ),
    MetricRow(
        "sluice_relay_parked",
        "gauge",
        ("kind",),
        "Events whose retry schedule is exhausted; each blocks its aggregate. Of the whole instance.",
        "Any: `sluice relay status` names them.",
    ),
    MetricRow(
        "sluice_relay_disabled",
        "gauge",
        ("kind",),
        "Disabled subscriptions. Of the whole instance.",
        "Any.",
    ),
    MetricRow(
        "sluice_followers_tenants",
        "gauge",
        (),
        "Tenants whose lists and projections this process keeps; each has one holder.",
        "Summed over all processes: the number of tenants that declare any.",
    ),
    MetricRow(
        "sluice_followers_serving",
        "gauge",
        (),
        "Lists and projections that serve reads. Of the whole instance: every process reports the same.",
        "None.",
    ),
    MetricRow(
        "sluice_followers_building",
        "gauge",
        (),
        "Builds under way, or waiting for their turn. Of the whole instance.",
        "Above 0 for hours: `sluice projections status` says how far they are.",
    ),
    MetricRow(
        "sluice_followers_paused",
        "gauge",
        (),
        "Builds that are paused. Of the whole instance.",
        "Any that were forgotten.",
    ),
    MetricRow(
        "sluice_followers_rows",
        "gauge",
        (),
        "Rows of all lists and projections that serve. Of the whole instance.",
        "The size of the database.",
    ),
    MetricRow(
        "sluice_followers_misfits",
        "gauge",
        (),
        "Events that gave no row, and operations that did not fit, since their builds began. Of the whole "
        "instance.",
        "A rise after a deployment: GET /_/projections/{name} lists the last ones.",
    ),
    MetricRow(
        "sluice_followers_behind",
        "gauge",
        (),
        "Events of its partition that the list or projection furthest behind, of those that serve, has not "
        "folded. Of the whole instance.",
        "A value that only grows: no process relays, or the one that does is too slow.",
    ),
    MetricRow(
        "sluice_schedules",
        "gauge",
        ("state",),
        "Timers that are pending or parked (rejected when they fired). Of the whole instance.",
        "Any parked: GET /_/schedules?state=parked says why.",
    ),
    MetricRow(
        "sluice_schedules_late_seconds",
        "gauge",
        (),
        "How long the longest-waiting pending timer is overdue. Of the whole instance.",
        "Above 60: no gateway fires timers (SLUICE_REACTIONS is off at all of them), or its tenant is full.",
    ),
    MetricRow(
        "sluice_schedules_not_set",
        "gauge",
        (),
        "Timers that events could not set, of each tenant until the last was SLUICE_REACTIONS_RETENTION_DAYS "
        "ago. Of the whole instance.",
        "Any: `sluice doctor` and schedule_not_set in the log say why.",
    ),
    MetricRow(
        "sluice_sagas_stuck",
        "gauge",
        (),
        "Sagas that could not be compensated. Of the whole instance.",
        "Any: `sluice sagas list --state stuck` says why.",
    ),
    MetricRow(
        "sluice_loop_lag_seconds",
        "histogram",
        (),
        "Delay of a timer on the event loop, sampled ten times per second.",
        "Its 0.99 quantile above 50 ms: the process lacks CPU; start another.",
        _SECONDS,
    ),
    MetricRow(
        "sluice_log_events_total",
        "counter",
        ("event",),
        "Log lines by event, suppressed ones included.",
        "Alert on the events of level critical and error.",
    ),
    MetricRow(
        "sluice_audit_rows_total",
        "counter",
        (),
        "Rows checked by the background audit; 0 unless SLUICE_AUDIT_ROWS_PER_S is set.",
        "Grows by about that many per second.",
    ),
    MetricRow(
        "sluice_audit_passes_total",
        "counter",
        (),
        "Complete passes of the background audit.",
        "Its rate bounds the age of damage before it is noticed.",
    ),
    MetricRow(
        "sluice_audit_violations_total",
        "counter",
        ("kind",),
        "Broken invariants found by the background audit: rows, order, chain, tenants. Each pass counts "
        "them again.",
        "Any increase: page; see audit_violation in the log, then run `sluice audit`.",
    ),
    MetricRow(
        "sluice_webhook_deliveries_total",
        "counter",
        ("tenant", "source", "outcome"),
        "Webhooks by outcome: accepted, duplicate, quarantined and ignored (left out by `to.when` or "
        "`to.types`) count deliveries; handshake and undecided "
        "(answered 503: the sender retries) count requests. In all metrics of webhooks, sources of a tenant "
        "beyond the first 500 have the name `_others` together.",
        "Any increase of quarantined: `sluice webhooks quarantine` gives the reason. undecided: 0 while "
        "Redis and Postgres are healthy and certificates of Amazon SNS can be fetched.",
    ),
    MetricRow(
        "sluice_webhook_refused_total",
        "counter",
        ("tenant", "source", "reason"),
        "Webhook requests answered 401, by reason: no_signature, bad_header, bad_timestamp, "
        "outside_tolerance, no_valid_secret, covers_too_little, other_topic, bad_url, mismatch.",
        "A steady rate of mismatch: the provider's secret was changed. outside_tolerance: a clock is off.",
    ),
    MetricRow(
        "sluice_webhook_verified_total",
        "counter",
        ("tenant", "source", "secret"),
        "Verified webhook requests by the secret that matched, numbered from 1 in the order of the spec, or "
        "by the topic; 0: unsigned.",
        "While a secret rotates: the old one's rate falls to 0, then it can go.",
    ),
    MetricRow(
        "sluice_webhook_answer_seconds",
        "histogram",
        ("tenant", "source"),
        "Time from a complete webhook request to its 202, commit included.",
        "Its 0.99 quantile near a provider's timeout: 3 s for Slack, 5 s for Shopify, 10 s for GitHub.",
        _SECONDS,
    ),
    MetricRow("sluice_build_info", "gauge", ("version",), "1; the release is its label.", "The rollout."),
)

METRICS: Final[dict[str, MetricRow]] = {row.name: row for row in _ROWS}
