"""A small disk of its own for Postgres: a tmpfs that can be made full, and free again, without any filler.

Owns: the mounts of this process. They are in a mount namespace of its own, so that they end with it, however
it ends.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_MIB = 1 << 20
SIZE_BYTES = 2048 * _MIB
"""More than an episode writes; tmpfs takes only what is used."""
_TRIES = 50


def isolate() -> str | None:
    """Gives this process, and what it starts from now on, mounts of its own. Why that can't be, or None.
    Before any thread is started: each thread has its own."""
    if os.geteuid() != 0:
        return "mount needs root"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        return f"unshare is refused: {os.strerror(ctypes.get_errno())}"
    return _mounted("--make-rprivate", "/")


def _mounted(*words: str | Path) -> str | None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    return done.stderr.strip() or "mount is refused" if done.returncode else None


class Disk:
    """Mounted at `folder`, which is not there yet, from now until `close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700)
        wrong = _mounted("-t", "tmpfs", "-o", f"size={SIZE_BYTES},mode=0700", "sluice-test", folder)
        assert wrong is None, wrong

    def fill(self) -> None:
        """Not a page is free."""
        for _ in range(_TRIES):  # the system refuses a size below what Postgres has written since the look
            about = os.statvfs(self._folder)
            used = (about.f_blocks - about.f_bfree) * about.f_frsize
            wrong = self._resized(max(used, about.f_frsize))
            if wrong is None:
                return
        raise AssertionError(wrong)

    def free(self) -> None:
        wrong = self._resized(SIZE_BYTES)
        assert wrong is None, wrong

    def _resized(self, size: int) -> str | None:
        return _mounted("-o", f"remount,size={size}", self._folder)

    def close(self, *, keep: bool) -> None:
        """`keep`: what is on it stays at `folder`, for an operator who looks into it."""
        kept = self._folder.with_name(f"{self._folder.name}-kept")
        if keep:
            sockets = shutil.ignore_patterns(".s.*")
            shutil.copytree(self._folder, kept, symlinks=True, ignore=sockets)
        subprocess.run(["umount", "--lazy", self._folder], check=True)
        self._folder.rmdir()
        if keep:
            kept.rename(self._folder)
