"""Ports for servers that are told a number."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

_GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LEAST = 10_000


def free_port() -> int:
    """One that no server has. The kernel gives it neither to connections nor to those who bind port 0, one of
    which would otherwise have it, now and then, before the server does that it is meant for."""
    candidates = [0]
    if _GIVEN.exists():
        first, last = map(int, _GIVEN.read_text().split())
        candidates = [*range(_LEAST, first), *range(last + 1, 1 << 16)] or candidates
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", random.choice(candidates)))
            return int(probe.getsockname()[1])
