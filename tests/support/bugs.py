"""Bugs that a gateway met, logged and lived with: exceptions that nothing foresaw."""

from __future__ import annotations

from pathlib import Path


def bugs_in(folder: Path) -> list[str]:
    """The errors with an exception in the logs of the gateways and relays that have theirs in this folder, or
    below; but for those of an earlier release."""
    return [
        line
        for log in sorted(folder.rglob("*.log"))
        if log.name.startswith(("gateway", "relay")) and not log.stem.endswith("-earlier")
        for line in log.read_text(errors="replace").splitlines()
        if '"level": "error"' in line and '"exception": ' in line
    ]
