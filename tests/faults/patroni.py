"""Faults of a Postgres that Patroni fails over.

As those of injections.py. On leaving, one node leads, all others follow it, and commits wait for one of them.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.faults.history import History, now
from tests.faults.injections import INJECTIONS, Inject, Injection, Scene
from tests.faults.patroni_nodes import PATRONI, POLL_S, TTL_S, Node

STILL_S = 15.0
"""For an append while a node answers nothing: longer than the patience of a connection attempt with each."""
AWAY_S = (TTL_S + 5.0, TTL_S + 10.0)


@asynccontextmanager
async def switchover(scene: Scene) -> AsyncIterator[None]:
    patroni, begun = scene.cluster.patroni, now()
    leader = await patroni.until_led()
    candidate = (await patroni.standbys("sync_standby"))[0]
    scene.say(f"switchover from {leader.name} to {candidate.name}")
    await patroni.switch_over(leader, candidate)
    async with _led_again(scene, begun, leader):
        yield


@asynccontextmanager
async def leader_killed(scene: Scene) -> AsyncIterator[None]:
    """Its machine ends; it comes back later, and follows."""
    patroni, begun = scene.cluster.patroni, now()
    leader = await patroni.until_led()
    scene.say(f"SIGKILL {leader.name}, which leads, and its Postgres")
    leader.kill()
    async with _led_again(scene, begun, leader):
        try:
            yield
        finally:
            await leader.patroni.start()


@asynccontextmanager
async def leader_postgres_killed(scene: Scene) -> AsyncIterator[None]:
    """Patroni starts it again, or another node leads."""
    patroni, begun = scene.cluster.patroni, now()
    leader = await patroni.until_led()
    scene.say(f"SIGKILL the Postgres of {leader.name}, which leads")
    leader.signal_postgres(signal.SIGKILL)
    await asyncio.sleep(POLL_S)
    async with _led_again(scene, begun, None):
        yield


@asynccontextmanager
async def leader_paused(scene: Scene) -> AsyncIterator[None]:
    """It stands still for longer than it may lead: another one leads, its connections stay open and answer
    nothing, nor do new ones. Then it continues, and finds that it does not lead."""
    patroni, begun = scene.cluster.patroni, now()
    leader = await patroni.until_led()
    scene.say(f"SIGSTOP {leader.name}, which leads, and its Postgres")
    leader.pause()
    async with _led_again(scene, begun, leader):
        try:
            await _takes_appends(scene)
            yield
        finally:
            leader.resume()


@asynccontextmanager
async def standby_killed(scene: Scene) -> AsyncIterator[None]:
    """Commits wait until Patroni has them wait for another one."""
    patroni, begun = scene.cluster.patroni, now()
    await patroni.until_led()
    standby = (await patroni.standbys("sync_standby"))[0]
    scene.say(f"SIGKILL {standby.name}, for which commits wait")
    standby.kill()
    async with _led_again(scene, begun, None):
        try:
            yield
        finally:
            await standby.patroni.start()


@asynccontextmanager
async def etcd_paused(scene: Scene) -> AsyncIterator[None]:
    """For longer than a leader leads without it: it takes no writes until etcd is back."""
    patroni, begun = scene.cluster.patroni, now()
    scene.say("SIGSTOP etcd")
    patroni.etcd.pause()
    try:
        await asyncio.sleep(scene.rng.uniform(*AWAY_S))
        yield
    finally:
        patroni.etcd.resume()
        await _whole(scene, begun)


@asynccontextmanager
async def _led_again(scene: Scene, begun: float, but: Node | None) -> AsyncIterator[None]:
    """Another one than `but` leads inside; on the way out all are back."""
    patroni = scene.cluster.patroni
    try:
        led = await patroni.until_led(but)
        scene.say(f"{led.name} leads after {now() - begun:.1f} s")
        yield
    finally:
        await _whole(scene, begun)


async def _whole(scene: Scene, begun: float) -> None:
    await scene.cluster.patroni.until_whole()
    scene.say(f"longest time without a 201 {longest_gap_s(scene.history, begun):.1f} s")


async def _takes_appends(scene: Scene) -> None:
    """Appends have to go on while one node stands still and another one leads."""
    since, deadline = now(), now() + STILL_S
    while now() < deadline:
        if any(
            one.status == 201 and one.sent > since for each in scene.history.operations for one in each.tries
        ):
            return
        await asyncio.sleep(POLL_S)
    scene.history.odd.append(f"no append for {STILL_S:g} s, although a node leads and takes writes")


def longest_gap_s(history: History, begun: float) -> float:
    """Between two acknowledgements by any gateway."""
    answered = sorted(
        one.answered
        for operation in history.operations
        for one in operation.tries
        if one.status == 201 and one.answered > begun
    )
    times = [begun, *answered, now()]
    return max(after - before for before, after in itertools.pairwise(times))


def _add(name: str, inject: Inject, *more: str) -> None:
    touches = frozenset(("postgres", "network", *more))
    INJECTIONS[name] = Injection(name, touches, inject, splits=True, of=PATRONI)


_add("patroni-switchover", switchover)
_add("patroni-leader-kill", leader_killed)
_add("patroni-postgres-kill", leader_postgres_killed)
_add("patroni-leader-pause", leader_paused)
_add("patroni-standby-kill", standby_killed)
_add("patroni-etcd-pause", etcd_paused)

FAULTS = tuple(name for name, each in INJECTIONS.items() if each.of == PATRONI)
