"""Judges how lists and projections are kept. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.operations.findings import Finding, Verdict

_SERVER, _NAME = "postgres", "read models"
UNKEPT: Final = "no process keeps them: SLUICE_RELAY is off at all gateways, and no `sluice relay` runs"
PAUSED: Final = "they stay as they are until `sluice projections resume`"
UNFIT: Final = (
    "`sluice projections show` has the last events and operations that changed nothing, with the reason"
)


def judge(counts: Mapping[str, Any]) -> Finding:
    """`counts` is the row of followers.sql."""
    found = f"{counts['serving']} serve, {counts['building']} are being built"
    if counts["unkept"]:
        return Finding(_SERVER, _NAME, f"{found}; of {counts['unkept']} tenants", Verdict.WARNING, UNKEPT)
    if counts["paused"]:
        return Finding(_SERVER, _NAME, f"{found}, {counts['paused']} are paused", Verdict.WARNING, PAUSED)
    if counts["unfit"]:
        found = f"{found}; {counts['unfit']} have events that do not fit"
        return Finding(_SERVER, _NAME, found, Verdict.WARNING, UNFIT)
    return Finding(_SERVER, _NAME, found)
