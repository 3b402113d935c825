"""What became of a request: values that the intake makes and the edge answers with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, assert_never

import msgspec

from gateway.events import Appended, Conflict, Mismatch, NotCommitted, Outcome, OutcomeUnknown, Quarantined
from gateway.inbound.handshakes import Answered
from gateway.inbound.normalize import Held
from gateway.inbound.verdicts import Rejected

OTHER_BYTES: Final = Held(
    "idempotency_mismatch", "A delivery of this id came before with other bytes; its event stands."
)

NOT_THERE: Final = Held("not_found", "There is no such aggregate yet, and `to.must_exist` asks for one.")


class Told(msgspec.Struct, frozen=True, gc=False):
    """What became of one delivery. Without an event it is in quarantine."""

    event_id: bytes | None
    duplicate: bool = False


class Taken(msgspec.Struct, frozen=True, gc=False):
    """All deliveries of a request are settled; `batch`: the answer lists them."""

    deliveries: tuple[Told, ...]
    batch: bool


@dataclass(frozen=True, slots=True)
class Undecided:
    """Not all of it is committed, and the sender should come again. `unknown`: it may be all the same."""

    why: str
    unknown: bool
    retry_after_s: int = 1


TOO_SLOW: Final = Undecided("it takes longer than the sender would wait", unknown=True)
NO_CERTIFICATE: Final = Undecided("the certificate that signed it is not at hand", unknown=False)
STORAGE_FULL: Final = Undecided(
    "its tenant has come to the bytes that it may store", unknown=False, retry_after_s=60
)
FAILED: Final = Undecided("something failed inside the gateway", unknown=True)
NO_POSTGRES: Final = Undecided("Postgres does not answer as it should", unknown=False)

Result = Answered | Rejected | Taken | Undecided


def judged(outcome: Outcome) -> Appended | Held | Undecided:
    match outcome:
        case Appended():
            return outcome
        case Mismatch():
            return OTHER_BYTES
        case NotCommitted(reason, retry_after_s):
            return Undecided(reason, unknown=False, retry_after_s=retry_after_s)
        case Quarantined(error):
            return Undecided(f"Postgres refused it ({error}); the operator has it", False, 30)
        case OutcomeUnknown():
            return Undecided("its outcome is not known yet", unknown=True)
        case Conflict():
            return NOT_THERE
        case _:
            assert_never(outcome)
