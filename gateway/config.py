"""The settings: `SLUICE_*` from the environment into one frozen value, or all faults at once.

Owns every setting and limit: its name, its default, what it accepts, its reason (`SETTINGS`, from which the
documentation is made). Must not know what any of them is used for beyond that, and reads neither the
environment nor a file by itself.

The setting `SLUICE_X` is the field `x`. A secret may instead stand in the file that `SLUICE_X_FILE` names. An
empty value is the same as none. A name that nobody knows is a fault: a misspelled limit that is silently
ignored is found at the worst moment.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, NamedTuple

from gateway import server_urls

PREFIX = "SLUICE_"
KIB = 1024
MIB = 1024 * KIB

ReadFile = Callable[[str], str]
"""Path to the text of that file; raises OSError or UnicodeDecodeError."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Config:
    """All settings of one gateway: bytes, seconds, counts as their names say; what they are for: SETTINGS."""

    redis_url: str
    postgres_url: str
    host: str = "127.0.0.1"
    port: int = 8017
    listen_fd: int | None = None
    ops_host: str = "127.0.0.1"
    ops_port: int | None = None
    metrics_token: str | None = None
    dev: bool = False
    allow_private_targets: bool = False
    log_level: str = "info"
    otel: bool | None = None
    partitions: int = 16
    event_bytes_max: int = 256 * KIB
    body_bytes_max: int = MIB
    bulk_bytes_max: int = 64 * MIB
    schema_work_max: int = 10_000_000
    heavy_waiting_max: int = 16
    heavy_wait_s: float = 10.0
    fold_deadline_s: float = 30.0
    headers_max: int = 100
    header_bytes_max: int = 64 * KIB
    body_timeout_s: float = 30.0
    append_deadline_s: float = 10.0
    read_deadline_s: float = 5.0
    sequence_appends_max: int = 250
    sequence_bytes_max: int = MIB
    commit_rows_max: int = 500
    inflight_events_max: int = 10_000
    journal_retention_s: float = 600.0
    identity_window: int = 20_000
    stream_tail: int = 256
    redis_bytes_max: int | None = None
    redis_timeout_s: float = 2.0
    direct_after_s: float = 1.0
    redis_recovery_s: float = 2.0
    shutdown_grace_s: float = 20.0
    audit_rows_per_s: int = 0
    webhook_bytes_max: int = MIB
    webhook_response_timeout_s: float = 2.5
    webhook_retention_days: int = 30
    webhook_quarantine_retention_days: int = 365
    feed_gzip: bool = True
    relay: bool = True
    relay_inflight: int = 16
    relay_lease_s: float = 6.0
    relay_attempts_retention_s: float = 604_800.0
    write_timeout_s: float = 30.0
    key_unread_bytes_max: int = 32 * MIB
    unread_bytes_max: int = 128 * MIB
    key_followers_max: int = 2048
    key_filters_max: int = 64
    filters_max: int = 512
    key_requests_max: int = 4096
    requests_max: int = 16_384
    key_bodies_bytes_max: int = 128 * MIB
    bodies_bytes_max: int = 256 * MIB
    queue_bytes_max: int = 256 * MIB
    address_connections_max: int = 4096
    connections_max: int = 16_384
    tenant_bytes_max: int | None = None
    rate_limit_per_s: int | None = None
    rate_limit_burst: int | None = None
    unknown_keys_per_min: int = 600
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str], read_file: ReadFile) -> Config:
        """The settings that these variables make. Raises ConfigError with every fault there is."""
        values: dict[str, Any] = {}
        faults = list(_unknown(environ))
        for row in SETTINGS:
            try:
                values[row.field] = _value(row, environ, read_file)
            except ValueError as fault:
                faults.append(str(fault))
        if faults:
            raise ConfigError(tuple(faults))
        return cls(**values)

    def __repr__(self) -> str:
        shown = (f"{row.field}={_shown(row, getattr(self, row.field))}" for row in SETTINGS)
        return f"Config({', '.join(shown)})"


class ConfigError(Exception):
    """The settings can't be used; `faults` has a sentence for each reason, without any secret."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        self.faults = faults
        super().__init__("\n".join(faults))


class Kind(NamedTuple):
    """What a setting accepts, in words, and how its text is read (ValueError: not that)."""

    accepts: str
    read: Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. `default` is its value when unset: None where it is `required`, or off."""

    field: str
    kind: Kind
    reason: str
    default: Any
    required: bool
    secret: bool

    @property
    def name(self) -> str:
        return PREFIX + self.field.upper()


def one(field: str, environ: Mapping[str, str], read_file: ReadFile) -> Any:
    """The value of a single setting, for a command that needs no more. Raises ConfigError."""
    row = next(row for row in SETTINGS if row.field == field)
    try:
        return _value(row, environ, read_file)
    except ValueError as fault:
        raise ConfigError((str(fault),)) from None


