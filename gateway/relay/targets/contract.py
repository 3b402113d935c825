"""The contract of a target that events are sent to.

A target sends one message at a time to where it leads, and returns the outcome. It keeps no order and no
schedule: the delivery worker does. A new kind of target is a module of `spec.targets` with its form, a module
here that implements `Target`, a row in the table of each, and the suite in tests/relay/contract.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, assert_never

from gateway.telemetry.metrics import Delivery

RESPONSE_BYTES_KEPT: Final = 4096
"""Of what a receiver answers, for the log of attempts."""

WHY_CHARS_MAX: Final = 500
"""Of what is told of a failure: the receiver may have had its say in that too."""

SEND_TIMEOUT_S: Final = 10.0
"""One attempt, from the name's look-up to the answer. What takes longer failed, and may have arrived."""


@dataclass(frozen=True, slots=True)
class Message:
    """One event on its way. `id` is the same at every attempt; `body` is the event in JSON, as the feed has
    it. `key` is None where an alias stands for it."""

    id: str
    aggregate_type: str
    key: str | None
    type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The receiver has it."""

    status: int | None = None
    response: bytes = b""


@dataclass(frozen=True, slots=True)
class Failed:
    """It may or may not have arrived; try again. `why` is for operators, and contains no secret."""

    why: str
    status: int | None = None
    response: bytes = b""
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Gone:
    """The receiver wants no further events."""

    why: str
    status: int | None = None
    response: bytes = b""


Outcome = Confirmed | Failed | Gone


def word_of(outcome: Outcome) -> Delivery:
    """As metrics and the log of attempts have it."""
    match outcome:
        case Confirmed():
            return "confirmed"
        case Failed():
            return "failed"
        case Gone():
            return "gone"
        case _:
            assert_never(outcome)


def plainly(why: str) -> str:
    """As it can be kept and shown: no longer than WHY_CHARS_MAX, and without what can't be printed."""
    kept = why if len(why) <= WHY_CHARS_MAX else f"{why[: WHY_CHARS_MAX - 1]}…"
    return "".join([each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in kept])


class Target(Protocol):
    """Made for one subscription. May be called many times at once, for different aggregates."""

    async def send(self, parcel: Message) -> Outcome:
        """One attempt, over within SEND_TIMEOUT_S. Whatever goes wrong outside is an outcome."""

    async def close(self) -> None:
        """Ends its connections. Harmless when there are none."""
