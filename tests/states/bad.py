"""Known-bad builds of what keeps states, to prove that the campaign finds what it looks for.

python -m tests.states.bad NAME serve
"""

from __future__ import annotations

import sys
from functools import partial

from tests.support.bad_builds import Build, argv_of, edit, run


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

    edit(Folder, "place", "deployed.revision", "0")
    edit(states, "place_of", "subject.deployed.revision", "0")


def _past_gaps() -> None:
    from gateway.aggregates.running import RunningStates

    edit(RunningStates, "merge", "run.first != first", "False")
    edit(RunningStates, "add", "first != run.first + len(run.events)", "False")


BUILDS: dict[str, Build] = {
    "any-handlers": Build("honours a kept state that other handlers folded", _kept_by_any_handlers),
    "no-steps": Build("honours a kept state that other steps between revisions made", _steps_left_out),
    "lost-history": Build("honours a kept state of events that were lost", _of_a_lost_history),
    "past-gaps": Build("keeps states without what other gateways committed between", _past_gaps),
    "any-spec": Build("continues in memory from a state of another spec", _remembered_by_any_spec),
}


argv = partial(argv_of, "tests.states.bad")


if __name__ == "__main__":
    run(BUILDS, *sys.argv[1:])
