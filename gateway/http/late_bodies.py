"""Bodies that come slowly: whether the key that sends one is still valid is looked at again where it ends.

Must not know: how keys are looked at.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.http.request import Message, Receive

LATE_S: Final = 1.0
"""As a request begins its key is looked at; once more where its body ends later than this."""


def looked_at_late(receive: Receive, look: Callable[[], Awaitable[object]]) -> Receive:
    """`receive`, which awaits `look` before it gives the end of a body that came slowly; `look` may raise."""
    late_at = time.monotonic() + LATE_S

    async def received() -> Message:
        message = await receive()
        ends = message["type"] == "http.request" and not message.get("more_body")
        if ends and time.monotonic() > late_at:
            await look()
        return message

    return received
