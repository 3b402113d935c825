"""Server-sent events of the feed, out of the bytes that arrive. Pure.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, as far as the feed uses it.
"""

from __future__ import annotations

from collections.abc import Iterator


class Messages:
    """What one connection has sent; begin with a new one at each."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, received: bytes) -> Iterator[tuple[str, bytes | None]]:
        """The messages that are complete now: position, and the event's JSON or None where only that
        moved."""
        *blocks, self._rest = (self._rest + received).split(b"\n\n")
        for block in blocks:
            position: str = ""
            event: bytes | None = None
            for line in block.split(b"\n"):
                if line.startswith(b"data: "):
                    event = line[6:]
                elif line.startswith(b"id: "):
                    position = line[4:].decode()
            if position:
                yield position, event
