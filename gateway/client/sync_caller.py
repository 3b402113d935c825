# Made by deploy/synchronous.py from async_caller.py: change that one.
"""How the client with plain calls carries out a call: it sends requests, waits, and repeats what may be."""

from __future__ import annotations

import time
from time import monotonic
from typing import Self

from gateway.client.connection import (
    RetryLog,
    chance,
    default_head,
)
from gateway.client.http1 import address_of
from gateway.client.retry import Answer, Attempts, Call, Lost, Patience, Request, T, attempts
from gateway.client.sync_pool import Pool


class Caller:
    """One gateway and one key: the connections, and the patience with which calls are repeated."""

    def __init__(self, url: str, key: str, *, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._pool = Pool(address_of(url), default_head(key))
        self._retries = RetryLog()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.close()

    def _carry_out(self, call: Call[T]) -> T:
        steps = attempts(call, self._patience, monotonic, chance)
        return self._follow_steps(steps)

    def _follow_steps(self, steps: Attempts[T]) -> T:
        step = next(steps)
        what = ""
        while True:
            got: Answer | Lost | None = None
            if isinstance(step, Request):
                what = f"{step.method} {step.path}"
                got = self._pool.exchange(step)
            else:
                self._retries.repeated(what, step.why, step.seconds)
                time.sleep(step.seconds)
            try:
                step = steps.send(got)
            except StopIteration as done:
                result: T = done.value
                return result
