"""`deploy/`: what is locked, and how a Python is found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.dev.conftest import ROOT

DEPLOY = ROOT / "deploy"
LOCKS = {"requirements": (), "requirements-run": ("embedded",), "requirements-test": ("embedded", "test")}


def pins(lock: str) -> dict[str, str]:
    """Name to version of what the lock file names."""
    text = (DEPLOY / f"{lock}.lock").read_text()
    return {
        canonicalize_name(name): version for name, version in re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", text)
    }


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_has_what_pyproject_asks_for(lock: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = list(project["dependencies"])
    for extra in LOCKS[lock]:
        asked += project["optional-dependencies"][extra]
    locked = pins(lock)
    for requirement in map(Requirement, asked):
        version = locked.get(canonicalize_name(requirement.name))
        assert version, f"{requirement} is not in {lock}.lock: run deploy/lock"
        assert requirement.specifier.contains(version), f"{requirement}, but {version} is in {lock}.lock"


def test_the_locks_agree_and_each_holds_the_one_before() -> None:
    smaller, middle, larger = (pins(lock).items() for lock in LOCKS)
    assert smaller <= middle <= larger


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_a_digest_and_no_place_is_named(lock: str) -> None:
    text = (DEPLOY / f"{lock}.lock").read_text()
    for pin in re.split(r"(?m)^(?=[\w.-]+==)", text)[1:]:
        assert "--hash=sha256:" in pin
    assert not re.search(r"://|--index|--find-links|file:", text)


def find_python(path: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    script = f'. "{DEPLOY}/environment.sh"; find_python'
    return subprocess.run(
        ["/bin/sh", "-c", script], env={"PATH": str(path), **environ}, capture_output=True, text=True
    )


def interpreter(path: Path, version: str, *, venv: bool) -> None:
    path.write_text(f'#!/bin/sh\ncase "$3" in *ensurepip*) exit {int(not venv)};; *) echo {version};; esac\n')
    path.chmod(0o755)


def test_the_newest_python_that_can_make_an_environment_is_taken(tmp_path: Path) -> None:
    interpreter(tmp_path / "python3.13", "3.13", venv=False)
    interpreter(tmp_path / "python3.12", "3.12", venv=True)
    interpreter(tmp_path / "python3.11", "3.11", venv=True)
    assert find_python(tmp_path).stdout == "python3.12\n"


def test_a_python_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    interpreter(tmp_path / "python3", "", venv=True)
    done = find_python(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Python 3.11 or newer is needed" in done.stderr


def test_without_the_venv_module_the_package_to_install_is_named(tmp_path: Path) -> None:
    interpreter(tmp_path / "python3", "3.11", venv=False)
    done = find_python(tmp_path)
    assert done.returncode == 1
    assert "apt-get install python3.11-venv" in done.stderr


def test_an_interpreter_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "with blank").mkdir()
    named = tmp_path / "with blank/python"
    interpreter(named, "3.12", venv=True)
    assert find_python(tmp_path, SLUICE_PYTHON=str(named)).stdout == f"{named}\n"
    assert "is no Python 3.11" in find_python(tmp_path, SLUICE_PYTHON="/none").stderr


def check(root: Path, mode: str) -> int:
    words: list[str | Path] = [sys.executable, "-I", root / "deploy/environment.py", root, mode, "--check"]
    return subprocess.run(words).returncode


def test_an_environment_is_brought_up_to_date_only_when_something_changed(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    for name in ("deploy/environment.py", *(f"deploy/{lock}.lock" for lock in LOCKS), "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    assert check(tmp_path, "run") == 1
    digest = "import sys; sys.path.insert(0, sys.argv[1]); import environment; from pathlib import Path; "
    digest += "print(environment.digest(Path(sys.argv[2])))"
    words: list[str | Path] = [sys.executable, "-c", digest, tmp_path / "deploy", tmp_path]
    found = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    state = {"root": str(tmp_path), "mode": "run", "digest": found}
    (tmp_path / ".venv/sluice.json").write_text(json.dumps(state))
    assert (check(tmp_path, "run"), check(tmp_path, "test")) == (0, 1)
    with (tmp_path / "deploy/requirements-run.lock").open("a") as lock:
        lock.write("# changed\n")
    assert check(tmp_path, "run") == 1
