"""Files of a translator's, all with the same ids in them, sent by many at once and in every way there is."""

from __future__ import annotations

import asyncio
import hmac
import json
import random
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from gateway.catalog.source_ids import rename_scope
from tests.named.checker import Said, Unit
from tests.named.sending import ACTOR, Sender

SOURCE = "xliff"
SECRET = "a secret that nobody guesses"


class Files:
    """What each unit said so far, and what it stood for when it was first seen."""

    def __init__(self, sender: Sender, tenant: str, name: str, chance: random.Random) -> None:
        self._sender = sender
        self._tenant, self._name = tenant, name
        self._chance = chance
        self._numbers = 0
        self.histories: dict[Unit, list[Said]] = {}
        self.first_keys: dict[Unit, str] = {}

    def add(self, files: int, units: int) -> None:
        """New files, and in them the ids that all have; some texts are in all of them."""
        for _ in range(files):
            self._numbers += 1
            for n in range(units):
                text = "Cancel" if n % 3 == 0 else f"text {n} of {self._numbers}"
                self.histories[f"{self._numbers}.xlf", f"tu{n}"] = [Said(text, f"tu{n}")]

    def change(self) -> None:
        """Edits, moves, both, or nothing."""
        for history in self.histories.values():
            last, by = history[-1], uuid4().hex
            changed = self._chance.choice(
                (None, None, Said(by, last.name), Said(last.text, by), Said(by, by))
            )
            if changed is not None:
                history.append(changed)

    async def rename(self, pool: asyncpg.Pool) -> None:
        """A file gets another name, and a new one comes in its place."""
        old = self._chance.choice(sorted({scope for scope, _ in self.histories}))
        new = f"renamed {uuid4().hex[:8]}.xlf"
        await rename_scope(pool, UUID(self._tenant), SOURCE, old, new)
        for scope, unit in [each for each in self.histories if each[0] == old]:
            self.histories[new, unit] = self.histories.pop((scope, unit))
            self.first_keys[new, unit] = self.first_keys.pop((scope, unit))
            self.histories[old, unit] = [Said(f"in place of {new}", unit)]

    async def send(self, senders: int) -> None:
        """What each file says now, by all senders at once: each file in each way, twice."""
        files: dict[str, list[tuple[Unit, Said]]] = {}
        for unit, history in self.histories.items():
            files.setdefault(unit[0], []).append((unit, history[-1]))
        ways: tuple[Callable[[list[tuple[Unit, Said]]], Awaitable[None]], ...] = (
            self._by_webhook, self._by_bulk, self._by_resolve,
        )  # fmt: skip
        work = [(way, file) for file in files.values() for way in ways for _ in range(2)]
        self._chance.shuffle(work)

        async def one() -> None:
            while work:
                way, file = work.pop()
                await way(file)

        async with asyncio.TaskGroup() as group:
            for _ in range(senders):
                group.create_task(one())
        for each in await self.exported():
            self.first_keys.setdefault((each["scope"], each["id"]), each["key"])

    async def exported(self) -> list[dict[str, Any]]:
        content = (await self._sender.get(f"/_/sources/{SOURCE}/export")).content
        return [json.loads(line) for line in content.splitlines()]

    async def _by_webhook(self, file: list[tuple[Unit, Said]]) -> None:
        for (scope, unit), said in file:
            body = json.dumps({"file": scope, "id": unit, **said._asdict()}).encode()
            signature = hmac.new(SECRET.encode(), body, sha256).hexdigest()
            headers = {"content-type": "application/json", "x-signature": signature, "x-id": uuid4().hex}
            await self._sender.post(f"/_/webhooks/{self._name}/{SOURCE}", body, headers)

    async def _by_bulk(self, file: list[tuple[Unit, Said]]) -> None:
        lines = [
            {
                "aggregate_type": "unit",
                "source": {"source": SOURCE, "scope": scope, "id": unit},
                "type": "was_seen",
                "data": said._asdict(),
                "if_unchanged": "skip",
                "metadata": {"actor": ACTOR},
            }
            for (scope, unit), said in file
        ]
        await self._sender.bulk(lines)

    async def _by_resolve(self, file: list[tuple[Unit, Said]]) -> None:
        sources = [{"source": SOURCE, "scope": scope, "id": unit} for (scope, unit), _ in file]
        wanted = {"sources": sources, "mint": True, "aggregate_type": "unit"}
        keys = (await self._sender.post("/_/sources/resolve", wanted)).json()["keys"]
        for key, source, (_, said) in zip(keys, sources, file, strict=True):
            events = [{"type": "was_seen", "data": said._asdict()}]
            body = {"source": source, "events": events, "if_unchanged": "skip", "metadata": {"actor": ACTOR}}
            told = (await self._sender.post("/unit", body)).json()
            if told["key"] != key:
                self._sender.harms.append(f"{source} was resolved to {key} and appended to {told['key']}")
