"""`X-Correlation-Id` of every answer: the id that the request brings, if it is a UUID in lower case, else a
new UUIDv7. An append's own answer names the id that its events have, and is left as it is.

Must not know what is answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from uuid_utils import uuid7

from gateway.admit.preconditions import collect, read_correlation_id
from gateway.http.asgi_extension import WHOLE
from gateway.http.request import Head, Message, Scope

NAME: Final = b"x-correlation-id"
_BEGINS: Final = NAME + b": "


def correlation_id_of(head: Head) -> str:
    """Of a request of which no more was read."""
    return read_correlation_id(head.joined(NAME)) or str(uuid7())


def correlation_id_in(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The same by its headers, as they were sent."""
    return read_correlation_id(collect(headers, (NAME,)).get(NAME)) or str(uuid7())


def line_of(value: bytes | None) -> bytes:
    """The header line for a request that brings this one value, or none."""
    return b"%b%b\r\n" % (_BEGINS, (read_correlation_id(value) or str(uuid7())).encode())


def correlate(message: Message, scope: Scope) -> None:
    """The beginning of an answer, or one that is whole, tells the id from here on."""
    if message["type"] == WHOLE:
        if _BEGINS not in message["head"]:
            message["head"] += b"%b%b\r\n" % (_BEGINS, correlation_id_in(scope["headers"]).encode())
    elif all(name != NAME for name, _ in message["headers"]):
        told = correlation_id_in(scope["headers"]).encode()
        message["headers"] = [*message["headers"], (NAME, told)]
