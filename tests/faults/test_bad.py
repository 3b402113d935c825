"""The known-bad builds: each edits the product's text, which moves on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.faults.bad import BUILDS, GOOD

SPOIL = "import sys; from tests.faults.bad import BUILDS, GOOD; (BUILDS | GOOD)[sys.argv[1]].spoil()"


@pytest.mark.parametrize("name", [*BUILDS, *GOOD])
def test_what_a_known_bad_build_takes_out_is_still_there(name: str) -> None:
    ended = subprocess.run([sys.executable, "-c", SPOIL, name], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
