"""A campaign: writers, followers and relays at work while gateways and relays are killed; then rest, then
the check of what each reader was given against what is committed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from tests.outgoing.checker import (
    Committed,
    Violation,
    check_acknowledged,
    check_follower,
    check_receiver,
)
from tests.outgoing.readers import Follower, Receiver, followers, receivers
from tests.outgoing.stand import Killer, Stand, open_stand
from tests.outgoing.writers import Writers
from tests.support.bugs import bugs_in
from tests.support.servers import open_folder

QUIET_S = 40.0
"""Readers who are given nothing for so long, and have not all, never will."""
AFTER_ALL_S = 0.5
"""For what comes once too often."""


@dataclass(slots=True)
class Result:
    """What came of it. `late_s` is how long after the writers' end the last reader had all."""

    seed: int
    seconds: float
    committed: int
    kills: dict[str, int]
    stops: dict[str, int]
    repeated: int
    """Appends that were sent again."""
    late_s: float
    readers: dict[str, str]
    """What each was given, in words."""
    violations: list[Violation] = field(default_factory=list)
    folder: str | None = None
    """Where everything was kept, if there was a violation."""


async def run_campaign(seconds: float, seed: int, build: str | None = None) -> Result:
    """Raises what the campaign itself fails at; a violation is a result. `build`: a bad one (bad.py)."""
    with open_folder() as folder:
        async with open_stand(folder, build) as stand, AsyncExitStack() as ending:
            receiving = await ending.enter_async_context(receivers(stand, seed))
            following = await ending.enter_async_context(followers(stand, folder, seed))
            result = await _run(_Parts(stand, following, receiving), seconds, seed)
        if result.violations and build is None:
            result.folder = str(_keep(folder, result))
        return result


@dataclass(frozen=True, slots=True)
class _Parts:
    stand: Stand
    followers: list[Follower]
    receivers: list[Receiver]

    def given(self) -> int:
        return sum(len(each.seen) for each in self.followers) + sum(
            len(each.arrivals) for each in self.receivers
        )

    def have_all(self, committed: list[Committed]) -> Callable[[], bool]:
        """Tells whether nothing more has to come. What came in between is for the check. The events that each
        wants are looked for once: receivers answer on this loop, and would wait for it."""
        last = [(each, of[-1].id) for each in self.followers if (of := each.wanted.of(committed))]
        counts = [(each, len(each.wanted.of(committed))) for each in self.receivers]
        return lambda: (
            all(each.seen and each.seen[-1].id == id_ for each, id_ in last)
            and all(len(each.accepted) >= count for each, count in counts)
        )


async def _run(parts: _Parts, seconds: float, seed: int) -> Result:
    stand, loop = parts.stand, asyncio.get_running_loop()
    writers, killer = Writers(stand, seed), Killer(stand, seed)
    begun = loop.time()
    await asyncio.gather(writers.run(seconds), killer.run(seconds))
    ended = loop.time()
    committed = await _committed(stand)
    await _until(parts.have_all(committed), parts.given)
    late_s = loop.time() - ended
    await asyncio.sleep(AFTER_ALL_S)
    violations = check_acknowledged(writers.acknowledged, committed)
    violations += [Violation("bug", line) for line in bugs_in(stand.servers.folder)]
    readers = {}
    for follower in parts.followers:
        violations += check_follower(follower.name, follower.wanted.of(committed), follower.seen)
        readers[follower.name] = f"{len(follower.seen):,} events; restarted {follower.restarts} times"
    for receiver in parts.receivers:
        violations += check_receiver(receiver.name, receiver.wanted.of(committed), receiver.arrivals)
        readers[receiver.name] = f"{len(receiver.accepted):,} events in {len(receiver.arrivals):,} requests"
    assert not stand.dead(), f"ended by themselves: {', '.join(stand.dead())}"
    return Result(
        seed,
        ended - begun,
        len(committed),
        killer.kills,
        killer.stops,
        writers.repeated,
        late_s,
        readers,
        violations,
    )


async def _committed(stand: Stand) -> list[Committed]:
    """The tenant's, in their order."""
    connection = await asyncpg.connect(stand.servers.postgres_url)
    try:
        rows = await connection.fetch(
            "SELECT seq, id::text, aggregate_type, aggregate_id, version, type FROM outbox"
            " WHERE tenant = $1::text::uuid ORDER BY p, seq",
            stand.tenant.id,
        )
    finally:
        await connection.close()
    return [Committed(*row) for row in rows]


async def _until(holds: Callable[[], bool], progress: Callable[[], int]) -> None:
    """Returns once it holds, or nothing has moved for too long."""
    loop = asyncio.get_running_loop()
    last, at = progress(), loop.time()
    while not holds() and loop.time() - at < QUIET_S:
        await asyncio.sleep(0.05)
        if progress() != last:
            last, at = progress(), loop.time()


def _keep(folder: Path, result: Result) -> Path:
    """Moves everything aside: servers' files and logs, and what was wrong."""
    kept = folder.with_name(f"{folder.name}-seed-{result.seed}")
    shutil.move(folder, kept)
    lines = [f"{kind}: {told}\n" for kind, told in result.violations]
    (kept / "violations.txt").write_text("".join(lines))
    return kept
