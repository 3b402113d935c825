from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

DEADLINE_S = 30


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self
        return json.loads(self.out)


class Sluice:
    """The command itself, as a process with an environment of its own."""

    def __init__(self, **environ: str) -> None:
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
        self._environ.update(environ, COLUMNS="200")

    def __call__(self, *words: str, stdin: bytes = b"", **environ: str) -> Ran:
        ran = subprocess.run(
            [sys.executable, "-m", "gateway", *words],
            input=stdin,
            capture_output=True,
            env={**self._environ, **environ},
            timeout=DEADLINE_S,
            check=False,
        )
        out, err = ran.stdout.decode(), ran.stderr.decode()
        assert "Traceback" not in err, err
        return Ran(ran.returncode, out, err)


@pytest.fixture
def unset() -> Sluice:
    """`sluice` with no setting at all."""
    return Sluice()


@pytest.fixture
def sluice(postgres_url: str) -> Sluice:
    """`sluice` with a prepared database."""
    return Sluice(SLUICE_POSTGRES_URL=postgres_url)
