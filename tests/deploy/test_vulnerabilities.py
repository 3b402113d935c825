"""deploy/vulnerabilities, with an index of the test's own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.shipped import DEPLOY
from tests.support.ports import free_port

ADVISORY = {
    "id": "PYSEC-2026-1",
    "aliases": ["CVE-2026-0001"],
    "fixed_in": ["2.1"],
    "details": "Bad\nthings.",
    "withdrawn": None,
}
LOCK = """# Every package.
fine==1.0 \\
    --hash=sha256:00
bad==2.0 ; python_full_version < '3.12' \\
    --hash=sha256:00 \\
    --hash=sha256:11
"""


class Index(ThreadingHTTPServer):
    """`answers`: by path, a status and a body."""

    answers: dict[str, tuple[int, Any]]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/pypi"


class Handler(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        status, body = self.server.answers.get(self.path, (404, {}))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def index() -> Iterator[Index]:
    with Index(("127.0.0.1", 0), Handler) as server:
        server.answers = {
            "/pypi/fine/1.0/json": (200, {"vulnerabilities": []}),
            "/pypi/bad/2.0/json": (200, {"vulnerabilities": []}),
        }
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    made = tmp_path / "requirements.lock"
    made.write_text(LOCK)
    return made


def asked(index: str, *locks: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, DEPLOY / "vulnerabilities", *locks]
    env = {"PACKAGE_INDEX": index, "NO_PROXY": "*"}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)


def test_packages_without_advisories_are_fine(index: Index, lock: Path) -> None:
    done = asked(index.url, lock)
    assert (done.returncode, done.stdout) == (0, "2 packages, none of them listed as vulnerable\n")


def test_an_advisory_is_shown_with_the_version_that_fixes_it(index: Index, lock: Path) -> None:
    index.answers["/pypi/bad/2.0/json"] = 200, {"vulnerabilities": [ADVISORY]}
    done = asked(index.url, lock)
    assert done.returncode == 1
    assert done.stdout == "bad 2.0: PYSEC-2026-1, CVE-2026-0001; fixed in 2.1. Bad things.\n"


def test_an_advisory_that_was_withdrawn_does_not_count(index: Index, lock: Path) -> None:
    withdrawn = {**ADVISORY, "withdrawn": "2026-02-01T00:00:00Z"}
    index.answers["/pypi/bad/2.0/json"] = 200, {"vulnerabilities": [withdrawn]}
    assert asked(index.url, lock).returncode == 0


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (404, {}, "the index answers 404"),
        (503, {}, "the index answers 503"),
        (200, {}, "the index does not list vulnerabilities"),
        (200, [], "the index does not list vulnerabilities"),
        (200, {"vulnerabilities": ["x"]}, "the index does not list vulnerabilities"),
        (200, b"<html>", "JSONDecodeError"),
    ],
)
def test_a_package_that_the_index_does_not_tell_of_is_not_taken_for_safe(
    index: Index, lock: Path, status: int, body: Any, why: str
) -> None:
    index.answers["/pypi/fine/1.0/json"] = status, body
    done = asked(index.url, lock)
    assert done.returncode == 2
    assert f"1 of 2 packages are not looked up at {index.url}, fine 1.0 first: {why}" in done.stderr
    assert "none of them" not in done.stdout


def test_what_is_found_counts_more_than_what_is_not_known(index: Index, lock: Path) -> None:
    index.answers = {"/pypi/bad/2.0/json": (200, {"vulnerabilities": [ADVISORY]})}
    done = asked(index.url, lock)
    assert done.returncode == 1
    assert "This says nothing about them." in done.stderr


def test_an_index_that_can_not_be_reached_has_a_status_of_its_own(lock: Path) -> None:
    done = asked(f"http://127.0.0.1:{free_port()}", lock)
    assert done.returncode == 2
    assert "2 of 2 packages" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("index", ["file:///etc", "nonsense"])
def test_an_index_is_reached_by_http(index: str, lock: Path) -> None:
    done = asked(index, lock)
    assert done.returncode == 2
    assert "no URL of http" in done.stderr


def test_a_lock_that_can_not_be_read_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.lock"
    wrong.write_text("requests>=2\n")
    for lock, why in ((wrong, "wrong.lock:1"), (tmp_path / "none.lock", "No such file")):
        done = asked("http://127.0.0.1:1", lock)
        assert done.returncode == 3
        assert why in done.stderr


def test_the_shipped_locks_are_read_whole() -> None:
    """No line of them is passed over."""
    done = asked(f"http://127.0.0.1:{free_port()}")
    names = {
        line.split("==")[0] + line.split("==")[1].split()[0]
        for lock in DEPLOY.glob("requirements*.lock")
        for line in lock.read_text().splitlines()
        if line[:1].isalnum()
    }
    assert f"{len(names)} of {len(names)} packages" in done.stderr
