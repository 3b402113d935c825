"""Every event that a gateway logs, in one table: what it means, and what an operator does about it.

Owns: the names, levels and fields. A test finds every logger call of the gateway and holds it to its row;
docs/observability.md shows the same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LIMIT_WINDOW_S: Final = 10.0
LINES_MAX: Final = 20
"""Lines of one event in LIMIT_WINDOW_S: a repeating failure must not fill a disk, or hide the others."""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One row. `fields` are those that the line may have beside the common ones."""

    name: str
    level: str
    fields: tuple[str, ...]
    meaning: str
    action: str
    lines_max: int = LINES_MAX
    """In LIMIT_WINDOW_S; how many were left out is the next line's `suppressed`."""


COMMON_FIELDS: Final = ("time", "level", "event", "pid", "correlation_id", "exception", "suppressed")

_ROWS: Final = (
    # Decisions for an operator
    LogEvent(
        "postgres_lost_commits",
        "critical",
        ("partition", "reason"),
        "Redis or this gateway saw commits that Postgres does not have: Postgres was restored from a "
        "backup, or failed over to a standby that was behind. The partition rejects appends.",
        "Find the missing commits first: is this the right Postgres, the newest standby? Sluice overwrites "
        "nothing meanwhile. Then repair, or accept the loss (docs/operations.md).",
    ),
    LogEvent(
        "append_quarantined",
        "critical",
        ("partition", "seq", "reason"),
        "Postgres rejected the rows of one append, which only a bug can cause. The append is kept whole in "
        "the table quarantined_append, and its caller was answered 503 `not_committed`. The partition "
        "continues.",
        "Not urgent. Report it with the row of quarantined_append.",
    ),
    LogEvent(
        "chain_broken",
        "critical",
        ("partition", "reason"),
        "Rows about to be committed did not match the hash chain that Redis computed: a bug, or bytes "
        "changed in transit. The gateway committed none of them, ended the epoch and sequenced the appends "
        "again.",
        "Once: report it. Repeatedly: check for bad memory or a proxy in front of Redis.",
    ),
    LogEvent(
        "audit_violation",
        "critical",
        ("partition", "invariant", "where", "reason"),
        "The background audit found a broken invariant: something other than Sluice changed data in "
        "Postgres, or a disk or memory fault did.",
        "Run `sluice audit`: it checks everything and names the place (docs/audit.md). Keep backups before "
        "you change anything.",
    ),
    LogEvent(
        "partition_resumed",
        "warning",
        ("partition",),
        "A halted partition accepts appends again: it was repaired or rewound, or the right Postgres is "
        "back.",
        "None.",
    ),
    # Backends
    LogEvent(
        "backend_unavailable",
        "error",
        ("server", "reason"),
        "Redis or Postgres (`server`) does not answer. Logged once; `backend_recovered` follows.",
        "Check that server. Without Redis, appends continue after a moment (`direct_mode_begun`); without "
        "Postgres they are answered 503 or 504. None is lost.",
    ),
    LogEvent(
        "backend_recovered",
        "warning",
        ("server", "after_s"),
        "The server answers again, after `after_s` seconds.",
        "None: partitions open by themselves within seconds (`sluice_partitions`).",
    ),
    LogEvent(
        "sequence_timeout",
        "warning",
        ("partition", "reason"),
        "Redis did not answer a script call. The gateway retries its appends until their deadline.",
        "With `backend_unavailable`: see that event. By itself and repeatedly: Redis is slower than "
        "SLUICE_REDIS_TIMEOUT_S.",
        lines_max=1,
    ),
    LogEvent(
        "sequence_not_run",
        "info",
        ("partition", "reason"),
        "Redis rejected a script call: it takes no writes, or, in a cluster, the slot is being moved to "
        "another node or no node serves it. The gateway retries its appends until their deadline.",
        "Repeatedly: see redis_full; or a slot is being moved key by key, and direct mode follows; or a "
        "master is down and no replica has replaced it.",
        lines_max=2,
    ),
    LogEvent(
        "commit_outcome_unknown",
        "warning",
        ("partition", "reason"),
        "Postgres did not answer a commit, or its answer leaves the outcome open. The gateway sends the "
        "same statement again; Postgres reports which of the two took effect.",
        "With `backend_unavailable`: see that event. 'answered with a warning': a synchronous standby is "
        "missing.",
        lines_max=1,
    ),
    LogEvent(
        "read_from_postgres",
        "info",
        ("partition", "reason"),
        "Redis did not answer reads; the gateway reads from Postgres.",
        "None, but reads are slower and load Postgres.",
        lines_max=1,
    ),
    LogEvent(
        "stream_not_filled",
        "info",
        ("partition", "reason"),
        "A stream could not be loaded into Redis; the next read retries.",
        "None.",
        lines_max=1,
    ),
    LogEvent(
        "eviction_failed",
        "warning",
        ("reason",),
        "Redis did not answer a query of its memory use, or an eviction step.",
        "With `backend_unavailable`: none. By itself: `sluice doctor` names what the Redis user lacks; "
        "until then Redis fills up.",
        lines_max=1,
    ),
    LogEvent(
        "redis_full",
        "warning",
        ("fullness",),
        "Redis is at its memory bound and nothing can be evicted: its keys are not committed yet, or belong "
        "to other programs.",
        "Gateways bypass a full Redis. Check whether Postgres commits; raise maxmemory, and "
        "SLUICE_REDIS_BYTES_MAX if it is set.",
        lines_max=1,
    ),
    # Partitions and their epochs
    LogEvent(
        "partition_not_open",
        "warning",
        ("partition", "reason"),
        "A partition can't be opened now; the gateway retries at least twice per second. Its appends wait "
        "until their deadline.",
        "If it persists: `reason` names the server to check. 'is a replica': point the gateways at the "
        "Redis primary.",
        lines_max=1,
    ),
    LogEvent(
        "partitions_opened",
        "info",
        ("partitions", "installed", "after_s"),
        "All partitions are open for the first time since the start; `installed` of them were new to Redis "
        "and empty, as at the very first start.",
        "None.",
    ),
    LogEvent(
        "partitions_sealed",
        "warning",
        ("partitions",),
        "Redis restarted, failed over, or lacks what Postgres has committed: the gateway began a new epoch "
        "of these partitions in it. Nothing is lost; streams are read from Postgres on first access.",
        "None, but find out what happened to Redis. Repeatedly: two Redis servers act as primary.",
    ),
    LogEvent(
        "direct_mode_begun",
        "warning",
        ("partitions",),
        "This gateway or another one could not reach Redis for SLUICE_DIRECT_AFTER_S, or a cluster slot was "
        "being moved for as long: appends to these partitions bypass Redis at every gateway (direct mode). "
        "Nothing is lost; everything is slower.",
        "Check Redis. The gateway that can't reach it logs `backend_unavailable`; the others log "
        "`direct_mode_held_by_peer`, which names that gateway.",
    ),
    LogEvent(
        "direct_mode_held_by_peer",
        "warning",
        ("gateways",),
        "This gateway reaches Redis and these gateways (host:pid:…) do not. While they report so, all "
        "gateways stay in direct mode, since they would otherwise invalidate each other's epochs.",
        "Find out why those gateways can't reach Redis: network, address or password. Or stop them. `sluice "
        "doctor` also names them, and since when.",
    ),
    LogEvent(
        "direct_mode_ended",
        "warning",
        ("partitions",),
        "Every gateway has reached Redis for SLUICE_REDIS_RECOVERY_S: appends to these partitions use it "
        "again. Streams are loaded into it on first access.",
        "None.",
    ),
    LogEvent(
        "epoch_superseded",
        "warning",
        ("partition", "appends", "reason"),
        "What this gateway sequenced can no longer be committed, since another history was committed; it "
        "sequences the appends again.",
        "No action unless it repeats; then see `partitions_sealed`.",
    ),
    LogEvent(
        "appends_swept",
        "warning",
        ("partition", "appends"),
        "Appends that stayed uncommitted for a tenth of a second, this gateway's own for a second, were "
        "committed from the journal: the gateway that sequenced them died, hangs, or is slow.",
        "Check the other gateways. With a single gateway: it lacks CPU, or Postgres is slow "
        "(sluice_commit_seconds).",
    ),
    LogEvent(
        "commits_unannounced",
        "info",
        ("reason",),
        "Redis does not pass commit announcements on to other gateways: their followers see this gateway's "
        "commits a quarter of a second later. Logged once until it works again.",
        "None; if Redis answers otherwise, compare its ACL with deploy/redis.conf.",
        lines_max=1,
    ),
    LogEvent(
        "storage_not_counted",
        "warning",
        ("reason",),
        "The storage use of tenants could not be counted; SLUICE_TENANT_BYTES_MAX is enforced by the last "
        "known figures.",
        "Where `reason` names a denied permission, run deploy/postgres-grants.sql again after `sluice "
        "migrate`. Else check Postgres.",
        lines_max=1,
    ),
    LogEvent(
        "live_tail_read_failed",
        "info",
        ("partition", "reason"),
        "Postgres did not answer when the gateway read other gateways' commits for live followers; the "
        "gateway retries at once.",
        "None.",
        lines_max=1,
    ),
    LogEvent(
        "identities_not_read",
        "warning",
        ("partition", "reason"),
        "Postgres did not answer which Idempotency-Keys were committed since the last query; the gateway "
        "asks again. Meanwhile it looks keys up one by one.",
        "If it persists: check Postgres.",
        lines_max=1,
    ),
    LogEvent(
        "journal_recovery_failed",
        "info",
        ("partition", "reason"),
        "Another gateway's appends could not be committed from the journal; the gateway verifies the "
        "partition next.",
        "None.",
        lines_max=1,
    ),
    # Bugs
    LogEvent(
        "request_failed",
        "error",
        ("method",),
        "A bug: a request ended in an exception and was answered 503, or 504 for an append.",
        "Report it with the line. The request may be repeated with its Idempotency-Key.",
    ),
    LogEvent(
        "rules_not_judged",
        "error",
        (),
        "A bug: the rules of an append could not be judged. It and those that waited behind it for the same "
        "aggregate were answered 503 `not_committed`; nothing was written.",
        "Report it with the line.",
        lines_max=5,
    ),
    LogEvent(
        "fast_path_failed",
        "error",
        ("method",),
        "A bug: an ordinary request failed on the fast path. Before the hand-over to the log, the "
        "application answered it instead, at about twice the cost; after it, an append was answered 504.",
        "Report it with the line. Steady: the gateway has about half of its throughput.",
        lines_max=5,
    ),
    LogEvent(
        "live_failed",
        "error",
        (),
        "A bug: new events could not be handed to live followers of the feed at once. The followers read "
        "them from Postgres.",
        "Report it with the line.",
        lines_max=5,
    ),
    LogEvent(
        "commit_not_prepared",
        "error",
        ("partition",),
        "A bug: the rows of a commit could not be prepared while another commit was under way. They are "
        "prepared when the commit is sent.",
        "Report it with the line.",
        lines_max=5,
    ),
    LogEvent(
        "commit_tap_failed",
        "error",
        ("partition",),
        "A bug: a part of the gateway that hears of commits, of this gateway or of others (live followers, "
        "read models, reactions, kept states), ended in an exception. The events are committed and "
        "acknowledged; that part finds them at its next look.",
        "Report it with the line.",
        lines_max=5,
    ),
    LogEvent(
        "help_ended",
        "error",
        ("partition",),
        "A bug: a commit from a journal ended in an exception. The gateway verifies the partition and "
        "continues with the others.",
        "Report it with the line.",
        lines_max=5,
    ),
    LogEvent(
        "task_restarted",
        "error",
        (),
        "A bug: a background task ended in an exception and was restarted.",
        "Report it with the line. Restart the gateway if it repeats.",
        lines_max=5,
    ),
    LogEvent(
        "task_failed",
        "error",
        ("reason",),
        "A bug: an exception that no task awaited.",
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
    LogEvent(
        "schedule_parked",
        "warning",
        ("tenant", "schedule", "reason"),
        "A timer fired, and its event was rejected.",
        "Correct the cause of the rejection, then POST /_/schedules/{id}/run; or cancel it.",
    ),
    LogEvent(
        "reactions_delayed",
        "warning",
        ("tenant", "reason"),
        "Timers are not set and sagas do not continue for this tenant: Postgres did not answer, or an append "
        "was not committed in time. They are tried again every second; those of other tenants continue.",
        "See `reason`; the lines about Redis and Postgres say why appends wait.",
    ),
    LogEvent(
        "schedule_not_set",
        "warning",
        ("tenant", "event_id", "path", "reason"),
        "An event set no timer: the spec's expression at this place gives no usable value, or takes more "
        "work than one event may.",
        "Correct the schedule in the spec; set the timer by POST /_/schedules. `sluice doctor` and "
        "sluice_schedules_not_set count these.",
    ),
    # Tenants
    LogEvent(
        "console_act",
        "info",
        ("tenant", "key", "page", "path"),
        "A console session of the key with this handle sent a form to this path, of this kind of page; the "
        "API checked the request.",
        "None: an audit record.",
    ),
    LogEvent(
        "spec_deployed",
        "info",
        ("tenant", "key", "revision", "forced"),
        "The key with this handle changed a tenant's spec over HTTP.",
        "None: an audit record.",
    ),
    LogEvent(
        "tenant_deleted",
        "info",
        ("tenant",),
        "All data of a deleted tenant is gone; `GET /_/tenants/{id}` says how many events it had.",
        "None: an audit record.",
    ),
    LogEvent(
        "tenant_deletion_failed",
        "warning",
        ("reason",),
        "A step of a tenant's deletion did not succeed: Postgres or Redis does not answer. The gateway tries "
        "again once a second.",
        "Check what else does not answer. Where `reason` names a denied permission, run "
        "deploy/postgres-grants.sql again after `sluice migrate`.",
    ),
    LogEvent(
        "alias_assignment_failed",
        "warning",
        ("tenant", "reason"),
        "New aggregates did not get their aliases yet: Postgres does not answer, or the append of the "
        "aliases has no known outcome. The gateway retries twice per second; appends continue.",
        "Check what else does not answer. The aliases follow by themselves.",
    ),
    LogEvent(
        "alias_scan_failed",
        "info",
        ("reason",),
        "Postgres did not answer a query for new aggregates; the gateway retries in a moment.",
        "None by itself.",
    ),
    LogEvent(
        "names_exhausted",
        "error",
        ("tenant", "reason"),
        "A kind of alias has no numbers left for this tenant: an import raised a counter to its maximum. "
        "Appends continue; new aggregates get no public id.",
        "Not urgent: declare another key in `public_ids` (docs/names.md).",
    ),
    LogEvent(
        "names_failed",
        "error",
        ("tenant",),
        "A bug, or an alias event that a newer release wrote: the gateway assigns this tenant no aliases "
        "until that is corrected.",
        "Run one release on all gateways. Else report it with the line.",
        lines_max=5,
    ),
    LogEvent(
        "spec_unreadable",
        "error",
        ("tenant", "revision", "faults"),
        "This gateway can't use a deployed spec, or part of it: a secret that the spec names is not set "
        "here, or a newer release deployed the spec. Where `faults` are all in webhook sources or "
        "subscriptions, those sources answer 503 and everything else is served. Otherwise the gateway "
        "serves the tenant by the last readable revision; with none, it answers the tenant's requests with "
        "503.",
        "Set the secret that `faults` names, or upgrade this gateway to the release of the others.",
    ),
    LogEvent(
        "spec_outdated",
        "warning",
        ("tenant", "revision", "faults"),
        "A deployed spec has faults that this release refuses and an earlier one accepted. The tenant is "
        "served as before. What is at fault can only fail; deployments that keep it are refused.",
        "Correct what `faults` names and deploy the spec: `sluice spec check` says how.",
    ),
    LogEvent(
        "spec_readable",
        "info",
        ("tenant", "revision"),
        "All of a tenant's spec can be used again.",
        "None.",
    ),
    # Webhooks
    LogEvent(
        "webhook_payload_mismatch",
        "error",
        ("tenant", "source", "delivery"),
        "A verified delivery has the id of an earlier one and other bytes: the provider reused an id, or a "
        "captured request was sent with another body. The delivery is in quarantine; the earlier event is "
        "unchanged.",
        "Not urgent. Compare the two with `sluice webhooks show`; report it to the provider, or rotate the "
        "secret.",
    ),
    LogEvent(
        "webhook_quarantine_ended",
        "error",
        ("count",),
        "Deliveries stayed in quarantine for SLUICE_WEBHOOK_QUARANTINE_RETENTION_DAYS without a replay and "
        "were deleted, `count` of them. Their senders had been answered that the deliveries are stored.",
        "Replay quarantined deliveries sooner, or raise the retention; `sluice webhooks quarantine` lists "
        "them.",
    ),
    LogEvent(
        "webhook_quarantined",
        "warning",
        ("tenant", "source", "delivery", "reason"),
        "A verified delivery can't become an event by the spec; it is stored whole.",
        "`sluice webhooks quarantine` lists deliveries. Correct the spec, deploy it, then run `sluice "
        "webhooks replay`.",
    ),
    LogEvent(
        "delivery_log_backlog",
        "warning",
        ("reason",),
        "Raw copies of deliveries could not be written and wait in memory. Their events are committed.",
        "None, unless it persists: see `backend_unavailable`.",
    ),
    LogEvent(
        "delivery_log_dropped",
        "error",
        ("source",),
        "Too many raw copies wait: this one is dropped, so the delivery can't be shown or replayed. Its "
        "event is committed.",
        "Find out why Postgres is slow.",
    ),
    LogEvent(
        "webhook_copy_refused",
        "error",
        ("delivery", "reason"),
        "Postgres rejects the raw copy of this delivery because of its content, so the delivery can't be "
        "shown or replayed; others are stored. Its event is committed.",
        "Report it: it should never happen.",
    ),
    LogEvent(
        "webhook_call_failed",
        "warning",
        ("what", "host", "reason"),
        "A certificate of Amazon SNS could not be fetched, or a subscription to a topic could not be "
        "confirmed. The gateway answered 503, and SNS retries for an hour.",
        "If it persists: check that this host is reachable on port 443, at a public address.",
    ),
    LogEvent(
        "webhook_subscribed",
        "info",
        ("tenant", "source"),
        "A subscription to a topic of Amazon SNS was confirmed, for a source that declares the handshake.",
        "None.",
    ),
    # Outbound
    LogEvent(
        "delivery_parked",
        "warning",
        ("tenant", "subscription", "event_id", "reason"),
        "The target did not confirm an event by the last attempt of its schedule. The event is parked, with "
        "the later events of its aggregate; all other aggregates continue.",
        "See `reason`, fix the receiver, then run `sluice relay replay`.",
    ),
    LogEvent(
        "delivery_error",
        "error",
        ("tenant", "subscription"),
        "A bug: a delivery attempt ended in an exception. It counts as a failed attempt.",
        "Report it with the line.",
        lines_max=5,
    ),
    LogEvent(
        "subscription_disabled",
        "error",
        ("tenant", "subscription", "reason"),
        "The relay sends nothing more to this target: the target answered 410, has failed for 5 days, or "
        "the subscription's position is lost.",
        "Ask its owner. `sluice relay resume` continues where it stopped.",
    ),
    LogEvent(
        "subscription_unusable",
        "error",
        ("tenant", "subscription", "reason"),
        "This relay can't deliver a subscription as it is declared: usually a secret that it names is not "
        "set here. `*`: none of a tenant's declared subscriptions, since a newer release deployed the spec. "
        "With an exception it is a bug.",
        "Set the secret that `reason` names, for every relay; report a bug with the line.",
    ),
    LogEvent(
        "subscription_changed",
        "info",
        ("tenant", "subscription", "key", "change"),
        "The key with this handle put, deleted, paused, resumed, replayed, skipped or tested a "
        "subscription over HTTP.",
        "None: an audit record.",
    ),
    LogEvent(
        "relay_postgres_unavailable",
        "warning",
        ("reason",),
        "The relay can't read from or write to Postgres. Logged once; the relay continues by itself, and "
        "sends again what it had sent without recording it.",
        "With `backend_unavailable`: see that event.",
        lines_max=1,
    ),
    LogEvent(
        "follower_unusable",
        "error",
        ("tenant", "follower", "reason"),
        "This process can't update a list or projection, or none of a spec's (`*`): a newer release deployed "
        "it. Reads get its rows as they are; the others are updated.",
        "Upgrade this process.",
    ),
    LogEvent(
        "followers_begin_again",
        "warning",
        ("tenant",),
        "Postgres lost commits: it lacks the last event that a tenant's lists and projections have folded. "
        "All of them are built from the beginning.",
        "None; reads answer 503 `behind` until the builds have caught up.",
    ),
    LogEvent(
        "relay_not_adopted",
        "warning",
        ("reason",),
        "The database is a copy, or was restored: nothing is delivered from it. Appends and reads continue.",
        "If this one takes the original's place, or is to deliver for itself: `sluice adopt` "
        "(docs/backups.md). Otherwise none.",
    ),
    LogEvent(
        "relay_started",
        "info",
        ("version", "instance"),
        "`sluice relay` is running.",
        "None.",
    ),
    LogEvent(
        "relay_stopped",
        "info",
        (),
        "The relay released its leases; other relays continue at once.",
        "None.",
    ),
    # Process
    LogEvent(
        "gateway_started",
        "info",
        ("version", "instance", "partitions", "traces"),
        "Log and catalog are running and the address is bound: the gateway accepts connections.",
        "None.",
    ),
    LogEvent(
        "gateway_stopping",
        "info",
        (),
        "The gateway accepts no more connections and ends the open ones.",
        "None.",
    ),
    LogEvent(
        "gateway_stopped",
        "info",
        (),
        "All accepted requests are settled and all connections closed.",
        "None.",
    ),
    LogEvent(
        "appends_unsettled",
        "warning",
        ("appends",),
        "The gateway stopped with appends whose outcome was unknown after SLUICE_SHUTDOWN_GRACE_S. Their "
        "callers were answered 504 or disconnected; other gateways commit what was sequenced.",
        "None: retries with the same key settle them.",
    ),
    LogEvent(
        "catalog_not_closed",
        "warning",
        ("reason",),
        "At shutdown Postgres did not record the last uses of keys.",
        "None: last_used_at is up to a minute old.",
    ),
    LogEvent(
        "redis_policy_unknown",
        "warning",
        ("redis", "reason"),
        "The gateway could not ask Redis whether it evicts keys.",
        "Make sure that its maxmemory-policy is noeviction, or allow the user to run INFO.",
    ),
    LogEvent(
        "ops_listening",
        "info",
        ("host", "port"),
        "Metrics and health are served at this address.",
        "None.",
    ),
    LogEvent(
        "ops_port_taken",
        "warning",
        ("host", "port"),
        "Another process uses SLUICE_OPS_PORT. This gateway serves without it.",
        "With several workers of `sluice dev` this is expected for all but one; else give each its own port.",
    ),
    LogEvent(
        "worker_ended",
        "warning",
        ("reason",),
        "A worker of `sluice serve --workers` ended, and is started again while the others serve; or it did "
        "not stop in time and was killed.",
        "Once: look at the lines of its `pid` before; SIGKILL is often the kernel's, because memory ran out. "
        "Repeatedly: the worker says why it does not start.",
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
        "A limit rejected requests: of the key with this handle, or from this address. `refused` counts "
        "them since the last such line; one line in 10 s for each limit.",
        "Find out what the holder does. Legitimate: raise the limit's setting (docs/operations.md). Else "
        "revoke the key, or block the address in front of the gateway.",
    ),
    LogEvent(
        "request_refused",
        "info",
        ("status", "reason"),
        "Bytes that are not a trustworthy HTTP request were rejected before any other check.",
        "None. Many of them: check who connects.",
        lines_max=1,
    ),
    # Libraries
    LogEvent(
        "library",
        "any",
        ("logger", "message"),
        "A line that a library logged, under the logger `logger`.",
        "Read `message`.",
        lines_max=5,
    ),
)

LOG_EVENTS: Final[dict[str, LogEvent]] = {row.name: row for row in _ROWS}
LIBRARY: Final = "library"
"""The event of every line that is not ours."""
