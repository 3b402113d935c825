"""Known-bad builds of what keeps states, to prove that the campaign finds what it looks for.

python -m tests.states.bad NAME serve
"""

from __future__ import annotations

import sys

from tests.outgoing.bad import Build, _edit


def _kept_by_any_handlers() -> None:
    from gateway.aggregates import kept

    kept.handlers_digest = lambda declared: bytes(16)


def _steps_left_out() -> None:
    from gateway.aggregates import kept

    kept._NOT_OF_A_FOLD |= {"revision", "upcasts"}  # type: ignore[misc]


def _of_a_lost_history() -> None:
    from gateway.log import postgres

    head, condition, _ = postgres.SQL["kept_nearest"].partition("AND k.event_id = (")
    assert condition
    postgres.SQL["kept_nearest"] = f"{head} ORDER BY k.version DESC LIMIT 1"


def _remembered_by_any_spec() -> None:
    from gateway.aggregates.folder import Folder
    from gateway.http.api import states

    _edit(Folder, "place", "deployed.revision", "0")
    _edit(states, "_place", "subject.deployed.revision", "0")


BUILDS: dict[str, Build] = {
    "any-handlers": Build("honours a kept state that other handlers folded", _kept_by_any_handlers),
    "no-steps": Build("honours a kept state that other steps between revisions made", _steps_left_out),
    "lost-history": Build("honours a kept state of events that were lost", _of_a_lost_history),
    "any-spec": Build("continues in memory from a state of another spec", _remembered_by_any_spec),
}


def argv(name: str | None, command: str) -> tuple[str, ...]:
    """How to start one; without a name, the product."""
    if name is None:
        return (sys.executable, "-m", "gateway", command)
    return (sys.executable, "-m", "tests.states.bad", name, command)


def main(name: str, command: str) -> None:
    """Never returns normally: serves until it is ended."""
    BUILDS[name].spoil()
    from gateway.__main__ import main as sluice

    sys.argv = ["sluice", command]
    sluice()


if __name__ == "__main__":
    main(*sys.argv[1:])
