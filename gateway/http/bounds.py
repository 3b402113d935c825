"""What a key, an address and the gateway may have under way at a time; refusals of all limits, counted.

Owns: the words of these refusals, their number (`sluice_limited_total`) and their line in the log. Each
gateway counts for itself. Must not know: where a request is in its life (callers, protocol, request).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from gateway.config import Config
from gateway.errors import Refusal
from gateway.http.addresses import Addresses, subscriber
from gateway.http.request import Message, Receive, Refused
from gateway.telemetry.metrics import Limit, Metrics
from gateway.under_way import Bound, UnderWay

logger = logging.getLogger("sluice.edge")

_ENDING_MAX: Final = 512
"""Refused connections that are read on, unheard, until their clients have seen why."""

_LINE_S = 10.0
"""A limit that is reached again and again is told of once in so many seconds."""

_RETRY_AFTER = (b"retry-after", b"1")


class Limited:
    """Counts what limits refuse. `holder` is a key's handle or an address: never a key."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._counts = metrics.limited
        self._clock = clock
        self._lines: dict[Limit, tuple[float, int]] = {}  # when a line may be next, refused since the last

    def count(self, limit: Limit, holder: str) -> None:
        self._counts[limit].inc()
        now = self._clock()
        next_at, refused = self._lines.get(limit, (now, 0))
        if now < next_at:
            self._lines[limit] = next_at, refused + 1
            return
        self._lines[limit] = now + _LINE_S, 0
        logger.warning("limit_reached", extra={"limit": limit, "holder": holder, "refused": refused + 1})


class Bounded:
    """Something of which a holder may have `each_max` under way, and the gateway `total_max`; None: no bound.

    `words` say what it is, in the plural, `whose` who a holder is ("this key").
    """

    __slots__ = (
        "_each_max", "_limit", "_limited", "_total_max", "_under_way", "_whose", "_words", "bound", "end",
    )  # fmt: skip

    def __init__(
        self,
        limit: Limit,
        words: str,
        each_max: int | None,
        total_max: int | None,
        limited: Limited,
        whose: str = "This key",
    ) -> None:
        self._limit = limit
        self._words = words
        self._each_max = each_max
        self._total_max = total_max
        self._limited = limited
        self._whose = whose
        self._under_way = UnderWay(each_max, total_max)
        # As they are: appends pay for each call. `bound` begins too, and a refusal by it is not counted.
        self.bound = self._under_way.begin
        self.end = self._under_way.end

    @property
    def total(self) -> int:
        return self._under_way.total

    def begin(self, holder: str, amount: int = 1) -> None:
        """Counts it until `end` is called with the same. Raises Refused (429): nothing was counted then."""
        bound = self._under_way.begin(holder, amount)
        if bound is not None:
            raise Refused(self._refusal(bound, holder), [_RETRY_AFTER])

    @contextmanager
    def held(self, holder: str, amount: int = 1) -> Iterator[None]:
        """Counted for as long as it lasts. Raises Refused (429)."""
        self.begin(holder, amount)
        try:
            yield
        finally:
            self.end(holder, amount)

    def _refusal(self, bound: Bound, holder: str) -> Refusal:
        self._limited.count(self._limit, holder)
        if bound is Bound.HOLDERS:
            has = f"{self._whose} may have at most {self._each_max} {self._words} at a time"
        else:
            has = f"This gateway may have at most {self._total_max} {self._words} at a time"
        return Refusal("rate_limited", f"{has}; try again in 1 s.")


LOOK_UPS_MAX: Final = 256
"""Keys that are being looked up at a time: four statements, some 10 ms."""
LOOK_UPS_OF_ONE: Final = 64


def look_ups_of(limited: Limited) -> Bounded:
    """Look-ups of keys in Postgres, counted by address."""
    words = "unknown keys looked up"
    return Bounded("look_ups", words, LOOK_UPS_OF_ONE, LOOK_UPS_MAX, limited, "One address")


