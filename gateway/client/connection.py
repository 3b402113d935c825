"""What both clients share around a connection: headers, timeouts, and where a follower is."""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Iterator
from time import monotonic

import httpx

from gateway.client.calls import feed_params, sendable
from gateway.client.errors import Refused
from gateway.client.options import FeedOptions
from gateway.client.positions import Keeper, SavedPosition
from gateway.client.retry import Answer, Lost, Patience, may_repeat, refusal, retry_after_s
from gateway.client.stream import Messages

FOLLOW = "/_/feed"
chance = random.SystemRandom().random
# A live stream has a sign of life every 15 s.
FOLLOW_READ_S = 25.0
SAVE_EVERY_S = 1.0
# An append is answered within 10 s (SLUICE_APPEND_DEADLINE_S), whatever its outcome; a read within 5.
_ANSWER_S = 15.0
_CONNECT_S = 5.0


def authorization(key: str) -> str:
    """The header for a key as it is read from a file or a variable: a line break at its end is none of it.

    Raises Refused, without the key, for what no header can carry: whoever sends it would print it.
    """
    if not re.fullmatch(r"[!-~]+", bare := key.strip()):
        why = "the API key is empty, or has characters other than visible ASCII; it is not shown"
        raise Refused(401, "unauthorized", why, None, {})
    return f"Bearer {bare}"


def default_headers(key: str) -> dict[str, str]:
    """Raises Refused for a key that can't be one."""
    bearer = authorization(key)
    return {"authorization": bearer, "user-agent": "sluice-client", "accept-encoding": "identity"}


def timeouts(wait_s: float) -> httpx.Timeout:
    return httpx.Timeout(_ANSWER_S + wait_s, connect=_CONNECT_S)


def new_key() -> str:
    return str(uuid.uuid4())


def answer_of(response: httpx.Response, content: bytes) -> Answer:
    return Answer(response.status_code, response.headers, content)


def lost_of(trouble: httpx.TransportError) -> Lost:
    """Whether a request that got no answer may have arrived."""
    unsent = isinstance(trouble, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    return Lost(f"no answer: {type(trouble).__name__} {trouble}".strip(), sent=not unsent)


class Following:
    """How far a follower is, over all its connections."""

    def __init__(self, options: FeedOptions, saved: SavedPosition | None, patience: Patience) -> None:
        self._patience = patience
        self._keeper = Keeper(saved, SAVE_EVERY_S, monotonic)
        kept = saved.load() if saved is not None else None
        self.options: FeedOptions = options if kept is None else {**options, "after": kept}
        self._position = kept
        self._messages = Messages()
        self._failures = 0
        self._least_s = 0.0

    @property
    def from_now(self) -> bool:
        """Then that is to be found out first, or a connection that breaks early would skip events."""
        return self.options.get("after") == "now"

    def begin(self, position: str) -> None:
        self._position = position
        self._keeper.processed(position)
        self._keeper.close()

    def params(self) -> dict[str, str]:
        """For the next connection."""
        self._messages = Messages()
        return feed_params(self.options)

    def headers(self) -> dict[str, str]:
        resumed = {}
        if self._position is not None:
            resumed["last-event-id"] = sendable("Last-Event-ID", self._position)
        return {"accept": "text/event-stream", "accept-encoding": "gzip", **resumed}

    def received(self, data: bytes) -> Iterator[bytes]:
        """The events in it, as JSON."""
        self._failures, self._least_s = 0, 0.0
        for position, event in self._messages.feed(data):
            self._position = position
            if event is None:
                self._keeper.processed(position)
            else:
                yield event

    def processed(self) -> None:
        if self._position is not None:
            self._keeper.processed(self._position)

    def refused(self, answer: Answer) -> None:
        """Raises Refused unless it is worth another try."""
        if not may_repeat(answer):
            raise refusal(answer)
        self._least_s = retry_after_s(answer)

    def pause_s(self, chance: float) -> float:
        """Before the next connection."""
        self._failures += 1
        return max(self._patience.pause_s(self._failures, chance), self._least_s)

    def end(self) -> None:
        self._keeper.close()
