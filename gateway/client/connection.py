"""What both clients share around a connection: the headers of all requests, where a follower is, and what
the log says of attempts that are repeated."""

from __future__ import annotations

import logging
import random
import re
import uuid
from collections.abc import Callable, Iterator
from time import monotonic

from gateway.client.calls import feed_params, sendable
from gateway.client.errors import Refused
from gateway.client.options import FeedOptions
from gateway.client.positions import Keeper, SavedPosition
from gateway.client.retry import Answer, Patience, Request, may_repeat, refusal, retry_after_s
from gateway.client.stream import Messages

FOLLOW = "/_/feed"
chance = random.SystemRandom().random
# A live stream has a heartbeat every 15 s.
FOLLOW_READ_S = 25.0
SAVE_EVERY_S = 1.0
# For the first event of a batch; the feed waits up to 60.
BATCH_WAIT_S = 20
WARN_EVERY_S = 1.0
_log = logging.getLogger("sluice.client")


def authorization(key: str) -> str:
    """The header for a key as it is read from a file or a variable: a line break at its end does not count.

    Raises Refused, without the key, for what no header can carry: an error that shows it would end in a log.
    """
    if not re.fullmatch(r"[!-~]+", bare := key.strip()):
        why = "the API key is empty, or has characters other than visible ASCII; it is not shown"
        raise Refused(401, "unauthorized", why, None, {})
    return f"Bearer {bare}"


def default_head(key: str) -> bytes:
    """The header lines of all requests. Raises Refused for a key that can't be one."""
    return f"authorization: {authorization(key)}\r\nuser-agent: sluice-client\r\n".encode()


def new_key() -> str:
    return str(uuid.uuid4())


class RetryLog:
    """Warnings of attempts that are repeated: at most one a second, with the number of those between."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._quiet_until = 0.0
        self._unsaid = 0

    def repeated(self, what: str, why: str, pause_s: float) -> None:
        if self._clock() < self._quiet_until:
            self._unsaid += 1
            return
        more = f" (and {self._unsaid} more like it)" if self._unsaid else ""
        _log.warning("%s: %s; repeated in %.2f s%s", what, why, pause_s, more)
        self._quiet_until, self._unsaid = self._clock() + WARN_EVERY_S, 0


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

    def request(self) -> Request:
        """For the next connection."""
        self._messages = Messages()
        headers = {"accept": "text/event-stream", "accept-encoding": "gzip"}
        if self._position is not None:
            headers["last-event-id"] = sendable("Last-Event-ID", self._position)
        return Request("GET", FOLLOW, feed_params(self._from_there()), headers)

    def received(self, data: bytes) -> Iterator[bytes]:
        """The events in it, as JSON."""
        for position, event in self._messages.feed(data):
            self._failures, self._least_s = 0, 0.0  # not at any data: it may be a page of a proxy
            self._position = position
            if event is None:
                self._keeper.processed(position)
            else:
                yield event

    def page_options(self) -> FeedOptions:
        """For the next page of the feed."""
        options = self._from_there()
        return options if self._position is None else {**options, "after": self._position}

    def _from_there(self) -> FeedOptions:
        """Where a position says where to begin, a time does not."""
        if self._position is None or "from_time" not in self.options:
            return self.options
        bare = self.options.copy()
        del bare["from_time"]
        return bare

    def read(self, position: str) -> None:
        """All up to there is processed."""
        self._failures = 0
        self._position = position
        self._keeper.processed(position)

    def processed(self) -> None:
        if self._position is not None:
            self._keeper.processed(self._position)

    def is_own(self, trouble: OSError) -> bool:
        """Whether it is of the place where positions are saved, which no further connection corrects."""
        return trouble is self._keeper.fault

    def refused(self, answer: Answer) -> str:
        """Why; raises Refused unless it is worth another try."""
        refused = refusal(answer)
        if not may_repeat(answer):
            raise refused
        self._least_s = retry_after_s(answer)
        return str(refused)

    def pause_s(self, chance: float) -> float:
        """Before the next connection."""
        self._failures += 1
        return max(self._patience.pause_s(self._failures, chance), self._least_s)

    def end(self) -> None:
        self._keeper.close()
