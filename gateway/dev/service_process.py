"""Keeps one service running: starts it, notices its end, starts it again, stops it.

Owns when to start. Must not know what a service is: that is behind `Service`. `tick()` does what is due and
returns at once; the owner of the keeper calls it often, and does the waiting.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from gateway.dev.failure import CannotStart
from gateway.dev.process import POLL_S, Command, Process, log_tail, spawn

Say = Callable[[str], None]
"""Takes a line for the person at the terminal."""

SETTLED_S = 5.0
"""One that has lived this long has started well: its end is not a failure to start."""
BACKOFF_FIRST_S = 0.25
BACKOFF_MAX_S = 5.0
FOREIGN_SIGNALS = frozenset((signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT))
"""It was ended from outside: it is not at fault, and is started again at once."""


class Service(Protocol):
    """A program to keep running."""

    @property
    def name(self) -> str: ...

    @property
    def stop_signals(self) -> tuple[signal.Signals, float, signal.Signals]:
        """How it stops: the gentle signal, the seconds that it then has, the one that hurries."""

    def command(self) -> Command:
        """How to start it, after clearing away what a dead one left. Raises CannotStart."""

    def ready(self, pid: int) -> bool:
        """Whether the process `pid` serves by now. Returns at once."""

    def failed(self) -> str | None:
        """Called when it ended by itself before it was ready: what was done about it, in words, or None."""


class ServiceProcess:
    """One service and its process, if it has one. `start` takes the place of `spawn`."""

    def __init__(self, service: Service, say: Say, start: Callable[[Command], Process] = spawn) -> None:
        self.service = service
        self.ready = False
        self.failures = 0
        """Starts that failed in a row."""
        self._say = say
        self._spawn = start
        self._process: Process | None = None
        self._log: Path | None = None
        self._due = 0.0
        self._stopping = False

    @property
    def name(self) -> str:
        return self.service.name

    @property
    def pid(self) -> int | None:
        """None while there is no process."""
        return self._process.pid if self._process else None

    def tick(self) -> None:
        """Notice an end, start what is due, find out whether it serves. Raises CannotStart."""
        if self._process is None:
            if time.monotonic() >= self._due:
                self._start()
        elif (status := self._process.poll()) is not None:
            self._ended(self._process, status)
        elif not self.ready:
            self.ready = self.service.ready(self._process.pid)

    def put_off(self, delay_s: float) -> None:
        """Do not start it before that time has passed."""
        self._due = time.monotonic() + delay_s

    def log_tail(self) -> str:
        """The end of its log, to be appended to a sentence; "" when it has none."""
        return f" Its log ends:\n{log_tail(self._log)}" if self._log else ""

    def signal(self, number: signal.Signals) -> None:
        """Nothing happens when it has no process."""
        if self._process:
            self._process.signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for its end. It stays down until the next `tick`."""
        self.signal(signal.SIGKILL)
        self._gone(SETTLED_S)

    def begin_stop(self) -> None:
        """Send the gentle signal, once, and return."""
        if self._process and not self._stopping:
            self._stopping = True
            self._process.signal(self.service.stop_signals[0])

    def stop(self, *, hurried: Callable[[], bool] = lambda: False) -> None:
        """Have it end in order. `hurried` is asked all the while whether there is no time for that."""
        _, grace_s, hurry = self.service.stop_signals
        self.begin_stop()
        if not self._gone(grace_s, hurried):
            if not hurried():
                self._say(f"{self.name} (pid {self.pid}) did not stop within {grace_s:g} s: killing it")
            self.signal(hurry)
            if not self._gone(SETTLED_S):
                self.kill()

    def _start(self) -> None:
        command = self.service.command()
        self._log = command.log
        self.ready = self._stopping = False
        try:
            self._process = self._spawn(command)
        except OSError as fault:
            raise CannotStart(f"{self.name} can't be started: {fault}") from fault

    def _ended(self, process: Process, status: int) -> None:
        """Decide when to start it again: at once, unless it fails by itself again and again."""
        was_ready, self.ready, self._process = self.ready, False, None
        lived_s = time.monotonic() - process.started
        by_itself = -status not in FOREIGN_SIGNALS
        self.failures = self.failures + 1 if by_itself and lived_s < SETTLED_S else 0
        delay_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** (self.failures - 1)) if self.failures else 0.0
        done = self.service.failed() if by_itself and not was_ready else None
        if done:
            delay_s = 0.0
        self.put_off(delay_s)
        again = f"starting it again in {delay_s:g} s" if delay_s else "starting it again"
        why = self.log_tail() if by_itself else ""
        self._say(f"{self.name} (pid {process.pid}) {_how(status)}: {done or again}.{why}")

    def _gone(self, timeout_s: float, hurried: Callable[[], bool] = lambda: False) -> bool:
        """Wait. Whether it has ended: in time, and before there was a hurry."""
        deadline = time.monotonic() + timeout_s
        while self._process and self._process.poll() is None:
            if time.monotonic() > deadline or hurried():
                return False
            time.sleep(POLL_S)
        self._process, self.ready = None, False
        return True


def _how(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}"
