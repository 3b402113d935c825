"""A campaign fails where the log of a gateway or a relay tells of a bug."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from gateway.telemetry.logs import JsonFormatter
from tests.support.bugs import bugs_in


def lines() -> list[str]:
    """A bug, a failure that was foreseen, and a library's warning with an exception."""
    log = logging.getLogger("sluice.bugs")
    try:
        raise KeyError("a bug")
    except KeyError:
        told = sys.exc_info()
    kinds = [("task_restarted", logging.ERROR, told), ("audit_failed", logging.ERROR, None)]
    kinds.append(("retrying", logging.WARNING, told))
    records = [log.makeRecord(log.name, level, "", 0, what, (), info) for what, level, info in kinds]
    return [JsonFormatter().format(each) for each in records]


def test_exceptions_in_logs_of_gateways_and_relays_are_bugs(tmp_path: Path) -> None:
    folder = tmp_path / "gateway-7"
    folder.mkdir()
    bug, foreseen, warning = lines()
    left = {"level": "error", "event": "task_failed", "reason": "Future exception was never retrieved"}
    lost = json.dumps({**left, "exception": "ConnectionDoesNotExistError: connection was closed"})
    (folder / "gateway.log").write_text(f"{foreseen}\n{bug}\n{lost}\n{warning}\n")
    (tmp_path / "relay-0.log").write_text(f"{bug}\n")
    (tmp_path / "gateway-1-earlier.log").write_text(f"{bug}\n")
    (tmp_path / "redis.log").write_text(f"{bug}\n")
    assert bugs_in(tmp_path) == [bug, bug]
