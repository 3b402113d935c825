"""How the client with asyncio carries out a call: it sends requests, waits, and repeats what may be."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Self

from gateway.client.async_pool import Pool
from gateway.client.connection import (
    RetryLog,
    chance,
    default_head,
)
from gateway.client.http1 import address_of
from gateway.client.retry import Answer, Attempts, Call, Lost, Patience, Request, T, attempts


class AsyncCaller:
    """One gateway and one key: the connections, and the patience with which calls are repeated."""

    def __init__(self, url: str, key: str, *, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._pool = Pool(address_of(url), default_head(key))
        self._retries = RetryLog()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._pool.aclose()

    async def _carry_out(self, call: Call[T]) -> T:
        steps = attempts(call, self._patience, monotonic, chance)
        return await self._follow_steps(steps)

    async def _follow_steps(self, steps: Attempts[T]) -> T:
        step = next(steps)
        what = ""
        while True:
            got: Answer | Lost | None = None
            if isinstance(step, Request):
                what = f"{step.method} {step.path}"
                got = await self._pool.exchange(step)
            else:
                self._retries.repeated(what, step.why, step.seconds)
                await asyncio.sleep(step.seconds)
            try:
                step = steps.send(got)
            except StopIteration as done:
                result: T = done.value
                return result
