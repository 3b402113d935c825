"""Bugs that a gateway met, logged and lived with: exceptions that nothing foresaw."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_NOT_AWAITED = "Future exception was never retrieved"
_LOST = "ConnectionDoesNotExistError"


def is_asyncpg_s(reason: str, exception: str) -> bool:
    """Where Postgres ends a connection between two steps of a call, asyncpg raises that from the call, and
    leaves a future of its own which nothing awaits."""
    return reason.startswith(_NOT_AWAITED) and exception.startswith(_LOST)


def bugs_in(folder: Path) -> list[str]:
    """The errors with an exception in the logs of the gateways and relays that have theirs in this folder, or
    below; but for those of an earlier release."""
    return [
        line
        for log in sorted(folder.rglob("*.log"))
        if log.name.startswith(("gateway", "relay")) and not log.stem.endswith("-earlier")
        for line in log.read_text(errors="replace").splitlines()
        if '"level": "error"' in line
        and '"exception": ' in line
        and line.endswith("}")
        and _is_bug(json.loads(line))
    ]


def _is_bug(line: dict[str, Any]) -> bool:
    return not is_asyncpg_s(line.get("reason", ""), line["exception"])
