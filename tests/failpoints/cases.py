"""Every case there is: a point, what happens there, and what the client does.

Owns: which points have to be passed, and in which scene a point is tried.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from tests.failpoints.points import NAMING, Point
from tests.failpoints.scenes import SCENES
from tests.failpoints.stage import Stage

NOT_ON_THE_WAY = {
    "Log.page": "reads",
    "Log.version_at": "reads",
    "Log.event": "reads",
    "Log.length": "reads",
    "Log.reached": "reads",
    "Log.receipt": "reads",
    "Log.forget": "the end of a tenant",
    "receipt_by": "reads",
    "Log.settled": "an append that its spec refuses",
    "Log.ready": "health",
    "Log._probe_redis": "health",
    "Postgres.takes_writes": "health",
    "open_pool": "start, before anything is received",
    "Postgres.instance": "start, before anything is received",
    "Log.stop": "a stop in order",
    "Log.stands": "the feed and what goes out: tests/log/test_standby.py has both",
    "Settling.stands": "the feed and what goes out",
    "settling_without_log": "a relay's, which has no log",
    "Storage.run_once": "by the clock, and no append waits for it",
    "Settling.close": "a stop in order",
    "Settling._waits_for_a_standby": "a standby that is away: tests/log/test_standby.py has one",
    "Outstanding.drained": "a stop in order",
    "CommitConnection.close": "a stop in order",
    "CommitConnection._one_has_ended": "two commits that wait for a standby or a lock",
    "Postgres.close": "a stop in order",
    "Server.aclose": "a stop in order",
    "Scripts.close": "a stop in order, or after a reply that belongs to another call",
    "_until_cancelled": "after a bug of ours",
    "Watch.run": "by the clock; tried where a scene lasts long enough",
    "Watch.run_marking": "by the clock",
    "Watch._compare_reach": "by the clock",
    "Log._expire": "by the clock",
    "Log._tell": "by the clock",
    "Sweeper.run": "by the clock",
}
ONLY_A_BUG_BRINGS = {
    ("Committer._commit_once", "self._postgres.seal(self._partition.number, run.epoch, '', run.mode)"),
    ("Scripts.run", "self.close()"),
}
ONLY_ANOTHER_BRINGS = {
    # A standby that is away, or another gateway or client: tests/log/test_standby.py has them.
    ("Settling._written", "self._waits_for_a_standby()"),
    # A commit of another gateway that this one has not learned of; in scenes, who is first is chance.
    ("Journal._current", "self._settling.settle(partition)"),
    ("DeferredOutcomes._answer", "asyncio.sleep(_AGAIN_S)"),
    ("DeferredOutcomes._tell", "self._settling.found(partition, verdict.seq)"),
    ("Verifier._without_redis", "self._settled(partition)"),
}
ONLY_A_CLUSTER_BRINGS = {
    ("Sequencer._call", "self._slot_moves()"),
    ("Sequencer._slot_moves", "self._back_off()"),
}
ONLY_CLAIMS_BRING = {
    # Unique values: scenes' events claim none. tests/log/test_unique.py ends gateways at these.
    ("LookUps._committed", "asyncio.wait((self._partition.when_committed(seq),), timeout=_COMMITTED_S)"),
    ("LookUps._holders", "self._postgres.fetch('holders', values)"),
    ("Direct._look", "self._postgres.fetch('holders', values)"),
}
ONLY_CONDITIONS_BRING = {
    # Scenes' appends have none; conditions.py and matches.py are not on their way either. The model has
    # gateways that die with conditions under way, and tests/log/test_conditions.py ends one.
    ("Direct._failing", "first_match(self._postgres, p, tenant, condition.items, judged, seq)"),
}
NOT_BY_SCENES = (
    ONLY_CONDITIONS_BRING
    | ONLY_A_BUG_BRINGS
    | ONLY_A_CLUSTER_BRINGS
    | ONLY_ANOTHER_BRINGS
    | ONLY_CLAIMS_BRING
)
REHEARSALS = 3
TRIES = 8
"""Of a case whose point is not passed this time: who is first is chance in some scenes."""


@dataclass(frozen=True, slots=True)
class Case:
    point: Point
    at_point: signal.Signals
    retries: bool

    def __str__(self) -> str:
        how = "ends" if self.at_point is signal.SIGKILL else "stands still and goes on"
        return f"{how} {self.point}; the client {'retries' if self.retries else 'does not retry'}"


class Run:
    """`say` is told a line for whatever is worth one."""

    def __init__(self, stage: Stage, seed: int, say: Callable[[str], None]) -> None:
        self._stage = stage
        self._rng = random.Random(seed)
        self._say = say
        self._scenes_of: dict[int, list[str]] = {}
        self.played: Counter[str] = Counter()
        self.broken: list[str] = []
        self.never_fired: list[Case] = []

    async def rehearse(self) -> None:
        """Every scene without a fault, to know which points it passes; again where chance kept one away."""
        for _ in range(REHEARSALS):
            await self._rehearse_each()
            if not self.missed or self.broken:
                return
            for point in self.missed:
                self._say(f"not passed yet: {point}")

    async def _rehearse_each(self) -> None:
        for name in SCENES:
            began = time.monotonic()
            passed, broken = await self._scene(name, None, retries=False)
            for number in passed:
                scenes = self._scenes_of.setdefault(number, [])
                if name not in scenes:
                    scenes.append(name)
            self.broken += [f"{name}: {each}" for each in broken]
            self._say(f"{name}: {len(passed)} points, {time.monotonic() - began:.1f} s")

    @property
    def missed(self) -> list[Point]:
        """Points on the way of an append, or inside a verification, that no scene passes."""
        return [
            point
            for point in self._stage.points
            if point.module.startswith("gateway.log.")
            and point.number not in self._scenes_of
            and point.function not in NOT_ON_THE_WAY
            and (point.function, point.what) not in NOT_BY_SCENES
        ]

    def cases(self) -> list[Case]:
        """In an order by the seed."""
        points = [
            point
            for point in self._stage.points
            if point.number in self._scenes_of and not point.module.startswith(NAMING)
        ]
        ways = product(points, (signal.SIGKILL, signal.SIGSTOP), (True, False))
        found = [Case(*each) for each in ways]
        self._rng.shuffle(found)
        return found

    async def play(self, seconds: float | None = None) -> None:
        """All of them, or as many as fit; until a promise is broken."""
        until = None if seconds is None else time.monotonic() + seconds
        for case in self.cases():
            if self.broken or (until is not None and time.monotonic() > until):
                return
            await self._play(case)

    async def _play(self, case: Case) -> None:
        for _ in range(TRIES):
            name = self._rng.choice(self._scenes_of[case.point.number])
            _, broken = await self._scene(name, case, retries=case.retries)
            self.broken += [f"{name}, gateway A {case}: {each}" for each in broken]
            if self._fired or broken:
                self.played["ends" if case.at_point is signal.SIGKILL else "stands still"] += 1
                return
        self.never_fired.append(case)

    async def _scene(self, name: str, case: Case | None, *, retries: bool) -> tuple[set[int], list[str]]:
        """What A passed in the scene, and what was broken."""
        stage = self._stage
        stage.begin(*((case.point.number, case.at_point) if case else ()))
        try:
            await SCENES[name](stage)
        except AssertionError as never:
            # By chance it did not come to what it waits for. What only it passes is missed if it never does.
            self._say(f"{name}: {never}")
        passed, self._fired = stage.a.passed(), stage.a.fired
        return passed, await stage.end(retries=retries)

    def told(self) -> str:
        lines = [f"never passed again: {case}" for case in self.never_fired]
        lines += self.broken
        played = ", ".join(f"{count} × {how}" for how, count in self.played.items())
        return "\n".join([*lines, f"{len(self._scenes_of)} points, {self.played.total()} cases ({played})"])