def redacted(url: str) -> str:
    """A URL to show to people: `***` for a password, in whichever place, the rest as it is."""
    _, *path = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)
    if path and "@" in path[0]:
        return re.sub("://.*", "://***", url)  # perhaps a password with an unescaped / ? or #
    hidden = re.sub(r"(://[^/?#:@]*):[^/?#]*@", r"\1:***@", url)
    return re.sub(r"([?&](?:ssl)?password=)[^&#]*", r"\1***", hidden)


def _integer(low: int, high: int) -> Kind:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and low <= int(text) <= high):
            raise ValueError
        return int(text)

    return Kind(f"a whole number from {low} to {high}", read)


def _seconds(low: float, high: float) -> Kind:
    def read(text: str) -> float:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) or not low <= float(text) <= high:
            raise ValueError
        return float(text)

    return Kind(f"seconds from {low:.10g} to {high:.10g}", read)


def _one_of(**words: Any) -> Kind:
    def read(text: str) -> Any:
        if text.lower() not in words:
            raise ValueError
        return words[text.lower()]

    return Kind("one of " + ", ".join(words), read)


def _word(what: str) -> Kind:
    def read(text: str) -> str:
        if not re.fullmatch(r"[!-~]{1,255}", text):
            raise ValueError
        return text

    return Kind(f"{what}, in visible ASCII without blanks", read)


def _url(schemes: Iterable[str], read: Callable[[str], str]) -> Kind:
    return Kind(" or ".join(f"{scheme}://…" for scheme in schemes) + ", its password percent-encoded", read)


_SWITCH = _one_of(
    **{
        "1": True,
        "true": True,
        "yes": True,
        "on": True,
        "0": False,
        "false": False,
        "no": False,
        "off": False,
    }
)


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(part.strip()) for part in text.split(","))


_NETWORKS = Kind("addresses or networks such as 10.0.0.0/8, with commas between them", _networks)
_LEVEL = _one_of(debug="debug", info="info", warning="warning", error="error")

