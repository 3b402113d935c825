"""A Redis Cluster for the tests: nodes from the embedded binary, under the control of a test.

Owns: who holds which slots at the start, and how an operator's hand moves a slot or a master. Nodes listen on
ports of the loopback, since a cluster's nodes name each other by address.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS
from redis.exceptions import RedisError

from gateway.dev.binaries import find_redis
from gateway.dev.process import Command
from gateway.dev.redis_server import RedisServer
from gateway.dev.service_process import ServiceProcess
from tests.support.ports import free_port
from tests.support.servers import Server

NODE_TIMEOUT_MS = 1000
"""A master that is silent for so long is taken for dead by the others."""
WITHIN_S = 40.0
POLL_S = 0.02
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class _NodeServer:
    """A `RedisServer` that is a node: it keeps its identity in its folder and listens on two ports."""

    server: RedisServer
    port: int
    bus: int
    name: str
    stop_signals = RedisServer.stop_signals

    def command(self) -> Command:
        command = self.server.command()
        node = {
            "port": self.port,
            "bind": HOST,
            "cluster-enabled": "yes",
            "cluster-port": self.bus,
            "cluster-node-timeout": NODE_TIMEOUT_MS,
            "cluster-replica-validity-factor": 0,
            "cluster-allow-replica-migration": "no",
            "repl-diskless-sync-delay": 0,
        }
        given = [str(word) for name, value in node.items() for word in (f"--{name}", value)]
        return replace(command, argv=[*command.argv, *given])

    def ready(self, pid: int) -> bool:
        return self.server.ready(pid)

    def failed(self) -> str | None:
        return None


@dataclass(slots=True)
class Node:
    """`id` is the cluster's name for it."""

    server: Server
    port: int
    bus: int
    id: str = ""

    @contextlib.asynccontextmanager
    async def client(self) -> Any:
        async with Redis(
            host=HOST, port=self.port, protocol=2, retry=None, socket_timeout=5, decode_responses=False
        ) as client:
            yield client

    async def call(self, *words: str | bytes | int) -> Any:
        """One command, its answer as it comes. Raises RedisError and OSError."""
        async with self.client() as client:
            client.response_callbacks.clear()
            return await client.execute_command(*words)


