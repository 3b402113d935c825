"""What the server understands beyond ASGI: an answer as one message, a part at once, room for a large answer.

An ASGI answer is two messages, and uvicorn looks at each header of the first with two patterns. Nine of ten
answers here are small, known at once, and made of headers that were held to a grammar before: for these, one
message and one write. The application sends these messages always; before a server that does not name
EXTENSION in `scope["extensions"]`, `understood` writes them out as ASGI has them.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from gateway.http.request import Message, Scope, Send

EXTENSION: Final = "sluice.answers"

WHOLE: Final = "sluice.answer"
"""The message: {"type": WHOLE, "status", "head": header lines as bytes, each with its CR LF, "body"}."""

AT_ONCE: Final = "sluice.at_once"
"""The message {"type": AT_ONCE}, in the midst of an answer, gets a "function": it sends a part, if that takes
no waiting, and says whether it did."""

ROOM: Final = "sluice.room"
"""The message {"type": ROOM, "bytes"}, before a large answer, gets a "refused": why not, if so."""


def understood(scope: Scope, send: Send) -> Send:
    """A `send` that takes these messages, whatever server is behind it."""
    return send if EXTENSION in scope.get("extensions", ()) else partial(_written_out, send)


async def _written_out(send: Send, message: Message) -> None:
    if message["type"] == WHOLE:
        lines = [line.partition(b": ") for line in message["head"].split(b"\r\n")[:-1]]
        headers = [(name, value) for name, _, value in lines]
        await send({"type": "http.response.start", "status": message["status"], "headers": headers})
        await send({"type": "http.response.body", "body": message["body"]})
    elif message["type"] not in (AT_ONCE, ROOM):
        await send(message)
