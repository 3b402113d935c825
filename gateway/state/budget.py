"""What the operations of one event may take: of time, counted as items that are tested, and of memory.

One budget for all of them, however they are nested: without it, a list of lists or a name that doubles what
it names would take the product of what each of them may take.
"""

from __future__ import annotations

from typing import Final

import msgspec

LOOKS_MAX: Final = 250_000
"""Items that the operations of one event may test one by one: about a second."""

STATE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Longest state, as JSON: 16 times the longest data of an event, read and written in under 10 ms. A handler
that sets two fields to `@` doubles the state with each event; without a limit, thirty of them would take the
memory of the gateway."""


NESTED_BYTES: Final = 256
SPELLED_BYTES: Final = 16
"""What takes about as long as to test an item where everything else waits: to find how deep so many bytes of
a value that is made nest, bracket by bracket; and to read so many bytes into what can be compared, which for
lists of numbers takes longest."""

OPERATIONS_A_LOOK: Final = 4
"""So many operations, of those that do little, take about as long as to test an item."""


class Misfit(Exception):
    """The operation does not fit; the message is a sentence."""


class Exhausted(Misfit):
    """The event's operations have used their budget up, and those that follow find it so."""


class TooLong(Misfit):
    """A value that is made is far longer than any state."""


class TooLarge(Misfit):
    """The state would be far longer than it may be. Where there is no more to say of it, a Misfit as any."""


class TakesLong(Exception):
    """More than may be done at once, where everything else waits for it."""


class Budget(msgspec.Struct, gc=False):
    """`looks` are the present event's; `at_once` are those that are left for all events together where the
    work is done at once, None where it is done beside everything else. `bytes_max` is how long a state may
    be; what is made meanwhile may be twice as long."""

    bytes_max: int = STATE_BYTES_MAX
    at_once: int | None = None
    looks: int = 0

    def look(self, count: int) -> None:
        """Raises Exhausted or TakesLong."""
        self.looks += count
        if self.looks > LOOKS_MAX:
            raise Exhausted(f"One event may test {LOOKS_MAX} items; this would be more.")
        self.work(count)

    def work(self, count: int) -> None:
        """The same for what depends on where folding began, and so is no event's own. Raises TakesLong."""
        if self.at_once is not None:
            self.at_once -= count
            if self.at_once < 0:
                raise TakesLong
