"""Events to a URL, signed by Standard Webhooks. Connects only to the address that was checked: no redirects,
no proxies of the environment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

import httpcore

from gateway import __version__
from gateway.network import GuardedNetwork, RefusedAddress, trusted
from gateway.relay.schedule import retry_after_s
from gateway.relay.targets.contract import (
    RESPONSE_BYTES_KEPT,
    SEND_TIMEOUT_S,
    Confirmed,
    Failed,
    Gone,
    Message,
    Outcome,
)
from gateway.relay.targets.signing import NoSecret, headers, key_of
from spec.targets.addresses import unsafe
from spec.targets.webhook import Webhook

_RESPONSE_BYTES_READ: Final = 64 * 1024  # more than that is not read: the connection is closed
_RESPONSE_S: Final = 2.0  # for a body that is not needed
_CONNECTIONS_MAX: Final = 64
_KEEPALIVE_S: Final = 30.0


class WebhookTarget:
    """`clock` gives Unix seconds. To be made in a thread (gateway/network.py)."""

    def __init__(
        self,
        declared: Webhook,
        environ: Mapping[str, str],
        *,
        allow_private: bool,
        clock: Callable[[], float] = time.time,
        timeout_s: float = SEND_TIMEOUT_S,
    ) -> None:
        self._declared = declared
        self._environ = environ
        self._refused = None if allow_private else unsafe(declared.url)
        self._clock = clock
        self._timeout_s = timeout_s
        self._agent = f"sluice/{__version__}".encode()
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=trusted(),
            max_connections=_CONNECTIONS_MAX,
            keepalive_expiry=_KEEPALIVE_S,
            network_backend=GuardedNetwork(allow_private=allow_private),
        )

    async def send(self, parcel: Message) -> Outcome:
        if self._refused is not None:
            return Failed(self._refused)
        try:
            signed = self._headers(parcel)
            async with asyncio.timeout(self._timeout_s) as deadline:
                return await self._post(parcel, signed, deadline)
        except NoSecret as absent:
            return Failed(str(absent))
        except TimeoutError:
            return Failed(f"No response within {self._timeout_s:g} s.")
        except RefusedAddress as refused:
            return Failed(f"{refused}.")
        except (OSError, httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as trouble:
            return Failed(f"The target can't be reached: {_plainly(trouble)}.")

    async def close(self) -> None:
        await self._pool.aclose()

    def _headers(self, parcel: Message) -> list[tuple[bytes, bytes]]:
        key = key_of(self._declared.secret, self._environ)
        return [
            (b"host", _host(self._declared.url)),
            (b"content-type", b"application/json"),
            (b"user-agent", self._agent),
            (b"content-length", b"%d" % len(parcel.body)),
            *headers(key, parcel.id, int(self._clock()), parcel.body),
        ]

    async def _post(
        self, parcel: Message, signed: list[tuple[bytes, bytes]], deadline: asyncio.Timeout
    ) -> Outcome:
        async with self._pool.stream(
            "POST", self._declared.url, headers=signed, content=parcel.body
        ) as answer:
            deadline.reschedule(None)  # it has answered; its body has a time of its own
            return self._judged(answer, await _beginning(answer))

    def _judged(self, answer: httpcore.Response, response: bytes) -> Outcome:
        status = answer.status
        if 200 <= status < 300:
            return Confirmed(status, response)
        if status == 410:
            return Gone("The receiver answered 410 Gone: it wants no further events.", status, response)
        if 300 <= status < 400:
            return Failed(f"The target answered {status}, a redirect: it is not followed.", status, response)
        asked = next((value for name, value in answer.headers if name.lower() == b"retry-after"), None)
        wait_s = retry_after_s(asked, self._clock())
        return Failed(f"The target answered {status}.", status, response, wait_s)


def _host(url: str) -> bytes:
    return url.partition("://")[2].partition("/")[0].partition("?")[0].encode()


def _plainly(trouble: BaseException) -> str:
    return str(trouble) or type(trouble).__name__


async def _beginning(answer: httpcore.Response) -> bytes:
    """What is kept of the body. The status has said all by then: a body that breaks off changes nothing."""
    kept, read = b"", 0
    try:
        async with asyncio.timeout(_RESPONSE_S):
            async for part in answer.aiter_stream():
                read += len(part)
                kept = (kept + part)[:RESPONSE_BYTES_KEPT]
                if read >= _RESPONSE_BYTES_READ:
                    break
    except (TimeoutError, httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError):
        pass
    return kept
