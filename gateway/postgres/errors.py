"""The one exception for a Postgres that can't be reached. It needs no driver: commands start without one."""

from __future__ import annotations


class PostgresTrouble(Exception):
    """Postgres did not answer, or can't take writes now."""
