"""Gateways and relays of campaigns, forked from a process that has imported all beforehand: to import costs a
second of CPU, and a campaign starts many. Where TESTS_WARM_STARTS is not set, as in a campaign that is run by
hand, each is a program of its own; so is what is no module, or has another folder or path.

    python -m tests.support.warm DESCRIPTOR

reads orders from the socket DESCRIPTOR and answers each with the pid of a new process. That is a child of the
one that ordered it (CLONE_PARENT), in a session of its own, with its own environment, standard streams and
descriptors, and dies with it. Only its command line is not that of what it runs.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import json
import os
import platform
import runpy
import signal
import socket
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

from gateway.dev.parent_death import EXIT_ORPHAN, die_with_parent
from gateway.dev.process import Command, Process, spawn

ROOT = Path(__file__).parents[2]
WARM_STARTS = "TESTS_WARM_STARTS"
IMPORTED = ("gateway.cli.app", "gateway.serve", "gateway.cli.servers", "typer._adapters")
CLONE = {"x86_64": 56, "aarch64": 220}
"""The number of the system call, where it is known."""
CLONE_PARENT = 0x8000
ORDER_BYTES_MAX = 128 << 10
DESCRIPTORS_MAX = 16


class _Forked(subprocess.Popen[bytes]):
    """A child that another process has made for this one."""

    def __init__(self, pid: int) -> None:
        self.args = ()
        self.pid = pid
        self.returncode = None  # type: ignore[assignment]
        self.stdin = self.stdout = self.stderr = None
        self._waitpid_lock = threading.Lock()
        self._child_created = True


class _Source:
    """The process that they are forked from, and the socket that it is asked by."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.warm", str(theirs.fileno())],
                cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        atexit.register(self.end)

    def fork(self, command: Command, words: list[str], output: int) -> Process:
        order = {
            "words": words,
            "cwd": str(command.cwd),
            "env": dict(command.env),
            "parent": os.getpid(),
            "death_signal": int(command.death_signal),
            "descriptors": [1, 2, *command.pass_fds],
        }
        data = json.dumps(order).encode()
        socket.send_fds(self._socket, [data], [output, output, *command.pass_fds])
        answer = self._socket.recv(64)
        if not answer.isdigit():
            raise OSError(f"{words} was not forked: {answer.decode() or 'its source has ended'}")
        return Process(_Forked(int(answer)), None)

    def end(self) -> None:
        self._socket.close()
        self._process.wait()


_source: _Source | None = None


def start(command: Command) -> Process:
    """As `spawn`, in a tenth of its time."""
    global _source
    words = _words(command)
    if words is None:
        return spawn(command)
    assert threading.current_thread() is threading.main_thread()
    if _source is None:
        _source = _Source()
    if command.log is None:
        return _source.fork(command, words, sys.stderr.fileno())
    with command.log.open("ab") as output:
        return _source.fork(command, words, output.fileno())


def _words(command: Command) -> list[str] | None:
    """The module and its arguments, of what can be forked."""
    program, *words = map(str, command.argv)
    if words[:1] == ["-X"]:  # the mark
        del words[:2]
    if words[:1] == ["-P"]:
        del words[0]
    forks = (
        WARM_STARTS in os.environ
        and sys.platform == "linux"
        and platform.machine() in CLONE
        and program == sys.executable
        and words[:1] == ["-m"]
        and command.account is None
        and command.cwd == ROOT
        and command.env.get("PYTHONPATH") == os.environ.get("PYTHONPATH")
    )
    return words[1:] if forks else None


def main(descriptor: int) -> None:
    """Serves until its socket is closed; returns in each process that it makes, once that has run."""
    orders = socket.socket(fileno=descriptor)
    for name in IMPORTED:
        import_module(name)
    gc.freeze()  # a collection in the new process would copy all of it
    while True:
        data, received, _, _ = socket.recv_fds(orders, ORDER_BYTES_MAX, DESCRIPTORS_MAX)
        if not data:
            return
        pid = _cloned()
        if pid == 0:
            os.close(orders.detach())
            _run(json.loads(data), received)
            return
        for each in received:
            os.close(each)
        orders.send(b"%d" % pid)


def _cloned() -> int:
    """As os.fork, but that the new process is a child of this one's parent."""
    call = ctypes.PyDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = call(CLONE[platform.machine()], CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return int(pid)


def _run(order: dict[str, Any], received: list[int]) -> None:
    """In the new process: its descriptors get their numbers, and the module runs as the program."""
    os.setsid()
    die_with_parent(order["death_signal"])
    if os.getppid() != order["parent"]:
        os._exit(EXIT_ORPHAN)
    numbers: list[int] = order["descriptors"]
    above = max(*numbers, *received) + 1
    for number, each in zip(numbers, [_moved(each, above) for each in received], strict=True):
        os.dup2(each, number)
        os.close(each)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    module, *words = order["words"]
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _moved(descriptor: int, above: int) -> int:
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD, above)
    os.close(descriptor)
    return moved


if __name__ == "__main__":
    main(int(sys.argv[1]))
