"""A database that was copied or restored sends nothing, until an operator says that it may."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from gateway import outbound
from gateway.config import Config
from gateway.log.postgres import Instance, open_pool
from gateway.log.redis.announcements import Announcements
from gateway.outbound import _announced, _at_home
from gateway.partitions import PARTITION_RULE
from gateway.postgres.errors import PostgresTrouble
from gateway.relay.home import Home, differs, homes, not_adopted
from gateway.relay.relay import Relay
from tests.cli.command import Ran, Sluice
from tests.relay.receivers import SECRET, WebReceiver
from tests.support.accounts import open_account
from tests.support.calls import appended, new_client, new_id, until
from tests.support.servers import Servers
from tests.support.serving import serving

HOME = Home(7, 16384, 1)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (HOME, None),
        (replace(HOME, restored_to="recovery_target_time=then"), None),
        (replace(HOME, timeline=2), None),
        (
            replace(HOME, timeline=2, restored_to="recovery_target_time=then"),
            "restored to a point in time (recovery_",
        ),
        (replace(HOME, database_oid=9), "into another database of its server"),
        (replace(HOME, system_id=9), "into another Postgres server"),
        (replace(HOME, system_id=9, database_oid=9, timeline=2), "into another Postgres server"),
    ],
)
def test_a_copy_and_a_point_in_time_are_told_from_a_fail_over(found: Home, words: str | None) -> None:
    why = differs(HOME, found)
    assert why is None if words is None else why is not None and words in why


@pytest.fixture
async def copied(servers: Servers, postgres_url: str) -> AsyncIterator[str]:
    """The URL of a copy, once it is made."""
    yield servers.database_url("copied")
    admin = await asyncpg.connect(servers.database_url("postgres"))
    await admin.execute("DROP DATABASE IF EXISTS copied WITH (FORCE)")
    await admin.close()


async def copy(servers: Servers, url: str) -> None:
    admin = await asyncpg.connect(servers.database_url("postgres"))
    name = urlsplit(url).path.removeprefix("/")
    await admin.execute(f"CREATE DATABASE copied TEMPLATE {name}")
    await admin.close()


async def test_a_copy_sends_nothing_until_it_is_adopted(
    servers: Servers,
    postgres_url: str,
    copied: str,
    receiver: WebReceiver,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.outbound.WATCH_EVERY_S", 0.2)
    original = Config(redis_url=servers.redis_url, postgres_url=postgres_url, allow_private_targets=True)
    document = {"start": "beginning", "target": {"type": "webhook", "url": receiver.url, "secret": SECRET}}
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=1) as pool:
        account = await open_account(pool)
    async with serving(original) as served, new_client(served.url, account.admin) as client:
        assert (await client.put("/_/subscriptions/shop", json=document)).status_code == 201
        await appended(client, "order", new_id(), "was_noted", 1)
        await until(lambda: has(receiver, 1))
    await copy(servers, postgres_url)

    copy_config = replace(original, postgres_url=copied)
    async with serving(copy_config) as served, new_client(served.url, account.admin) as client:
        assert [each.message for each in caplog.records].count("relay_not_adopted") == 1
        await appended(client, "order", new_id(), "was_noted", 2)
        status = await sluice(copied, "relay", "status")
        assert "another database of its server; `sluice adopt` allows it" in status.err
        assert len(receiver.deliveries) == 1
        adopted = await sluice(copied, "adopt")
        assert "gateways are running: restart them" in adopted.err
        before = re.search(r"instance ([-0-9a-f]{36}), before: ([-0-9a-f]{36})\n", adopted.out)
        assert before is not None and before[1] != before[2]
        await until(lambda: has(receiver, 2))
    async with serving(copy_config) as served, new_client(served.url, account.admin) as client:
        await appended(client, "order", new_id(), "was_noted", 3)
        await until(lambda: has(receiver, 3))


async def test_a_replacement_keeps_the_id_and_delivers_while_gateways_run(
    servers: Servers, postgres_url: str, copied: str
) -> None:
    pool = await open_pool(postgres_url, 2, 5.0)
    assert await not_adopted(pool) is None
    await pool.close()
    await copy(servers, postgres_url)
    pool = await open_pool(copied, 2, 5.0)
    try:
        assert await not_adopted(pool) is not None
        done = (await sluice(copied, "adopt", "--replacement", "--json")).json
        assert done["before"] == done["instance"]
        assert await not_adopted(pool) is None
        recorded, found = await homes(pool)
        assert recorded is not None and found is not None
        assert differs(recorded, found) is None
        again = await sluice(copied, "adopt", "--replacement")
        assert (again.code, "nothing to adopt" in again.err) == (1, True)
    finally:
        await pool.close()
    clone = (await sluice(copied, "adopt", "--clone", "--json")).json
    assert clone["before"] != clone["instance"]


@pytest.mark.bug
async def test_whether_a_relay_may_deliver_is_looked_at_again_after_a_bug(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As asyncpg's AttributeError of a connection that ends between a statement and its arguments: the relay,
    which waits for Postgres, would else never deliver."""
    looks = iter([PostgresTrouble("it is away"), AttributeError("bind_execute")])

    async def looked(_pool: object) -> None:
        for trouble in looks:
            raise trouble

    class Starts:
        started = asyncio.Event()

        async def start(self) -> None:
            self.started.set()

    monkeypatch.setattr(outbound, "not_adopted", looked)
    monkeypatch.setattr(outbound, "WATCH_EVERY_S", 0)
    relay = Starts()
    async with _at_home(cast("Relay", relay), cast("asyncpg.Pool", None)), asyncio.timeout(20):
        await relay.started.wait()
    assert "task_restarted" in caplog.messages


@pytest.mark.bug
async def test_a_relay_process_hears_of_commits_again_after_a_bug(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    listens, listening = iter([RuntimeError("the handler is closed")]), asyncio.Event()

    async def listened(_announcements: Announcements) -> None:
        for bug in listens:
            raise bug
        listening.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Announcements, "run_listening", listened)
    monkeypatch.setattr(outbound, "HEAR_AGAIN_S", 0)
    config = Config(redis_url=servers.redis_url, postgres_url=servers.database_url("postgres"))
    async with _announced(config, Instance(uuid4(), 1, PARTITION_RULE)), asyncio.timeout(20):
        await listening.wait()


async def has(receiver: WebReceiver, count: int) -> bool:
    return len(receiver.deliveries) >= count


async def sluice(url: str, *words: str) -> Ran:
    return await asyncio.to_thread(Sluice(SLUICE_POSTGRES_URL=url), *words)
