"""The log's limits, each a setting of its own (gateway/config.py names the reasons)."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.config import Config


@dataclass(frozen=True, slots=True)
class Limits:
    """Names end in their units: `_s` seconds, `_bytes_max` bytes."""

    sequence_appends_max: int
    sequence_bytes_max: int
    commit_rows_max: int
    inflight_events_max: int
    queue_bytes_max: int
    read_deadline_s: float
    append_deadline_s: float
    commit_timeout_s: float
    journal_retention_s: float
    identity_window: int
    stream_tail: int
    redis_bytes_max: int | None
    direct_after_s: float
    redis_recovery_s: float
    tenant_bytes_max: int = 0
    identity_filter_bytes_max: int = 0


def limits_of(config: Config) -> Limits:
    return Limits(
        sequence_appends_max=config.sequence_appends_max,
        sequence_bytes_max=config.sequence_bytes_max,
        commit_rows_max=config.commit_rows_max,
        inflight_events_max=config.inflight_events_max,
        queue_bytes_max=config.queue_bytes_max,
        read_deadline_s=config.read_deadline_s,
        append_deadline_s=config.append_deadline_s,
        commit_timeout_s=config.append_deadline_s / 2,
        journal_retention_s=config.journal_retention_s,
        identity_window=config.identity_window,
        stream_tail=config.stream_tail,
        redis_bytes_max=config.redis_bytes_max,
        direct_after_s=config.direct_after_s,
        redis_recovery_s=config.redis_recovery_s,
        tenant_bytes_max=config.tenant_bytes_max or 0,
        identity_filter_bytes_max=config.identity_filter_bytes_max,
    )
