"""The processes of one episode: gateways, a Redis with a replica, Postgres, and the links between them.

Owns: what runs, who replicates whom, which Redis each gateway is led to. All of it is on sockets of its own
in one folder and dies with this process.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import asyncpg
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.exceptions import RedisError

from gateway.catalog import keys, specs, tenants
from gateway.catalog.migrate import migrate
from gateway.catalog.model import Scope
from gateway.dev.binaries import find_redis
from gateway.dev.place import socket_folder
from gateway.dev.postgres_server import SOCKET_NAME as POSTGRES_SOCKET
from gateway.dev.redis_server import SOCKET_NAME as REDIS_SOCKET
from gateway.dev.redis_server import RedisServer
from gateway.dev.service_process import ServiceProcess
from gateway.partitions import partition_of
from tests.faults.disk import Disk
from tests.faults.gateway_at import POLL_S, START_S, Earlier, GatewayAt
from tests.faults.link import Link
from tests.faults.patroni_nodes import PATRONI, PatroniNodes
from tests.faults.postgres_pair import SYNCHRONOUS, PostgresPair
from tests.faults.spec import SPEC
from tests.faults.wire import Answer, Caller
from tests.support.redis_cluster import HOST, RedisNodes, nodes_in
from tests.support.servers import Server, Servers, servers_in

TENANTS_MIN = 8
REDIS_S = 2.0
"""For a command to a Redis that is not disturbed."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """Whose events; `key` goes into `Authorization`, `admin` where more than appends is asked for."""

    id: bytes
    name: str
    partition: int
    key: str
    admin: str


class RedisPair:
    """Two Redis servers; `master` is the one that gateways are led to, unless a fault says otherwise."""

    def __init__(
        self, first: Server, second: Server, sockets: tuple[Path, Path], homes: tuple[Path, Path]
    ) -> None:
        self.servers = (first, second)
        self.sockets = sockets
        self.homes = homes
        self.links = (Link(sockets[0]), Link(sockets[1]))
        """What replicates from server n, does so through link n."""
        self.master = 0

    @property
    def replica(self) -> int:
        return 1 - self.master

    async def open(self) -> None:
        """The first one runs already."""
        for link in self.links:
            await link.open()
        for number in (0, 1):
            await self.start(number)

    async def close(self) -> None:
        """Of the first one's process others take care."""
        for link in self.links:
            await link.close()
        self.servers[1].resume()
        self.servers[1].kill()

    def client(self, number: int) -> Redis:
        """Behind the gateways' backs."""
        return Redis(
            unix_socket_path=str(self.sockets[number]), protocol=2, retry=None, socket_timeout=REDIS_S
        )

    async def call(self, number: int, *words: str | bytes | int) -> Any:
        """One command. Raises RedisError or OSError."""
        async with self.client(number) as client:
            return await client.execute_command(*words)

    async def start(self, number: int) -> None:
        """Returns once it answers; a replica then follows the master again."""
        await self.servers[number].start()
        await self.call(number, "CONFIG", "SET", "repl-diskless-sync-delay", 0, "repl-timeout", 5)
        if number == self.replica:
            await self.follow(number)

    async def follow(self, number: int) -> None:
        """Server `number` becomes a replica of the other one."""
        await self.call(number, "REPLICAOF", "127.0.0.1", self.links[1 - number].port)

    async def lead(self, number: int) -> None:
        """Server `number` becomes a master; what the other one is stays."""
        await self.call(number, "REPLICAOF", "NO", "ONE")

    async def in_step(self, timeout_s: float = 5.0) -> bool:
        """Whether the replica has followed all that the master wrote, within that time."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while asyncio.get_running_loop().time() < deadline:
            try:
                offsets = [await self._offset(self.master), await self._offset(self.replica)]
            except (RedisError, OSError):
                offsets = [0, -1]
            if offsets[1] >= offsets[0]:
                return True
            await asyncio.sleep(POLL_S)
        return False

    async def _offset(self, number: int) -> int:
        told = await self.call(number, "INFO", "replication")
        up = told["role"] == "master" or told.get("master_link_status") == "up"
        field = "master_repl_offset" if told["role"] == "master" else "slave_repl_offset"
        return int(told[field]) if up else -1


class RedisSpread:
    """A Redis Cluster, which gateways reach past every link: its nodes name each other by address."""

    master = 0

    def __init__(self, nodes: RedisNodes) -> None:
        self.nodes = nodes

    async def open(self) -> None:
        await self.nodes.start()

    async def close(self) -> None:
        self.nodes.close()

    def client(self, number: int) -> RedisCluster:
        """Behind the gateways' backs."""
        known = [ClusterNode(HOST, node.port) for node in self.nodes.nodes]
        return RedisCluster(startup_nodes=known, protocol=2, socket_timeout=REDIS_S)


