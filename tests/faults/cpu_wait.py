"""How long this process waited for a CPU because others had them all: so long nothing here could be told.

Bounds of a rig are times of a clock on the wall. On a machine that other programs keep busy everything takes
longer, and a bound would be exceeded for lack of CPU only. What is counted out is how long the kernel had
this process wait, by the share of the CPU time that was used by programs that are not the rig's: a gateway
that burns CPU by itself is not excused.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.bench.cpu import CpuMeter

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_IDLE = slice(3, 5)
"""Fields of a line of /proc/stat: idle, and waiting for a disk."""


@dataclass(slots=True)
class CpuWait:
    """From `begin` on. All of it is 0 where the kernel does not tell."""

    _meter: CpuMeter
    _waited_s: float
    _busy_s: float

    @classmethod
    def begin(cls) -> Self:
        meter = CpuMeter({"own": [os.getpid()]})
        meter.start()
        return cls(meter, _waited_s(), _busy_s())

    def because_of_others_s(self) -> float:
        """Ends the measurement."""
        own_s, busy_s = sum(self._meter.stop().values()), _busy_s() - self._busy_s
        return shared(_waited_s() - self._waited_s, own_s, busy_s)


def shared(waited_s: float, own_s: float, busy_s: float) -> float:
    """Of a wait, the part of those who used the CPUs beside us."""
    return waited_s * max(0.0, 1 - own_s / busy_s) if busy_s > 0 else 0.0


def _waited_s() -> float:
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _busy_s() -> float:
    """Of all CPUs, since the machine was started."""
    try:
        fields = [int(each) for each in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    except (OSError, ValueError):
        return 0.0
    return (sum(fields) - sum(fields[_IDLE])) / _TICKS_PER_S
