"""Names whose address changes between two look-ups, by a name server of the test's own (rebinding.py)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.relay.rebinding import BAD, command

ROOT = Path(__file__).parents[2]


def ended(*words: str) -> subprocess.CompletedProcess[str]:
    argv = command(*words)
    assert argv is not None
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.fixture
def redis_socket(redis_url: str) -> str:
    return unquote(urlsplit(redis_url).path)


def test_a_name_that_turns_private_leads_only_to_the_address_that_was_judged(redis_socket: str) -> None:
    done = ended(redis_socket)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(BAD))
def test_without_its_guard_a_target_is_caught(redis_socket: str, name: str) -> None:
    done = ended(redis_socket, "--bad", name)
    assert done.returncode == 1, done.stdout + done.stderr
    expected = "not judged" if name.endswith("by-name") else "['10.1.2.3'] was connected to"
    assert expected in done.stdout
