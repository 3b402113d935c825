"""Faults of a Postgres with a standby: it waits, it crashes while it waits, it fails over, it loses commits.

As those of injections.py. On leaving, a primary runs with a standby in step, and gateways are led to it.
What a Postgres lost is mended as by an operator: `sluice repair`, and `sluice rewind` for the rest.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.faults.gateway_at import ROOT, SERVE
from tests.faults.history import SetBack, now
from tests.faults.injections import INJECTIONS, Inject, Injection, Scene
from tests.faults.postgres_pair import ASYNCHRONOUS, SYNCHRONOUS
from tests.faults.slow_postgres import connections_bounded

STANDBY = "standby"
"""What such a fault is `of`."""
WAIT_S = (0.2, 1.5)
NOTICED_S = 7.0
"""For an alarm, more than the promise, to be able to say how late one is."""
LOOK_S = 0.05
OPERATOR_S = 60.0


@asynccontextmanager
async def standby_away(scene: Scene) -> AsyncIterator[None]:
    """Commits wait for it."""
    pair, dies = scene.cluster.pair, scene.rng.random() < 0.5
    scene.say(f"standby {'killed' if dies else 'stopped'}")
    pair.standby.kill() if dies else pair.standby.pause()
    async with connections_bounded(scene):
        try:
            yield
        finally:
            pair.standby.resume()
            await pair.standby.start()


@asynccontextmanager
async def crash_in_wait(scene: Scene) -> AsyncIterator[None]:
    """Commits that wait for the standby become visible without it: their wait is cancelled, their backends
    end, or the primary restarts. Then the standby comes back, or takes over."""
    pair, rng = scene.cluster.pair, scene.rng
    pair.standby.kill()
    await asyncio.sleep(rng.uniform(*WAIT_S))
    how = rng.choice(("restart", "pg_terminate_backend", "pg_cancel_backend"))
    scene.say(f"{how} while commits waited")
    if how == "restart":
        await pair.primary.restart()
    else:
        await pair.fetch(f"SELECT {how}(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
    try:
        yield
    finally:
        if rng.random() < 0.7:
            scene.say("standby takes over")
            await pair.promote(old_one_lives=False)
            scene.cluster.lead_to_postgres()
        await pair.make_standby()


@asynccontextmanager
async def fail_over(scene: Scene) -> AsyncIterator[None]:
    """To a standby that has all that was acknowledged; the address moves, and connections end."""
    pair, lives = scene.cluster.pair, scene.rng.random() < 0.5
    scene.say(f"standby takes over, the old primary {'lives' if lives else 'killed'}")
    await pair.promote(old_one_lives=lives)
    scene.cluster.lead_to_postgres()
    try:
        yield
    finally:
        await pair.make_standby()


@asynccontextmanager
async def lossy_fail_over(scene: Scene) -> AsyncIterator[None]:
    """To a standby that lacks what was acknowledged; with a Redis that remembers, or without one."""
    pair, lives = scene.cluster.pair, scene.rng.random() < 0.5
    async with _perhaps_without_redis(scene):
        pair.standby.stop()
        await asyncio.sleep(scene.rng.uniform(*WAIT_S))
        scene.say(f"standby behind takes over, the old primary {'lives' if lives else 'killed'}")
        await pair.promote(old_one_lives=lives)
        await _noticed(scene)
    await _mended(scene)
    try:
        yield
    finally:
        await pair.make_standby()


@asynccontextmanager
async def restored(scene: Scene) -> AsyncIterator[None]:
    """From a copy that was made a moment ago."""
    pair = scene.cluster.pair
    async with _perhaps_without_redis(scene):
        copy = await asyncio.to_thread(pair.back_up)
        await asyncio.sleep(scene.rng.uniform(*WAIT_S))
        scene.say("primary restored from an older copy")
        await pair.restore(copy)
        await _noticed(scene)
    await _mended(scene)
    try:
        yield
    finally:
        await pair.make_standby()


@asynccontextmanager
async def _perhaps_without_redis(scene: Scene) -> AsyncIterator[None]:
    """Away for so long that appends go without it."""
    redis, away = scene.cluster.redis, scene.rng.random() < 0.5
    if away:
        scene.say("Redis away")
        redis.servers[redis.master].pause()
        await _until_direct(scene)
    try:
        yield
    finally:
        if away:
            redis.servers[redis.master].resume()


async def _until_direct(scene: Scene) -> None:
    until = now() + NOTICED_S
    while now() < until and await scene.cluster.pair.fetch(
        "SELECT FROM partition_log WHERE mode <> 'direct'"
    ):
        await asyncio.sleep(LOOK_S)


_ALARMS = """
SELECT l.p, l.alarm IS NOT NULL AS halted FROM partition_log l
WHERE l.alarm IS NOT NULL OR EXISTS (
    SELECT FROM partition_trail t WHERE t.p = l.p AND t.what = 'alarm' AND t.id > coalesce(
        (SELECT max(d.id) FROM partition_trail d WHERE d.p = l.p AND d.what IN ('repair', 'rewind')), 0))
