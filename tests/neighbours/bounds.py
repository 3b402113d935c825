"""What each attack may do to a neighbour and to the gateway's memory, on a machine that others use too."""

from __future__ import annotations

from typing import Final

from gateway.config import Config
from gateway.edge.openapi import endpoint
from gateway.edge.reads import FIRST_PAGES_BYTES_MAX
from gateway.edge.states import KEPT_BYTES_MAX
from gateway.relay import live
from tests.neighbours.attacks import ATTACKS
from tests.neighbours.campaign import MIB, Bounds

GROWN_MIB: Final = {"half-bodies": 256, "unread": 192, "pages": 128, "filters": 128}
"""Below what each took before there was a limit of it: 325, 656, 293 and 153."""
TRIED_AGAIN_S: Final = 2.0
"""A connection that finds the listener's queue full is tried again by the kernel, after a second."""
BOUNDS: Final = {
    each.name: Bounds(p99_s=0.5, longest_s=1.0, grown_bytes=GROWN_MIB.get(each.name, 96) * MIB)
    for each in ATTACKS
} | {
    name: Bounds(p99_s=0.5, longest_s=TRIED_AGAIN_S, grown_bytes=96 * MIB)
    for name in ("unknown-keys", "connections")
}


def bounded_memory(config: Config) -> dict[str, int]:
    """Bytes at most of each part of a gateway's memory that has a bound; docs/sizing.md has them in words."""
    return {
        "bodies that are being received": config.bodies_bytes_max,
        "answers that are not read": config.unread_bytes_max,
        "states that are kept": KEPT_BYTES_MAX,
        "first pages that are kept": FIRST_PAGES_BYTES_MAX,
        "messages to live followers": live._KEPT_BYTES,
        "OpenAPI documents": endpoint.KEPT_BYTES_MAX,
    }
