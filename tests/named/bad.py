"""Known-bad builds of what names aggregates, to prove that the campaign finds what it looks for.

python -m tests.named.bad NAME serve
"""

from __future__ import annotations

import sys
from functools import partial

from tests.support.bad_builds import Build, argv_of, edit, run


def _one_scope() -> None:
    from gateway.http.api import sources

    edit(sources, "read_source", 'value.get("scope", "")', '"one"')


def _graded_by_none() -> None:
    from gateway.aggregates.records import Records

    found = "record_before(self._log, stream, ref, self._mapped_to)"
    edit(Records, "_before", f"await {found}", f"(await {found})[0], None")


def _not_skipped() -> None:
    from gateway.aggregates.records import Records

    edit(Records, "_try", "if append.skip_unchanged and", "if False and")


def _numbers_with_gaps() -> None:
    from gateway.aliases import kinds

    edit(kinds.ProjectNamer, "name", "await at.greatest(key)", "await at.greatest(key) + 1")


BUILDS: dict[str, Build] = {
    "one-scope": Build("treats equal ids of two files as one", _one_scope),
    "graded-by-none": Build("forgets the previous record", _graded_by_none),
    "not-skipped": Build("writes unchanged records", _not_skipped),
    "numbers-with-gaps": Build("skips a number with each batch", _numbers_with_gaps),
}

argv = partial(argv_of, "tests.named.bad")


if __name__ == "__main__":
    run(BUILDS, *sys.argv[1:])
