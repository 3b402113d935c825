"""What the intake asks of Amazon SNS over HTTPS: certificates that sign messages, and confirmations of
subscriptions.

Owns how it asks: over a network that judges addresses, without redirects and proxies, under limits of time,
size and number, each URL once however many wait for it. Must not know which URLs may be asked for: `sns` says
so, and nothing comes here before all that can be checked of a message is checked.
"""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from urllib.parse import urlsplit

import httpcore

from gateway import __version__
from gateway.buckets import Buckets
from gateway.inbound.results import Deferred
from gateway.inbound.verify import sns
from gateway.inbound.verify.sns import Certificate
from gateway.network import trusted

logger = logging.getLogger("sluice.intake")

_V = TypeVar("_V")

CALL_S: Final = 5.0
"""A call from the name's look-up to the last byte. It continues when its sender is answered: the next one may
find it done."""

BYTES_MAX: Final = 16 * 1024
"""A certificate has 2 KB."""

CERTIFICATES_MAX: Final = 64
"""Regions have one or two each. Only what Amazon serves and what is in order comes in, so no stranger can
push others out."""

CALLS_PER_S: Final = 1 / 3
CALLS_BURST: Final = 10
"""Calls that one source can bring about: a certificate a year and region, and a confirmation a subscription.
Strangers who know a topic may ask for certificates that are not there, and for no more than that."""

CONFIRMED_MAX: Final = 1_000
CONNECTIONS_MAX: Final = 8
AGAIN_S: Final = 5


class Amazon:
    """One a process. `certificates` are those at hand, by URL. `wait_s` is how long a request waits;
    `trusted` the certificate authorities that are trusted, else the usual ones."""

    def __init__(
        self, network: httpcore.AsyncNetworkBackend, wait_s: float, trusted: ssl.SSLContext | None = None
    ) -> None:
        self.certificates: dict[str, Certificate] = {}
        self._confirmed: dict[str, None] = {}
        self._network = network
        self._wait_s = wait_s
        self._trusted = trusted
        self._pool: httpcore.AsyncConnectionPool | None = None
        self._buckets = {call: Buckets(CALLS_PER_S, CALLS_BURST) for call in ("certificate", "confirmation")}
        self._under_way: dict[str, asyncio.Task[str | None]] = {}

    async def certify(self, url: str, who: str) -> Deferred | None:
        """Has the certificate at hand afterwards; else what to answer. `who` brings it about."""
        return await self._asked("certificate", url, who, self._fetch)

    async def confirm(self, url: str, who: str) -> Deferred | None:
        """The same for a subscription, which is confirmed once."""
        if url in self._confirmed:
            return None
        return await self._asked("confirmation", url, who, self._visit)

    async def close(self) -> None:
        tasks = [*self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._pool is not None:
            await self._pool.aclose()

    async def _asked(
        self, what: str, url: str, who: str, call: Callable[[str], Awaitable[str | None]]
    ) -> Deferred | None:
        task = self._under_way.get(url)
        if task is None:
            wait_s = self._buckets[what].take(who, time.monotonic())
            if wait_s > 0:
                return _undecided(what, math.ceil(wait_s))
            task = self._under_way[url] = asyncio.create_task(self._told(what, url, call))
            task.add_done_callback(lambda _: self._under_way.pop(url))
        try:
            async with asyncio.timeout(self._wait_s):
                why = await asyncio.shield(task)
        except TimeoutError:
            return _undecided(what)
        return None if why is None else _undecided(what)

    async def _told(self, what: str, url: str, call: Callable[[str], Awaitable[str | None]]) -> str | None:
        """What it came to, None if all is well; a fault is logged once."""
        try:
            async with asyncio.timeout(CALL_S):
                why = await call(url)
        except TimeoutError:
            why = f"no answer within {CALL_S:g} s"
        except (OSError, httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as trouble:
            why = str(trouble) or type(trouble).__name__
        if why is not None:
            told = {"what": what, "host": urlsplit(url).netloc, "reason": why}
            logger.warning("webhook_call_failed", extra=told)
        return why

    async def _fetch(self, url: str) -> str | None:
        status, body = await self._get(url)
        if status != 200 or len(body) > BYTES_MAX:
            return f"status {status}, {len(body)} bytes"
        found = sns.certificate(body, time.time_ns() // 1_000_000)
        if isinstance(found, str):
            return found
        _keep(self.certificates, url, found, CERTIFICATES_MAX)
        return None

    async def _visit(self, url: str) -> str | None:
        status, _ = await self._get(url)
        if status != 200:
            return f"status {status}"
        _keep(self._confirmed, url, None, CONFIRMED_MAX)
        return None

    async def _get(self, url: str) -> tuple[int, bytes]:
        """Status, and of the body no more than shows that it is too large."""
        headers = [("host", urlsplit(url).netloc), ("user-agent", f"sluice/{__version__}")]
        pool = await self._opened()
        async with pool.stream("GET", url, headers=headers) as answer:
            body = b""
            async for part in answer.aiter_stream():
                body += part
                if len(body) > BYTES_MAX:
                    break
            return answer.status, body[: BYTES_MAX + 1]

    async def _opened(self) -> httpcore.AsyncConnectionPool:
        """Made when it is first asked for: to read the authorities takes a while, and few need it."""
        if self._trusted is None:
            self._trusted = await asyncio.to_thread(trusted)
        if self._pool is None:
            self._pool = httpcore.AsyncConnectionPool(
                ssl_context=self._trusted,
                max_connections=CONNECTIONS_MAX,
                max_keepalive_connections=0,
                network_backend=self._network,
            )
        return self._pool


def _keep(kept: dict[str, _V], url: str, value: _V, most: int) -> None:
    """As the newest; the oldest goes where there are too many."""
    kept.pop(url, None)
    if len(kept) >= most:
        del kept[next(iter(kept))]
    kept[url] = value


def _undecided(what: str, retry_after_s: int = AGAIN_S) -> Deferred:
    why = f"Amazon SNS did not return its {what}"
    return Deferred(why, unknown=False, retry_after_s=retry_after_s)
