"""CPU time and memory of process trees, from /proc. Elsewhere nothing is known, and nothing is reported."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_PROC = Path("/proc")
_STAT_FIELDS_BEFORE_STATE = 2
"""Of `man 5 proc`, counted from 1: pid and command stand before the fields that are parsed here."""
_PPID = 4 - _STAT_FIELDS_BEFORE_STATE - 1
_UTIME = 14 - _STAT_FIELDS_BEFORE_STATE - 1


class CpuMeter:
    """CPU time that groups of processes use between `start` and `stop`, children and dead children included.

    A group is the pids of its roots. The kernel counts in ticks (10 ms): a window of seconds is exact enough.
    """

    def __init__(self, groups: Mapping[str, Sequence[int]]) -> None:
        self._groups = groups
        self._begun: dict[str, float] = {}

    def beside(self, name: str, roots: Sequence[int]) -> CpuMeter:
        """One of the same groups and another."""
        return CpuMeter({**self._groups, name: roots})

    def start(self) -> None:
        self._begun = self._used_s()

    def stop(self) -> dict[str, float]:
        """Seconds by group."""
        return {name: used - self._begun[name] for name, used in self._used_s().items()}

    def memory_mb(self) -> dict[str, float]:
        """What each group holds now, in MB; of pages that processes share, each has its part."""
        processes = _processes()
        held = {name: _held_kb(_family(processes, roots)) for name, roots in self._groups.items()}
        return {name: kb / 1024 for name, kb in held.items() if kb}

    def _used_s(self) -> dict[str, float]:
        processes = _processes()
        if not processes:
            return {}
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        return {name: _ticks(processes, roots) * tick_s for name, roots in self._groups.items()}


def _processes() -> dict[int, tuple[int, int]]:
    """Parent and ticks of each. The ticks include its children's that it has waited for, so the sum over a
    tree never falls when one of them ends."""
    found = {}
    for path in _PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The command is in parentheses, and may hold any character.
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            found[int(path.parent.name)] = (int(fields[_PPID]), sum(map(int, fields[_UTIME : _UTIME + 4])))
    return found


def family(roots: Sequence[int]) -> set[int]:
    """These processes and all that they started."""
    return _family(_processes(), roots)


def _family(processes: Mapping[int, tuple[int, int]], roots: Sequence[int]) -> set[int]:
    family = set(roots)
    while more := {pid for pid, (parent, _) in processes.items() if parent in family} - family:
        family |= more
    return family


def _ticks(processes: Mapping[int, tuple[int, int]], roots: Sequence[int]) -> int:
    return sum(processes[pid][1] for pid in _family(processes, roots) if pid in processes)


def _held_kb(family: Iterable[int]) -> int:
    """Nothing is known of a process that has ended or is not ours to look at."""
    held = 0
    for pid in family:
        with contextlib.suppress(OSError):
            lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
            held += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return held
