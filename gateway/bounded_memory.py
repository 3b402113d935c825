"""What a gateway's memory is made of beyond an idle one's, as far as a limit bounds it: one table.

Owns the sum. Must not know how each limit is kept: the part that has it does that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.aggregates import ruled
from gateway.aggregates.folder import KEPT_BYTES_MAX
from gateway.aggregates.running import RUNNING_BYTES_MAX
from gateway.aliases.resolver import KEPT_MAX
from gateway.catalog.catalog import KEYS_MAX, UNKNOWN_MAX
from gateway.config import Config
from gateway.follow.recent import BYTES_MAX as RECENT_BYTES
from gateway.follow.worker import CACHE_BYTES
from gateway.http.api.known_rows import BYTES_MAX as KNOWN_ROWS_BYTES_MAX
from gateway.http.api.reads import FIRST_PAGES_BYTES_MAX
from gateway.http.openapi import endpoint
from gateway.inbound import recorder
from gateway.log.epoch.marks import BYTES_MAX as MARKS_BYTES_MAX
from gateway.relay.live import KEPT_BYTES, PENDING_BYTES_MAX
from gateway.setting_rows import KIB

IDLE_BYTES: Final = 90 * 1024 * KIB
"""A gateway that has nothing to do."""
REQUEST_BYTES: Final = 20 * KIB
"""A request under way: its task, its scope, its headers."""
CONNECTION_BYTES: Final = 10 * KIB
KEY_BYTES: Final = 600
NAME_BYTES: Final = KIB // 2
"""A public name and what it stands for, both rounded up."""


@dataclass(frozen=True, slots=True)
class Part:
    """`bytes_max` is None where its setting is 0: no limit. `setting` is None where the limit is fixed."""

    name: str
    bytes_max: int | None
    setting: str | None = None


def parts(config: Config, partitions: int) -> tuple[Part, ...]:
    """What has a limit over all keys and tenants. `partitions`: of the instance."""

    def counted(field: str, each: int) -> Part:
        name = {"requests_max": "requests under way", "connections_max": "connections"}[field]
        return Part(name, getattr(config, field) * each or None, field)

    headers = config.connections_max * config.header_bytes_max or None
    return (
        Part("bodies that are being received", config.bodies_bytes_max or None, "bodies_bytes_max"),
        Part("answers that are not read", config.unread_bytes_max, "unread_bytes_max"),
        counted("requests_max", REQUEST_BYTES),
        counted("connections_max", CONNECTION_BYTES),
        Part("headers that are being received", headers, "header_bytes_max"),
        Part("appends that wait for Redis", config.queue_bytes_max, "queue_bytes_max"),
        Part("filters of identities", config.identity_filter_bytes_max, "identity_filter_bytes_max"),
        Part("marks of committed events", MARKS_BYTES_MAX * partitions, "partitions"),
        Part("commits on their way to live followers", PENDING_BYTES_MAX * partitions, "partitions"),
        Part("messages to live followers", KEPT_BYTES),
        Part("states in memory", KEPT_BYTES_MAX),
        Part("states that follow commits", RUNNING_BYTES_MAX),
        Part("states and appends that rules judge", ruled.STATES_BYTES_MAX + ruled.WAITING_BYTES_MAX),
        Part("rows and states of lists and projections", CACHE_BYTES + RECENT_BYTES),
        Part("keys of rows that live clients have", KNOWN_ROWS_BYTES_MAX),
        Part("first pages that are kept", FIRST_PAGES_BYTES_MAX),
        Part("OpenAPI documents", endpoint.KEPT_BYTES_MAX),
        Part("webhooks that wait to be recorded", recorder.BYTES_MAX),
        Part("names of aggregates", KEPT_MAX * NAME_BYTES),
        Part("keys", (KEYS_MAX + UNKNOWN_MAX) * KEY_BYTES),
    )


def total(of: tuple[Part, ...]) -> int | None:
    """Their sum; None where a part has no limit."""
    known = [each.bytes_max for each in of if each.bytes_max is not None]
    return sum(known) if len(known) == len(of) else None


def most(config: Config, partitions: int) -> int | None:
    """What a gateway takes at most, all in all; None where a part has no limit."""
    beyond = total(parts(config, partitions))
    return None if beyond is None else IDLE_BYTES + beyond
