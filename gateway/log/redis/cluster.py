"""A Redis Cluster: which server holds a key's slot, and where a command goes that came to the wrong one.

Owns: the map of slots, learned from any node and held until a node contradicts it or does not answer. Only a
command that was refused is sent again, for it was not run; never one that was not answered.
Source: the Redis Cluster specification, "Redirection and resharding" and "MOVED", "ASK" there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from gateway.log.redis.servers import REPLICATION, Server, connect, history_of, no_write, pack
from gateway.server_urls import by_host
from gateway.telemetry.redact import reason

SCHEMES: Final = {"redis+cluster": "redis", "rediss+cluster": "rediss"}
"""Of a cluster's URL, and of the URL of one of its nodes."""
NOT_RUN: Final = (AskError, TryAgainError, ClusterDownError)  # a MovedError is an AskError
"""What a server of a cluster answers to a command that it did not run and will not."""

REDIRECTIONS_MAX: Final = 4
"""A slot that moved takes one or two; nodes that have not agreed yet who holds it would take any number."""

_PORT: Final = 6379
# Nodes agree on a change within their heartbeats: asking more often tells nothing new.
_LEARN_EVERY_S: Final = 0.1
# A node that is silent for longer is passed over: a caller that waits to learn the map may be the one that is
# to find out that it is away.
_LEARN_PATIENCE_S: Final = 0.5
_ASKING: Final = pack(("ASKING",))
_SLOTS: Final = pack(("CLUSTER", "SLOTS"))


