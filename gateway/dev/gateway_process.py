"""A gateway as a child: its command line, and how it is asked over HTTP."""

from __future__ import annotations

import http.client
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gateway.config import Config
from gateway.dev.process import Command, Mark

# -P: what is called `spec.py` in the folder where a person works is not ours.
COMMAND = (sys.executable, "-P", "-m", "gateway", "serve")
GOODBYE_S = 15.0
"""Beside SLUICE_SHUTDOWN_GRACE_S for open requests, and as much again for the appends behind them."""
HTTP_TIMEOUT_S = 0.5
"""Our own loop stands still meanwhile. A gateway that is slower is asked again."""
ANSWER_BYTES_MAX = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """The gateway that serves on the listening socket `fd`, with `settings` as its environment."""

    argv: tuple[str, ...]
    settings: Mapping[str, str]
    data: Path
    fd: int
    number: int

    @property
    def stop_signals(self) -> tuple[signal.Signals, float, signal.Signals]:
        shutdown_grace_s = float(self.settings.get("SLUICE_SHUTDOWN_GRACE_S") or Config.shutdown_grace_s)
        return signal.SIGTERM, 2 * shutdown_grace_s + GOODBYE_S, signal.SIGKILL

    @property
    def name(self) -> str:
        return f"gateway {self.number}"

    def command(self) -> Command:
        """Marked as ours (`mark`), and killed outright when we die: its servers go at the same moment."""
        program, *words = self.argv
        return Command(
            [program, *mark(self.data), *words],
            signal.SIGKILL,
            cwd=Path.cwd(),
            env={**self.settings, "SLUICE_LISTEN_FD": str(self.fd)},
            pass_fds=(self.fd,),
        )

    def ready(self, pid: int) -> bool:
        """Whether one of several serves can't be asked: they share an address. See `answers`."""
        return True

    def failed(self) -> None:
        """There is nothing to correct: it keeps nothing on disk."""
        return


def mark(data: Path) -> Mark:
    """An option that Python ignores; by it, a gateway of the data folder is known."""
    return ("-X", f"sluice={data}")


def answers(base_url: str, times: int) -> str | None:
    """None when that many requests in a row find a gateway that can commit; else what the first other said.

    The kernel picks the gateway for each connection, so `times` has to be several times their number.
    """
    for _ in range(times):
        status, body = fetch(f"{base_url}/_/health/ready")
        if status != 200:
            return body.decode(errors="replace").strip()[:500]
    return None


def fetch(url: str, key: str | None = None, method: str = "GET") -> tuple[int, bytes]:
    """Status and body. Status 0 when there was no answer, with the reason as the body."""
    parts = urlsplit(url)
    assert parts.hostname
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=HTTP_TIMEOUT_S)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        connection.request(method, parts.path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException) as fault:
        return 0, f"no answer ({fault})".encode()
    finally:
        connection.close()
