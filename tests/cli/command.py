"""The command `sluice` for tests: a process of its own for each call, with an environment of its own.

Most calls are forked from a process that has imported all beforehand, since to import costs ten times what a
command does. `fresh` ones start as a person's do.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEADLINE_S = 60
IMPORTED = [
    "gateway.cli",
    "gateway.serve",
    "gateway.cli.servers",
    "gateway.operations.audit",
    "gateway.cli.signing",
    "gateway.inbound.signing",
    "rich.table",
    "typer.rich_utils",
    "typer._adapters",  # pydantic, which Typer imports once a command runs
    "httpx",
    "tests.cli.built",
]
_forking = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(IMPORTED)


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
    """`sluice`, with `environ` and no other setting of ours."""

    def __init__(self, *, fresh: bool = False, **environ: str) -> None:
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
        self._environ.update(environ, COLUMNS="200")
        self._run = _start if fresh else _fork

    def __call__(self, *words: str, stdin: bytes = b"", **environ: str) -> Ran:
        ran = self._run(words, {**self._environ, **environ}, stdin)
        assert "Traceback" not in ran.err, ran.err
        return ran


def _start(words: tuple[str, ...], environ: dict[str, str], stdin: bytes) -> Ran:
    ran = subprocess.run(
        [sys.executable, "-m", "gateway", *words],
        input=stdin,
        capture_output=True,
        env=environ,
        timeout=DEADLINE_S,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def _fork(words: tuple[str, ...], environ: dict[str, str], stdin: bytes) -> Ran:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "stdin").write_bytes(stdin)
        process = _forking.Process(target=_main, args=(words, environ, folder))
        process.start()
        process.join(DEADLINE_S)
        if process.exitcode is None:
            process.kill()
            process.join()
        said = [(folder / name).read_bytes().decode() for name in ("stdout", "stderr")]
        code = process.exitcode
        process.close()
        assert code is not None
        return Ran(code, *said)


def _main(words: tuple[str, ...], environ: dict[str, str], folder: Path) -> None:
    """In the new process, where the files in `folder` are its standard streams."""
    os.environ.clear()
    os.environ.update(environ)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        opened = os.open(folder / name, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.argv = ["sluice", *words]
    from gateway.cli import main

    main()
