"""The table of settings: of each, its field in Config, what it accepts, and its reason.

Owns every setting and limit but its default, which stands at its field in gateway/config.py. Must not know
what any of them is used for beyond its reason.
"""

from __future__ import annotations

from typing import Final

from gateway import server_urls
from gateway.setting_kinds import LEVEL, NETWORKS, ORIGINS, SWITCH, Kind, integer, seconds, url, word

KIB: Final = 1024
MIB: Final = 1024 * KIB
PORT_MAX: Final = 65535
WORKERS_MAX: Final = 64
"""More gateways than a machine has cores only wait for each other."""

ROWS: Final[tuple[tuple[str, Kind, str], ...]] = (
    (
        "redis_url",
        url(server_urls.REDIS, server_urls.redis),
        "Sequences appends and holds the working set; one per instance.",
    ),
    (
        "postgres_url",
        url(server_urls.POSTGRES, server_urls.postgres),
        "Decides and stores every event; name the primary, not a replica.",
    ),
    ("host", word("an address"), "The address to bind; loopback by default."),
    ("port", integer(0, PORT_MAX), "The port for clients; 0 picks a free one."),
    (
        "listen_fd",
        integer(3, 65535),
        "The descriptor of a listening socket, inherited from the parent process.",
    ),
    (
        "workers",
        integer(1, WORKERS_MAX),
        "Gateway processes of `sluice serve` behind its port, a core each; all other limits are for each.",
    ),
    (
        "ops_host",
        word("an address"),
        "The address of the ops port; loopback by default, since it requires no key.",
    ),
    ("ops_port", integer(1, PORT_MAX), "A separate port for metrics and health, which show all tenants."),
    (
        "metrics_token",
        word("a bearer token"),
        "The token that grants access to /_/metrics on the main port.",
    ),
    ("dev", SWITCH, "Set by `sluice dev`: on a terminal, the log is human-readable."),
    ("console", SWITCH, "Serves the console at /_/console, pages for people; on under `sluice dev`."),
    (
        "allow_private_targets",
        SWITCH,
        "Permits subscriptions to http URLs and private addresses, and an Amazon SNS at one: tenants can "
        "then send requests into your network.",
    ),
    ("log_level", LEVEL, "The lowest level that is logged."),
    ("otel", SWITCH, "Sends traces; by default only if OTEL_EXPORTER_OTLP_ENDPOINT is set."),
    (
        "partitions",
        integer(1, 1024),
        "Units of order; the first `sluice migrate` fixes the number permanently.",
    ),
    ("event_bytes_max", integer(1, 16 * MIB), "Size of one event's data; store larger objects elsewhere."),
    (
        "body_bytes_max",
        integer(1, 64 * MIB),
        "Size of a request body, which is held in memory, for each connection.",
    ),
    (
        "bulk_bytes_max",
        integer(1, 4096 * MIB),
        "Size of a bulk request, which is streamed: it bounds time, not memory.",
    ),
    (
        "schema_work_max",
        integer(10_000, 10**9),
        "Comparisons that the schemas of one request may take, then 422: ten million take up to 2 s.",
    ),
    (
        "heavy_waiting_max",
        integer(1, 1000),
        "Heavy requests of a tenant that may wait for one another, then 503: each holds its body.",
    ),
    (
        "heavy_wait_s",
        seconds(0.1, 300),
        "How long a heavy request waits for others of its tenant, then 503: as long as an append may take.",
    ),
    (
        "fold_deadline_s",
        seconds(0.1, 3600),
        "Time to fold a state, then 503; the partial fold is kept and the next read continues from it.",
    ),
    (
        "state_bytes_max",
        integer(KIB, 16 * MIB),
        "Size of a state as JSON: beyond it its reads are a 422 `state_too_large`, and appends continue.",
    ),
    ("headers_max", integer(8, 1000), "Header lines of a request: each costs work before the key is known."),
    ("header_bytes_max", integer(KIB, MIB), "Size of all header lines, buffered before the key is known."),
    ("body_timeout_s", seconds(0.1, 3600), "Maximum time to receive a request body."),
    (
        "append_deadline_s",
        seconds(0.1, 300),
        "Deadline of an append, then 504 while the commit continues. Longer than a failover.",
    ),
    (
        "read_deadline_s",
        seconds(0.1, 300),
        "Deadline of a read, then 503: clients retry sooner than they wait.",
    ),
    (
        "sequence_appends_max",
        integer(1, 1000),
        "Appends per script call, which blocks Redis for a few milliseconds.",
    ),
    ("sequence_bytes_max", integer(KIB, 64 * MIB), "Bytes per script call, for the same reason."),
    (
        "commit_rows_max",
        integer(1, 10_000),
        "Rows per commit: beyond 500 the slowest commits grow faster than the rate.",
    ),
    (
        "inflight_events_max",
        integer(1, 10**6),
        "How far Redis may be ahead of Postgres in a partition, in events (q - c).",
    ),
    (
        "journal_retention_s",
        seconds(0, 86_400),
        "How long committed events stay in the journal, to repair a rolled-back Postgres.",
    ),
    ("identity_window", integer(1, 10**7), "Committed appends whose identities Redis remembers."),
    (
        "identity_filter_bytes_max",
        integer(0, 10**12),
        "Memory for filters that tell new Idempotency-Keys without Postgres, 10 bits a key; 0: none.",
    ),
    (
        "stream_tail",
        integer(1, 10**5),
        "Newest events of a stream that stay in Redis: memory against cold reads.",
    ),
    (
        "redis_bytes_max",
        integer(MIB, 10**15),
        "Memory bound of each Redis server, near which streams are evicted; unset: its maxmemory, or 1 GiB.",
    ),
    (
        "redis_timeout_s",
        seconds(0.05, 60),
        "Response timeout of Redis, after which it counts as unreachable.",
    ),
    (
        "direct_after_s",
        seconds(0.1, 86_400),
        "After Redis has been unreachable this long, gateways bypass it; appends wait until then.",
    ),
    (
        "redis_recovery_s",
        seconds(1, 3600),
        "Redis must be reachable this long before it is used again: each return makes its streams cold.",
    ),
    (
        "shutdown_grace_s",
        seconds(0, 600),
        "Time for open requests after SIGTERM: less than the 30 s that orchestrators allow.",
    ),
    (
        "audit_rows_per_s",
        integer(0, 10**6),
        "Rows per second that each gateway audits in the background; 0: none.",
    ),
    (
        "webhook_bytes_max",
        integer(KIB, 16 * MIB),
        "Size of a webhook, which is read whole before its signature is checked, and of its event.",
    ),
    (
        "webhook_response_timeout_s",
        seconds(0.1, 60),
        "Deadline of a webhook, then 503 while the commit continues: providers time out at 3 s (Slack) or "
        "later.",
    ),
    (
        "webhook_retention_days",
        integer(1, 36_500),
        "How long raw deliveries are kept for inspection and replay; quarantined ones stay longer.",
    ),
    (
        "webhook_quarantine_retention_days",
        integer(1, 36_500),
        "How long a quarantined delivery can be replayed before it is deleted and logged; at least as long "
        "as other deliveries.",
    ),
    (
        "feed_gzip",
        SWITCH,
        "Sends gzip to live followers that accept it, compressed once for all; turn off where a proxy does "
        "that.",
    ),
    ("relay", SWITCH, "Delivers subscriptions within the gateway; turn off where `sluice relay` does it."),
    (
        "relay_inflight",
        integer(1, 1000),
        "Concurrent deliveries of a subscription, each of a different aggregate.",
    ),
    (
        "relay_lease_s",
        seconds(1, 600),
        "After this time another process takes over the subscriptions, lists, projections, timers and sagas "
        "of one that died.",
    ),
    (
        "relay_attempts_retention_s",
        seconds(60, 31_536_000),
        "How long delivery attempts and responses are kept: a row for each delivery.",
    ),
    (
        "reactions",
        SWITCH,
        "Sets and fires timers and takes the turns of sagas in this gateway, also where SLUICE_RELAY is off; "
        "it has to be on at one gateway at least.",
    ),
    (
        "reactions_retention_days",
        integer(1, 36_500),
        "How long timers and sagas that have ended are listed: a row for each; their events stay.",
    ),
    (
        "schedules_max",
        integer(1, 10**9),
        "Pending timers of one tenant, a row of some 500 bytes each; beyond it POST /_/schedules is rejected "
        "(403).",
    ),
    (
        "write_timeout_s",
        seconds(0.1, 3600),
        "A client that reads nothing of a large answer for this long counts as gone: its connection is "
        "closed.",
    ),
    (
        "key_unread_bytes_max",
        integer(MIB, 4096 * MIB),
        "Unread bytes of large answers to one key; beyond it the key gets no further ones.",
    ),
    (
        "unread_bytes_max",
        integer(MIB, 64 * 1024 * MIB),
        "The same for all keys, in memory; beyond it the connections that read least are closed.",
    ),
    (
        "key_followers_max",
        integer(0, 10**6),
        "Live followers of a key, waiting requests included; 0: no limit.",
    ),
    (
        "key_filters_max",
        integer(0, 10**6),
        "Distinct filters of a key's live followers: each inspects every commit; 0: no limit.",
    ),
    (
        "filters_max",
        integer(0, 10**6),
        "The same for all keys: they share 64 MiB of recent commits; 0: no limit.",
    ),
    (
        "key_requests_max",
        integer(0, 10**6),
        "Concurrent requests of a key, streams included: a busy client has a tenth of it; 0: no limit.",
    ),
    (
        "requests_max",
        integer(0, 10**6),
        "Concurrent requests of all keys: each is a task of some 20 KB; 0: no limit.",
    ),
    (
        "key_bodies_bytes_max",
        integer(0, 10**12),
        "Bytes of bodies being received for a key, or an address' webhooks: 128 whole bodies; 0: no limit.",
    ),
    (
        "bodies_bytes_max",
        integer(0, 10**12),
        "Bytes of bodies being received for all keys: memory that slow clients hold; 0: no limit.",
    ),
    (
        "queue_bytes_max",
        integer(MIB, 10**12),
        "Memory of appends that wait to be sequenced, with 3 KiB of objects each; a quarter of it per "
        "partition.",
    ),
    (
        "address_connections_max",
        integer(0, 10**6),
        "Connections from one address, unless it is a trusted proxy: offices share an address; 0: no limit.",
    ),
    (
        "connections_max",
        integer(0, 10**6),
        "Connections to a gateway: each takes a descriptor and some 10 KB; 0: no limit.",
    ),
    (
        "tenant_bytes_max",
        integer(1, 10**15),
        "Storage of one tenant's events and spec revisions in Postgres; beyond it appends and deployments "
        "are rejected (403); unset: no limit.",
    ),
    (
        "rate_limit_per_s",
        integer(1, 10**6),
        "Requests per second of a key, at each gateway; unset: no limit.",
    ),
    ("rate_limit_burst", integer(1, 10**6), "Burst of requests of a key; unset: as many as in a second."),
    (
        "unknown_keys_per_min",
        integer(0, 10**6),
        "Distinct unknown keys that an address may try: each is a query of Postgres; 0: no limit.",
    ),
    (
        "trusted_proxies",
        NETWORKS,
        "Proxies whose X-Forwarded-For gives the client's address; unset: the connection's address counts.",
    ),
    (
        "cors_origins",
        ORIGINS,
        "Origins whose pages may call the API from a browser, each exactly as browsers send it; * for all.",
    ),
)

SECRETS: Final = frozenset(("redis_url", "postgres_url", "metrics_token"))
