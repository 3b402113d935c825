"""Events into a stream of the user's own Redis."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from redis._parsers import _AsyncRESP2Parser
from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import InvalidResponse, RedisError

from gateway.network import RefusedAddress
from gateway.relay.targets.addresses import (
    DevelopmentConnection,
    DevelopmentTlsConnection,
    GuardedConnection,
    GuardedTlsConnection,
)
from gateway.relay.targets.contract import SEND_TIMEOUT_S, Confirmed, Failed, Message, Outcome
from gateway.server_urls import redacted
from spec.targets.addresses import unsafe
from spec.targets.redis_stream import RedisStream

_CONNECTIONS_MAX: Final = 64
_ANSWER_BYTES_MAX: Final = 4096
"""Of a text that a Redis answers: the id of an entry, or a sentence."""
_RESP2: Final = 2


class ShortAnswers(_AsyncRESP2Parser):
    """Reads what is answered to the commands that are sent: lines and short texts. hiredis would make room
    for as many items as a list is said to have, and hold the event loop for seconds when it frees them."""

    async def _readline(self) -> bytes:
        line = bytes(await super()._readline())
        if line[:1] == b"*":
            raise InvalidResponse("It answered with a list, which no command asks for")
        return line

    async def _read(self, length: int) -> bytes:
        if not 0 <= length <= _ANSWER_BYTES_MAX:
            raise InvalidResponse("It answered with a string that is too long")
        return bytes(await super()._read(length))


class RedisStreamTarget:
    """An entry has the fields `id`, `aggregate_type`, `key`, `type` and `event`, the event in JSON. Readers
    of the stream deduplicate by `id`: an attempt whose answer was lost is repeated."""

    def __init__(
        self, declared: RedisStream, *, allow_private: bool, timeout_s: float = SEND_TIMEOUT_S
    ) -> None:
        self._timeout_s = timeout_s
        self._declared = declared
        self._refused = None if allow_private else unsafe(declared.url)
        pool: BlockingConnectionPool = BlockingConnectionPool.from_url(
            declared.url,
            max_connections=_CONNECTIONS_MAX,
            timeout=None,  # an attempt's own time bounds its wait for one
            socket_timeout=SEND_TIMEOUT_S,
            socket_connect_timeout=SEND_TIMEOUT_S,
            retry=None,
            protocol=_RESP2,
            parser_class=ShortAnswers,
        )
        secured = declared.url.startswith("rediss:")
        if allow_private:
            pool.connection_class = DevelopmentTlsConnection if secured else DevelopmentConnection
        else:
            pool.connection_class = GuardedTlsConnection if secured else GuardedConnection
        self._redis: Redis = Redis(connection_pool=pool)

    async def send(self, parcel: Message) -> Outcome:
        if self._refused is not None:
            return Failed(self._refused)
        fields: dict[Any, Any] = {
            "id": parcel.id,
            "aggregate_type": parcel.aggregate_type,
            **({} if parcel.key is None else {"key": parcel.key}),
            "type": parcel.type,
            "event": parcel.body,
        }
        declared = self._declared
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._redis.xadd(
                    declared.stream,
                    fields,
                    maxlen=declared.maxlen,
                    approximate=False,
                )
        except TimeoutError:
            return Failed(f"No response within {self._timeout_s:g} s.")
        except (
            RefusedAddress,
            RedisError,
            OSError,
            ValueError,
        ) as trouble:  # of what is no answer of a Redis
            return Failed(f"Redis rejected the command, or can't be reached: {redacted(str(trouble))}.")
        return Confirmed()

    async def close(self) -> None:
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()
