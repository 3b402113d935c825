"""How often one may ask: requests of a key, and unknown keys from an address.

Each gateway counts for itself and forgets when it ends: n gateways allow n times as much.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from gateway.buckets import Buckets
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http.bounds import Limited
from gateway.http.request import Refused

_MINUTE_S = 60


class RateLimits:
    """A limit that is not set is None, and costs a comparison."""

    def __init__(self, config: Config, limited: Limited, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._limited = limited
        per_s, failures = config.rate_limit_per_s, config.unknown_keys_per_min
        self._per_s = per_s
        self._requests = Buckets(per_s, config.rate_limit_burst or per_s) if per_s else None
        self._failures = Buckets(failures / _MINUTE_S, failures) if failures else None

    def request(self, key_handle: str) -> None:
        """Counts a request of this key. Raises Refused (429) when it has sent too many."""
        if self._requests is None:
            return
        wait_s = self._requests.take(key_handle, self._clock())
        if wait_s:
            self._limited.count("rate", key_handle)
            plural = "" if self._per_s == 1 else "s"
            raise _refused(f"This key may send {self._per_s} request{plural} a second", wait_s)

    def may_request(self, key_handle: str) -> bool:
        """Counts a request of this key, if it may send one."""
        return self._requests is None or not self._requests.take(key_handle, self._clock())

    def uncount(self, key_handle: str) -> None:
        if self._requests is not None:
            self._requests.give_back(key_handle)

    def unknown_key(self, asker: str, address: str) -> None:
        """Counts a key that has to be looked up as unknown, for one who is at that address; `known` takes it
        back. Raises Refused (429) when too many of the same asker were unknown."""
        if self._failures is None:
            return
        wait_s = self._failures.take(asker, self._clock())
        if wait_s:
            self._limited.count("unknown_keys", address)
            raise _refused(f"Too many different unknown keys came from {address}", wait_s)

    def known(self, asker: str) -> None:
        if self._failures is not None:
            self._failures.give_back(asker)


def _refused(why: str, wait_s: float) -> Refused:
    seconds = math.ceil(wait_s)
    refusal = Refusal("rate_limited", f"{why}; try again in {seconds} s.")
    return Refused(refusal, [(b"retry-after", b"%d" % seconds)])
