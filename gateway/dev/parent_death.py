"""Becomes another program that can't outlive the process that started it. A script, run by `process.spawn`:

    python -I -S parent_death.py PARENT SIGNAL UID GID ALIVE_FD PROGRAM [ARGUMENT …]

It gives up root (UID, GID; -1 keeps them), restores the default action of SIGNAL, which a shell's background
jobs ignore, asks the kernel to send SIGNAL when the thread that started it dies, and execs PROGRAM (an
absolute path), so the pid stays. Where the kernel has no such service, ALIVE_FD is a pipe whose other end the
parent holds, and a watcher sends SIGNAL when that closes with nothing written.

A script of its own because none of this is safe between fork and exec of a process with threads. It must
import nothing of ours, so that it starts in a few milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal as signals
import sys

PR_SET_PDEATHSIG = 1
WATCH_S = 1.0
"""How often a watcher looks whether its program has ended by itself."""
EXIT_ORPHAN = 75
"""Exit status when the parent was gone before the program could be started."""


def main(arguments: list[str]) -> None:
    """Never returns. Raises OSError where root can't be given up or PROGRAM can't be run."""
    parent, signal, uid, gid, alive_fd = map(int, arguments[:5])
    program = arguments[5:]
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if signal != signals.SIGKILL:
        signals.signal(signal, signals.SIG_DFL)
    if alive_fd >= 0:
        watch(alive_fd, signal)
    else:
        die_with_parent(signal)  # after setuid, which clears it
    if os.getppid() != parent:
        sys.exit(EXIT_ORPHAN)  # it died before the line above took hold
    os.execv(program[0], program)  # noqa: S606 - that is what this script is for


def die_with_parent(signal: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def watch(alive_fd: int, signal: int) -> None:
    """Leave a process behind that signals this one when the pipe closes, and ends when this one does.

    A byte in the pipe says that the parent has seen the end itself: nothing is to be signalled any more.
    """
    target = os.getpid()
    if os.fork() != 0:
        os.close(alive_fd)
        os.wait()
        return
    if os.fork() != 0:
        os._exit(0)  # so that the watcher is no unexpected child of another process
    os.setsid()
    with contextlib.suppress(ProcessLookupError):
        while not select.select([alive_fd], [], [], WATCH_S)[0]:
            os.kill(target, 0)
        if not os.read(alive_fd, 1):
            os.kill(target, signal)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
