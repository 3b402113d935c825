"""docs/tour.md tells which files one POST executes: it names all of them, and no others."""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import gateway
from tests.http.raw import connected, request
from tests.support.calls import envelope, new_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.accounts import Account
    from tests.support.serving import Served

ROOT: Final = Path(gateway.__file__).parent.parent
OURS: Final = (f"{ROOT}/gateway/", f"{ROOT}/spec/")

STEPS: Final = {
    "StrictProtocol.data_received",
    "Together._do_each",
    "Sequencer.run",
    "Committer.run",
    "ToldTogether._answer_all",
}
"""Of the request: its bytes, the three queues it waits in, its outcome. All else is of other tasks."""

STEPS_MAX: Final = 25
CALLED_MAX: Final = 15


@contextmanager
def _walked() -> Iterator[set[str]]:
    """The files of this project whose code the steps of a request execute."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(OURS) and file not in files and _is_of_a_request(frame):
            files.add(file)

    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)


def _is_of_a_request(frame: FrameType) -> bool:
    """Listeners are told of the commit afterwards, and answer nothing."""
    above, of_a_step = frame, frame.f_code.co_qualname in STEPS
    while above.f_back is not None:
        above = above.f_back
        if above.f_code.co_qualname == "Followers.committed":
            return False
        of_a_step = of_a_step or above.f_code.co_qualname in STEPS
    return of_a_step


def _told(text: str) -> set[str]:
    links = re.findall(r"\]\(\.\./([\w/]+\.py)\)", text)
    return {str(ROOT / link) for link in links}


async def test_the_tour_names_each_file_that_an_append_executes(gateway: Served, tenant: Account) -> None:
    key, runs = new_id(), list[set[str]]()
    async with connected(gateway.port) as connection:
        for _ in range(5):
            body = json.dumps(envelope(1)).encode()
            with _walked() as files:
                answer = await connection.ask(request("POST", f"/order/{key}/was_noted", tenant.write, body))
            assert answer is not None
            assert answer.status == 201
            runs.append(files)
    walked = set.intersection(*runs[2:])  # the first two make the partition and the path known
    tour = (ROOT / "docs/tour.md").read_text()
    walk = tour[tour.index("\n1. ") : tour.index("Off that path")]
    steps, _, called = walk.partition("Called from these")
    assert _told(steps) | _told(called) == walked
    assert len(_told(steps)) <= STEPS_MAX
    assert len(_told(called)) <= CALLED_MAX
