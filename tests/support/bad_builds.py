"""Known-bad builds: gateways and relays with one safeguard taken out, to prove that a campaign finds what it
looks for. A package of tests lists its own in `bad.py`, and

    python -m tests.PACKAGE.bad NAME serve|relay

runs like `python -m gateway serve|relay`. Everything is done to the loaded modules of that process; the
product has no switch for any of it. Each edit asserts that what it takes out is there.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Build:
    what: str
    spoil: Callable[[], None]


def argv_of(module: str, name: str | None, command: str) -> tuple[str, ...]:
    """How to start a build that `module` lists; without a name, the product."""
    if name is None:
        return (sys.executable, "-m", "gateway", command)
    return (sys.executable, "-m", module, name, command)


def edit(owner: object, name: str, old: str, new: str) -> None:
    """In the source of a function of a class or module."""
    function = getattr(owner, name)
    text = textwrap.dedent(inspect.getsource(function))
    assert old in text, f"{old!r} is not there any more"
    made: dict[str, object] = {}
    exec("from __future__ import annotations\n" + text.replace(old, new), function.__globals__, made)
    setattr(owner, name, made[name])


def run(builds: Mapping[str, Build], name: str, command: str) -> None:
    """Never returns normally: serves until it is ended."""
    builds[name].spoil()
    from gateway.__main__ import main as sluice

    sys.argv = ["sluice", command]
    sluice()
