"""docs/how-to: each page's program runs as it stands, and prints what the page shows."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from gateway.config import Config
from spec.errors import Faults
from spec.parse import parse
from tests.docs.conftest import ROOT
from tests.support.accounts import open_account
from tests.support.databases import cloned
from tests.support.servers import Servers
from tests.support.serving import Served, serving

FOLDER = ROOT / "docs/how-to"
SPEC = json.loads((FOLDER / "shop.json").read_text())
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
FILE = re.compile(r"^`([\w.]+)`:\n```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"^```text\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
RUN = {".py": [sys.executable], ".mjs": ["node"]}
DEADLINE_S = 110


@pytest.fixture(scope="module")
async def gateway(servers: Servers, template: str) -> AsyncIterator[Served]:
    async with (
        cloned(servers, template) as url,
        serving(Config(redis_url=servers.redis_url, postgres_url=url)) as served,
    ):
        yield served


async def environ_of(gateway: Served, folder: Path) -> dict[str, str]:
    """After `. .sluice/run/env`, of a tenant of the page's own."""
    async with asyncpg.create_pool(gateway.postgres_url, min_size=1, max_size=1) as pool:
        account = await open_account(pool, SPEC)
    (folder / "key").write_text(account.write)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', os.defpath)}"
    return {**inherited, "PATH": path, "SLUICE_URL": gateway.url, "SLUICE_KEY_FILE": str(folder / "key")}


@pytest.mark.parametrize(
    "page", [path for path in PAGES if path.name != "testing.md"], ids=lambda path: path.stem
)
async def test_a_page_prints_what_it_shows(gateway: Served, tmp_path: Path, page: Path) -> None:
    text = page.read_text()
    ((name, _, program),) = FILE.findall(text)
    (shown,) = SHOWN.findall(text)
    command = RUN[Path(name).suffix]
    if shutil.which(command[0]) is None:  # said at the end of the run: tests/docs/conftest.py
        return
    (tmp_path / name).write_text(program)
    environ = await environ_of(gateway, tmp_path)
    ran = await asyncio.to_thread(
        subprocess.run,
        [*command, name],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == shown


def test_an_application_is_tested_as_the_page_says(tmp_path: Path) -> None:
    for name, _, text in FILE.findall((FOLDER / "testing.md").read_text()):
        (tmp_path / name).write_text(text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("SLUICE_", "PYTEST_"))
    }
    environ |= {"PATH": path, "SHOP_SPEC": str(FOLDER / "shop.json")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        tmp_path,
    ]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert "3 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_spec_of_the_pages_is_one() -> None:
    found = parse(SPEC, {})
    assert not isinstance(found, Faults), found


def test_the_index_names_every_page_and_links_lead_somewhere() -> None:
    index = (FOLDER / "README.md").read_text()
    for path in PAGES:
        assert f"]({path.name})" in index, path.name
    for path in (FOLDER / "README.md", *PAGES):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
            assert target.startswith("https://") or (FOLDER / target).exists(), f"{path.name}: {target}"
