"""Writers of a campaign: each appends as fast as it is answered, to aggregates that it shares with others,
and repeats an append until it is told that it is committed: at whichever gateway lives, or as
`gateway.client` does."""

from __future__ import annotations

import asyncio
import json
import random

from gateway.client import Actor, AsyncClient
from tests.faults.wire import Answer, Caller
from tests.outgoing.stand import Stand
from tests.support.calls import ACTOR

WRITERS = 64
NEIGHBOURS = 8
"""Of the writers, so many write for the other tenant."""
CLIENTS = 8
"""And so many by `gateway.client`, each at one gateway."""
AGGREGATES = 300
PAUSE_S = 0.6
"""At most, between two appends of a writer: readers, relays and receivers share the machine."""
PATIENCE_S = 8.0
AGAIN_S = (0.02, 0.2)
EVENTS = (("order", ("was_noted", "was_cleared")), ("ticket", ("was_opened",)))
BATCH_MOST = 6


class Writers:
    """`acknowledged`: the ids of the tenant's events that a writer was told are committed."""

    def __init__(self, stand: Stand, seed: int) -> None:
        self._stand = stand
        self._rng = random.Random(f"{seed}/writers")
        self._keys = [self._uuid() for _ in range(AGGREGATES)]
        self.acknowledged: set[str] = set()
        self.repeated = 0

    async def run(self, seconds: float) -> None:
        """Returns when that time is over and every append that was begun is answered."""
        until = asyncio.get_running_loop().time() + seconds
        async with asyncio.TaskGroup() as writing:
            for number in range(WRITERS):
                if number < CLIENTS:
                    url = self._stand.gateways[number % len(self._stand.gateways)].url
                    writing.create_task(self._write_by_client(until, url))
                else:
                    writing.create_task(self._write(until, neighbour=number < CLIENTS + NEIGHBOURS))

    async def _write_by_client(self, until: float, url: str) -> None:
        async with AsyncClient(url, self._stand.tenant.write) as client:
            while asyncio.get_running_loop().time() < until:
                (aggregate_type, key), events = self._events()
                receipt = await client.append_many(aggregate_type, key, events, actor=Actor(**ACTOR))
                self.acknowledged.update(receipt.event_ids)
                await asyncio.sleep(self._rng.uniform(0, PAUSE_S))

    async def _write(self, until: float, *, neighbour: bool) -> None:
        account = self._stand.neighbour if neighbour else self._stand.tenant
        caller, loop = Caller(), asyncio.get_running_loop()
        try:
            while loop.time() < until:
                ids = await self._append(caller, account.write)
                if not neighbour:
                    self.acknowledged.update(ids)
                await asyncio.sleep(self._rng.uniform(0, PAUSE_S))
        finally:
            caller.close()

    async def _append(self, caller: Caller, key: str) -> list[str]:
        """One append of one or more events, which are told once they are committed."""
        target, body = self._wanted()
        headers = (("Authorization", f"Bearer {key}"), ("Idempotency-Key", self._uuid()))
        while True:
            port = self._stand.gateway(self._rng).port
            answer = await caller.call(port, "POST", target, headers, body, timeout_s=PATIENCE_S)
            if isinstance(answer, Answer) and answer.status == 201:
                told = json.loads(answer.body)
                return list(told.get("event_ids", [told.get("event_id")]))
            if isinstance(answer, Answer) and answer.status not in (503, 504):
                raise AssertionError(f"{target} was answered {answer.status}: {answer.body.decode()}")
            self.repeated += 1
            await asyncio.sleep(self._rng.uniform(*AGAIN_S))

    def _wanted(self) -> tuple[str, bytes]:
        """Target and body of an append."""
        (aggregate_type, key), events = self._events()
        metadata = {"actor": ACTOR}
        if len(events) == 1:
            ((event_type, data),) = events
            body: dict[str, object] = {"data": data, "metadata": metadata}
            return f"/{aggregate_type}/{key}/{event_type}", json.dumps(body).encode()
        body = {"events": [{"type": name, "data": data} for name, data in events], "metadata": metadata}
        return f"/{aggregate_type}/{key}", json.dumps(body).encode()

    def _events(self) -> tuple[tuple[str, str], list[tuple[str, object]]]:
        """An aggregate, and what is to be appended to it: mostly one event."""
        aggregate_type, names = self._rng.choice(EVENTS)
        data = {"n": self._rng.random(), "text": "x" * self._rng.randrange(400)}
        count = 1 if self._rng.random() < 0.8 else self._rng.randint(2, BATCH_MOST)
        events: list[tuple[str, object]] = [(self._rng.choice(names), data) for _ in range(count)]
        return (aggregate_type, self._rng.choice(self._keys)), events

    def _uuid(self) -> str:
        digits = f"{self._rng.getrandbits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
