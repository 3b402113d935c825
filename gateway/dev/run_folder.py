"""`DIR/run`: what others may know of a running `sluice dev`, and the lock that keeps a second one out.

`key` (an API key, admin), `env` (settings that another `sluice serve` needs, and what commands need to reach
this one), `dev.pid`, `gateway.pid` (one a
line), `redis.pid`, `postgres.pid`. The folder is only its owner's, and so is each file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gateway.dev.failure import CannotStart

PID_NAMES = ("dev", "gateway", "redis", "postgres")
PLAIN_VALUE = re.compile(r"[A-Za-z0-9@%+=:,./?_-]*")
"""Means itself in a shell's assignment."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The run folder of the data folder `data`, held by us."""

    data: Path

    @property
    def path(self) -> Path:
        return self.data / "run"

    def write_pids(self, name: str, pids: Sequence[int]) -> None:
        """One a line, in order; no file when there is none."""
        if pids:
            self._write(f"{name}.pid", "".join(f"{pid}\n" for pid in pids))
        else:
            (self.path / f"{name}.pid").unlink(missing_ok=True)

    def clear_pids(self) -> None:
        for name in PID_NAMES:
            self.write_pids(name, ())

    def write_env(
        self, settings: Mapping[str, str], commands: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """What a gateway of this instance needs, as `KEY=value` for programs that read lines and as `export`
        for a shell that reads it with `. env`; then what only commands need, as `export`."""
        lines = [f"{key}={_quoted(value)}" for key, value in settings.items()]
        lines += [f"export {key}={_quoted(value)}" for key, value in (*settings.items(), *commands.items())]
        self._write("env", "".join(f"{line}\n" for line in lines))

    @property
    def key_file(self) -> Path:
        return self.path / "key"

    def key(self) -> str | None:
        """The key that an earlier start wrote."""
        with contextlib.suppress(FileNotFoundError):
            return self.key_file.read_text().strip() or None
        return None

    def write_key(self, key: str) -> None:
        self._write("key", f"{key}\n")

    def _write(self, name: str, text: str) -> None:
        """A reader sees the old or the new content, never half of it."""
        unfinished = self.path / f".{name}"
        unfinished.unlink(missing_ok=True)
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        unfinished.replace(self.path / name)


@contextlib.contextmanager
def held(data: Path) -> Iterator[RunFolder]:
    """Make the data folder if it isn't there, and keep other `sluice dev` out of it meanwhile.

    The lock ends with this process, however it ends. Raises CannotStart when another one holds it.
    """
    if not data.exists():
        data.mkdir(parents=True)
        data.chmod(0o711)  # Postgres' account has to pass; the folders inside are closed
    folder = RunFolder(data)
    folder.path.mkdir(mode=0o700, exist_ok=True)
    folder.path.chmod(0o700)
    lock = os.open(folder.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotStart(_in_use(folder)) from None
        yield folder
    finally:
        os.close(lock)


def _in_use(folder: RunFolder) -> str:
    pid = ""
    with contextlib.suppress(OSError):
        pid = f" (pid {(folder.path / 'dev.pid').read_text().strip()})"
    return (
        f"{folder.data} is in use by another `sluice dev`{pid}: stop that one, or choose another folder with "
        "--data."
    )


def _quoted(value: str) -> str:
    return value if PLAIN_VALUE.fullmatch(value) else shlex.quote(value)