_ROWS: tuple[tuple[str, Kind, str], ...] = (
    (
        "redis_url",
        _url(server_urls.REDIS, server_urls.redis),
        "Sequences appends and keeps the working set; one an instance.",
    ),
    (
        "postgres_url",
        _url(server_urls.POSTGRES, server_urls.postgres),
        "Decides and keeps every event: the primary, not a replica.",
    ),
    ("host", _word("an address"), "Loopback, so that nothing is open to the network unasked."),
    ("port", _integer(0, 65535), "Where clients connect; 0 takes a free one."),
    ("listen_fd", _integer(3, 65535), "A listening socket handed down by the process that started this one."),
    ("ops_host", _word("an address"), "Loopback too: what is served there asks for no key."),
    ("ops_port", _integer(1, 65535), "Metrics and health on a port of their own: they show all tenants."),
    ("metrics_token", _word("a bearer token"), "Opens /_/metrics on the main port to whoever sends it."),
    ("dev", _SWITCH, "Set by `sluice dev`: on a terminal, the log is written for people."),
    (
        "allow_private_targets",
        _SWITCH,
        "Subscriptions to http and private addresses, and Amazon SNS at one: a way into your network.",
    ),
    ("log_level", _LEVEL, "The least severe line that is logged."),
    ("otel", _SWITCH, "Sends traces; if unset, only where OTEL_EXPORTER_OTLP_ENDPOINT says where to."),
    ("partitions", _integer(1, 1024), "Units of order, fixed for ever by the first `sluice migrate`."),
    ("event_bytes_max", _integer(1, 16 * MIB), "The data of one event; larger things belong beside events."),
    ("body_bytes_max", _integer(1, 64 * MIB), "A request is held in memory whole, times the connections."),
    (
        "bulk_bytes_max",
        _integer(1, 4096 * MIB),
        "A bulk request is streamed: this bounds its time, not memory.",
    ),
    (
        "schema_work_max",
        _integer(10_000, 10**9),
        "Comparisons that one request may take by its schemas, then 422: ten million take up to 2 s.",
    ),
    (
        "heavy_waiting_max",
        _integer(1, 1000),
        "Heavy requests of a tenant that wait for one another, then 503: each holds its body.",
    ),
    (
        "heavy_wait_s",
        _seconds(0.1, 300),
        "For the heavy requests of the same tenant before it, then 503: as long as an append may take.",
    ),
    (
        "fold_deadline_s",
        _seconds(0.1, 3600),
        "Then a state answers 503 and what is folded is kept: the next read goes on there.",
    ),
    ("headers_max", _integer(8, 1000), "Header lines of a request: each costs before the key is known."),
    ("header_bytes_max", _integer(KIB, MIB), "All header lines, buffered before the key is known."),
    ("body_timeout_s", _seconds(0.1, 3600), "A slower body holds a connection for nobody's good."),
    (
        "append_deadline_s",
        _seconds(0.1, 300),
        "Then 504 outcome_unknown; the commit goes on. Outlasts a failover.",
    ),
    ("read_deadline_s", _seconds(0.1, 300), "Then a read answers 503: readers would rather retry than wait."),
    (
        "sequence_appends_max",
        _integer(1, 1000),
        "Appends a script call: it blocks Redis for a few milliseconds.",
    ),
    ("sequence_bytes_max", _integer(KIB, 64 * MIB), "Bytes a script call, for the same reason."),
    (
        "commit_rows_max",
        _integer(1, 10_000),
        "Rows a commit: past 500 its slowest grow faster than its rate.",
    ),
    (
        "inflight_events_max",
        _integer(1, 10**6),
        "How far Redis may run ahead of Postgres in a partition (q - c).",
    ),
    (
        "journal_retention_s",
        _seconds(0, 86_400),
        "What is committed stays in the journal: to mend a rolled-back Postgres.",
    ),
    ("identity_window", _integer(1, 10**7), "Appends behind the watermark whose identities Redis remembers."),
    (
        "stream_tail",
        _integer(1, 10**5),
        "Newest events of a stream kept in Redis: memory against cold reads.",
    ),
    (
        "redis_bytes_max",
        _integer(MIB, 10**15),
        "Streams are evicted near it, of each server; unset: its maxmemory, or 1 GiB if it has none.",
    ),
    ("redis_timeout_s", _seconds(0.05, 60), "A Redis that takes longer counts as unreachable."),
    (
        "direct_after_s",
        _seconds(0.1, 86_400),
        "A Redis that is away for longer is done without: appends wait until then.",
    ),
    (
        "redis_recovery_s",
        _seconds(1, 3600),
        "A Redis that is back for so long is used again: each return makes its streams cold.",
    ),
    (
        "shutdown_grace_s",
        _seconds(0, 600),
        "For open requests on SIGTERM: under the 30 s that orchestrators give.",
    ),
    (
        "audit_rows_per_s",
        _integer(0, 10**6),
        "Rows a second that each gateway audits beside its work; 0: none.",
    ),
    (
        "webhook_bytes_max",
        _integer(KIB, 16 * MIB),
        "A webhook is read whole before its signature can be checked; also its event may be that large.",
    ),
    (
        "webhook_response_timeout_s",
        _seconds(0.1, 60),
        "Then a webhook is answered 503, the commit goes on: senders give up at 3 s (Slack) and later.",
    ),
    (
        "webhook_retention_days",
        _integer(1, 36_500),
        "Raw deliveries, to look into and to replay; what is in quarantine stays longer.",
    ),
    (
        "webhook_quarantine_retention_days",
        _integer(1, 36_500),
        "What is in quarantine and not replayed by then is ended, and logged; never sooner than others.",
    ),
    (
        "feed_gzip",
        _SWITCH,
        "Live followers who accept it are sent gzip, compressed once for all; off where a proxy does that.",
    ),
    ("relay", _SWITCH, "Delivers subscriptions beside its work; off where `sluice relay` runs for it."),
    ("relay_inflight", _integer(1, 1000), "Deliveries of a subscription at once, each of another aggregate."),
    ("relay_lease_s", _seconds(1, 600), "Then another relay takes over what a relay that died has held."),
    (
        "relay_attempts_retention_s",
        _seconds(60, 31_536_000),
        "What was tried and answered is kept so long: a row for each delivery.",
    ),
    (
        "write_timeout_s",
        _seconds(0.1, 3600),
        "A client that takes nothing of a large answer for so long is gone: its connection is ended.",
    ),
    (
        "key_unread_bytes_max",
        _integer(MIB, 4096 * MIB),
        "Large answers to a key that its clients have not read: beyond it, it gets no further ones.",
    ),
    (
        "unread_bytes_max",
        _integer(MIB, 64 * 1024 * MIB),
        "The same of all keys, in memory: beyond it connections that read least are ended.",
    ),
    (
        "key_followers_max",
        _integer(0, 10**6),
        "Live followers of a key, waits among them; 0: no limit.",
    ),
    (
        "key_filters_max",
        _integer(0, 10**6),
        "Different filters that followers of a key use at a time: each looks at every commit; 0: no limit.",
    ),
    (
        "filters_max",
        _integer(0, 10**6),
        "The same of all keys: they share 64 MiB of what was committed last; 0: no limit.",
    ),
    (
        "key_requests_max",
        _integer(0, 10**6),
        "Requests of a key under way at once, streams among them: a tenth is a busy client; 0: no limit.",
    ),
    (
        "requests_max",
        _integer(0, 10**6),
        "Requests under way at once, of all keys: each is a task, some 20 KB; 0: no limit.",
    ),
    (
        "key_bodies_bytes_max",
        _integer(0, 10**12),
        "Bodies of a key being received, or of an address' webhooks: 128 whole ones at once; 0: no limit.",
    ),
    (
        "bodies_bytes_max",
        _integer(0, 10**12),
        "Bodies being received, of all keys: memory that slow clients hold; 0: no limit.",
    ),
    (
        "queue_bytes_max",
        _integer(MIB, 10**12),
        "Appends that wait to be sequenced, with 3 KiB for each one's objects; of one partition a quarter.",
    ),
    (
        "address_connections_max",
        _integer(0, 10**6),
        "Connections from one address, unless it is a trusted proxy: offices share one; 0: no limit.",
    ),
    (
        "connections_max",
        _integer(0, 10**6),
        "Connections to a gateway: each is a descriptor, and some 10 KB; 0: no limit.",
    ),
    (
        "tenant_bytes_max",
        _integer(1, 10**15),
        "Events of one tenant in Postgres; beyond it appends are refused (403); unset: no limit.",
    ),
    ("rate_limit_per_s", _integer(1, 10**6), "Requests a second of a key, at each gateway; unset: no limit."),
    ("rate_limit_burst", _integer(1, 10**6), "Requests of a key at once; unset: as many as in a second."),
    (
        "unknown_keys_per_min",
        _integer(0, 10**6),
        "Different unknown keys an address may try: each is looked up in Postgres; 0: no limit.",
    ),
    (
        "trusted_proxies",
        _NETWORKS,
        "Proxies whose X-Forwarded-For tells a client's address; unset: the connection's own counts.",
    ),
)
_SECRETS = frozenset(("redis_url", "postgres_url", "metrics_token"))


