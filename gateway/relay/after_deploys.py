"""When to look up what deployed specs declare: after they changed, in place of several times a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

ANYWAY_EVERY_S: Final = 5.0
"""A Postgres that was restored may have lost what was declared."""


class AfterDeploys:
    """`deployed` gives another object after each change of what is deployed; where it is None, nothing tells
    of changes, and each look is due."""

    def __init__(self, deployed: Callable[[], object] | None) -> None:
        self._deployed = deployed
        self._done: object = None
        self._begun: object = None
        self._anyway_at = 0.0
        self._now = asyncio.get_running_loop().time

    async def run(self, declare: Callable[[], Awaitable[bool]]) -> bool:
        """Calls `declare` where a look is due; whether it did. It returns whether there may be more, which
        the next call continues with, as it does where this one raises."""
        deployed = object() if self._deployed is None else self._deployed()
        now = self._now()
        if self._begun is None and deployed is self._done and now < self._anyway_at:
            return False
        begun = self._begun = deployed if self._begun is None else self._begun
        if not await declare():
            self._done, self._begun = begun, None
            self._anyway_at = now + ANYWAY_EVERY_S
        return True
