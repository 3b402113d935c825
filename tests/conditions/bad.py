"""Known-bad builds of what judges conditions, to prove that the campaign finds what it looks for.

python -m tests.conditions.bad NAME serve
"""

from __future__ import annotations

import sys
from functools import partial

from tests.support.bad_builds import Build, argv_of, edit, run


def _remembered_only() -> None:
    from gateway.log.append.conditions import Conditions

    edit(Conditions, "_settle", "if found.none:", "if True:")


def _known_without_a_look() -> None:
    from gateway.log.append.conditions import Conditions

    edit(Conditions, "told_by_redis", "Look(partition.epoch, condition.after, 0)",
         "Look(partition.epoch, max(condition.after, partition.committed_seq), 0)")  # fmt: skip


def _position_too_far() -> None:
    from gateway.http.outcomes import Outcomes

    edit(Outcomes, "of_condition", "page.position if page is not None and whole else ", "")


BUILDS: dict[str, Build] = {
    "remembered-only": Build("treats events that are not in Redis as absent", _remembered_only),
    "known-without-a-look": Build(
        "does not check committed events after `after`, if Redis is asked first", _known_without_a_look
    ),
    "position-too-far": Build("has a `position` after matches that it does not show", _position_too_far),
}


argv = partial(argv_of, "tests.conditions.bad")


if __name__ == "__main__":
    run(BUILDS, *sys.argv[1:])