class Cluster:
    """As one `Server`, whichever of its nodes holds the key."""

    def __init__(self, url: str, timeout_s: float, connections_max: int) -> None:
        urls = [urlsplit(each) for each in by_host(url)]
        self._url = urls[0]
        self._timeout_s = timeout_s
        self._connections_max = connections_max
        self._servers: dict[tuple[str, int], Server] = {}
        self._seeds = [self._open(each.hostname or "localhost", each.port or _PORT) for each in urls]
        self._holders: list[Server | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._doubtful = True
        self._asked_at = float("-inf")
        self._untold: str | None = None
        """Why no node told where slots are, when they were asked last."""
        self._asking: set[asyncio.Task[tuple[Server, Any]]] = set()
        self._learning = asyncio.Lock()

    async def send(self, packed: bytes, replies: int = 1, key: str | bytes = "") -> list[Any]:
        """The replies to packed commands about one key, as of `Server`, from where they are run in the end;
        or the last refusal, where nodes send on and on, or a slot is on its way, or has none."""
        return await self.send_after(b"", packed, replies, key)

    async def send_after(
        self, before: bytes, packed: bytes, replies: int = 1, key: str | bytes = ""
    ) -> list[Any]:
        """As `send`, with a command before it that concerns no key, at each server that it comes to."""
        slot = _slot(key)
        server, asking = await self._holder(slot), False
        for _ in range(REDIRECTIONS_MAX):
            if before:
                await self._sent(server, before, 1)
            found = await self._sent(server, packed, replies, asking=asking)
            sent_on = next((each for each in found if isinstance(each, AskError)), None)
            if sent_on is None:
                self._doubtful |= isinstance(found[0], ClusterDownError)
                break
            asking = not isinstance(sent_on, MovedError)
            server = self._server(sent_on.host or server.host, sent_on.port)
            if not asking:
                self._holders[slot], self._doubtful = server, True
        return found

    async def _sent(self, server: Server, packed: bytes, replies: int, *, asking: bool = False) -> list[Any]:
        try:
            if asking:
                return (await server.send(_ASKING + packed, 1 + replies))[1:]
            return await server.send(packed, replies)
        except (RedisError, OSError):
            self._doubtful = True  # a replica may be about to take its place
            raise

    async def look(self, commands: Sequence[tuple[str, bytes]], timeout_s: float | None) -> list[Any]:
        """The replies of masters to packed commands about one key each, each with the id of its data's
        history; a RedisError or an OSError in place of one that was refused, or whose server does not answer,
        within `timeout_s` where that is sooner than as usual. A replica refuses by itself, and so does a
        server that has lost the slot, or hands it over key by key: it then sends on requests for a key
        that it does not have. One that takes no writes refuses too. Scripts with keys here and there can't
        run before all of them have gone."""
        asked: dict[Server, list[int]] = {}
        found: list[Any] = [None] * len(commands)
        for n, (key, _) in enumerate(commands):
            try:
                asked.setdefault(await self.holding(key), []).append(n)
            except (RedisError, OSError) as trouble:
                found[n] = trouble
                if (believed := self._holders[_slot(key)]) is not None:
                    believed.silent = True  # as all that were asked who has the slot

        async def one(server: Server, numbers: list[int]) -> None:
            each = (commands[n][1] + no_write(commands[n][0]) for n in numbers)
            try:
                async with asyncio.timeout(timeout_s):
                    *replies, told = await server.send(b"".join((*each, REPLICATION)), 2 * len(numbers) + 1)
                if isinstance(told, RedisError):
                    raise told
            except (RedisError, OSError) as trouble:
                self._doubtful = True
                for n in numbers:
                    found[n] = trouble
                server.silent = True
                return
            server.silent = False
            history = history_of(told)
            for n, reply, nothing in zip(numbers, replies[::2], replies[1::2], strict=True):
                refused = nothing if isinstance(nothing, ResponseError) else reply
                found[n] = refused if isinstance(refused, Exception) else (reply, history)
                self._doubtful |= isinstance(reply, (MovedError, ClusterDownError))

        await asyncio.gather(*(one(*each) for each in asked.items()))
        return found

    async def hashes(
        self, keys: tuple[str, ...], fields: tuple[str, ...], timeout_s: float | None
    ) -> list[Any]:
        """As of `Server`, but for what is in place of a reply (`look`)."""
        return await self.look([(key, pack(("HMGET", key, *fields))) for key in keys], timeout_s)

    @property
    def under_way(self) -> bool:
        """Whether a call is, to any node."""
        return any(server.under_way for server in self._servers.values())

    async def holding(self, key: str) -> Server:
        """The server that the key's slot is believed to be at. Raises RedisError and OSError."""
        return await self._holder(_slot(key))

    async def all(self) -> Sequence[Server]:
        """Those that hold slots, and their replicas. Raises RedisError and OSError."""
        self._doubtful = True
        await self._learn()
        return tuple(self._servers.values())

    def give_up(self) -> None:
        """As of `Server`, for those that did not answer the last look."""
        for server in self._servers.values():
            if server.silent:
                server.give_up()

    async def close(self) -> None:
        """Closes what is idle; calls under way keep their connections."""
        for server in (*self._servers.values(), *self._seeds):
            await server.close()

    async def aclose(self) -> None:
        """Afterwards no connection is left."""
        asking = tuple(self._asking)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        for server in (*self._servers.values(), *self._seeds):
            await server.aclose()

    # -- the map

    async def _holder(self, slot: int) -> Server:
        if self._doubtful:
            await self._learn()
        holder = self._holders[slot]
        if holder is None:
            self._doubtful = True
            raise RedisConnectionError(f"no node of the cluster serves slot {slot}")
        return holder

    async def _learn(self) -> None:
        """From the node that tells first; all are asked at once, so that it takes no longer the more of them
        hang. Raises RedisError where none does, which is not tried again for a moment either."""
        loop = asyncio.get_running_loop()
        async with self._learning:
            if not self._doubtful:
                return
            if loop.time() < self._asked_at + _LEARN_EVERY_S:
                if self._untold is not None:
                    raise RedisConnectionError(self._untold)
                return
            self._doubtful = False  # whatever contradicts meanwhile may be newer than what is learned
            nodes = {each.name: each for each in (*self._seeds, *self._servers.values())}
            asking = {self._ask(server) for server in nodes.values()}
            try:
                while asking:
                    done, asking = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
                    for server, told in [each.result() for each in done]:
                        if isinstance(told, Exception):
                            self._untold = f"no node answers where slots are; {server.name}: {reason(told)}"
                            continue
                        await self._adopt(told, server)
                        self._asked_at, self._untold = loop.time(), None
                        return
                self._asked_at = loop.time()
                raise RedisConnectionError(self._untold)
            except BaseException:  # a caller that waits no longer has learned nothing, too
                self._doubtful = True
                raise

    def _ask(self, server: Server) -> asyncio.Task[tuple[Server, Any]]:
        """Continues where another node has told sooner: to cancel it would close connections that are
        well."""
        task = asyncio.get_running_loop().create_task(_slots(server))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        return task

    async def _adopt(self, told: Iterable[Any], by: Server) -> None:
        """What CLUSTER SLOTS says: ranges, each with its master and replicas, by address first."""
        host = by.host
        holders: list[Server | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        there: set[Server] = set()
        for first, last, *nodes in told:
            servers = [self._server((node[0] or b"").decode() or host, int(node[1])) for node in nodes]
            there.update(servers)
            holders[first : last + 1] = servers[:1] * (last + 1 - first)
        self._holders = holders
        for address, server in list(self._servers.items()):
            if server not in there:
                del self._servers[address]
                server.give_up()
                await server.aclose()

    def _server(self, host: str, port: int) -> Server:
        """One for each address."""
        server = self._servers.get((host, port))
        if server is None:
            server = self._servers[host, port] = self._open(host, port)
        return server

    def _open(self, host: str, port: int) -> Server:
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        account, at, _ = self._url.netloc.rpartition("@")
        there = self._url._replace(scheme=SCHEMES[self._url.scheme], netloc=f"{account}{at}{name}")
        return Server(connect(there.geturl(), self._timeout_s, self._connections_max), name)


async def _slots(server: Server) -> tuple[Server, Any]:
    """What it says of who has which, or why it says nothing."""
    try:
        async with asyncio.timeout(_LEARN_PATIENCE_S):
            (told,) = await server.send(_SLOTS)
    except (RedisError, OSError) as trouble:
        return server, trouble
    return server, told or RedisConnectionError("the node knows no slots")


def _slot(key: str | bytes) -> int:
    return key_slot(key if isinstance(key, bytes) else key.encode())


def open_redis(url: str, timeout_s: float, connections_max: int) -> Redis | Cluster:
    """What SLUICE_REDIS_URL names. Connects when it is asked something; so many connections to each server,
    besides those of scripts."""
    if url.partition(":")[0] in SCHEMES:
        return Cluster(url, timeout_s, connections_max)
    return connect(url, timeout_s, connections_max)


def servers_of(redis: Redis | Cluster) -> Server | Cluster:
    """Over connections that others do not use."""
    return redis if isinstance(redis, Cluster) else Server(redis)
