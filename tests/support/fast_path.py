"""What tests of the fast path share: whether it takes a request, and bugs at its hand-over."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.log.append.sequencer import Sequencer


class Taken:
    """What `path`, a class with `take`, said to each request."""

    def __init__(self, patch: pytest.MonkeyPatch, path: type) -> None:
        self.said: list[bool] = []
        self.by: set[Any] = set()
        take = path.take  # type: ignore[attr-defined]

        def told(*args: Any) -> bool:
            self.by.add(args[0])
            self.said.append(take(*args))
            return self.said[-1]

        patch.setattr(path, "take", told)


def broken(*_args: object, **_more: object) -> object:
    raise RuntimeError("a bug")


def break_hand_over(patch: pytest.MonkeyPatch) -> None:
    """The log takes an append on, and then fails."""
    take_on = Sequencer._take_on

    def failing(self: Sequencer, *args: Any) -> None:
        take_on(self, *args)
        raise RuntimeError("a bug")

    patch.setattr(Sequencer, "_take_on", failing)


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The methods of the requests that failed on the fast path, as logged."""
    return [record.method for record in caplog.records if record.msg == "fast_path_failed"]