def _table() -> Iterator[Setting]:
    fields = {field.name: field for field in dataclasses.fields(Config)}
    for name, kind, reason in _ROWS:
        default = fields[name].default
        required = default is dataclasses.MISSING
        yield Setting(name, kind, reason, None if required else default, required, name in _SECRETS)


SETTINGS: tuple[Setting, ...] = tuple(_table())

# Names that belong to others: the installer, the command line as a client, the secrets that specs name.
_FOREIGN = frozenset(
    PREFIX + name for name in ("PYTHON", "KEY", "KEY_FILE", "URL", "SECRETS_DIR", "SECRETS_TENANT")
)
_FOREIGN_PREFIX = PREFIX + "SECRET_"


def _shown(row: Setting, value: Any) -> str:
    if not row.secret or value is None:
        return repr(value)
    return repr(redacted(value) if row.field.endswith("_url") else "***")


def _value(row: Setting, environ: Mapping[str, str], read_file: ReadFile) -> Any:
    """Raises ValueError with the whole sentence. The text of a secret is never part of it."""
    text, source = _text(row, environ, read_file)
    if not text:
        if row.required:
            raise ValueError(f"{row.name} (or {row.name}_FILE) is not set: {row.kind.accepts}.")
        return row.default
    try:
        return row.kind.read(text)
    except server_urls.Unfit as fault:
        raise ValueError(f"{source} {fault}.") from None
    except ValueError:
        given = "" if row.secret else f", not {text!r}"
        raise ValueError(f"{source} must be {row.kind.accepts}{given}.") from None


def _text(row: Setting, environ: Mapping[str, str], read_file: ReadFile) -> tuple[str, str]:
    direct, path = environ.get(row.name, ""), environ.get(f"{row.name}_FILE", "")
    if not row.secret or not path:
        return direct, row.name
    if direct:
        raise ValueError(f"{row.name} and {row.name}_FILE are both set: unset one of them.")
    source = f"{row.name}_FILE, the content of {path},"
    try:
        text = read_file(path).strip()
    except OSError as fault:
        raise ValueError(f"{row.name}_FILE: {path} can't be read: {fault.strerror or fault}.") from None
    except UnicodeDecodeError:
        raise ValueError(f"{source} must be UTF-8 text.") from None
    if not text:
        raise ValueError(f"{row.name}_FILE: {path} is empty.")
    return text, source


def _unknown(environ: Mapping[str, str]) -> Iterator[str]:
    known = {row.name for row in SETTINGS} | {f"{row.name}_FILE" for row in SETTINGS if row.secret} | _FOREIGN
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known or name.startswith(_FOREIGN_PREFIX):
            continue
        candidates = sorted(candidate.removeprefix(PREFIX) for candidate in known)
        nearest = difflib.get_close_matches(name.removeprefix(PREFIX), candidates, n=1)
        proposal = f": did you mean {PREFIX}{nearest[0]}?" if nearest else ": unset it."
        yield f"{name} is no setting{proposal}"
