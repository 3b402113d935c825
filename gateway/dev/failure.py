"""The one exception of `gateway.dev`."""

from __future__ import annotations


class CannotStart(Exception):
    """What keeps `sluice dev` from starting: what was wrong, where, and what to do about it."""
