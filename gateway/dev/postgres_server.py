"""The embedded Postgres: durable (fsync on), on a Unix socket in a folder that only its account can enter."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import asyncpg

from gateway.dev.binaries import PostgresBinaries
from gateway.dev.failure import CannotStart
from gateway.dev.process import (
    LEFTOVER_GRACE_S,
    Account,
    Command,
    end_all,
    find_titled,
    log_tail,
    spawn,
)

ROLE = "sluice"
DATABASE = "sluice"
SOCKET_NAME = ".s.PGSQL.5432"
INITDB_TIMEOUT_S = 120.0
STOP_S = 30.0
"""For a fast shutdown: clients are sent away, and a checkpoint is written."""
OPTIONS = {
    "listen_addresses": "",  # the socket is all there is
    "unix_socket_permissions": "0700",
    "max_connections": "200",  # several gateways, their tools, and a person with psql
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "timezone": "UTC",
}
PIDFILE_STATUS_LINE = 7
"""Line of postmaster.pid (from 0) that says whether connections are accepted."""


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """Data in `home/data`. `home` exists, belongs to `account` (None: to us), and no other account can enter
    it.

    `durable=False` leaves fsync out, for tests: a killed process loses nothing then either, only a crash of
    the machine does.
    """

    binaries: PostgresBinaries
    home: Path
    socket_folder: Path
    account: Account | None
    log: Path
    durable: bool = True
    name: str = "postgres"
    stop_signals = (signal.SIGINT, STOP_S, signal.SIGQUIT)

    @property
    def data(self) -> Path:
        return self.home / "data"

    def url(self, database: str = DATABASE) -> str:
        """Where to connect, in the form that libpq and asyncpg share."""
        return f"postgresql://{ROLE}@/{quote(database)}?host={quote(str(self.socket_folder))}"

    def command(self) -> Command:
        """How to start it, on data that is made first where there is none.

        Ends a server that was left over, and its backends, which outlive it for a moment when it is killed.
        """
        end_all(("-D", str(self.data)), signal.SIGQUIT, grace_s=LEFTOVER_GRACE_S)
        for pid in find_titled("postgres:", self.data):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not self.data.exists():
            self._initialize()
        self._clear_stale_locks()
        settings = OPTIONS | {"unix_socket_directories": str(self.socket_folder)}
        settings["fsync"] = "on" if self.durable else "off"
        argv: list[str | Path] = [self.binaries.postgres, "-D", self.data]
        for key, value in settings.items():
            argv += ["-c", f"{key}={value}"]
        return self._command(argv)

    def ready(self, pid: int) -> bool:
        """As `pg_ctl --wait` finds out: by the server's own word in its pid file."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return lines[:1] == [str(pid)] and "".join(lines[PIDFILE_STATUS_LINE:]).startswith("ready")

    def failed(self) -> None:
        """Nothing is moved aside here: this is the truth."""
        return

    def _initialize(self) -> None:
        """Make the data folder, elsewhere first, so that one which was made half is never used."""
        for unfinished in self.home.glob("unfinished-*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix="unfinished-", dir=self.home))
        if self.account:
            os.chown(folder, self.account.uid, self.account.gid)
        argv: list[str | Path] = [self.binaries.initdb, "-D", folder, "-U", ROLE, "--encoding=UTF8"]
        argv += ["--auth=trust"]  # who can enter the folder of the socket is the owner of the data
        argv += [] if self.durable else ["--no-sync"]
        if self.binaries.major >= 17:  # the provider that needs no locale of the system
            argv += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        else:
            argv += ["--locale=C.UTF-8"]
        process = spawn(self._command(argv))
        if not process.wait(INITDB_TIMEOUT_S) or process.poll() != 0:
            process.signal(signal.SIGKILL)
            process.wait(INITDB_TIMEOUT_S)
            raise CannotStart(f"initdb could not make {self.data}. Its log ends:\n{log_tail(self.log)}")
        folder.rename(self.data)

    def _command(self, argv: list[str | Path]) -> Command:
        env = {"LC_ALL": "C", "PATH": os.defpath}  # none of ours: PGDATA and the like would be heard
        return Command(argv, signal.SIGQUIT, cwd=self.home, env=env, account=self.account, log=self.log)

    def _clear_stale_locks(self) -> None:
        """A lock names a pid that by now may be another program's, and Postgres would believe it.

        In its place goes our own pid, which it disregards, being its child. The rest of the file stays: by
        it, Postgres makes sure that no backend of the dead server still writes.
        """
        lock = self.data / "postmaster.pid"
        with contextlib.suppress(FileNotFoundError):
            _, newline, rest = lock.read_text().partition("\n")
            with lock.open("r+") as file:
                file.write(f"{os.getpid()}{newline}{rest}")
                file.truncate()
        for socket in self.socket_folder.glob(".s.PGSQL.*"):
            socket.unlink()


async def create_database(admin_url: str, name: str) -> None:
    """Create the database `name` unless it is there. `name` is a plain identifier of ours."""
    connection = await asyncpg.connect(admin_url)
    try:
        if not await connection.fetchval("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name):
            await connection.execute(f'CREATE DATABASE "{name}"')
    finally:
        await connection.close()
