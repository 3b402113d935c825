"""Faults of a Redis Cluster: slots that move, masters that fail over, nodes that die or stand still.

As those of injections.py: in force inside, healed on the way out. On leaving, every node runs, every slot is
served, and every master has its replica again, though it may be another one than before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from redis.crc import key_slot

from gateway.log.redis.keys import partition_keys
from tests.faults.injections import INJECTIONS, LAG_S, Inject, Injection, Scene
from tests.support.redis_cluster import NODE_TIMEOUT_MS, Node, RedisNodes, until

NODES = "nodes"
"""What such a fault is `of`."""
MOVE_PAUSE_S = 0.02
BEYOND_TIMEOUT = 1.5
"""How many times as long as the others need to take it for dead, a node stays away at most."""


def _slot(scene: Scene) -> int:
    """Of a partition."""
    p = scene.rng.randrange(scene.cluster.partitions)
    return key_slot(partition_keys(UUID(bytes=scene.cluster.instance), p, 1).meta.encode())


async def _master(scene: Scene, fault: str) -> Node:
    """One that holds a partition; the fault that it is to have is told."""
    master = await scene.cluster.nodes.holder(_slot(scene))
    scene.say(f"{fault} {master.port}")
    return master


async def _another(scene: Scene, nodes: RedisNodes, holder: Node) -> Node:
    masters = [node for node in nodes.nodes if node is not holder and await nodes.leads(node)]
    return scene.rng.choice(masters)


@asynccontextmanager
async def slot_move(scene: Scene) -> AsyncIterator[None]:
    """Key by key, slowly, under load."""
    nodes, slot = scene.cluster.nodes, _slot(scene)
    holder = await nodes.holder(slot)
    target = await _another(scene, nodes, holder)
    scene.say(f"slot {slot} from {holder.port} to {target.port}, key by key")
    pause_s = scene.rng.uniform(0, MOVE_PAUSE_S)
    moving = asyncio.ensure_future(nodes.move_slot(slot, target, meanwhile=lambda: asyncio.sleep(pause_s)))
    try:
        yield
    finally:
        moved = await moving
        scene.say(f"{moved} keys")
        await until(nodes.well)


@asynccontextmanager
async def slot_migrate(scene: Scene) -> AsyncIterator[None]:
    """In one go, again and again."""
    nodes, slot = scene.cluster.nodes, _slot(scene)

    over = False

    async def migrating() -> None:
        while not over:
            holder = await nodes.holder(slot)
            target = await _another(scene, nodes, holder)
            scene.say(f"slot {slot} from {holder.port} to {target.port}")
            await nodes.migrate_slot(slot, target)
            await asyncio.sleep(scene.rng.uniform(0.05, 0.5))

    task = asyncio.ensure_future(migrating())
    try:
        yield
    finally:
        over = True  # cancelled within a command it might continue without end: some waits swallow that
        await task
        await until(nodes.well)


@asynccontextmanager
async def node_failover(scene: Scene) -> AsyncIterator[None]:
    """In order, as before an upgrade."""
    nodes = scene.cluster.nodes
    master = await _master(scene, "failover of")
    await nodes.fail_over(master)
    try:
        yield
    finally:
        await until(nodes.well)


@asynccontextmanager
async def node_kill(scene: Scene) -> AsyncIterator[None]:
    """A master dies, and comes back: at once, or after its replica has taken its place."""
    nodes = scene.cluster.nodes
    master = await _master(scene, "SIGKILL")
    master.server.kill()
    try:
        yield
        if scene.rng.random() < 0.5:
            await until(lambda: nodes.leads(nodes.replicas(master)[0]))
            scene.say("replaced")
    finally:
        await master.server.start()
        await until(nodes.well)


@asynccontextmanager
async def node_pause(scene: Scene) -> AsyncIterator[None]:
    """A master stands still, mostly until it is replaced, and then continues as if nothing had been."""
    nodes = scene.cluster.nodes
    master = await _master(scene, "SIGSTOP")
    master.server.pause()
    try:
        await asyncio.sleep(scene.rng.uniform(0.2, BEYOND_TIMEOUT) * NODE_TIMEOUT_MS / 1000)
        yield
    finally:
        master.server.resume()
        await until(nodes.well)


@asynccontextmanager
async def node_behind(scene: Scene) -> AsyncIterator[None]:
    """A replica that is behind takes its master's place: by force, or because the master died."""
    nodes = scene.cluster.nodes
    master = await nodes.holder(_slot(scene))
    replica, lag_s = nodes.replicas(master)[0], scene.rng.uniform(*LAG_S)
    scene.say(f"replica {replica.port} of {master.port} {lag_s:.1f} s behind")
    await nodes.cut_replication(replica)
    try:
        await asyncio.sleep(lag_s)
        if scene.rng.random() < 0.5:
            scene.say("failover by force")
            await nodes.fail_over(master, "FORCE")
        else:
            scene.say("SIGKILL the master")
            master.server.kill()
            await until(lambda: nodes.leads(replica))
        yield
    finally:
        await nodes.repair_replication(replica)
        await master.server.start()
        await until(nodes.well)


@asynccontextmanager
async def node_flush(scene: Scene) -> AsyncIterator[None]:
    master = await _master(scene, "FLUSHALL on")
    await master.call("FLUSHALL")
    yield


def _add(name: str, inject: Inject, *, splits: bool = False, weight: int = 1) -> None:
    INJECTIONS[name] = Injection(name, frozenset(("redis",)), inject, splits, weight, of=NODES)


_add("slot-move", slot_move, weight=2)
_add("slot-migrate", slot_migrate, weight=2)
_add("node-failover", node_failover, splits=True, weight=2)
_add("node-kill", node_kill, splits=True, weight=2)
_add("node-pause", node_pause, splits=True, weight=2)
_add("node-behind", node_behind, splits=True, weight=2)
_add("node-flush", node_flush)
