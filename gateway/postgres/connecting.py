"""A connection to Postgres, at its address or at the one of several that does what is asked for.

Owns: how long one address may keep the next one waiting. asyncpg tries the hosts of a URL one after the
other, so one that does not answer, and does not refuse either, would take all the time that there is.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import asyncpg

from gateway.server_urls import by_host

NEXT_AFTER_S: Final = 0.25
"""An address that has not answered for so long is waited for beside the next one."""
ADDRESSES_MAX: Final = 16

Attempt = asyncio.Task[asyncpg.Connection]


def addresses(url: str) -> list[str]:
    """A URL for each host that its authority names, everything else as it is."""
    return by_host(url)[:ADDRESSES_MAX]


async def connect(url: str, *, timeout: float = 60.0, **options: Any) -> asyncpg.Connection:  # noqa: ASYNC109 - as asyncpg's
    """As `asyncpg.connect`. Of several hosts it is the first to answer that fits `target_session_attrs`.
    Raises what the last of them failed at, or TimeoutError."""
    urls = addresses(url)
    if len(urls) == 1:
        return await asyncpg.connect(url, timeout=timeout, **options)
    async with asyncio.timeout(timeout):
        return await _first(urls, options)


async def _first(urls: list[str], options: dict[str, Any]) -> asyncpg.Connection:
    under_way: set[Attempt] = set()
    last: BaseException | None = None
    try:
        while urls or under_way:
            if urls:
                under_way.add(asyncio.create_task(asyncpg.connect(urls.pop(0), **options)))
            done, under_way = await asyncio.wait(
                under_way,
                timeout=NEXT_AFTER_S if urls else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for attempt in done:
                last = attempt.exception()
                if last is None:
                    under_way |= done - {attempt}
                    return attempt.result()
        assert last is not None
        raise last
    finally:
        for attempt in under_way:
            attempt.add_done_callback(_end)
            attempt.cancel()


def _end(attempt: Attempt) -> None:
    """It came too late."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().terminate()
