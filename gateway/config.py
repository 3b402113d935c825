"""The settings: `SLUICE_*` from the environment into one frozen value, or all faults at once.

Owns the default of each setting, and how its value is read; what it accepts and its reason stand in the table
(gateway/setting_rows.py). `SETTINGS` has all of it, and the documentation is made of that. Must not know what
any of them is used for, and reads neither the environment nor a file by itself.

The setting `SLUICE_X` is the field `x`. A secret may instead stand in the file that `SLUICE_X_FILE` names. An
empty value is the same as none. An unknown name is a fault: a misspelled limit that is silently
ignored is found at the worst moment.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Any

from gateway import server_urls
from gateway.server_urls import redacted
from gateway.setting_kinds import Kind
from gateway.setting_rows import KIB, MIB, ROWS, SECRETS

PREFIX = "SLUICE_"

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
    workers: int = 1
    ops_host: str = "127.0.0.1"
    ops_port: int | None = None
    metrics_token: str | None = None
    dev: bool = False
    console: bool = False
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
    state_bytes_max: int = 4 * MIB
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
    identity_filter_bytes_max: int = 64 * MIB
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
    relay_lease_s: float = 3.0
    relay_attempts_retention_s: float = 604_800.0
    reactions: bool = True
    reactions_retention_days: int = 30
    schedules_max: int = 1_000_000
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
    cors_origins: frozenset[str] | None = None

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


@contextmanager
def told_as_given(*, postgres: str | None = None, redis: str | None = None) -> Iterator[None]:
    """What is wrong with a URL that an option gave names the option. Raises ConfigError."""
    try:
        yield
    except ConfigError as fault:
        faults = fault.faults
        for name, given in (("postgres", postgres), ("redis", redis)):
            if given:
                faults = tuple([each.replace(f"SLUICE_{name.upper()}_URL ", f"--{name} ") for each in faults])
        raise ConfigError(faults) from None


def _table() -> Iterator[Setting]:
    fields = {field.name: field for field in dataclasses.fields(Config)}
    for name, kind, reason in ROWS:
        default = fields[name].default
        required = default is dataclasses.MISSING
        yield Setting(name, kind, reason, None if required else default, required, name in SECRETS)


SETTINGS: tuple[Setting, ...] = tuple(_table())

# Names that belong to others: the installer, the command line as a client, the secrets that specs name.
_FOREIGN = frozenset(
    PREFIX + name for name in ("PYTHON", "KEY", "KEY_FILE", "URL", "ACTOR", "SECRETS_DIR", "SECRETS_TENANT")
)
_FOREIGN_PREFIX = PREFIX + "SECRET_"


def _shown(row: Setting, value: Any) -> str:
    if not row.secret or value is None:
        return repr(value)
    return repr(redacted(value) if row.field.endswith("url") else "***")


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
        yield f"{name} is not a setting{proposal}"
