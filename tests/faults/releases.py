"""Gateways of an earlier release beside today's, on one Redis and one Postgres, exchanged both ways.

Owns: how an earlier release is made runnable, what it can do beside this one, and the fault that exchanges
them. The earlier release is the repository at a commit, with an environment of its own by its lock file.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.gateway_at import ROOT
from tests.faults.injections import INJECTIONS, Injection, Scene

KEPT = ROOT / ".venv/releases"
"""Made once for each commit."""
OF = "releases"
"""What such a fault is `of`."""
REFUSES_S = 30.0
SCRIPTS, MIGRATIONS = "gateway/log/redis/prelude.lua", "gateway/postgres/migrations"
_FORMAT = re.compile(r"^local FORMAT = '([0-9]+)'$", re.MULTILINE)
_SETTING = re.compile(r"\bSLUICE_[A-Z_]+\b")


@dataclass(frozen=True, slots=True)
class Release:
    """`folder` has its code and its environment."""

    commit: str
    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / ".venv/bin/python")

    @property
    def serve(self) -> tuple[str, ...]:
        return (self.python, "-m", "gateway", "serve")

    @property
    def format(self) -> str:
        """Of the keys of its epochs in Redis."""
        found = _FORMAT.search((self.folder / SCRIPTS).read_text())
        return found[1] if found else ""

    @property
    def migrations(self) -> list[str]:
        return sorted(path.name for path in (self.folder / MIGRATIONS).glob("*.sql"))

    @property
    def starts_beside_this(self) -> bool:
        """On a database that this release has migrated."""
        return self.migrations == _this().migrations

    @property
    def opens_epochs_of_this(self) -> bool:
        return self.format == _this().format

    def settings(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """Those that it has: a name that it does not know is a fault."""
        known = set(_SETTING.findall((self.folder / "deploy/env.example").read_text()))
        return {
            name: text for name, text in wanted.items() if name in known or not name.startswith("SLUICE_")
        }

    async def migrate(self, postgres_url: str, partitions: int) -> None:
        env = {**os.environ, "SLUICE_POSTGRES_URL": postgres_url, "SLUICE_PARTITIONS": str(partitions)}
        status, said = await self._run(env, "migrate")
        assert status == 0, said

    async def refuses(self, settings: Mapping[str, str]) -> None:
        """Raises AssertionError unless it says that it does not know the database's version."""
        status, said = await self._run({**settings, "SLUICE_PORT": "0"}, "serve")
        assert status == 1, f"{self.commit} serves on a newer database: {status} {said}"
        assert "this release knows" in said, said

    async def _run(self, env: Mapping[str, str], command: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            self.python, "-m", "gateway", command, cwd=self.folder, env=env,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            async with asyncio.timeout(REFUSES_S):
                said, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            return None, f"sluice {command} did not end within {REFUSES_S:g} s"
        return process.returncode, said.decode()


def _this() -> Release:
    return Release("", ROOT)


def release_of(ref: str) -> Release:
    """The repository at that commit, tag or branch, ready to run. Raises CalledProcessError where there is
    none, or its environment can't be made."""
    git = ("git", "-C", str(ROOT))
    found = subprocess.run(
        (*git, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}"), capture_output=True, check=True
    )
    commit = found.stdout.decode().strip()[:12]
    made = Release(commit, KEPT / commit)
    if not (made.folder / "gateway").exists():
        made.folder.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run((*git, "archive", commit), capture_output=True, check=True).stdout
        subprocess.run(("tar", "-x", "-C", str(made.folder)), input=archive, check=True)
    script = str(made.folder / "deploy/environment.py")
    subprocess.run((sys.executable, "-I", script, str(made.folder), "run"), check=True)
    return made


@asynccontextmanager
async def exchange(scene: Scene) -> AsyncIterator[None]:
    """A gateway is killed, or ends in order, and comes back as the other release; as today's where the
    earlier one does not start on this database any more."""
    gateway = scene.gateway()
    dies = scene.rng.random() < 0.5
    was = gateway.release
    gateway.serves = False
    if dies:
        gateway.kill()
    else:
        await asyncio.to_thread(gateway.keeper.stop)
    gateway.exchange()
    scene.say(f"{'SIGKILL' if dies else 'SIGTERM'} gateway {gateway.number} of {was}, then {gateway.release}")
    try:
        yield
    finally:
        await gateway.start()


INJECTIONS["exchange"] = Injection("exchange", frozenset(("gateways",)), exchange, of=OF, weight=4)
