"""Checkouts with a mistake that applications make: each has to be caught."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tests.shop.stage import FOLDER


@dataclass(frozen=True)
class Mistake:
    what: str
    old: str
    new: str


MISTAKES = {
    "key-of-a-life": Mistake(
        "registers under a key of this life, which is not derived from the cart",
        'idempotency_key=keyed("register")',
        "idempotency_key=str(uuid.uuid4())",
    ),
    "event-id-of-a-life": Mistake(
        "reserves under an event id of this life",
        'event_id=str(uuid.uuid5(CARTS, keyed("reserve")))',
        "event_id=str(uuid.uuid5(CARTS, str(uuid.uuid4())))",
    ),
    "no-receipt": Mistake(
        "confirms under a key that has the length that this life reads, and so again",
        'keyed("confirm"))',
        'keyed("confirm") + str(uuid.uuid4()))',
    ),
}


def command_of(name: str, folder: Path) -> list[str]:
    """The program in Python with this mistake. Fails where there is nothing to mistake any more."""
    text, mistake = (FOLDER / "checkout.py").read_text(), MISTAKES[name]
    assert text.count(mistake.old) == 1, name
    program = folder / f"{name}.py"
    program.write_text(text.replace(mistake.old, mistake.new))
    return [sys.executable, str(program)]
