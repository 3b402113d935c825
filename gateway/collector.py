"""How often a process runs the garbage collector."""

from __future__ import annotations

import gc
from typing import Final

_OBJECTS: Final = 20_000
"""Containers made since the last collection that bring the next: a few MB at most wait for it."""


def rarely_collect() -> None:
    """What an append is made of, or an event that is folded, refers to nothing that refers back, so reference
    counts free it. A collector that looked at every 700 new objects would look in vain."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS, 20, 50)
