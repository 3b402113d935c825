"""The one exception of `gateway.dev`, and of `gateway.workers` above it."""

from __future__ import annotations


class CannotStart(Exception):
    """What keeps a process, or all of them, from starting: what was wrong, where, and what to do about it."""