class Cluster:
    """Gateways and their servers. `redis` is a pair, or the `nodes` of a Redis Cluster."""

    def __init__(
        self,
        folder: Path,
        servers: Servers,
        redis: RedisPair | RedisSpread,
        postgres_url: str,
        partitions: int,
    ) -> None:
        self.folder = folder
        self.partitions = partitions
        self.servers = servers
        self.redis = redis
        self.postgres_pair: PostgresPair | None = None
        self.patroni_nodes: PatroniNodes | None = None
        self.disk: Disk | None = None
        """Postgres', where it has a small one of its own."""
        self.keeps = False
        """Whether what is on it is wanted after the end."""
        self._postgres_url = postgres_url
        self._earlier: Earlier | None = None
        self.gateways: list[GatewayAt] = []
        self.redis_links: list[Link] = []
        self.postgres_links: list[Link] = []
        self.tenants: list[Tenant] = []
        self.deployments: dict[int, int] = {}
        """Which one of spec.py a tenant has, by its number; the first where none is named."""
        self.instance = b""

    @property
    def postgres(self) -> Server:
        """The one that gateways are led to."""
        return self.postgres_pair.primary if self.postgres_pair else self.servers.postgres

    @property
    def postgres_url(self) -> str:
        """Straight to that server, past every link."""
        if self.patroni_nodes:
            return self.patroni_nodes.url
        return self.postgres_pair.url if self.postgres_pair else self._postgres_url

    @property
    def pair(self) -> PostgresPair:
        assert self.postgres_pair is not None
        return self.postgres_pair

    @property
    def patroni(self) -> PatroniNodes:
        assert self.patroni_nodes is not None
        return self.patroni_nodes

    @property
    def nodes(self) -> RedisNodes:
        assert isinstance(self.redis, RedisSpread)
        return self.redis.nodes

    @classmethod
    async def prepare(
        cls,
        folder: Path,
        partitions: int,
        *,
        spread: bool = False,
        standby: str = "",
        small_disk: bool = False,
        flushes: bool = False,
        earlier: Earlier | None = None,
    ) -> Self:
        """Servers running, the database migrated, tenants in every partition. No gateway yet. `spread`: over
        three masters with a replica each. `standby`: that Postgres has, SYNCHRONOUS, ASYNCHRONOUS or PATRONI.
        `small_disk`: it has one of its own, for which this process has to have mounts of its own. `flushes`:
        it calls fsync. `earlier`: the database is as that release has it, without
        tenants, until `start_gateways`."""
        disk = Disk(folder / "postgres") if small_disk else None
        servers = servers_in(folder, durable=flushes)
        redis: RedisPair | RedisSpread
        redis = (
            RedisSpread(nodes_in(folder, replicas=(0, 1, 2))) if spread else _pair_in(folder, servers.redis)
        )
        cluster = cls(folder, servers, redis, servers.postgres_url, partitions)
        cluster.disk = disk
        try:
            if standby == PATRONI:
                await servers.redis.start()
                cluster.patroni_nodes = await PatroniNodes.open(folder)
            else:
                await servers.start()
            await redis.open()
            cluster._earlier = earlier
            if earlier is None:
                await cluster._open()
            else:
                await earlier.migrate(cluster.postgres_url, partitions)
            if standby and standby != PATRONI:
                cluster.postgres_pair = await PostgresPair.open(servers, synchronous=standby == SYNCHRONOUS)
        except BaseException:
            await cluster.close()
            raise
        return cluster

    async def _open(self) -> None:
        """The database is as this release has it."""
        await migrate(self.postgres_url, self.partitions)
        await self._open_tenants()

    async def _open_tenants(self) -> None:
        async with asyncpg.create_pool(self.postgres_url, min_size=0, max_size=2) as pool:
            self.instance = (await pool.fetchval("SELECT id FROM instance")).bytes
            most = -(-TENANTS_MIN // self.partitions)
            counts = [0] * self.partitions
            for number in itertools.count():
                tenant = await tenants.create(pool, f"t{number}")
                partition = partition_of(tenant.id.bytes, self.partitions)
                if counts[partition] < most:
                    counts[partition] += 1
                    await specs.deploy(pool, tenant.id, SPEC, {})
                    key = await keys.create(pool, tenant, Scope.WRITE)
                    admin = await keys.create(pool, tenant, Scope.ADMIN)
                    self.tenants.append(Tenant(tenant.id.bytes, tenant.name, partition, key.text, admin.text))
                if min(counts) == most:
                    return

    async def start_gateways(self, count: int, argv: Sequence[str], settings: dict[str, str]) -> None:
        """Returns once every one can commit. Beside an earlier release, the first ones are of that one, and
        the database is migrated while they serve."""
        for number in range(count):
            own = {
                "SLUICE_REDIS_URL": await self._redis_url(),
                "SLUICE_POSTGRES_URL": await self._gateways_postgres_url(),
            }
            told = _inherited() | settings | own
            self.gateways.append(GatewayAt(number, argv, told, self.folder, self._earlier))
            self.gateways[-1].set_clock(0)
        first = 0
        if self._earlier is not None:
            first = count // 2
            for gateway in self.gateways[:first]:
                gateway.begin_as_earlier()
            await self._started(self.gateways[:first])
            await self._open()
            if not self._earlier.starts_beside_this:
                await self._earlier.refuses(self._earlier.settings(told))
        await self._started(self.gateways[first:])

    async def _started(self, gateways: Sequence[GatewayAt]) -> None:
        await asyncio.gather(*(each.start() for each in gateways))
        await asyncio.gather(*(self._until_ready(each) for each in gateways))

    async def _gateways_postgres_url(self) -> str:
        """For one more gateway."""
        if self.patroni_nodes:
            return self.patroni_nodes.url
        link = Link(self._postgres_socket)
        await link.open()
        self.postgres_links.append(link)
        return f"postgresql://sluice@127.0.0.1:{link.port}/sluice?sslmode=disable"

    async def _redis_url(self) -> str:
        """For one more gateway."""
        if isinstance(self.redis, RedisSpread):
            return self.redis.nodes.url
        link = Link(self.redis.sockets[self.redis.master])
        await link.open()
        self.redis_links.append(link)
        return f"redis://127.0.0.1:{link.port}"

    async def _until_ready(self, gateway: GatewayAt) -> None:
        caller, deadline = Caller(), asyncio.get_running_loop().time() + START_S
        while True:
            told = await caller.call(gateway.port, "GET", "/_/health/ready", (), timeout_s=2.0)
            if isinstance(told, Answer) and told.status == 200:
                break
            assert asyncio.get_running_loop().time() < deadline, f"{gateway.keeper.name} is not ready: {told}"
            await asyncio.sleep(POLL_S)
        caller.close()

    def lead_gateways(self, *, drop: bool) -> None:
        """All of them to the master."""
        for link in self.redis_links:
            link.lead_to(self.redis.sockets[self.redis.master], drop=drop)

    @property
    def _postgres_socket(self) -> Path:
        place = self.postgres_pair.place if self.postgres_pair else self.servers.postgres_server
        return place.socket_folder / POSTGRES_SOCKET

    def lead_to_postgres(self) -> None:
        """All gateways to the primary; connections to another server end."""
        for link in self.postgres_links:
            link.lead_to(self._postgres_socket, drop=True)

    async def close(self) -> None:
        """Ends everything at once."""
        for gateway in self.gateways:
            gateway.close()
        for link in (*self.redis_links, *self.postgres_links):
            await link.close()
        await self.redis.close()
        if self.postgres_pair is not None:
            self.postgres_pair.close()
        if self.patroni_nodes is not None:
            self.patroni_nodes.close()
        self.servers.close()
        if self.disk is not None:
            self.disk.close(keep=self.keeps)


def _pair_in(folder: Path, first: Server) -> RedisPair:
    home = folder / "replica-run"
    home.mkdir(mode=0o700)
    path = socket_folder(home, None, REDIS_SOCKET) / REDIS_SOCKET
    spare = RedisServer(find_redis(), folder / "replica", path, folder / "replica.log")
    first_socket = socket_folder(folder / "run", None, REDIS_SOCKET) / REDIS_SOCKET
    return RedisPair(
        first,
        Server(ServiceProcess(spare, lambda _: None)),
        (first_socket, path),
        (folder / "redis", folder / "replica"),
    )


def _inherited() -> dict[str, str]:
    """Our environment without settings of Sluice's."""
    return {name: text for name, text in os.environ.items() if not name.startswith("SLUICE_")}
