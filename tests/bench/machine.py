"""Where it was measured: numbers without their machine mean nothing."""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import asyncpg
from redis.asyncio import Redis

from gateway import __version__
from tests.support.servers import Servers

LIBRARIES = ("uvicorn", "uvloop", "httptools", "redis", "hiredis", "asyncpg", "msgspec")
CORES = frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))
"""Those that we may use."""
FSYNC_TIMES = 50
FSYNC_BYTES = 8192
"""A page of Postgres' log."""


async def describe(servers: Servers) -> dict[str, str]:
    """What to print beside the numbers, by name, in the order to print it in."""
    return {
        "cpu": f"{_cpu_model()}, {len(CORES)} cores, load {os.getloadavg()[0]:.1f} at the start",
        "apart": "gateways on cores of their own" if _confined() else "no: everybody on all cores",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "libraries": ", ".join(f"{name} {version(name)}" for name in LIBRARIES),
        "redis": await _redis(servers),
        "postgres": await _postgres(servers),
        "disk": f"{_fsync_us(servers.folder):.0f} µs a write of {FSYNC_BYTES} B with fdatasync (median)",
        "sluice": __version__,
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def confine(cores: frozenset[int], pid: int = 0) -> None:
    """Keeps a process, this one by default, and all that it starts from now on, to these cores."""
    for thread in Path(f"/proc/{pid or os.getpid()}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def gateway_cores(workers: int) -> frozenset[int]:
    """One for each gateway, as long as everybody else has one too; otherwise none: all share all.

    Linux wakes whom a process writes to on that process's own core: a gateway that is busy lets Redis and
    Postgres wait there, while another core is idle."""
    possible = workers < len(CORES) and hasattr(os, "sched_setaffinity")
    return frozenset(sorted(CORES)[:workers]) if possible else frozenset()


def _confined() -> bool:
    return hasattr(os, "sched_getaffinity") and os.sched_getaffinity(0) != CORES


async def _redis(servers: Servers) -> str:
    async with Redis.from_url(servers.redis_url, decode_responses=True) as redis:
        info = await redis.info("server")
        settings = await redis.config_get("append*")
    name = info.get("server_name", "redis")
    durability = f"appendonly {settings['appendonly']}, appendfsync {settings['appendfsync']}"
    return f"{name} {info.get(f'{name}_version', info['redis_version'])}, {durability}"


async def _postgres(servers: Servers) -> str:
    connection = await asyncpg.connect(servers.database_url("postgres"))
    try:
        shown = {
            name: await connection.fetchval(f"SHOW {name}")
            for name in ("server_version", "fsync", "synchronous_commit", "shared_buffers")
        }
    finally:
        await connection.close()
    number = shown.pop("server_version")
    return f"{number}, " + ", ".join(f"{name} {value}" for name, value in shown.items())


def _fsync_us(folder: Path) -> float:
    sync = getattr(os, "fdatasync", os.fsync)
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(FSYNC_TIMES):
            file.write(bytes(FSYNC_BYTES))
            file.flush()
            begun = time.perf_counter()
            sync(file.fileno())
            times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1e6
