"""Faults of a Postgres that is there and does not get on: its disk is full or slow, a lock stands in the way.

As those of injections.py. While one is in force, gateways may not take more connections than operations.md
says.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import asyncpg

from tests.faults.injections import INJECTIONS, Inject, Injection, Scene

CONNECTIONS_BESIDE = 33
"""Of a gateway beside one for each partition, docs/operations.md; one more for each while commits wait."""
LOOK_S = 0.1
LOCKED_S = (3.0, 25.0)
FULL_S = (0.5, 6.0)
SLOW_S = (2.0, 10.0)
FLUSH_US = (20_000, 100_000)
"""For a flush of the write-ahead log: that of a disk which others keep busy; 100 ms are the most it takes."""
LOCKS = (
    "LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE",
    "LOCK TABLE outbox IN SHARE MODE",
    "LOCK TABLE append_identity IN EXCLUSIVE MODE",
    "SELECT FROM partition_log WHERE p = 0 FOR UPDATE",
    "SELECT FROM partition_log FOR UPDATE",
)
DISK_WORKERS = ("checkpointer", "walwriter", "background writer")


@asynccontextmanager
async def connections_bounded(scene: Scene) -> AsyncIterator[None]:
    """Notes where gateways have more connections than they may, at any moment inside."""
    cluster, most = scene.cluster, 0
    may = len(cluster.gateways) * (2 * cluster.partitions + CONNECTIONS_BESIDE)

    async def looking() -> None:
        nonlocal most
        while True:
            with suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                connection = await asyncpg.connect(cluster.postgres_url, timeout=2)
                try:
                    while True:
                        most = max(most, await connection.fetchval(_CONNECTIONS, timeout=2))
                        await asyncio.sleep(LOOK_S)
                finally:
                    connection.terminate()
            await asyncio.sleep(LOOK_S)

    task = asyncio.get_running_loop().create_task(looking())
    try:
        yield
    finally:
        task.cancel()
        scene.say(f"{most} of {may} connections")
        if most > may:
            scene.history.resources.append(
                f"{len(cluster.gateways)} gateways had {most} connections to Postgres, {may} they may have"
            )


_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sluice'"


@asynccontextmanager
async def locked(scene: Scene) -> AsyncIterator[None]:
    """As by a DBA's statement that takes long."""
    lock = scene.rng.choice(LOCKS)
    scene.say(lock)
    connection = await asyncpg.connect(scene.cluster.postgres_url)
    async with connections_bounded(scene):
        try:
            await connection.execute(f"BEGIN; {lock}")
            yield
        finally:
            connection.terminate()


@asynccontextmanager
async def disk_full(scene: Scene) -> AsyncIterator[None]:
    """Not a page is free; Postgres may end by that, and is started when there is room."""
    scene.say("disk full")
    cluster = scene.cluster
    assert cluster.disk is not None
    async with connections_bounded(scene):
        cluster.disk.fill()
        try:
            yield
        finally:
            cluster.disk.free()
            await cluster.postgres.revive()
            await cluster.postgres.start()


@asynccontextmanager
async def disk_slow(scene: Scene) -> AsyncIterator[None]:
    """Each flush takes long, and what writes behind the commits stands still."""
    flush_us = scene.rng.randint(*FLUSH_US)
    scene.say(f"{flush_us / 1000:.0f} ms for a flush, {', '.join(DISK_WORKERS)} stopped")
    connection = await asyncpg.connect(scene.cluster.postgres_url)
    try:
        rows = await connection.fetch(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = ANY($1)", DISK_WORKERS
        )
        await _flush_takes(connection, flush_us)
        async with connections_bounded(scene):
            try:
                _signal([row["pid"] for row in rows], signal.SIGSTOP)
                yield
            finally:
                _signal([row["pid"] for row in rows], signal.SIGCONT)
                await _flush_takes(connection, 0)
    finally:
        await connection.close()


async def _flush_takes(connection: asyncpg.Connection, delay_us: int) -> None:
    """`commit_delay` sleeps with the log's lock held, which is what a slow flush does."""
    await connection.execute(f"ALTER SYSTEM SET commit_delay = {delay_us}")
    await connection.execute("ALTER SYSTEM SET commit_siblings = 0")
    await connection.execute("SELECT pg_reload_conf()")


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


DISK = "disk"
"""What a fault is `of` that needs Postgres on a small disk of its own."""


def _add(name: str, inject: Inject, hold_s: tuple[float, float], of: str = "") -> None:
    touches = frozenset(("postgres", "network", "gateways"))
    INJECTIONS[name] = Injection(name, touches, inject, hold_s=hold_s, of=of)


DISK_FULL, DISK_SLOW = "postgres-full", "postgres-slow"
"""A plan that has the one gives Postgres a disk of its own; the other, one that is flushed."""

_add("postgres-lock", locked, LOCKED_S)
_add(DISK_SLOW, disk_slow, SLOW_S)
_add(DISK_FULL, disk_full, FULL_S, of=DISK)
