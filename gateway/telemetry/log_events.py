"""Every event that a gateway logs, in one table: what it means, and what to do when it wakes you.

Owns: the names, levels and fields. A test finds every logger call of the gateway and holds it to its row;
docs/observability.md shows the same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LIMIT_WINDOW_S: Final = 10.0
LINES_MAX: Final = 20
"""Lines of one event in LIMIT_WINDOW_S: a trouble that repeats must not fill a disk, or hide the others."""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One row. `fields` are those that the line may have beside the common ones."""

    name: str
    level: str
    fields: tuple[str, ...]
    meaning: str
    at_night: str
    lines_max: int = LINES_MAX
    """In LIMIT_WINDOW_S; how many were left out is the next line's `suppressed`."""


COMMON_FIELDS: Final = ("time", "level", "event", "pid", "correlation_id", "exception", "suppressed")

_ROWS: Final = (
    # What a person must decide
    LogEvent(
        "postgres_lost_commits",
        "critical",
        ("partition", "reason"),
        "Redis or this gateway saw commits that Postgres does not have: a restored backup, or a failover to "
        "a standby that was behind. The partition refuses appends.",
        "Look for the missing commits first: is this the right Postgres, the newest standby? Nothing is "
        "overwritten meanwhile. Only then repair, or accept the loss (docs/operations.md).",
    ),
    LogEvent(
        "append_quarantined",
        "critical",
        ("partition", "seq", "reason"),
        "Postgres refused the rows of one append, which only a bug can bring. It is kept whole in the table "
        "quarantined_append; its caller was told that it was not committed; the partition goes on.",
        "No hurry. Report it with the row of quarantined_append.",
    ),
    LogEvent(
        "chain_broken",
        "critical",
        ("partition", "reason"),
        "Rows about to be committed did not add up to the chain that Redis computed: a bug, or bytes changed "
        "on their way. Nothing of it was committed; the epoch was ended and the appends sequenced anew.",
        "Once: report it. Again and again: look for bad memory or a proxy in front of Redis.",
    ),
    LogEvent(
        "audit_violation",
        "critical",
        ("partition", "invariant", "where", "reason"),
        "The audit beside the gateway's work found an invariant broken: what Postgres holds was changed by "
        "somebody else than Sluice, or by a fault of disk or memory.",
        "Run `sluice audit`: it looks at everything, and says where (docs/audit.md). Keep backups before you "
        "touch anything.",
    ),
    LogEvent(
        "partition_resumed",
        "warning",
        ("partition",),
        "A halted partition accepts appends again: repaired, rewound, or with the right Postgres back.",
        "Nothing.",
    ),
    # What does not answer
    LogEvent(
        "backend_unavailable",
        "error",
        ("server", "reason"),
        "Redis or Postgres (`server`) does not answer. Said once; `backend_recovered` follows.",
        "See to that server. Without Redis appends go on after a moment (`direct_mode_begun`); without "
        "Postgres they are answered 503 or 504. None is lost.",
    ),
    LogEvent(
        "backend_recovered",
        "warning",
        ("server", "after_s"),
        "It answers again, after so many seconds.",
        "Nothing: partitions open by themselves within seconds (`sluice_partitions`).",
    ),
    LogEvent(
        "sequence_timeout",
        "warning",
        ("partition", "reason"),
        "A script call to Redis was not answered. Its appends are tried again until their deadline.",
        "With `backend_unavailable`: see there. Alone and repeated: Redis is slower than "
        "SLUICE_REDIS_TIMEOUT_S.",
        lines_max=1,
    ),
    LogEvent(
        "sequence_not_run",
        "info",
        ("partition", "reason"),
        "A script call was refused: Redis takes no writes, or in a cluster the slot is on its way to another "
        "node, or none holds it. Its appends are tried again until their deadline.",
        "Repeated: see redis_full; or a slot is being moved key by key, and direct mode follows; or a master "
        "is down and no replica takes its place.",
        lines_max=2,
    ),
    LogEvent(
        "commit_outcome_unknown",
        "warning",
        ("partition", "reason"),
        "A commit was not answered, or not for certain. The same statement is sent again; Postgres tells "
        "which of the two counted.",
        "With `backend_unavailable`: see there. 'answered with a warning': a synchronous standby is missing.",
        lines_max=1,
    ),
    LogEvent(
        "read_from_postgres",
        "info",
        ("partition", "reason"),
        "Redis did not answer reads; Postgres does.",
        "Nothing, but reads are slower and load Postgres.",
        lines_max=1,
    ),
    LogEvent(
        "stream_not_filled",
        "info",
        ("partition", "reason"),
        "A stream could not be brought back into Redis; the next read tries again.",
        "Nothing.",
        lines_max=1,
    ),
    LogEvent(
        "eviction_failed",
        "warning",
        ("reason",),
        "A look at the memory of Redis, or a step of eviction, was not answered.",
        "Beside backend_unavailable: nothing. Alone: `sluice doctor` names what its user may not do; until "
        "then Redis fills up.",
        lines_max=1,
    ),
    LogEvent(
        "redis_full",
        "warning",
        ("fullness",),
        "Redis is at its bound and nothing can be evicted: what it holds is not committed yet, or not ours.",
        "Gateways do without it when it is full. See whether Postgres commits; raise maxmemory, and "
        "SLUICE_REDIS_BYTES_MAX if it is set.",
        lines_max=1,
    ),
    # Partitions and their epochs
    LogEvent(
        "partition_not_open",
        "warning",
        ("partition", "reason"),
        "A partition can't be opened now; it is tried again at least twice a second. Its appends wait until "
        "their deadline.",
        "If it lasts: `reason` names the server to see to. 'is a replica': Redis' clients must be sent to "
        "the primary.",
        lines_max=1,
    ),
    LogEvent(
        "partitions_opened",
        "info",
        ("partitions", "installed", "after_s"),
        "All partitions are open for the first time since the start; `installed` of them were new to Redis "
        "and empty, as at the very first start.",
        "Nothing.",
    ),
    LogEvent(
        "partitions_sealed",
        "warning",
        ("partitions",),
        "Redis restarted, failed over or does not hold what Postgres has committed: these "
        "partitions were begun anew in it. Nothing is lost; streams are read from Postgres on first touch.",
        "Nothing, but learn what happened to Redis. Repeated: two Redis servers think they are primary.",
    ),
    LogEvent(
        "direct_mode_begun",
        "warning",
        ("partitions",),
        "This gateway, or another one, could not reach Redis for SLUICE_DIRECT_AFTER_S, or a slot of a "
        "cluster was on its way for so long: appends to these partitions go through Postgres alone, at every "
        "gateway. Nothing is lost; all is slower.",
        "See to Redis. `backend_unavailable` stands in the log of the gateway that can't reach it, and "
        "`direct_mode_held_by_peer` in those of the others names it.",
    ),
    LogEvent(
        "direct_mode_held_by_peer",
        "warning",
        ("gateways",),
        "This gateway reaches Redis and these (host:pid:…) do not: as long as they say so, nobody goes back "
        "to it, or they would drive each other out.",
        "See why they don't: the network, the address or the password of Redis there. Or stop them. "
        "`sluice doctor` names them too, and since when.",
    ),
    LogEvent(
        "direct_mode_ended",
        "warning",
        ("partitions",),
        "Redis has been reachable for SLUICE_REDIS_RECOVERY_S, for every gateway: appends to these "
        "partitions take it again. Streams come back into it on first touch.",
        "Nothing.",
    ),
    LogEvent(
        "epoch_superseded",
        "warning",
        ("partition", "appends", "reason"),
        "What this gateway had sequenced can't be committed any more, since another history was; the appends "
        "are sequenced anew.",
        "Nothing once. Repeated: as for `partitions_sealed`.",
    ),
    LogEvent(
        "appends_swept",
        "warning",
        ("partition", "appends"),
        "Appends that nobody had committed for a tenth of a second were committed from the journal: the "
        "gateway that had sequenced them died, hangs, or is slow.",
        "See to the other gateways. With only one: it is out of CPU, or Postgres slow "
        "(sluice_commit_seconds).",
    ),
    LogEvent(
        "commits_unannounced",
        "info",
        ("reason",),
        "Redis passes no announcements of commits on to other gateways: their followers see what is "
        "committed here a quarter of a second later. Told once until it works again.",
        "Nothing; if Redis answers otherwise, compare its ACL with deploy/redis.conf.",
        lines_max=1,
    ),
    LogEvent(
        "storage_not_counted",
        "warning",
        ("reason",),
        "What tenants store could not be counted; SLUICE_TENANT_BYTES_MAX is held by the figures that were "
        "known before.",
        "Where `reason` names a denied permission, run deploy/postgres-grants.sql again after "
        "`sluice migrate`. Else look at Postgres.",
        lines_max=1,
    ),
    LogEvent(
        "live_tail_read_failed",
        "info",
        ("partition", "reason"),
        "Postgres did not answer when live followers of the feed were to be told of other gateways' commits; "
        "it is asked again at once.",
        "Nothing.",
        lines_max=1,
    ),
    LogEvent(
        "journal_recovery_failed",
        "info",
        ("partition", "reason"),
        "Another gateway's appends could not be committed from the journal; the partition is verified next.",
        "Nothing.",
        lines_max=1,
    ),
    # Faults of ours
    LogEvent(
        "request_failed",
        "error",
        ("method",),
        "A bug: a request ended in an exception and was answered 503, or 504 for an append.",
        "Report it with the line. The request may be repeated with its Idempotency-Key.",
    ),
    LogEvent(
        "fast_path_failed",
        "error",
        ("method",),
        "A bug: an ordinary request failed on its short way to the log. Before it was handed to the log, the "
        "application answered it instead, at about twice the cost; after that, an append was answered 504.",
        "Report it with the line. Steady: the gateway has about half of its throughput.",
        lines_max=5,
    ),
    LogEvent(
        "live_failed",
        "error",
        (),
        "A bug: new events could not be handed to live followers of the feed at once. They read them from "
        "Postgres.",
        "Report it with the line.",
        lines_max=5,
    ),
    LogEvent(
        "commit_not_prepared",
        "error",
        ("partition",),
        "A bug: the rows of a commit could not be prepared while another commit was under way. They are "
        "prepared when it is sent.",
        "Report it with the line.",
        lines_max=5,
    ),
    LogEvent(
        "help_ended",
        "error",
        ("partition",),
        "A bug: a commit from a journal ended in an exception. The partition is verified, and the "
        "others are looked after.",
        "Report it with the line.",
        lines_max=5,
    ),
    LogEvent(
        "task_restarted",
        "error",
        (),
        "A bug: a task of the log ended in an exception and was started again.",
        "Report it with the line. Restart the gateway if it repeats.",
        lines_max=5,
    ),
    LogEvent(
        "task_failed",
        "error",
        ("reason",),
        "A bug: an exception that nobody waited for.",
        "Report it with the line.",
    ),
    LogEvent(
        "read_failed",
        "error",
        ("partition",),
        "A bug: a batch of reads failed in Redis and was answered from Postgres.",
        "Report it with the line.",
        lines_max=5,
    ),
    # Tenants
    LogEvent(
        "spec_deployed",
        "info",
        ("tenant", "key", "revision", "forced"),
        "A tenant's spec was changed over HTTP by the key of this handle.",
        "Nothing: it is the record of who changed what.",
    ),
    LogEvent(
        "alias_assignment_failed",
        "warning",
        ("tenant", "reason"),
        "New aggregates did not get their names yet: Postgres does not answer, or the append of the names "
        "was not settled. It is tried again twice a second; appends are not held up.",
        "Look for what else does not answer. Names follow by themselves.",
    ),
    LogEvent(
        "alias_scan_failed",
        "info",
        ("reason",),
        "Postgres did not answer when it was asked for new aggregates; asked again in a moment.",
        "Nothing by itself.",
    ),
    LogEvent(
        "names_exhausted",
        "error",
        ("tenant", "reason"),
        "A kind of names has none left for this tenant: an import has raised a counter to the greatest "
        "number there is. Appends go on; new aggregates have no public id.",
        "No hurry: declare another key in `public_ids` (docs/names.md).",
    ),
    LogEvent(
        "names_failed",
        "error",
        ("tenant",),
        "A bug, or an event of names that a newer release wrote: names are not given until it is gone.",
        "Run one release on all gateways. Else report it with the line.",
        lines_max=5,
    ),
    LogEvent(
        "spec_unreadable",
        "error",
        ("tenant", "revision", "faults"),
        "This gateway can't use a spec that was deployed, or not all of it: a secret that it names is not "
        "set here, or a newer release deployed it. Where `faults` are all in sources of webhooks or in "
        "subscriptions, these sources answer 503 and all else is served. Otherwise the tenant is served by "
        "the last revision that could be read; with none, its requests are answered 503.",
        "Set the secret that `faults` names, or bring this gateway to the release of the others.",
    ),
    LogEvent(
        "spec_readable",
        "info",
        ("tenant", "revision"),
        "All of a tenant's spec can be used again.",
        "Nothing.",
    ),
    # Webhooks
    LogEvent(
        "webhook_payload_mismatch",
        "error",
        ("tenant", "source", "delivery"),
        "A verified delivery has the id of an earlier one and other bytes: the provider uses an id twice, or "
        "somebody sends a captured request with another body. It is in quarantine; the earlier event stands.",
        "No hurry. Compare the two with `sluice webhooks show`; tell the provider, or rotate the secret.",
    ),
    LogEvent(
        "webhook_quarantine_ended",
        "error",
        ("count",),
        "So many deliveries were in quarantine for SLUICE_WEBHOOK_QUARANTINE_RETENTION_DAYS, not replayed, "
        "and are ended: their senders were told that they are kept.",
        "Replay what is in quarantine sooner, or keep it longer; `sluice webhooks quarantine` lists it.",
    ),
    LogEvent(
        "webhook_quarantined",
        "warning",
        ("tenant", "source", "delivery", "reason"),
        "A verified delivery can't become an event by the spec; it is kept whole.",
        "`sluice webhooks quarantine` lists them. Mend the spec, deploy it, then `sluice webhooks replay`.",
    ),
    LogEvent(
        "delivery_log_backlog",
        "warning",
        ("reason",),
        "Raw copies of deliveries could not be written and wait in memory. Their events are committed.",
        "Nothing, unless it lasts: see backend_unavailable.",
    ),
    LogEvent(
        "delivery_log_dropped",
        "error",
        ("source",),
        "Too many raw copies wait: this one is not kept, so the delivery can't be shown or replayed. Its "
        "event is committed.",
        "See why Postgres is slow.",
    ),
    LogEvent(
        "webhook_copy_refused",
        "error",
        ("delivery", "reason"),
        "Postgres does not take the raw copy of this delivery for what is in it, so it can't be shown or "
        "replayed; others are kept. Its event is committed.",
        "Report it: it should never happen.",
    ),
    LogEvent(
        "webhook_call_failed",
        "warning",
        ("what", "host", "reason"),
        "A certificate of Amazon SNS could not be fetched, or a subscription to it not be confirmed. SNS was "
        "told 503 and comes again for an hour.",
        "If it lasts: see that this host can be reached on port 443, at a public address.",
    ),
    LogEvent(
        "webhook_subscribed",
        "info",
        ("tenant", "source"),
        "A subscription to a topic of Amazon SNS was confirmed, for a source that declares the handshake.",
        "Nothing.",
    ),
    # What goes out
    LogEvent(
        "delivery_parked",
        "warning",
        ("tenant", "subscription", "event_id", "reason"),
        "An event was not confirmed by the last attempt of its schedule. It waits, and with it what comes "
        "behind it in its aggregate; all others go on.",
        "See `reason`, mend the receiver, then `sluice relay replay`.",
    ),
    LogEvent(
        "delivery_error",
        "error",
        ("tenant", "subscription"),
        "A bug: an attempt to deliver ended in an exception. It counts as one that failed.",
        "Report it with the line.",
        lines_max=5,
    ),
    LogEvent(
        "subscription_disabled",
        "error",
        ("tenant", "subscription", "reason"),
        "Nothing more is sent to this target: it answered 410, has failed for 5 days, or its position is "
        "lost.",
        "Ask its owner. `sluice relay resume` goes on where it stopped.",
    ),
    LogEvent(
        "subscription_unusable",
        "error",
        ("tenant", "subscription", "reason"),
        "This relay can't deliver a subscription as it is written: mostly, a secret that it names is not set "
        "here. `*`: none that a tenant's spec declares, since a newer release deployed it. With an exception "
        "it is a bug.",
        "Set the secret that `reason` names, for every relay; report a bug with the line.",
    ),
    LogEvent(
        "subscription_changed",
        "info",
        ("tenant", "subscription", "key", "change"),
        "A subscription was put, ended, paused, resumed, replayed or skipped over HTTP by the key of this "
        "handle.",
        "Nothing: it is the record of who changed what.",
    ),
    LogEvent(
        "relay_postgres_unavailable",
        "warning",
        ("reason",),
        "The relay can't read or write in Postgres. Said once; it goes on by itself, and what it had sent "
        "without noting it is sent again.",
        "With `backend_unavailable`: see there.",
        lines_max=1,
    ),
    LogEvent("relay_started", "info", ("version", "instance"), "`sluice relay` is at work.", "Nothing."),
    LogEvent("relay_stopped", "info", (), "Its leases are given back; others go on at once.", "Nothing."),
    # Life of the process
    LogEvent(
        "gateway_started",
        "info",
        ("version", "instance", "partitions", "traces"),
        "Log and catalog are at work, its address is bound: it accepts connections from now on.",
        "Nothing.",
    ),
    LogEvent(
        "gateway_stopping", "info", (), "It takes no more connections and ends the open ones.", "Nothing."
    ),
    LogEvent("gateway_stopped", "info", (), "All that was accepted is settled and closed.", "Nothing."),
    LogEvent(
        "appends_unsettled",
        "warning",
        ("appends",),
        "It stopped with appends whose outcome was not known within SLUICE_SHUTDOWN_GRACE_S. Their callers "
        "were answered 504 or cut off; other gateways commit what was sequenced.",
        "Nothing: retries with the same key settle it.",
    ),
    LogEvent(
        "catalog_not_closed",
        "warning",
        ("reason",),
        "At the end Postgres did not take note of the last uses of keys.",
        "Nothing: last_used_at is up to a minute old.",
    ),
    LogEvent(
        "redis_policy_unknown",
        "warning",
        ("redis", "reason"),
        "Redis could not be asked whether it evicts keys.",
        "Make sure that its maxmemory-policy is noeviction, or let the user run INFO.",
    ),
    LogEvent("ops_listening", "info", ("host", "port"), "Metrics and health are served there.", "Nothing."),
    LogEvent(
        "ops_port_taken",
        "warning",
        ("host", "port"),
        "Another process has SLUICE_OPS_PORT. This gateway serves without it.",
        "With several workers on one machine that is the rule for all but one; else give each its own port.",
    ),
    LogEvent(
        "tracing_disabled",
        "warning",
        ("reason",),
        "OTEL_EXPORTER_OTLP_ENDPOINT is set, but traces can't be sent.",
        "Install sluice-gateway[otel], or set SLUICE_OTEL=0.",
    ),
    LogEvent(
        "limit_reached",
        "warning",
        ("limit", "holder", "refused"),
        "A limit refused something: of the key with this handle, or from this address. `refused` counts "
        "since the last such line, one in 10 s for each limit.",
        "Learn what the holder does. Honest: raise the setting of the limit (docs/operations.md). Else "
        "revoke the key, or stop the address in front.",
    ),
    LogEvent(
        "request_refused",
        "info",
        ("status", "reason"),
        "Bytes that are no trustworthy HTTP request were refused before anything else was looked at.",
        "Nothing. A flood of them: look at who connects.",
        lines_max=1,
    ),
    # Others'
    LogEvent(
        "library",
        "any",
        ("logger", "message"),
        "A line of a library, `logger` its name there.",
        "Read `message`.",
        lines_max=5,
    ),
)

LOG_EVENTS: Final[dict[str, LogEvent]] = {row.name: row for row in _ROWS}
LIBRARY: Final = "library"
"""The event of every line that is not ours."""
