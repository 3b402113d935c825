"""Known-bad builds of what judges conditions, to prove that the campaign finds what it looks for.

python -m tests.conditions.bad NAME serve
"""

from __future__ import annotations

import sys

from tests.outgoing.bad import Build, _edit


def _remembered_only() -> None:
    from gateway.log.append.conditions import Conditions

    _edit(Conditions, "_settle", "elif found.none:", "elif True:")


def _position_too_far() -> None:
    from gateway.http.outcomes import Outcomes

    _edit(Outcomes, "of_condition", "page.position if page is not None and whole else ", "")


BUILDS: dict[str, Build] = {
    "remembered-only": Build("takes what Redis does not have for nothing", _remembered_only),
    "position-too-far": Build("has `position` behind matches that it does not show", _position_too_far),
}


def argv(name: str | None) -> tuple[str, ...]:
    """How to start a gateway; without a name, the product."""
    if name is None:
        return (sys.executable, "-m", "gateway", "serve")
    return (sys.executable, "-m", "tests.conditions.bad", name, "serve")


def main(name: str, command: str) -> None:
    """Never returns normally: serves until it is ended."""
    BUILDS[name].spoil()
    from gateway.__main__ import main as sluice

    sys.argv = ["sluice", command]
    sluice()


if __name__ == "__main__":
    main(*sys.argv[1:])
