"""Work that would hold the event loop, done beside it: in few threads, of each tenant one thing at a time.

Two mechanisms make that fair to all other requests: checking a schema lets go of the interpreter, and from
what runs in Python the interpreter is taken away after SWITCH_S, whenever the event loop has something to do.

Owns: whose turn it is, and how many wait. Must not know: what is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

SWITCH_S: Final = 0.001
"""How long work beside the loop keeps the interpreter while the loop wants it. The loop asks for it a few
times for each request, so Python's own 5 ms would be felt; below 1 ms the switches take more than they
give."""

THREADS: Final = 2
"""So that the work of one tenant does not wait behind that of another; more would only share the
interpreter."""

_T = TypeVar("_T")


class Busy(Exception):
    """It was not begun: too much waits already, or it waited too long. `why` is a sentence for its sender."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class _Turns:
    """Of one tenant: held by what runs, waited for by the others, in their order."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class Aside:
    """Threads for work that would hold up the event loop. Of a tenant one job runs, and `waiting_max` wait,
    each for `wait_s` seconds at most."""

    def __init__(self, waiting_max: int, wait_s: float) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="aside")
        self._turns: dict[bytes, _Turns] = {}
        self._waiting_max = waiting_max
        self._wait_s = wait_s

    async def run(self, tenant: bytes, work: Callable[[], _T]) -> _T:
        """What `work` returns or raises, called in a thread. What it touches, nothing else may change
        meanwhile. Raises Busy."""
        turns = self._turns.setdefault(tenant, _Turns())
        if turns.users > self._waiting_max:
            raise Busy(
                f"Of this tenant {self._waiting_max} heavy requests wait already; send fewer at a time."
            )
        turns.users += 1
        try:
            async with asyncio.timeout(self._wait_s):
                await turns.lock.acquire()
        except BaseException as fault:
            self._left(tenant, turns)
            if isinstance(fault, TimeoutError):
                raise Busy(
                    f"Other heavy requests of this tenant took over {self._wait_s:g} s; send fewer at a time."
                ) from None
            raise
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        running.add_done_callback(lambda done: self._done(tenant, turns, done))
        return await asyncio.shield(running)  # the turn ends with the work, whatever becomes of its request

    def close(self) -> None:
        """What runs comes to its end, what waits is not begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _done(self, tenant: bytes, turns: _Turns, done: asyncio.Future[_T]) -> None:
        if not done.cancelled():
            done.exception()  # is raised to its request, if that is still there
        turns.lock.release()
        self._left(tenant, turns)

    def _left(self, tenant: bytes, turns: _Turns) -> None:
        turns.users -= 1
        if not turns.users:
            del self._turns[tenant]
