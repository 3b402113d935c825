"""The embedded Redis-compatible server: append-only file on, nothing evicted, on a Unix socket of its own."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from gateway.dev.process import LEFTOVER_GRACE_S, Command, end_all

SOCKET_NAME = "redis.sock"
STOP_S = 10.0
"""For writing the append-only file out on SIGTERM."""
PING_TIMEOUT_S = 0.2


@dataclass(frozen=True, slots=True)
class RedisServer:
    """Data in `home`, which only we use; `socket_path` at most 107 bytes."""

    binary: Path
    home: Path
    socket_path: Path
    log: Path
    name: str = "redis"
    stop_signals = (signal.SIGTERM, STOP_S, signal.SIGKILL)

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self.socket_path))}"

    def command(self) -> Command:
        """How to start it. Ends one that was left over; two would write over each other's file."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        end_all(("--dir", str(self.home)), signal.SIGTERM, grace_s=LEFTOVER_GRACE_S)
        self.socket_path.unlink(missing_ok=True)
        options = {
            "dir": self.home,
            "unixsocket": self.socket_path,
            "unixsocketperm": "700",
            "port": "0",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "auto-aof-rewrite-min-size": "256mb",  # deploy/redis.conf has the reason
            "save": "",  # the append-only file is enough
            "maxmemory-policy": "noeviction",  # the append protocol refuses to start on any other
            "stream-node-max-bytes": "256",  # most streams are short: deploy/redis.conf has the reason
            "set-proc-title": "no",  # `find` knows it by its arguments
            "daemonize": "no",
        }
        argv: list[str | Path] = [self.binary]
        for key, value in options.items():
            argv += [f"--{key}", str(value)]
        return Command(argv, signal.SIGTERM, cwd=self.home, env={"LC_ALL": "C", "TZ": "UTC"}, log=self.log)

    def ready(self, pid: int) -> bool:
        """Answers a PING; while it loads its file it answers with an error."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PING_TIMEOUT_S)
            connection.connect(str(self.socket_path))
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
        return False

    def failed(self) -> str | None:
        """Move a file that does not load aside: Postgres has it all. Without a file, the fault is another."""
        if not (self.home / "appendonlydir").exists():
            return None
        aside = self.home.with_name(f"{self.home.name}.{time.strftime('%Y%m%dT%H%M%S')}.unreadable")
        if aside.exists():
            return None
        shutil.move(self.home, aside)
        return (
            f"its data did not load and was moved to {aside}; starting with an empty one, which is filled "
            "from Postgres as it is needed"
        )
