"""How often names collide: the birthday bounds behind docs/names.md. Pure arithmetic; `sluice ids collisions`
prints it."""

from __future__ import annotations

import math


def any_collision(count: int, space: float) -> float:
    """The chance that at least two of `count` names, each drawn alike from `space` possible ones, are equal.

    1 - e^(-n(n-1)/2N): never more than the exact chance, and off by less than a part in n.
    """
    return -math.expm1(-count * (count - 1) / 2 / space)


def share_taken(count: int, space: float) -> float:
    """The share of `count` names that find their place taken when they come, one after the other: expected,
    (n-1)/2N, which is a little too much once n is no longer far below N."""
    return (count - 1) / 2 / space
