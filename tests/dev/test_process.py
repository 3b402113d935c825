"""The leash: what is started ends with the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.dev.parent_death import EXIT_ORPHAN
from gateway.dev.place import postgres_place
from gateway.dev.process import LEASH, Command, Process, arguments, bears, end_all, find, log_tail, spawn
from tests.dev.conftest import DEADLINE_S, ROOT, eventually, gone

WAITS = "import signal; print('started', flush=True); signal.pause()"

PARENT = """
    import os, signal, sys
    from pathlib import Path
    from gateway.dev.process import Command, spawn
    code = "import signal; signal.pause()"
    command = Command([sys.executable, "-c", code], signal.SIGTERM, Path.cwd(), {})
    print(spawn(command, by_pipe=sys.argv[1] == "pipe").pid, flush=True)
    signal.pause()
"""


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Process]:
    """A program that bears the mark ("-X", tmp_path) and ends at a signal."""
    process = spawn(Command([sys.executable, "-X", str(tmp_path), "-c", WAITS], signal.SIGKILL, tmp_path, {}))
    yield process
    process.signal(signal.SIGKILL)
    assert process.wait(DEADLINE_S)


def started_by(parent: subprocess.Popen[bytes]) -> int:
    """The pid of the program that this process has started; then the process is killed."""

    def runs(pid: int) -> bool:
        """While the leash becomes the program, it has no arguments at all."""
        found = arguments(pid)
        return bool(found) and str(LEASH) not in found

    with parent:
        try:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            eventually(lambda: runs(child))
        finally:
            parent.kill()
    return child


@pytest.mark.parametrize("how", ["kernel", "pipe"])
def test_a_program_ends_when_the_process_that_started_it_is_killed(how: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), how],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    child = started_by(parent)
    eventually(lambda: gone(child))


def test_a_program_ends_with_its_parent_although_a_shell_has_the_signal_ignored() -> None:
    """As of `command &` in a script: SIGINT is ignored by all that it starts, until one sets a handler."""
    code = textwrap.dedent(PARENT).replace("SIGTERM", "SIGINT")
    parent = subprocess.Popen(
        ["/bin/sh", "-c", 'trap "" INT; exec "$0" -c "$1" kernel', sys.executable, code],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    child = started_by(parent)
    eventually(lambda: gone(child))


def test_a_watcher_ends_with_its_program(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "", f"mark-{tmp_path}"]
    process = spawn(Command(argv, signal.SIGTERM, tmp_path, {}), by_pipe=True)
    assert process.wait(DEADLINE_S)
    assert process.poll() == 0
    eventually(lambda: not find(("", f"mark-{tmp_path}")))


def test_a_program_is_not_started_for_a_parent_that_is_gone() -> None:
    nobody = "999999999"
    done = subprocess.run(
        [sys.executable, "-I", "-S", LEASH, nobody, "15", "-1", "-1", "-1", "/bin/echo", "started"],
        stdout=subprocess.PIPE,
    )
    assert (done.returncode, done.stdout) == (EXIT_ORPHAN, b"")


def test_the_pid_is_the_programs_own(waiting: Process, tmp_path: Path) -> None:
    assert eventually(lambda: find(("-X", str(tmp_path)))) == [waiting.pid]


def test_a_program_that_runs_as_an_account_has_no_other_rights(folder: Path) -> None:
    account = postgres_place(folder, print).account
    log = folder / "log"
    argv = ["/bin/sh", "-c", "id -u; id -ru; id -G"]
    process = spawn(Command(argv, signal.SIGTERM, Path("/"), {"PATH": os.defpath}, account, log))
    assert process.wait(DEADLINE_S)
    uid, real_uid, *groups = map(int, log.read_text().split())
    if account:
        assert (uid, real_uid, groups) == (account.uid, account.uid, [account.gid])
    else:
        assert (uid, real_uid) == (os.geteuid(), os.getuid())
    assert uid != 0


def test_only_what_bears_both_halves_of_the_mark_is_ended(waiting: Process, tmp_path: Path) -> None:
    eventually(lambda: bears(waiting.pid, ("-X", str(tmp_path))))
    assert end_all(("-Y", str(tmp_path)), signal.SIGTERM, grace_s=0) == []
    assert end_all(("-X", str(tmp_path.parent)), signal.SIGTERM, grace_s=0) == []
    assert waiting.poll() is None


def test_what_does_not_end_at_the_gentle_signal_is_killed(waiting: Process, tmp_path: Path) -> None:
    mark = ("-X", str(tmp_path))
    eventually(lambda: bears(waiting.pid, mark))
    waiting.signal(signal.SIGSTOP)
    assert end_all(mark, signal.SIGTERM, grace_s=0.1) == [waiting.pid]
    assert waiting.wait(DEADLINE_S)
    assert waiting.poll() == -signal.SIGKILL


def test_the_last_lines_of_a_log_are_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    assert log_tail(log).splitlines()[-1] == "  line 99"
    assert "can't be read" in log_tail(tmp_path / "none")
