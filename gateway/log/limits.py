"""The log's limits, each a setting of its own (gateway/config.py names the reasons)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    sequence_appends_max: int
    sequence_bytes_max: int
    commit_rows_max: int
    inflight_events_max: int
    queue_bytes_max: int
    append_deadline_s: float
    commit_timeout_s: float
    journal_keep_s: float
    identity_window: int
