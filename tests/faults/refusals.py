"""Faults of a Redis that answers reads and refuses writes: its disk, its replicas, its ACL, a pause.

As those of injections.py. Each lasts longer than SLUICE_DIRECT_AFTER_S of every plan, and appends have to
go on while it is in force, within the bound of every recovery.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.exceptions import ResponseError

from tests.faults.injections import INJECTIONS, Inject, Injection, Scene

REFUSING_S = (2.0, 8.0)
REPLICAS_THAT_THERE_ARE_NOT = 3
SAVED_S = 10.0
"""For a snapshot of a Redis of the rig, which is small."""
PAUSE_MS = 3_600_000
"""Longer than any episode: the pause ends by CLIENT UNPAUSE."""
WRITES = ("xadd", "hset", "xtrim", "evalsha")
"""Commands of which an ACL lacks one, as after an upgrade whose scripts use more: within scripts, or they."""


async def _master(scene: Scene, *words: str | int) -> object:
    redis = scene.cluster.redis
    return await redis.call(redis.master, *words)


@asynccontextmanager
async def snapshot_fails(scene: Scene) -> AsyncIterator[None]:
    """MISCONF: Redis can't write its snapshot, and `stop-writes-on-bgsave-error` is on."""
    redis = scene.cluster.redis
    scene.say("MISCONF: the snapshot fails")
    in_the_way = redis.homes[redis.master] / "dump.rdb"
    in_the_way.unlink(missing_ok=True)
    in_the_way.mkdir()
    await _master(scene, "CONFIG", "SET", "save", "86400 1", "stop-writes-on-bgsave-error", "yes")
    try:
        assert await _saved(scene) == "err"
        yield
    finally:
        in_the_way.rmdir()
        assert await _saved(scene) == "ok"
        await _master(scene, "CONFIG", "SET", "save", "")


async def _saved(scene: Scene) -> str:
    """How one more snapshot ended."""
    deadline = asyncio.get_running_loop().time() + SAVED_S
    begun = False
    while asyncio.get_running_loop().time() < deadline:
        told = await _master(scene, "INFO", "persistence")
        assert isinstance(told, dict)
        if not told["rdb_bgsave_in_progress"] and begun:
            return str(told["rdb_last_bgsave_status"])
        if not begun:
            try:
                await _master(scene, "BGSAVE")
                begun = True
            except ResponseError:  # the append-only file is being rewritten, or a replica is fed
                pass
        await asyncio.sleep(0.02)
    return "late"


@asynccontextmanager
async def replicas_lack(scene: Scene) -> AsyncIterator[None]:
    """NOREPLICAS: fewer replicas than `min-replicas-to-write`."""
    scene.say(f"NOREPLICAS: min-replicas-to-write {REPLICAS_THAT_THERE_ARE_NOT}")
    await _master(scene, "CONFIG", "SET", "min-replicas-to-write", REPLICAS_THAT_THERE_ARE_NOT)
    try:
        yield
    finally:
        await _master(scene, "CONFIG", "SET", "min-replicas-to-write", 0)


@asynccontextmanager
async def command_denied(scene: Scene) -> AsyncIterator[None]:
    """NOPERM: the user of the gateways may not run a command that scripts use."""
    command = scene.rng.choice(WRITES)
    scene.say(f"NOPERM: the ACL lacks {command.upper()}")
    await _master(scene, "ACL", "SETUSER", "default", f"-{command}")
    try:
        yield
    finally:
        await _master(scene, "ACL", "SETUSER", "default", f"+{command}")


@asynccontextmanager
async def writes_paused(scene: Scene) -> AsyncIterator[None]:
    """CLIENT PAUSE WRITE, as by a fail-over in order that does not end: writes wait, reads are answered. What
    waited is carried out afterwards."""
    scene.say("CLIENT PAUSE WRITE")
    await _master(scene, "CLIENT", "PAUSE", PAUSE_MS, "WRITE")
    try:
        yield
    finally:
        await _master(scene, "CLIENT", "UNPAUSE")


def _add(name: str, inject: Inject) -> None:
    INJECTIONS[name] = Injection(
        name, frozenset(("redis",)), inject, splits=True, of="pair", hold_s=REFUSING_S, goes_on=True
    )


_add("redis-misconf", snapshot_fails)
_add("redis-noreplicas", replicas_lack)
_add("redis-acl", command_denied)
_add("redis-pause-writes", writes_paused)
