"""Every fault that the nemesis knows: how it is injected, and how it is healed.

A fault is an asynchronous context: it is in force inside, and healed on the way out, always. On leaving, all
servers run and answer, one Redis is master and the other its replica, and the links are clean.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.cluster import Cluster
from tests.faults.gateway_at import GatewayAt
from tests.faults.history import History
from tests.faults.link import Link, Way

CUT_BYTES_MAX = 20_000
CLOCK_OFF_S = (3600, 40 * 86_400)
"""More than a raw delivery or what was tried of one is kept, and than a subscription may fail."""
STEP_AFTER_S = (0.1, 1.5)
LAG_S = (0.1, 1.2)
OOM_BYTES = "1mb"


@dataclass(slots=True)
class Scene:
    """Where a fault happens. `say` tells what exactly was done, for the log."""

    cluster: Cluster
    rng: random.Random
    history: History
    forget: Callable[[frozenset[int]], None]
    told: list[str] = field(default_factory=list)

    def say(self, words: str) -> None:
        self.told.append(words)

    def gateway(self) -> GatewayAt:
        return self.rng.choice(self.cluster.gateways)


Inject = Callable[[Scene], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class Injection:
    """`touches`: faults that touch the same part don't overlap. `splits`: while it lasts, two servers may
    both believe that they are the master, or a gateway may go on without a Redis that another one reaches; so
    one may show what was committed up to a second ago. `hold_s`: for how long it is in force. `weight`: how
    often it comes, as against others. `beyond`: no promise covers it, so it comes only where it is asked for,
    and shows what a safeguard is for that others stand in front of."""

    name: str
    touches: frozenset[str]
    inject: Inject
    splits: bool = False
    weight: int = 1
    beyond: bool = False
    of: str = ""
    """'pair' or 'nodes': it needs that kind of Redis. 'standby': it needs a Postgres that has one."""
    hold_s: tuple[float, float] = (0.05, 3.0)
    goes_on: bool = False
    """Appends have to go on while nothing else is in force, as soon as after it."""


INJECTIONS: dict[str, Injection] = {}


def _injection(name: str, *touches: str, **more: Any) -> Callable[[Inject], Inject]:
    def enter(inject: Inject) -> Inject:
        of = "pair" if "redis" in touches or name == "net-late" else ""
        INJECTIONS[name] = Injection(name, frozenset(touches), inject, of=of, **more)
        return inject

    return enter


# -- gateways


@_injection("gateway-kill", "gateways")
@asynccontextmanager
async def gateway_kill(scene: Scene) -> AsyncIterator[None]:
    gateway = scene.gateway()
    scene.say(f"SIGKILL gateway {gateway.number}")
    gateway.kill()
    try:
        yield
    finally:
        await gateway.start()


@_injection("gateway-pause", "gateways")
@asynccontextmanager
async def gateway_pause(scene: Scene) -> AsyncIterator[None]:
    gateway = scene.gateway()
    scene.say(f"SIGSTOP gateway {gateway.number}")
    gateway.server.pause()
    try:
        yield
    finally:
        gateway.server.resume()


@_injection("gateway-stop", "gateways")
@asynccontextmanager
async def gateway_stop(scene: Scene) -> AsyncIterator[None]:
    """As a deployment does, under load."""
    gateway = scene.gateway()
    scene.say(f"SIGTERM gateway {gateway.number}")
    gateway.serves = False
    await asyncio.to_thread(gateway.keeper.stop)
    try:
        yield
    finally:
        await gateway.start()


@_injection("clock", "gateways")
@asynccontextmanager
async def clock(scene: Scene) -> AsyncIterator[None]:
    gateway = scene.gateway()
    offset_s = _wrong_by(scene)
    scene.say(f"clock of gateway {gateway.number} off by {offset_s} s")
    gateway.kill()
    gateway.set_clock(offset_s)
    try:
        await gateway.start()
        yield
    finally:
        gateway.kill()
        gateway.set_clock(0)
        await gateway.start()


def _wrong_by(scene: Scene) -> int:
    return scene.rng.choice(CLOCK_OFF_S) * scene.rng.choice((-1, 1))


@_injection("clock-step", "gateways")
@asynccontextmanager
async def clock_step(scene: Scene) -> AsyncIterator[None]:
    """Forward and backward while they run, again and again: of one gateway, or of all at once. Each has the
    relay of its subscriptions with it."""
    every = scene.cluster.gateways
    stepped = every if scene.rng.random() < 0.3 else [scene.gateway()]

    async def stepping() -> None:
        while True:
            offset_s = _wrong_by(scene)
            scene.say(f"clock of gateways {[each.number for each in stepped]} steps by {offset_s} s")
            for gateway in stepped:
                gateway.set_clock(offset_s)
            await asyncio.sleep(scene.rng.uniform(*STEP_AFTER_S))

    task = asyncio.get_running_loop().create_task(stepping())
    try:
        yield
    finally:
        task.cancel()
        for gateway in stepped:
            gateway.set_clock(0)


# -- Redis


@_injection("redis-kill", "redis")
@asynccontextmanager
async def redis_kill(scene: Scene) -> AsyncIterator[None]:
    redis = scene.cluster.redis
    scene.say("SIGKILL Redis master")
    redis.servers[redis.master].kill()
    try:
        yield
    finally:
        await redis.start(redis.master)


@_injection("redis-away", "redis", splits=True, goes_on=True, hold_s=(10.0, 60.0))
@asynccontextmanager
async def redis_away(scene: Scene) -> AsyncIterator[None]:
    """For so long that appends go on without it."""
    redis, dies = scene.cluster.redis, scene.rng.random() < 0.5
    scene.say(f"Redis master {'killed' if dies else 'stopped'}, for long")
    server = redis.servers[redis.master]
    server.kill() if dies else server.pause()
    try:
        yield
    finally:
        server.resume()
        await redis.start(redis.master)


@_injection("redis-pause", "redis", splits=True)
@asynccontextmanager
async def redis_pause(scene: Scene) -> AsyncIterator[None]:
    server = scene.cluster.redis.servers[scene.cluster.redis.master]
    scene.say("SIGSTOP Redis master")
    server.pause()
    try:
        yield
    finally:
        server.resume()


@_injection("redis-cut-aof", "redis")
@asynccontextmanager
async def redis_cut_aof(scene: Scene) -> AsyncIterator[None]:
    """The machine lost what was not yet on its disk."""
    redis = scene.cluster.redis
    redis.servers[redis.master].kill()
    file = max((redis.homes[redis.master] / "appendonlydir").glob("*.incr.aof"), key=_increment)
    size = file.stat().st_size
    cut = min(size, int(CUT_BYTES_MAX ** scene.rng.random()))
    with file.open("r+b") as opened:
        opened.truncate(size - cut)
    scene.say(f"SIGKILL Redis master, {cut} of {size} bytes cut off its append-only file")
    try:
        yield
    finally:
        await redis.start(redis.master)


def _increment(file: Path) -> int:
    return int(file.name.split(".")[-3])


@_injection("redis-wipe", "redis")
@asynccontextmanager
async def redis_wipe(scene: Scene) -> AsyncIterator[None]:
    redis = scene.cluster.redis
    scene.say("SIGKILL Redis master, its data removed")
    redis.servers[redis.master].kill()
    shutil.rmtree(redis.homes[redis.master])
    try:
        yield
    finally:
        await redis.start(redis.master)


@_injection("redis-flush", "redis")
@asynccontextmanager
async def redis_flush(scene: Scene) -> AsyncIterator[None]:
    scene.say("FLUSHALL")
    await _on_master(scene, "FLUSHALL")
    yield


@_injection("redis-del", "redis")
@asynccontextmanager
async def redis_del(scene: Scene) -> AsyncIterator[None]:
    """Some keys of ours are gone: streams, journal, identities, meta."""
    redis = scene.cluster.redis
    async with redis.client(redis.master) as client:
        found = sorted([key async for key in client.scan_iter("sluice:1:*", count=1000)])
        if found:
            chosen = scene.rng.sample(found, min(len(found), scene.rng.randint(1, 4)))
            scene.say("DEL " + " ".join(b":".join(key.split(b":")[3:])[:40].decode() for key in chosen))
            await client.delete(*chosen)
    yield


@_injection("redis-memory", "redis")
@asynccontextmanager
async def redis_memory(scene: Scene) -> AsyncIterator[None]:
    scene.say(f"maxmemory {OOM_BYTES}")
    await _on_master(scene, "CONFIG", "SET", "maxmemory", OOM_BYTES)
    try:
        yield
    finally:
        await _on_master(scene, "CONFIG", "SET", "maxmemory", "0")


@_injection("redis-script-flush", "redis")
@asynccontextmanager
async def redis_script_flush(scene: Scene) -> AsyncIterator[None]:
    scene.say("SCRIPT FLUSH")
    await _on_master(scene, "SCRIPT", "FLUSH")
    yield
    await _on_master(scene, "SCRIPT", "FLUSH")


@_injection("redis-fence", "redis")
@asynccontextmanager
async def redis_fence(scene: Scene) -> AsyncIterator[None]:
    """An operator edits the meta hashes by hand."""
    rng = scene.rng
    redis = scene.cluster.redis
    async with redis.client(redis.master) as client:
        metas = sorted([key async for key in client.scan_iter("sluice:1:*:meta", count=1000)])
        for key in rng.sample(metas, rng.randint(0, len(metas))):
            edit = rng.choice(("fence changed", "fence removed", "torn"))
            scene.say(f"{edit} in {key.split(b':')[3].decode()}")
            if edit == "fence changed":
                await client.hset(key, "fence", f"{rng.getrandbits(160):040x}")
            elif edit == "torn":
                await client.hset(key, "torn", "1")
            else:
                await client.hdel(key, "fence")
    yield


# A stream's entries can't be changed in place: the journal is written again with other bytes beyond `c`.
_ROT = """
local c = redis.call('HGET', KEYS[1], 'c')
local tail = redis.call('XRANGE', KEYS[2], '(' .. c, '+')
if #tail == 0 then return 0 end
local all = redis.call('XRANGE', KEYS[2], '-', '+')
redis.call('DEL', KEYS[2])
for i = 1, #all do
  local id, fields = all[i][1], all[i][2]
  if i > #all - #tail then
    for k = 2, #fields, 2 do fields[k] = string.gsub(fields[k], '1%.10', '1.11') end
  end
  redis.call('XADD', KEYS[2], id, unpack(fields))