@dataclass(slots=True)
class RedisNodes:
    """Masters with a third of the slots each, and a replica for some of them."""

    nodes: list[Node]
    masters: int
    replica_of: dict[int, int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(f'{HOST}:{node.port}' for node in self.nodes)}"

    async def start(self) -> None:
        """Returns once every slot is served and every replica in step."""
        await asyncio.gather(*(node.server.start() for node in self.nodes))
        for number, node in enumerate(self.nodes):
            node.id = (await node.call("CLUSTER", "MYID")).decode()
            await node.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            await self.nodes[0].call("CLUSTER", "MEET", HOST, node.port, node.bus)
        share = -(-REDIS_CLUSTER_HASH_SLOTS // self.masters)
        for number, node in enumerate(self.nodes[: self.masters]):
            last = min((number + 1) * share, REDIS_CLUSTER_HASH_SLOTS) - 1
            await node.call("CLUSTER", "ADDSLOTSRANGE", number * share, last)
        await until(self._all_know_all)
        for replica, master in self.replica_of.items():
            await self.nodes[replica].call("CLUSTER", "REPLICATE", self.nodes[master].id)
        await until(self.well)

    async def _all_know_all(self) -> bool:
        for node in self.nodes:
            lines = (await node.call("CLUSTER", "NODES")).decode().splitlines()
            if len(lines) != len(self.nodes) or any("handshake" in line for line in lines):
                return False
        return True

    async def well(self) -> bool:
        """Whether every node is up, agrees that every slot is served, and replicates what it should.

        Replicas of Valkey 9.1.2 crash now and then while a slot is migrated in one go."""
        for node in self.nodes:
            await node.server.revive()
        try:
            return all([await self._finds_all_well(node) for node in self.nodes])
        except (RedisError, OSError):
            return False

    async def _finds_all_well(self, node: Node) -> bool:
        if b"cluster_state:ok" not in await node.call("CLUSTER", "INFO"):
            return False
        told = await node.call("INFO", "replication")
        if b"role:slave" in told and b"master_link_status:up" not in told:
            return False
        lines = (await node.call("CLUSTER", "NODES")).decode()
        if "fail" in lines or lines.count("slave") != len(self.replica_of):
            return False
        slots = await node.call("CLUSTER", "SLOTS")
        return {port for _, _, *group in slots for _, port, *_ in group} == {each.port for each in self.nodes}

    async def holder(self, slot: int) -> Node:
        """The master that serves the slot, as the first node that answers knows."""
        for node in self.nodes:
            with contextlib.suppress(RedisError, OSError):
                for first, last, master, *_ in await node.call("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        return next(each for each in self.nodes if each.port == master[1])
        raise AssertionError(f"nobody serves slot {slot}")

    def replicas(self, of: Node) -> list[Node]:
        """Who could take its place: its partners, whichever leads now."""
        group = self._group(self.nodes.index(of))
        return [
            node for node in self.nodes if node is not of and self._group(self.nodes.index(node)) == group
        ]

    def _group(self, number: int) -> int:
        return self.replica_of.get(number, number)

    # -- what an operator does

    async def move_slot(
        self, slot: int, to: Node, *, meanwhile: Callable[[], Awaitable[None]] | None = None
    ) -> int:
        """Key by key, as `redis-cli --cluster reshard` does; the number of keys. `meanwhile` is awaited each
        time that some have gone."""
        source = await self.holder(slot)
        await to.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        await source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
        moved = 0
        async with source.client() as client:
            while keys := await client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 4):
                await client.execute_command("MIGRATE", HOST, to.port, "", 0, 5000, "KEYS", *keys)
                moved += len(keys)
                if meanwhile is not None:
                    await meanwhile()
        for node in (to, source, *self.nodes):
            with contextlib.suppress(RedisError, OSError):  # a replica may not be told, and is told by others
                await node.call("CLUSTER", "SETSLOT", slot, "NODE", to.id)
        return moved

    async def migrate_slot(self, slot: int, to: Node) -> None:
        """In one go, as Valkey 9 does; returns once `to` serves it."""
        source = await self.holder(slot)
        await source.call("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", to.id)

        async def there() -> bool:
            return await self.holder(slot) is to

        await until(there)

    async def fail_over(self, master: Node, *how: str) -> Node:
        """In order, as before an upgrade, or with `how` "FORCE" without a word to the master; returns the new
        master once it leads."""
        promoted = self.replicas(master)[0]
        await promoted.call("CLUSTER", "FAILOVER", *how)
        await until(lambda: self.leads(promoted))
        return promoted

    # -- what becomes of replication

    async def cut_replication(self, replica: Node) -> None:
        """It hears no more of its master, which refuses it from now on; until `repair_replication`."""
        await replica.call("CONFIG", "SET", "masteruser", "nobody", "masterauth", "wrong")
        await replica.call("CLIENT", "KILL", "TYPE", "master")

    async def repair_replication(self, replica: Node) -> None:
        await replica.call("CONFIG", "SET", "masteruser", "", "masterauth", "")

    async def leads(self, node: Node) -> bool:
        """Whether it serves slots."""
        try:
            slots = await node.call("CLUSTER", "SLOTS")
            return any(master[1] == node.port for _, _, master, *_ in slots)
        except (RedisError, OSError):
            return False

    def close(self) -> None:
        """End all at once: nothing in their folders is needed any more."""
        for node in self.nodes:
            node.server.resume()
            node.server.kill()


async def until(holds: Callable[[], Awaitable[bool]], within_s: float = WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not await holds():
        assert time.monotonic() < deadline, f"does not hold after {within_s:g} s"
        await asyncio.sleep(POLL_S)


def nodes_in(folder: Path, *, masters: int = 3, replicas: Sequence[int] = ()) -> RedisNodes:
    """That keep their data in `folder`; `replicas` names, for each replica, its master. None runs yet."""
    ports: set[int] = set()
    while len(ports) < 2 * (masters + len(replicas)):
        ports.add(free_port())
    nodes = []
    for number in range(masters + len(replicas)):
        home = folder / f"node-{number}"
        redis = RedisServer(find_redis(), home, folder / f"{number}.sock", folder / f"node-{number}.log")
        port, bus = ports.pop(), ports.pop()
        service = _NodeServer(redis, port, bus, f"node {number}")
        nodes.append(Node(Server(ServiceProcess(service, print)), port, bus))
    return RedisNodes(nodes, masters, {masters + n: master for n, master in enumerate(replicas)})