class Received:
    """What has come of a request's body, and is held until the request ends, or waits for its client to go. A
    body that comes in one piece is not counted: a piece is small, and most are whole."""

    __slots__ = ("_bodies", "_bytes", "_holder", "_receive", "_whole")

    def __init__(self, bodies: Bounded, holder: str, receive: Receive) -> None:
        self._bodies = bodies
        self._holder = holder
        self._receive = receive
        self._bytes = 0
        self._whole = False

    async def receive(self) -> Message:
        """As ASGI has it. Raises Refused (429)."""
        if self._whole:
            self.end()
        message = await self._receive()
        self._whole = not message.get("more_body")
        if message.get("more_body") or self._bytes:
            size = len(message.get("body", b""))
            if size:
                self._bodies.begin(self._holder, size)
                self._bytes += size
        return message

    def end(self) -> None:
        if self._bytes:
            self._bodies.end(self._holder, self._bytes)
            self._bytes = 0


class Held(Protocol):
    """A connection that is counted."""

    def has_proven_a_key(self) -> bool:
        """Whether the request at work on it, or its last one, brings a key that is valid."""

    def give_way(self) -> None:
        """Ends at once, and is counted no more."""


class Connections:
    """Connections by the address that they come from. A trusted proxy's are its clients', and count for the
    gateway only.

    Where there are as many as there may be, the oldest that has proven no key gives way to a new one: those
    who send keys that are unknown, or none, keep out none of the honest clients of their address. A proxy's
    never gives way: it carries requests of many.
    """

    def __init__(self, config: Config, addresses: Addresses, limited: Limited) -> None:
        each_max, total_max = config.address_connections_max or None, config.connections_max or None
        self._addresses = addresses
        self._limited = limited
        self._bounded = Bounded("connections", "connections", each_max, total_max, limited, "One address")
        self._ending = UnderWay(None, _ENDING_MAX)
        # That have not proven a key yet, as far as was looked: all of them and those of each holder, oldest
        # first. Looked at where one has to give way, so that requests pay nothing for it.
        self._unproven: dict[Held, str] = {}
        self._unproven_of: dict[str, dict[Held, None]] = {}

    @property
    def total(self) -> int:
        return self._bounded.total

    def begin(self, connection: Held, peer: tuple[str, int] | None) -> str:
        """The holder to `end` it with. Raises Refused (429)."""
        address, port = peer or ("", 0)
        trusted = self._addresses.is_trusted(address)
        holder = (f"{address} {port}" if trusted else subscriber(address)) or ""
        bound = self._bounded.bound(holder)
        if bound is not None:
            self._make_room(bound, holder)
            self._bounded.begin(holder)
        if not trusted:
            self._unproven[connection] = holder
            self._unproven_of.setdefault(holder, {})[connection] = None
        return holder

    def end(self, connection: Held, holder: str) -> None:
        self._bounded.end(holder)
        self._forget(connection)

    def _make_room(self, bound: Bound, holder: str) -> None:
        """Ends the oldest connection that has proven no key, if there is one."""
        of = self._unproven if bound is Bound.TOTAL else self._unproven_of.get(holder, {})
        while of:
            oldest = next(iter(of))
            if not oldest.has_proven_a_key():
                self._limited.count("connections", self._unproven[oldest])
                oldest.give_way()
                return
            self._forget(oldest)

    def _forget(self, connection: Held) -> None:
        holder = self._unproven.pop(connection, None)
        if holder is None:
            return
        its = self._unproven_of[holder]
        del its[connection]
        if not its:
            del self._unproven_of[holder]

    def begin_end(self) -> bool:
        """Whether one that is refused may be told so: that takes seconds of a descriptor."""
        return self._ending.begin("") is None

    def ended(self) -> None:
        self._ending.end("")


def bodies_of(config: Config, limited: Limited) -> Bounded:
    """Bytes of bodies that are being received, by key, or by the address of a webhook."""
    each_max, total_max = config.key_bodies_bytes_max or None, config.bodies_bytes_max or None
    return Bounded("bodies", "bytes of request bodies under way", each_max, total_max, limited)


def requests_of(config: Config, limited: Limited) -> Bounded:
    """Requests under way by key."""
    each_max, total_max = config.key_requests_max or None, config.requests_max or None
    return Bounded("requests", "requests under way", each_max, total_max, limited)