end
return #tail
"""


@_injection("redis-rot", "redis", "network", "gateways", "postgres")
@asynccontextmanager
async def redis_rot(scene: Scene) -> AsyncIterator[None]:
    """Bytes change in the journal after a gateway has sequenced and before it commits; then it dies, and only
    others, by that journal, could commit for it."""
    redis, gateway = scene.cluster.redis, scene.gateway()
    link = scene.cluster.postgres_links[gateway.number]
    link.hold(Way.UP)
    await asyncio.sleep(scene.rng.uniform(0.02, 0.08))
    changed = 0
    async with redis.client(redis.master) as client:
        metas = sorted([key async for key in client.scan_iter("sluice:1:*:meta", count=1000)])
        for meta in metas:
            epoch = await client.hget(meta, "epoch")
            journal = meta.removesuffix(b"meta") + b"%b:j" % (epoch or b"")
            changed += await client.eval(_ROT, 2, meta, journal)
        gateway.kill()
        scene.say(f"{changed} journal entries changed, SIGKILL gateway {gateway.number}")
        try:
            yield
        finally:
            for meta in metas:
                await client.hset(meta, "fence", "0" * 40)
            link.heal()
            await gateway.start()


_KEEP = """
local kept = {}
for _, key in ipairs(redis.call('KEYS', 'sluice:1:*')) do
  kept[#kept + 1] = key
  kept[#kept + 1] = redis.call('DUMP', key)
end
return kept
"""
_SET_BACK = """
for _, key in ipairs(redis.call('KEYS', 'sluice:1:*')) do redis.call('DEL', key) end
for i = 1, #ARGV, 2 do redis.call('RESTORE', ARGV[i], 0, ARGV[i + 1]) end
"""


@_injection("redis-set-back", "redis", "network", beyond=True)
@asynccontextmanager
async def redis_set_back(scene: Scene) -> AsyncIterator[None]:
    """As by snapshots of its machine, again and again: the same process with older data, and nothing that
    tells it from what it was (docs/model.md)."""
    redis = scene.cluster.redis
    scene.say("set back in one life, again and again")

    async def setting_back() -> None:
        async with redis.client(redis.master) as client:
            while True:
                kept = await client.eval(_KEEP, 0)
                await asyncio.sleep(scene.rng.uniform(0.02, 0.3))
                await client.eval(_SET_BACK, 0, *kept)
                await asyncio.sleep(scene.rng.uniform(0.1, 0.5))

    task = asyncio.get_running_loop().create_task(setting_back())
    try:
        yield
    finally:
        task.cancel()


async def _on_master(scene: Scene, *words: str) -> None:
    await scene.cluster.redis.call(scene.cluster.redis.master, *words)


# -- replication


@_injection("replica-kill", "redis")
@asynccontextmanager
async def replica_kill(scene: Scene) -> AsyncIterator[None]:
    redis = scene.cluster.redis
    scene.say("SIGKILL Redis replica")
    redis.servers[redis.replica].kill()
    try:
        yield
    finally:
        await redis.start(redis.replica)


@_injection("replica-pause", "redis")
@asynccontextmanager
async def replica_pause(scene: Scene) -> AsyncIterator[None]:
    server = scene.cluster.redis.servers[scene.cluster.redis.replica]
    scene.say("SIGSTOP Redis replica")
    server.pause()
    try:
        yield
    finally:
        server.resume()


async def _lag(scene: Scene) -> None:
    """The replica falls behind, and stays behind until the link is healed."""
    lag_s = scene.rng.uniform(*LAG_S)
    scene.say(f"replica {lag_s:.1f} s behind")
    scene.cluster.redis.links[scene.cluster.redis.master].hold(Way.DOWN)
    await asyncio.sleep(lag_s)


async def _become_pair(scene: Scene, master: int) -> None:
    """One master, led to by all; the other its replica, in step."""
    redis = scene.cluster.redis
    for link in redis.links:
        link.heal()
    redis.master = master
    scene.cluster.lead_gateways(drop=True)
    await redis.follow(redis.replica)
    await redis.in_step()


@_injection("redis-promote", "redis", "network", weight=2)
@asynccontextmanager
async def redis_promote(scene: Scene) -> AsyncIterator[None]:
    """A fail-over to a replica that is behind. The old master comes back as its replica."""
    redis = scene.cluster.redis
    await redis.in_step()
    await _lag(scene)
    promoted, dead = redis.replica, scene.rng.random() < 0.5
    if dead:
        redis.servers[redis.master].kill()
    scene.say("replica promoted" + (", the old master killed" if dead else ""))
    await redis.lead(promoted)
    redis.master = promoted
    scene.cluster.lead_gateways(drop=True)
    try:
        yield
    finally:
        if dead:
            await redis.start(redis.replica)
        await _become_pair(scene, promoted)


@_injection("redis-aba", "redis", "network", weight=2)
@asynccontextmanager
async def redis_aba(scene: Scene) -> AsyncIterator[None]:
    """The master follows its lagging replica for a moment and then leads again: the same process, on the same
    address, with an older history. With luck no gateway called meanwhile."""
    redis, blind = scene.cluster.redis, scene.rng.random() < 0.6
    await redis.in_step()
    await _lag(scene)
    scene.say("demote, resync, promote" + (", unseen by gateways" if blind else ""))
    if blind:
        for link in scene.cluster.redis_links:
            link.hold(Way.UP)
    first = redis.master
    try:
        await redis.lead(redis.replica)
        redis.master = redis.replica
        for link in redis.links:
            link.heal()
        await redis.follow(first)
        await redis.in_step()
        await redis.lead(first)
        redis.master = first
    finally:
        for link in scene.cluster.redis_links:
            link.heal()
    try:
        yield
    finally:
        await _become_pair(scene, first)


@_injection("redis-split", "redis", "network", splits=True, weight=4)
@asynccontextmanager
async def redis_split(scene: Scene) -> AsyncIterator[None]:
    """Two masters, each with gateways of its own; often one side can't reach Postgres."""
    rng, redis, cluster = scene.rng, scene.cluster.redis, scene.cluster
    await redis.in_step()
    old, new = redis.master, redis.replica
    moved = rng.sample(range(len(cluster.gateways)), rng.randint(1, len(cluster.gateways) - 1))
    scene.say(f"two masters, gateways {sorted(moved)} on the new one")
    old_side = rng.random() < 0.8
    cut_off = [n for n in range(len(cluster.gateways)) if (n not in moved) == old_side]
    if rng.random() < 0.3 or not cluster.postgres_links:
        cut_off = []
    if cut_off:
        scene.say(f"gateways {cut_off} without Postgres")
    for number in cut_off:
        cluster.postgres_links[number].hold(Way.UP, Way.DOWN)
    for number in moved:
        cluster.redis_links[number].refuse()
    if rng.random() < 0.3:
        await _lag(scene)
    else:
        await redis.in_step(LAG_S[1])
    redis.links[old].hold(Way.UP, Way.DOWN)
    await redis.lead(new)
    for number in moved:
        cluster.redis_links[number].heal()
        cluster.redis_links[number].lead_to(redis.sockets[new], drop=True)
    try:
        yield
    finally:
        winner = rng.choice((old, new))
        scene.say(f"the {'old' if winner == old else 'new'} one wins")
        if rng.random() < 0.5:
            await _become_pair(scene, winner)
        for number in cut_off:
            cluster.postgres_links[number].heal()
        await _become_pair(scene, winner)


# -- Postgres


@_injection("postgres-kill", "postgres")
@asynccontextmanager
async def postgres_kill(scene: Scene) -> AsyncIterator[None]:
    postgres, alone = scene.cluster.postgres, scene.rng.random() < 0.5
    scene.say(f"SIGKILL Postgres{', not its backends' if alone else ' and all its backends'}")
    postgres.kill_it_only() if alone else postgres.kill()
    try:
        yield
    finally:
        await postgres.start()


@_injection("postgres-pause", "postgres")
@asynccontextmanager
async def postgres_pause(scene: Scene) -> AsyncIterator[None]:
    postgres = scene.cluster.postgres
    scene.say("SIGSTOP Postgres and all its backends")
    postgres.pause()
    try:
        yield
    finally:
        postgres.resume()


@_injection("postgres-immediate", "postgres")
@asynccontextmanager
async def postgres_immediate(scene: Scene) -> AsyncIterator[None]:
    postgres = scene.cluster.postgres
    scene.say("Postgres stopped in immediate mode")
    postgres.keeper.signal(signal.SIGQUIT)
    await asyncio.to_thread(postgres.keeper.stop, hurried=lambda: True)
    try:
        yield
    finally:
        await postgres.start()


@_injection("postgres-restart", "postgres")
@asynccontextmanager
async def postgres_restart(scene: Scene) -> AsyncIterator[None]:
    postgres = scene.cluster.postgres
    scene.say("Postgres stopped in order")
    await asyncio.to_thread(postgres.stop)
    try:
        yield
    finally:
        await postgres.start()


# -- the network between a gateway and its servers


def _link(scene: Scene) -> Link:
    cluster, gateway = scene.cluster, scene.gateway()
    both = (("Redis", cluster.redis_links), ("Postgres", cluster.postgres_links))
    kind, links = scene.rng.choice([each for each in both if each[1]])
    scene.say(f"gateway {gateway.number} – {kind}:")
    return links[gateway.number]


@_injection("net-cut", "network", splits=True)
@asynccontextmanager
async def net_cut(scene: Scene) -> AsyncIterator[None]:
    """Connections end in the middle of a request or of its answer, again and again."""
    link = _link(scene)

    async def cutting() -> None:
        while True:
            way, after = scene.rng.choice(list(Way)), int(3000 ** scene.rng.random())
            scene.say(f"cut after {after} bytes {way.value}")
            link.cut(way, after)
            await asyncio.sleep(scene.rng.uniform(0.05, 0.5))

    task = asyncio.get_running_loop().create_task(cutting())
    try:
        yield
    finally:
        task.cancel()
        link.heal()


@_injection("net-delay", "network", splits=True)
@asynccontextmanager
async def net_delay(scene: Scene) -> AsyncIterator[None]:
    link = _link(scene)
    link.delay_s = scene.rng.uniform(0.005, 0.3)
    scene.say(f"every packet {link.delay_s * 1000:.0f} ms late")
    try:
        yield
    finally:
        link.heal()


@_injection("net-hold", "network", splits=True, weight=2)
@asynccontextmanager
async def net_hold(scene: Scene) -> AsyncIterator[None]:
    """Half open: nothing arrives, one way or both, until the network is back and delivers it all."""
    link = _link(scene)
    ways = scene.rng.choice(((Way.UP,), (Way.DOWN,), (Way.UP, Way.DOWN)))
    scene.say("held " + " and ".join(way.value for way in ways))
    link.hold(*ways)
    try:
        yield
    finally:
        link.heal()


@_injection("net-late", "network", splits=True, weight=3)
@asynccontextmanager
async def net_late(scene: Scene) -> AsyncIterator[None]:
    """What is under way on the open connections to Redis arrives late; new connections are fine. So a request
    can be carried out after a later one of the same gateway. Again and again."""
    links = scene.cluster.redis_links
    scene.say("every gateway – Redis: what is under way arrives late")

    async def lagging() -> None:
        while True:
            for link in links:
                link.hold(Way.UP, new_too=False)
            await asyncio.sleep(scene.rng.uniform(0.4, 2.5))
            for link in links:
                link.heal()
            await asyncio.sleep(0.05)

    task = asyncio.get_running_loop().create_task(lagging())
    try:
        yield
    finally:
        task.cancel()
        for link in links:
            link.heal()


@_injection("net-swallow", "network", splits=True)
@asynccontextmanager
async def net_swallow(scene: Scene) -> AsyncIterator[None]:
    """Half open for good: bytes vanish, no side is told; in the end the connections are reset."""
    link = _link(scene)
    ways = scene.rng.choice(((Way.UP,), (Way.DOWN,), (Way.UP, Way.DOWN)))
    scene.say("swallowed " + " and ".join(way.value for way in ways))
    link.swallow(*ways)
    try:
        yield
    finally:
        link.heal()


@_injection("net-refuse", "network", splits=True)
@asynccontextmanager
async def net_refuse(scene: Scene) -> AsyncIterator[None]:
    link = _link(scene)
    scene.say("refused")
    link.refuse()
    try:
        yield
    finally:
        link.heal()
