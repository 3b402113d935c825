"""What each attack may do to a neighbour and to the gateway's memory, on a machine that others use too."""

from __future__ import annotations

from typing import Final

from tests.neighbours.attacks import ATTACKS
from tests.neighbours.campaign import MIB, Bounds

GROWN_MIB: Final = {"half-bodies": 216, "unread": 192, "pages": 128, "filters": 64, "beginners": 256}
"""Below what the first four took before there was a limit of them: 325, 656, 293 and 153. Of half bodies a
key has 128 MiB; 300 requests and connections are 9, and what was read of each and is not counted yet, 256
KiB, 75. Each of 1,000 followers that begin reads a page of its own, of 256 KiB."""
TRYING_KEYS_MIB: Final = 192
"""4,000 connections, 16 KiB each, and on each a request that is held back, as much again."""
TRIED_AGAIN_S: Final = 2.0
"""A connection that finds the listener's queue full is tried again by the kernel, after a second."""
BOUNDS: Final = {
    each.name: Bounds(p99_s=0.5, longest_s=1.0, grown_bytes=GROWN_MIB.get(each.name, 96) * MIB)
    for each in ATTACKS
} | {
    name: Bounds(p99_s=0.5, longest_s=TRIED_AGAIN_S, grown_bytes=TRYING_KEYS_MIB * MIB)
    for name in ("unknown-keys", "nat", "connections")
}