"""


async def _noticed(scene: Scene) -> None:
    """Gateways are led to the Postgres that lost commits; alarms that they raise soon are noted."""
    back = SetBack(now())
    scene.history.set_backs.append(back)
    scene.cluster.lead_to_postgres()
    while now() < back.begun + NOTICED_S:
        for row in await scene.cluster.pair.fetch(_ALARMS):
            (back.alarmed if row["halted"] else back.overtaken).setdefault(row["p"], now())
        await asyncio.sleep(LOOK_S)


async def _mended(scene: Scene) -> None:
    back, redis = scene.history.set_backs[-1], scene.cluster.redis
    await redis.start(redis.master)
    scene.say(f"alarms of partitions {sorted(back.alarmed)}, of overtaken ones {sorted(back.overtaken)}")
    if back.alarmed or back.overtaken:
        back.mending = now()
        await _sluice(scene, "repair")
        rows = await scene.cluster.pair.fetch(_ALARMS)
        given_up = frozenset(row["p"] for row in rows)
        if given_up:
            folder = scene.cluster.folder / f"lost-{len(scene.history.set_backs)}"
            await _sluice(scene, "rewind", "--accept-data-loss", "--out", str(folder))
        scene.say(f"rewound {sorted(given_up)}")
        back.given_up = given_up
        scene.forget(given_up)
    back.ended = now()


async def _sluice(scene: Scene, *words: str) -> None:
    """As an operator types it; 1 says that something stays lost."""
    cluster = scene.cluster
    url = f"unix://{cluster.redis.sockets[cluster.redis.master]}"
    env = os.environ | {"SLUICE_POSTGRES_URL": cluster.postgres_url, "SLUICE_REDIS_URL": url}
    process = await asyncio.create_subprocess_exec(
        *SERVE[:-1], *words, cwd=ROOT, env=env,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(OPERATOR_S):
        said, _ = await process.communicate()
    scene.say(f"sluice {words[0]}: {process.returncode}")
    mended = process.returncode == 0 or (words == ("repair",) and process.returncode == 1)
    assert mended, f"sluice {' '.join(words)}: {said.decode()}"


def _add(name: str, inject: Inject, *more: str, hold_s: tuple[float, float] = (0.05, 3.0)) -> None:
    touches = frozenset(("postgres", "network", *more))
    INJECTIONS[name] = Injection(name, touches, inject, splits=True, of=STANDBY, hold_s=hold_s)


_add("standby-away", standby_away, "gateways", hold_s=(0.5, 25.0))
_add("crash-in-wait", crash_in_wait)
_add("fail-over", fail_over)
_add("lossy-fail-over", lossy_fail_over, "redis", "gateways")
_add("restored", restored, "redis", "gateways")

OF = {
    SYNCHRONOUS: ("standby-away", "crash-in-wait", "fail-over", "restored"),
    ASYNCHRONOUS: ("lossy-fail-over", "restored"),
}
"""By the kind of standby."""
