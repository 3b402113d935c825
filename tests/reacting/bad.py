"""Known-bad builds of what fires timers and takes the turns of sagas, to prove that the campaign finds what
it looks for.

python -m tests.reacting.bad NAME serve|relay
"""

from __future__ import annotations

import sys
from functools import partial

from tests.support.bad_builds import Build, argv_of, edit, run

argv = partial(argv_of, "tests.reacting.bad")


def _output_first() -> None:
    from gateway.reactions import firing

    edit(
        firing.Firing,
        "_fire",
        "tenant, timer, emission",
        "tenant, __import__('uuid').uuid4().bytes, emission",
    )
    edit(firing.Firing, "_end", "cut = None", "await asyncio.sleep(1.0)\n    cut = None")


def _no_condition() -> None:
    from gateway.reactions.firing import Firing

    edit(Firing, "_fire", 'unless(_watched_of(row["cancel_on"]), row["seq"], bytes(row["mark"]))', "None")


def _forgets_at_takeover() -> None:
    from gateway.reactions import sagas

    sagas.OURS = set()  # type: ignore[attr-defined]
    edit(sagas, "with_emitted", "emission, stream =", "OURS.add(ids[0])\n    emission, stream =")
    edit(
        sagas,
        "failed",
        "if step.name in state.steps",
        "if step.name in state.steps and state.steps[step.name].id in OURS",
    )


def _never_continues() -> None:
    from gateway.reactions.coordinator import Coordinator

    edit(
        Coordinator,
        "_next",
        "if saga is None or",
        "if stands.state.step >= 0 or saga is None or",
    )


BUILDS: dict[str, Build] = {
    "output-first": Build(
        "appends a firing under an id of its own, and notes afterwards that it fired", _output_first
    ),
    "no-condition": Build("fires without the condition that nothing has cancelled it", _no_condition),
    "forgets-at-takeover": Build(
        "compensates only those steps that the same process had taken", _forgets_at_takeover
    ),
    "never-goes-on": Build("takes no further step once the first one's event came", _never_continues),
}


if __name__ == "__main__":
    run(BUILDS, *sys.argv[1:])
