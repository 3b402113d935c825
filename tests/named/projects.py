"""Projects that many add to at once, while others deploy specs that would change what they are called."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

from tests.named.sending import ACTOR, Sender

MEMBERS = ("character", "timeline")


class Projects:
    """The keys of each project's aggregates, by the project's key."""

    def __init__(self, sender: Sender, chance: random.Random) -> None:
        self._sender = sender
        self._chance = chance
        self._ids: dict[str, str] = {}
        self.members: dict[str, list[str]] = {}
        self.deployed: dict[int, int] = {}

    async def make(self, projects: int) -> None:
        for _ in range(projects):
            key = f"P{len(self._ids)}X"
            made = await self._made("project", {"key": key, "other": f"Q{len(self._ids)}X"})
            self._ids[key], self.members[key] = made, []

    async def write(self, writers: int, members: int) -> None:
        """Each writer makes so many, of any type and project."""

        async def one(chance: random.Random) -> None:
            for _ in range(members):
                project = chance.choice(sorted(self._ids))
                data = {"project_id": self._ids[project]}
                self.members[project].append(await self._made(chance.choice(MEMBERS), data))

        async with asyncio.TaskGroup() as group:
            for _ in range(writers):
                group.create_task(one(random.Random(self._chance.random())))

    async def deploy(self, spec: Mapping[str, Any]) -> None:
        """Any sequence of specs that would call a project something else; then `spec` again."""
        declared = spec["public_ids"]
        others = [
            {**spec, "public_ids": {**declared, "projects": {"type": "project", "key": "$.data.other"}}},
            {name: part for name, part in spec.items() if name != "public_ids"},
            {**spec, "public_ids": {**declared, "member": {"character": "$.data.project_id"}}},
            {**spec, "public_ids": {**declared, "key": "ZZ", "types": ["project"]}},
        ]
        self._chance.shuffle(others)
        for each in (*others, spec):
            status = await self._sender.put_spec(each)
            self.deployed[status] = self.deployed.get(status, 0) + 1

    async def aliases(self) -> dict[str, list[str]]:
        """Of each member, once all have some or those that have none keep none for some seconds."""
        found: dict[str, list[str]] = {}
        wanted = [key for keys in self.members.values() for key in keys]
        for _ in range(100):
            after = "beginning"
            while True:
                page = (await self._sender.get("/_/feed", aliases="true", after=after)).json()
                found |= {each["key"]: each["aliases"] for each in page["events"]}
                after = page["position"]
                if page["caught_up"]:
                    break
            if all(found.get(key) for key in wanted):
                break
            await asyncio.sleep(0.1)
        return {key: found.get(key, []) for key in wanted}

    async def _made(self, aggregate_type: str, data: Mapping[str, object]) -> str:
        body = {"events": [{"type": "was_made", "data": data}], "metadata": {"actor": ACTOR}}
        return str((await self._sender.post(f"/{aggregate_type}", body)).json()["key"])
