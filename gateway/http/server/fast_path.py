"""What the server asks before it makes an ASGI scope: whether a request is answered without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Reply = Callable[[int, bytes, bytes], None]
"""Called once with the answer: status, header lines each with its CR LF, body."""


class FastPath(Protocol):
    def take(
        self,
        method: bytes,
        target: bytes,
        headers: dict[bytes, bytes],
        body: bytes,
        reply: Reply,
        give_up: Callable[[], None],
    ) -> bool:
        """Takes a GET or POST whose body is whole and of which each header was sent once. Later it calls
        either `reply`, or for a GET `give_up`: the application has to answer. False: it did nothing."""
        ...
