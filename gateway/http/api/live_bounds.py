"""What keys follow live: how many followers of a key, and of how many different filters.

A follower costs a task and what its client has not read yet; a filter costs the memory of a channel, and a
look at each commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.config import Config
from gateway.http.bounds import Bounded, Limited
from gateway.relay.outbox import Filter


class LiveBounds:
    """One a gateway. A `holder` is a key's handle."""

    def __init__(self, config: Config, limited: Limited) -> None:
        each_max = config.key_followers_max or None
        self._followers = Bounded("followers", "live followers", each_max, None, limited)
        filters_max, key_filters_max = config.filters_max or None, config.key_filters_max or None
        self._filters = Bounded(
            "filters", "different filters of live feeds", key_filters_max, filters_max, limited
        )
        self._of: Counter[tuple[str, Filter]] = Counter()

    @contextmanager
    def follower(self, holder: str) -> Iterator[None]:
        """For as long as one follows. Raises Refused (429)."""
        with self._followers.held(holder):
            yield

    @contextmanager
    def follower_of(self, holder: str, wanted: Filter) -> Iterator[None]:
        """The same of what passes a filter. Raises Refused (429)."""
        of = holder, wanted
        with self._followers.held(holder):
            if of not in self._of:
                self._filters.begin(holder)
            self._of[of] += 1
            try:
                yield
            finally:
                self._of[of] -= 1
                if not self._of[of]:
                    del self._of[of]
                    self._filters.end(holder)
