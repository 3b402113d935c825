"""Processes: started on a leash (`parent_death.py`), recognized by their arguments, ended for certain.

Owns everything that asks the operating system about a process. Must not know what the processes are for.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from gateway.dev.failure import CannotStart

LEASH = Path(__file__).with_name("parent_death.py")
LOG_BYTES_MAX = 10 * 1024 * 1024
"""A server's log is set aside at its next start when it is larger: one old one is kept."""
LOG_TAIL_LINES = 8
POLL_S = 0.01
LEFTOVER_GRACE_S = 3.0
"""For a process whose owner was killed: the kernel has told it to end already."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account of the operating system that a server runs as."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Command:
    """A program to start. `log` takes its output, None leaves it on our standard error."""

    argv: Sequence[str | Path]
    death_signal: signal.Signals
    cwd: Path
    env: Mapping[str, str]
    account: Account | None = None
    log: Path | None = None
    pass_fds: tuple[int, ...] = ()


@dataclass(slots=True)
class Process:
    """A running program; `pid` is the program's own. `poll` has to be called for its end to be noticed."""

    popen: subprocess.Popen[bytes]
    alive_fd: int | None
    """Our end of the pipe that a watcher looks at, where the kernel does not watch for us."""
    started: float = field(default_factory=time.monotonic)

    @property
    def pid(self) -> int:
        return self.popen.pid

    def poll(self) -> int | None:
        """Its exit status, negative for the signal that ended it; None while it runs."""
        status = self.popen.poll()
        if status is not None and self.alive_fd is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self.alive_fd, b"x")
            os.close(self.alive_fd)
            self.alive_fd = None
        return status

    def signal(self, number: signal.Signals) -> None:
        """Nothing happens to one that has ended."""
        self.popen.send_signal(number)

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended within that time."""
        deadline = time.monotonic() + timeout_s
        while self.poll() is None:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True


def spawn(command: Command, *, by_pipe: bool = not sys.platform.startswith("linux")) -> Process:
    """Start it so that it gets `death_signal` when this process ends, however that ends.

    Only from the main thread: the kernel counts the death of the thread that started it.
    `by_pipe` watches by a pipe instead of by the kernel. Raises OSError when it can't be started.
    """
    assert threading.current_thread() is threading.main_thread()
    account = command.account
    identity = (account.uid, account.gid) if account else (-1, -1)
    watched, alive_fd = os.pipe() if by_pipe else (-1, None)
    leash: list[str] = [sys.executable, "-I", "-S", str(LEASH)]
    leash += map(str, (os.getpid(), int(command.death_signal), *identity, watched))
    with contextlib.ExitStack() as closing:
        if by_pipe:
            closing.callback(os.close, watched)
        output = closing.enter_context(_open_log(command.log)) if command.log else sys.stderr.fileno()
        popen = subprocess.Popen(  # noqa: S603 - our own command lines
            [*leash, *map(str, command.argv)],
            cwd=command.cwd,
            env=dict(command.env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(*command.pass_fds, *((watched,) if by_pipe else ())),
            start_new_session=True,  # Ctrl-C is for us only: we stop them in order
        )
    return Process(popen, alive_fd)


def log_tail(log: Path) -> str:
    """The last lines of a log, indented, to show to a person."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError as fault:
        return f"  (its log {log} can't be read: {fault.strerror})"
    return "\n".join(f"  {line}" for line in lines[-LOG_TAIL_LINES:])


Mark = tuple[str, str]
"""Two arguments in a row by which one of our programs is known: an option, and a path that only ours has.

The path by itself would not do: an editor or a `du` may have it too."""


def find(mark: Mark) -> list[int]:
    """The pids of running processes that bear `mark`."""
    return [pid for pid in _pids() if bears(pid, mark)]


def bears(pid: int, mark: Mark) -> bool:
    return mark in itertools.pairwise(arguments(pid))


def find_titled(title: str, folder: Path) -> list[int]:
    """The pids of processes that renamed themselves to `title…` and work in `folder`, where we may see it."""
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cwd").readlink() == folder and "".join(arguments(pid)).startswith(title):
                found.append(pid)
    return found


def arguments(pid: int) -> list[str]:
    """The arguments that a process was started with; [] when there is no such process, or it is a zombie."""
    if Path("/proc/self/cmdline").exists():
        try:
            raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return []
        return raw.decode(errors="surrogateescape").rstrip("\0").split("\0") if raw else []
    shown = subprocess.run(  # noqa: S603 - a constant and a number
        ["/bin/ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return shown.stdout.split()


def end_all(mark: Mark, number: signal.Signals, *, grace_s: float) -> list[int]:
    """Have all that bear `mark`, and are not our children, end: by themselves, by `number`, by SIGKILL.

    `grace_s` for each of the first two. Returns the pids there were. Raises CannotStart when one belongs to
    another account, or can't be ended.
    """
    found = pids = find(mark)
    for step in (None, number, signal.SIGKILL):
        for pid in pids:
            if step is not None:
                _kill(pid, step, mark)
        deadline = time.monotonic() + grace_s
        while pids and time.monotonic() < deadline:
            time.sleep(POLL_S)
            pids = [pid for pid in pids if bears(pid, mark)]
    if pids:
        raise CannotStart(f"process {pids[0]}, which works on {mark[1]}, can't be ended.")
    return found


def _kill(pid: int, number: signal.Signals, mark: Mark) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise CannotStart(
            f"process {pid} of another user works on {mark[1]}: stop it, or choose another with --data."
        ) from None


def _pids() -> list[int]:
    """All of them where the system tells; elsewhere those that `ps` lists."""
    proc = Path("/proc")
    if (proc / "self/cmdline").exists():
        return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]
    listed = subprocess.run(["/bin/ps", "-axo", "pid="], capture_output=True, text=True, check=False)
    return [int(word) for word in listed.stdout.split()]


def _open_log(log: Path) -> BinaryIO:
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".old"))
    return log.open("ab")
