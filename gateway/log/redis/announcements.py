"""Commits announced between gateways by Redis' publish and subscribe, so that followers need not poll.

A hint and nothing more: it says to which partitions there was a commit, never what; its hearers read
Postgres. Lost, late or forged, it costs a moment, since every reader looks by itself now and then.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.log.redis.cluster import Cluster, servers_of
from gateway.log.redis.keys import announcement_channel
from gateway.telemetry.redact import reason

logger = logging.getLogger("sluice.log")

# What is committed meanwhile goes into the next message: a few hundred a second, at any rate of appends.
_TELL_EVERY_S = 0.004
# While no other gateway listens, one message in this time finds out whether one has begun to.
_ASK_EVERY_S = 0.1
_AGAIN_S = 1.0
_HEAR_S = 1.0
_DIGITS_MAX = 5  # of a partition's number; Python refuses to read thousands

Heard = Callable[[int | None], None]
"""Called with a partition that was committed to elsewhere; None when it may be any of them."""


class Announcements:
    """Of one process: tells what it commits, hears what others do."""

    def __init__(self, redis: Redis | Cluster, instance: UUID) -> None:
        self._servers = servers_of(redis)
        self._channel = announcement_channel(instance)
        self._sender = os.urandom(8).hex()
        self._told: set[int] = set()
        self._tell = asyncio.Event()
        self._heard: list[Heard] = []
        self._wanted = asyncio.Event()
        self._subscribed = False
        self._well = True

    def committed(self, partition: int) -> None:
        """To be told with the next message."""
        if partition not in self._told:
            self._told.add(partition)
            self._tell.set()

    @contextmanager
    def hearing(self, heard: Heard) -> Iterator[None]:
        """While inside, `heard` is called for what other processes commit."""
        self._heard.append(heard)
        self._wanted.set()
        try:
            yield
        finally:
            self._heard.remove(heard)
            if not self._heard:
                self._wanted.clear()

    async def run_telling(self) -> None:
        """Until cancelled."""
        while True:
            await self._tell.wait()
            self._tell.clear()
            partitions, self._told = self._told, set()
            message = " ".join((self._sender, *map(str, sorted(partitions))))
            try:
                hearers = await (await self._redis()).publish(self._channel, message)
            except (RedisError, OSError) as trouble:
                self._unwell(trouble)
                await asyncio.sleep(_AGAIN_S)
                continue
            self._well = True
            await asyncio.sleep(_TELL_EVERY_S if hearers > self._subscribed else _ASK_EVERY_S)

    async def run_listening(self) -> None:
        """Until cancelled; holds a connection only while a follower here wants to hear."""
        while True:
            await self._wanted.wait()
            try:
                await self._listen()
            except (RedisError, OSError) as trouble:
                self._unwell(trouble)
                await asyncio.sleep(_AGAIN_S)

    async def _redis(self) -> Redis:
        """Of a cluster, the node that would hold the channel if it were a key: any node's messages reach all
        others, but only on one of their own is it known how many hear them."""
        return (await self._servers.holding(self._channel)).client

    async def _listen(self) -> None:
        redis = await self._redis()
        async with redis.pubsub(ignore_subscribe_messages=True) as subscription:
            await subscription.subscribe(self._channel)
            self._subscribed = True
            try:
                self._hear(None)
                while self._wanted.is_set() and await self._redis() is redis:
                    message = await subscription.get_message(timeout=_HEAR_S)
                    if message is not None:
                        self._heed(message["data"])
            finally:
                self._subscribed = False

    def _heed(self, data: bytes) -> None:
        sender, *partitions = data.split(b" ")
        if sender == self._sender.encode():
            return
        for each in partitions:
            if each.isdigit() and len(each) <= _DIGITS_MAX:
                self._hear(int(each))

    def _hear(self, partition: int | None) -> None:
        for heard in tuple(self._heard):
            try:
                heard(partition)
            except Exception:  # a bug: the others hear of it all the same
                logger.exception("commit_tap_failed", extra={"partition": partition})

    def _unwell(self, trouble: Exception) -> None:
        """Told once until it is well again: followers here find other gateways' commits by looking."""
        if self._well:
            self._well = False
            logger.info("commits_unannounced", extra={"reason": reason(trouble)})
