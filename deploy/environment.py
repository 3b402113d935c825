"""Brings `.venv` up to date with a lock file. Standard library only.

    python -I environment.py ROOT run|test [--check]

Quiet when there is nothing to do. Several at once wait for each other. `.venv/sluice.json` remembers what was
installed, so a second start costs a few milliseconds (`--check` only tells by its status whether it would be
one). An environment that `run` has made is extended by `test`, and one that `test` has made does for `run`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

MODES = ("run", "test")
"""Each includes the ones before."""
PIP_OPTIONS = ("-qq", "--disable-pip-version-check", "--no-input", "--no-deps", "--require-hashes")


def main(root: Path, mode: str) -> None:
    """Return when `.venv` is fit for `mode`. Exits with a message when it can't be made so."""
    environment = root / ".venv"
    with locked(Path(__file__)):
        if fit(environment, root, mode):
            return
        state = remembered(environment)
        if not works(environment) or state.get("root", str(root)) != str(root):
            say(f"making {environment} (Python {sys.version_info.major}.{sys.version_info.minor})")
            make(environment)
        mode = max(mode, state.get("mode", mode), key=MODES.index)
        install(environment, root, mode)
        write_state(environment, {"root": str(root), "mode": mode, "digest": digest(root)})


def fit(environment: Path, root: Path, mode: str) -> bool:
    """Whether it holds what the lock names for `mode`, and the interpreter is there."""
    state = remembered(environment)
    return (
        python(environment).exists()
        and state.get("root") == str(root)  # its scripts carry the path of the folder that it was made in
        and state.get("digest") == digest(root)
        and MODES.index(mode) <= MODES.index(state.get("mode", MODES[0]))
    )


def remembered(environment: Path) -> dict[str, str]:
    """What `write_state` wrote; {} when it didn't, as in an environment that somebody made by hand."""
    try:
        state: dict[str, str] = json.loads((environment / "sluice.json").read_text())
    except (OSError, ValueError):
        return {}
    return state


def works(environment: Path) -> bool:
    """Whether its interpreter runs, is new enough, and has pip."""
    check = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    try:
        done = subprocess.run([python(environment), "-I", "-c", check], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def make(environment: Path) -> None:
    """A new environment in place of whatever is there."""
    try:
        if environment.is_symlink():
            environment.unlink()
        elif environment.exists():
            shutil.rmtree(environment)
        venv.create(environment, with_pip=True, symlinks=True)
    except (OSError, subprocess.CalledProcessError) as fault:
        sys.exit(f"sluice: {environment} can't be made: {fault}")


def install(environment: Path, root: Path, mode: str) -> None:
    """Everything that the lock names, and the project itself, as it lies there."""
    say(f"installing what deploy/requirements-{mode}.lock names")
    # The tests import a small part of it, which is compiled then.
    compiled = ("--no-compile",) if mode == "test" else ()
    pip(environment, *PIP_OPTIONS, *compiled, "--requirement", root / f"deploy/requirements-{mode}.lock")
    pip(environment, *PIP_OPTIONS[:-1], "--no-build-isolation", "--editable", root)


def pip(environment: Path, *words: str | Path) -> None:
    """Its output goes to standard error: standard output belongs to the command that comes after."""
    command = [python(environment), "-I", "-m", "pip", "install", *words]
    if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), check=False).returncode:
        sys.exit(f"sluice: the installation into {environment} failed, see above; start again to go on.")


def digest(root: Path) -> str:
    """Of all that decides what is installed."""
    found = hashlib.sha256()
    for file in (*(root / f"deploy/requirements-{mode}.lock" for mode in MODES), root / "pyproject.toml"):
        found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def write_state(environment: Path, state: dict[str, str]) -> None:
    unfinished = environment / "sluice.json.unfinished"
    unfinished.write_text(json.dumps(state))
    unfinished.replace(environment / "sluice.json")


def python(environment: Path) -> Path:
    return environment / "bin/python"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One at a time, by a lock on a file that is there anyway."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another one is making .venv: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def say(line: str) -> None:
    print(f"sluice: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    if sys.argv[3:] == ["--check"]:
        sys.exit(not fit(Path(sys.argv[1], ".venv"), Path(sys.argv[1]), sys.argv[2]))
    main(Path(sys.argv[1]), sys.argv[2])
