"""A test of a subscription: one marked message to its target, by the code that sends events.

Owns: the message, and how many tests are under way. Nothing is noted: the cursor, what waits and the attempts
stay as they are, whatever state the subscription is in.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg
import msgspec
from uuid_utils.compat import uuid7

from gateway.catalog.secrets import SecretsOf
from gateway.event_json import fed_json
from gateway.events import Event, Recorded, Stream
from gateway.network import asker
from gateway.relay.database import Subscribed, name_of
from gateway.relay.home import differs, homes
from gateway.relay.position import START, encode
from gateway.relay.subscriptions import usable
from gateway.relay.targets.contract import Confirmed, Failed, Message, Outcome, plainly
from gateway.relay.targets.table import target_of
from gateway.under_way import UnderWay
from spec.errors import Fault

TEST: Final = "_test"
"""Type of the message and of its aggregate: no spec declares a name with an underscore in front."""
TESTS_MAX: Final = 8
"""Tests under way in a gateway: each holds a connection for up to some 12 s. One of each subscription."""


class Tested(NamedTuple):
    event_id: UUID
    outcome: Outcome
    took_ms: int


class Trials:
    """`secrets_of` has the secrets that subscriptions name."""

    def __init__(self, pool: asyncpg.Pool, secrets_of: SecretsOf, *, allow_private: bool) -> None:
        self._pool, self._secrets_of, self._allow_private = pool, secrets_of, allow_private
        self._under_way = UnderWay(1, TESTS_MAX)

    async def send(self, of: Subscribed) -> Tested | None:
        """The outcome of one message. None: too many tests are under way, and it was not sent. `of` is not a
        pull subscription. Raises PostgresTrouble."""
        holder = str(of.id)
        if self._under_way.begin(holder) is not None:
            return None
        try:
            return await self._sent(of)
        finally:
            self._under_way.end(holder)

    async def _sent(self, of: Subscribed) -> Tested:
        asker.set(of.tenant.hex())
        environ = self._secrets_of(await name_of(self._pool, of.tenant))
        message_id, began = uuid7(), time.monotonic()
        read, (recorded, found) = usable(of, environ), await homes(self._pool)
        copied = differs(recorded, found) if recorded is not None and found is not None else None
        if copied is not None:
            outcome: Outcome = Failed(f"Nothing is sent before `sluice adopt`: {copied}.")
        elif isinstance(read, Fault):
            outcome = Failed(f"{read.pointer}: {read.error}")
        else:
            making = partial(target_of, read, environ, allow_private=self._allow_private)
            target = await asyncio.to_thread(making)  # certificates are read
            try:
                outcome = await target.send(_message(of, message_id))
            finally:
                await target.close()
        if not isinstance(outcome, Confirmed):
            outcome = replace(outcome, why=plainly(outcome.why))
        return Tested(message_id, outcome, round((time.monotonic() - began) * 1000))


def _message(of: Subscribed, message_id: UUID) -> Message:
    """An event as the feed has them, of a type that no spec can declare, at the subscription's own place."""
    data = msgspec.json.encode({"test": True, "subscription": of.name})
    event = Event(
        message_id.bytes, TEST, TEST, "global", None, None, message_id.bytes, None, 0,
        int(time.time() * 1000), None, data,
    )  # fmt: skip
    recorded = Recorded(Stream(of.tenant, TEST, "global"), 1, event)
    body = fed_json(recorded, encode(START.moved(of.p, of.place)))
    return Message(str(message_id), TEST, "global", TEST, body)
