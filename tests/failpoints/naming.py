"""A gateway ends, or pauses and continues, at every place where it waits between the commit that creates
an aggregate and the names of that aggregate. The gateway that is left gives all names: numbers 1, 2, 3 …
in the order of the commits, without a gap and none twice.

Owns: which points have to be passed, what happens around them, what has to hold then.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any, Self

import asyncpg

from gateway.aliases.store import Store
from gateway.catalog import keys, specs, tenants
from gateway.catalog.migrate import migrate
from gateway.catalog.model import Scope
from tests.failpoints.forked import Forked, Nursery
from tests.failpoints.points import NAMING, Point, all_points
from tests.faults.wire import Answer, Caller
from tests.support import drive
from tests.support.servers import Servers, servers_in

SPEC = {
    "aggregate_types": {"order": {"events": {"was_placed": {"schema": True}}}},
    "agent_types": ["user"],
    "public_ids": {"key": "VNO", "types": ["order"]},
    "hash_ids": {"prefix": "bd", "types": ["order"]},
}
BODY = json.dumps(
    {"data": {}, "metadata": {"actor": {"type": "user", "id": "a0000000-0000-4000-a000-000000000001"}}}
).encode()
SETTINGS = {"SLUICE_REDIS_TIMEOUT_S": "1", "SLUICE_SHUTDOWN_GRACE_S": "1", "SLUICE_READ_DEADLINE_S": "3"}
PATIENCE_S = 15.0
REHEARSALS = 4
NOT_ON_THE_WAY = {
    "Assigner.running": "a stop in order",
    "Snapshot.greatest_child": "children",
    "ProjectNamer.name": "projects: tests/http/test_projects.py",
    "ProjectKeys.refused": "projects: tests/http/test_projects.py",
    "ProjectKeys._one_refused": "projects: tests/http/test_projects.py",
    "ProjectKeys.keys_of": "projects: tests/http/test_projects.py",
    "ProjectKeys._named": "projects: tests/http/test_projects.py",
    "ProjectKeys._aliased": "projects: tests/http/test_projects.py",
    "ProjectKeys._late": "projects: tests/http/test_projects.py",
    "ProjectKeys._claimed": "projects: tests/http/test_projects.py",
    "ProjectKeys._fetch": "projects: tests/http/test_projects.py",
    "Snapshot.project_keys": "projects: tests/http/test_projects.py",
    "HashNamer._bodies": "hash ids of titles, which need data",
    "Snapshot.first_data": "projects, hash ids of titles",
    "Store.aliases_of_each": "reads",
    "Store.children_of": "reads",
    "Snapshot.holders": "children, imports",
    "Snapshot.public_and_hash": "a command",
    "Snapshot.public_ids_of": "a command",
    "Store.exact": "reads",
    "Store.hash_id_of_key": "children",
    "Store.abbreviated": "reads",
    "Store.every": "a command",
    "Store.rebuild": "a command",
    "_apply_to": "a command",
}
ONLY_TROUBLE_BRINGS = {
    ("Assigner._work", "asyncio.sleep(_RETRY_S)"),
    ("_apply", "conn.execute(statement('retire'), tenant, version, event_type == RETIRED)"),
}


class Naming:
    """Gateways A, which is stopped, and B, which is well; a tenant whose orders get names of both kinds."""

    def __init__(self, servers: Servers, nursery: Nursery, a: Forked, b: Forked, pool: asyncpg.Pool) -> None:
        self._servers = servers
        self._nursery = nursery
        self._a, self._b = a, b
        self._pool = pool
        self._headers: list[tuple[str, str]] = []
        self.tenant = uuid.UUID(int=0)

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path) -> AsyncIterator[Self]:
        servers = servers_in(folder)
        a, b = Forked(0, folder), Forked(1, folder)
        try:
            await servers.start()
            await migrate(servers.postgres_url, 1)
            async with (
                asyncpg.create_pool(servers.postgres_url, min_size=1, max_size=2) as pool,
                Nursery.open(a, b) as nursery,
            ):
                stage = cls(servers, nursery, a, b, pool)
                await stage._prepare()
                yield stage
        finally:
            servers.close()
            for each in (a, b):
                each.socket.close()

    async def _prepare(self) -> None:
        tenant = await tenants.create(self._pool, "main")
        await specs.deploy(self._pool, tenant.id, json.dumps(SPEC).encode(), {})
        key = await keys.create(self._pool, tenant, Scope.WRITE)
        self.tenant, self._headers = tenant.id, [("Authorization", f"Bearer {key.text}")]
        await self._start(self._b)

    async def play(self, target: int = -1, at: signal.Signals = signal.SIGKILL, *, waits: bool) -> set[int]:
        """One case; the points that A passed. `waits`: A's clients wait for names, else it looks by itself.
        Raises AssertionError for a promise that is broken."""
        await self._start(self._a, target, at)
        self._b.signal(signal.SIGSTOP)
        self._a.arm()
        told = await self._told_by_a(3, wait=waits)
        if not waits and not self._a.fired:  # A has just begun, and looks through all; now after what is new
            told += await self._told_by_a(1, wait=False)
        if self._a.fired and at is signal.SIGKILL:
            await drive.until(lambda: not self._a.alive)
        self._b.signal(signal.SIGCONT)
        # While A stands still it may hold what others wait for: appends go on, and names come after.
        answers = [await self._create(self._b, wait=not self._a.fired or at is signal.SIGKILL)]
        self._a.signal(signal.SIGCONT)
        answers += await asyncio.gather(*told)
        answers.append(await self._create(self._b))
        await self._a.kill()
        await self._holds([each for each in answers if each is not None])
        return self._a.passed()

    async def _told_by_a(self, count: int, *, wait: bool) -> list[asyncio.Task[dict[str, Any] | None]]:
        """What A answers, once it has answered and given names that no client awaits; or is stopped."""
        told = [asyncio.create_task(self._create(self._a, wait=wait)) for _ in range(count)]
        await drive.until(lambda: self._a.fired or all(task.done() for task in told), PATIENCE_S)
        if not wait:
            await drive.until(self._named_or_fired, PATIENCE_S)
        return told

    async def rebuild(self) -> None:
        """The tables are what the events say."""
        assert (await Store(self._pool).rebuild(self.tenant.bytes)).unchanged, (
            "rebuilt, the tables are others"
        )

    async def _create(self, gateway: Forked, *, wait: bool = True) -> dict[str, Any] | None:
        """The receipt of a new order, with its names where it was waited for; None where A ended."""
        caller, headers = Caller(), [*self._headers, *([("Prefer", "wait")] if wait else [])]
        path = f"/order/{uuid.uuid4()}/was_placed"
        try:
            answer = await caller.call(gateway.port, "POST", path, headers, BODY, timeout_s=PATIENCE_S)
        finally:
            caller.close()
        if isinstance(answer, Answer) and answer.status == 201:
            return dict(json.loads(answer.body))
        assert gateway is self._a, f"B does not append: {answer}\n{gateway.log_tail()}"
        return None

    async def _holds(self, answers: list[dict[str, Any]]) -> None:
        await drive.until(self._all_named, PATIENCE_S)
        created, numbers, hashes = (
            await self._created(),
            await self._named("public"),
            await self._named("hash"),
        )
        assert [key for key, _ in numbers] == created, "numbered in another order, or twice, or not at all"
        assert [body for _, body in numbers] == [str(n) for n in range(1, len(created) + 1)], "a gap"
        assert sorted(key for key, _ in hashes) == sorted(created), "not one hash id for each"
        greatest = await self._pool.fetchval(
            "SELECT greatest FROM alias_counter WHERE tenant = $1", self.tenant
        )
        assert greatest == len(created)
        names = {key: [f"VNO-{number}"] for key, number in numbers}
        for key, body in hashes:
            names[key].append(f"bd-{body}")
        for answer in answers:
            assert answer["key"] in names, "an order was promised and is not there"
            assert answer.get("aliases") in (None, [], names[answer["key"]]), answer

    async def _created(self) -> list[str]:
        first = "SELECT aggregate_id FROM outbox WHERE tenant = $1 AND aggregate_type = 'order' ORDER BY seq"
        return [row["aggregate_id"] for row in await self._pool.fetch(first, self.tenant)]

    async def _named(self, kind: str) -> list[tuple[str, str]]:
        found = "SELECT aggregate_id, body FROM alias WHERE tenant = $1 AND kind = $2"
        rows = await self._pool.fetch(f"{found} ORDER BY length(body), body", self.tenant, kind)
        return [(row["aggregate_id"], row["body"]) for row in rows]

    async def _all_named(self) -> bool:
        count = len(await self._created())
        return len(await self._named("public")) >= count <= len(await self._named("hash"))

    async def _named_or_fired(self) -> bool:
        return self._a.fired or await self._all_named()

    async def _start(self, gateway: Forked, target: int = -1, at: signal.Signals = signal.SIGKILL) -> None:
        env = {
            **SETTINGS,
            "SLUICE_REDIS_URL": self._servers.redis_url,
            "SLUICE_POSTGRES_URL": self._servers.postgres_url,
        }
        await self._nursery.fork(gateway, env, target, at)
        await drive.until(lambda: self._ready(gateway), PATIENCE_S)

    async def _ready(self, gateway: Forked) -> bool:
        caller = Caller()
        told = await caller.call(gateway.port, "GET", "/_/health/ready", (), timeout_s=1)
        caller.close()
        return isinstance(told, Answer) and told.status == 200


async def run(folder: Path, seed: int, seconds: float | None, say: Callable[[str], None]) -> bool:
    """As many cases as fit, in an order by the seed; whether all points were passed and all promises held."""
    points = [point for point in all_points() if point.module.startswith(NAMING)]
    ways: dict[int, list[bool]] = {}
    async with Naming.open(folder) as stage:
        for _ in range(REHEARSALS):
            for waits in (True, False):
                for number in await stage.play(waits=waits):
                    ways.setdefault(number, []).append(waits)
            if not (missed := _missed(points, ways)):
                break
        for point in missed:
            say(f"MISSED {point}")
        points = [point for point in points if point.number in ways]
        played = await _play(stage, points, ways, random.Random(seed), seconds, say)
        await stage.rebuild()
    told = ", ".join(f"{count} × {how}" for how, count in played.items())
    say(f"{len(points)} points of naming, {played.total()} cases ({told})")
    return not missed and not played["broken"]


async def _play(
    stage: Naming,
    points: list[Point],
    ways: dict[int, list[bool]],
    rng: random.Random,
    seconds: float | None,
    say: Callable[[str], None],
) -> Counter[str]:
    until = None if seconds is None else time.monotonic() + seconds
    played: Counter[str] = Counter()
    cases = list(product(points, (signal.SIGKILL, signal.SIGSTOP)))
    rng.shuffle(cases)
    for point, at in cases:
        if until is not None and time.monotonic() > until:
            break
        how = "ends" if at is signal.SIGKILL else "stands still"
        try:
            await stage.play(point.number, at, waits=rng.choice(ways[point.number]))
        except AssertionError as broken:
            say(f"gateway A {how} {point}: {broken}")
            played["broken"] += 1
            break
        played[how] += 1
    return played


def _missed(points: list[Point], passed: Container[int]) -> list[Point]:
    return [
        point
        for point in points
        if point.number not in passed
        and point.function not in NOT_ON_THE_WAY
        and (point.function, point.what) not in ONLY_TROUBLE_BRINGS
    ]
