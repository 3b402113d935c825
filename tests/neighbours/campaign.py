"""Each attack for a while, and what a victim and the gateway's memory make of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from tests.neighbours.attacks import ATTACKS, Attack
from tests.neighbours.stand import (
    ANOTHER,
    ATTACKERS,
    Felt,
    Stand,
    StartStand,
    forget_peak,
    peak_bytes,
    rss_bytes,
    victim,
)

ROUND_S = 30.0
"""A round that takes longer is cut off: what it does to the victim is seen by then."""
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an attack may do. `p99_s`, `longest_s`: of the victim's answers. `refused`: of its requests.
    `grown_bytes`: of the gateway's memory at its peak, above what it held before."""

    p99_s: float
    longest_s: float
    grown_bytes: int
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    attack: str
    felt: Felt
    rounds: int
    before_bytes: int
    peak_bytes: int

    @property
    def grown_bytes(self) -> int:
        return self.peak_bytes - self.before_bytes

    def broken(self, bounds: Bounds) -> list[str]:
        """A sentence for each bound that does not hold."""
        felt, found = self.felt, []
        if felt.at(0.99) > bounds.p99_s:
            found.append(f"a neighbour's p99 is {felt.at(0.99):.3f} s, above {bounds.p99_s:g} s")
        if felt.at(1.0) > bounds.longest_s:
            found.append(f"a neighbour waited {felt.at(1.0):.3f} s, above {bounds.longest_s:g} s")
        if len(felt.refused) > bounds.refused:
            found.append(f"{len(felt.refused)} of a neighbour's requests were refused: {felt.refused[:3]}")
        if self.grown_bytes > bounds.grown_bytes:
            found.append(
                f"the gateway grew by {self.grown_bytes // MIB} MiB, above {bounds.grown_bytes // MIB} MiB"
            )
        return [f"{self.attack}: {each}" for each in found]

    def __str__(self) -> str:
        felt = self.felt
        return (
            f"{self.attack:14} {self.rounds:4} rounds  {len(felt.seconds):5} answers  "
            f"p50 {felt.at(0.5) * 1000:7.1f} ms  p99 {felt.at(0.99) * 1000:7.1f} ms  "
            f"max {felt.at(1.0) * 1000:8.1f} ms  refused {len(felt.refused):3}  "
            f"memory {self.before_bytes // MIB:5} -> {self.peak_bytes // MIB:5} MiB"
        )


async def measured(stand: Stand, attack: Attack, seconds: float) -> Measured:
    """One attack, again and again for so long."""
    pid = stand.child.process.pid
    async with (
        attack.prepare(stand) as round_of,
        victim(stand, ATTACKERS if attack.beside_the_victim else ANOTHER) as felt,
    ):
        forget_peak(pid)
        before, rounds, until = rss_bytes(pid), 0, time.monotonic() + seconds
        while time.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ROUND_S):
                    await round_of()
            rounds += 1
        peak = peak_bytes(pid)
    return Measured(attack.name, felt, rounds, before, peak)


async def campaign(start: StartStand, seconds: float, names: Sequence[str] = ()) -> AsyncIterator[Measured]:
    for attack in ATTACKS:
        if not names or attack.name in names:
            async with start() as stand:
                found = await measured(stand, attack, seconds)
            yield found
