"""deploy/redis.conf: what it keeps, whom it lets in, and that its user is enough for a gateway."""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError

from gateway.dev.binaries import find_redis
from gateway.log.read.ranges import Range
from gateway.outcomes import Conflict
from tests.deploy.shipped import DEPLOY, ROOT, Shipped
from tests.support.drive import (
    Place,
    append,
    appended,
    crash,
    hold_commits,
    new_stream,
    open_gateway,
    opened,
    ready,
    until,
)
from tests.support.ports import free_port

USER = re.compile(r"(?m)^user sluice (.*)$")


@pytest.fixture
async def place(shipped: Shipped) -> Place:
    """An instance of its own in the database that gateways have."""
    connection = await asyncpg.connect(shipped.owner_url)
    try:
        await connection.execute("UPDATE instance SET id = $1", uuid.uuid4())
    finally:
        await connection.close()
    return Place(shipped.gateway_url, shipped.redis_url)


@pytest.fixture
async def admin(shipped: Shipped) -> AsyncIterator[Redis]:
    async with Redis.from_url(shipped.admin_url, decode_responses=True) as client:
        await client.acl_log_reset()
        yield client


@pytest.fixture
async def user(shipped: Shipped) -> AsyncIterator[Redis]:
    async with Redis.from_url(shipped.redis_url, decode_responses=True) as client:
        yield client


async def refused_commands(admin: Redis) -> list[Any]:
    """What the server has refused the gateways' user since this connection was made."""
    return [entry for entry in await admin.acl_log() if entry["username"] == "sluice"]


async def test_a_gateway_appends_and_reads_as_the_user(place: Place, admin: Redis) -> None:
    gateway = await open_gateway(place)
    try:
        stream = new_stream()
        (first,) = await appended(gateway.log, append(stream, key=b"k", body=b"1"))
        (again,) = await appended(gateway.log, append(stream, key=b"k", body=b"1"))
        assert (first.first_version, again.first_version, again.replayed) == (1, 1, True)
        assert isinstance(await gateway.log.append(append(stream, expected=7)), Conflict)
        await appended(gateway.log, *(append(stream, 50) for _ in range(5)))
        page = await gateway.log.page(Range(stream, limit=1000))
        assert (page.length, len(page.events)) == (251, 251)

        await until(lambda: ready(gateway.log))
    finally:
        await gateway.close()
    assert await refused_commands(admin) == []


async def test_a_gateway_verifies_a_redis_that_was_restarted_and_one_that_lost_all(
    place: Place, admin: Redis, shipped: Shipped
) -> None:
    gateway = await open_gateway(place)
    try:
        stream = new_stream()
        await appended(gateway.log, append(stream, 3))
        await shipped.redis_server.restart()
        await admin.connection_pool.disconnect()
        await appended(gateway.log, append(stream))
        await admin.connection_pool.disconnect()  # it was of the server before
        await admin.flushall()
        await appended(gateway.log, append(stream))
        page = await gateway.log.page(Range(stream, limit=10))
        assert [each.version for each in page.events] == [1, 2, 3, 4, 5]
        # Now they are there again: a cold stream was filled from Postgres.
        await until(lambda: admin.keys("*:s:*"))
    finally:
        await gateway.close()
    assert await refused_commands(admin) == []


async def test_a_gateway_tells_another_one_of_its_commits(place: Place, admin: Redis) -> None:
    committing, hearing = await open_gateway(place), await open_gateway(place)
    heard: list[int | None] = []
    try:
        with hearing.log.announcements.hearing(heard.append):

            async def told() -> bool:
                await appended(committing.log, append(new_stream()))
                return any(each is not None for each in heard)

            await until(told)
    finally:
        await committing.close()
        await hearing.close()
    assert await refused_commands(admin) == []


async def test_a_gateway_sweeps_what_another_one_left(place: Place, admin: Redis) -> None:
    dying = await open_gateway(place)
    stream = new_stream()
    await opened(dying.log, stream)
    hold_commits(dying.log, stream)
    outcome = dying.log.append(append(stream))

    async def sequenced() -> bool:
        return bool(await admin.keys(f"*:s:{stream.tenant.hex()}:*"))

    await until(sequenced)
    await crash(dying.log)
    outcome.cancel()
    surviving = await open_gateway(place)
    try:

        async def committed() -> bool:
            return (await surviving.log.page(Range(stream, limit=1), strong=True)).length == 1

        await until(committed)
    finally:
        await surviving.close()
        await dying.close()
    assert await refused_commands(admin) == []


def test_the_user_may_run_what_the_scripts_and_the_gateway_send_and_nothing_else() -> None:
    (rules,) = USER.findall((DEPLOY / "redis.conf").read_text())
    granted = {rule[1:] for rule in rules.split() if rule.startswith("+")}
    folder = ROOT / "gateway/log/redis"
    called = {
        f"{name}|{part}".rstrip("|").lower()
        for script in folder.glob("*.lua")
        for name, part in re.findall(r"\bcall\('(\w+)'(?:, '([A-Z]+)')?", script.read_text())
    }
    sent = {"evalsha", "script|load", "hmget", "info", "scan", "client|setname", "client|setinfo"}
    assert granted == called | sent | {"publish", "subscribe"} | {"cluster|slots", "asking"}
    assert "-@all" in rules.split()
    assert [rule for rule in rules.split() if rule[0] in "~%&"] == ["~sluice:1:*", "&sluice:1:*"]


@pytest.mark.parametrize(
    "command",
    [
        "KEYS *",
        "FLUSHALL",
        "FLUSHDB",
        "CONFIG GET *",
        "CONFIG SET maxmemory-policy allkeys-lru",
        "ACL LIST",
        "SHUTDOWN NOSAVE",
        "REPLICAOF NO ONE",
        "MONITOR",
        "CLIENT LIST",
        "SCRIPT FLUSH",
        "FUNCTION LIST",
        "EVAL return(1) 0",
        "SUBSCRIBE sluice",
        "PUBLISH sluice:2:x 1",
        "SET sluice:1:x 1",
        "RENAME sluice:1:x sluice:1:y",
        "HGET sluice:2:x f",
        "HSET other f v",
        "XADD other * f v",
        "DEL other",
    ],
)
async def test_the_user_is_refused_everything_else(user: Redis, command: str) -> None:
    with pytest.raises(NoPermissionError):
        await user.execute_command(*command.split())


async def test_a_script_of_the_user_reaches_no_other_keys(user: Redis) -> None:
    for script in (
        "return redis.call('HGET', KEYS[1], 'f')",
        "return redis.call('HGET', 'oth' .. 'er', 'f')",
    ):
        digest = await user.execute_command("SCRIPT LOAD", script)
        with pytest.raises(Exception, match=r"(?i)permission|NOPERM"):
            await user.execute_command("EVALSHA", digest, 1, "other")


async def test_no_client_gets_in_without_a_name_and_its_password(shipped: Shipped) -> None:
    for user, password in (("sluice", "another"), ("default", ""), ("default", "another")):
        async with Redis.from_url(shipped.redis.url(user, password), retry=None) as client:
            with pytest.raises(AuthenticationError):
                await client.ping()
    async with Redis(port=shipped.redis.port, retry=None) as client:
        with pytest.raises(AuthenticationError):
            await client.ping()


def test_it_refuses_to_start_until_a_password_is_set(tmp_path: Path) -> None:
    words: list[str | Path] = [
        find_redis(),
        DEPLOY / "redis.conf",
        "--port",
        str(free_port()),
        "--dir",
        tmp_path,
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert "password hash must be exactly 64 characters" in done.stdout + done.stderr


async def test_what_the_file_says_is_in_force(admin: Redis) -> None:
    found = await admin.config_get("*")
    assert {name: found[name] for name in EXPECTED} == EXPECTED


EXPECTED = {
    "maxmemory-policy": "noeviction",
    "maxmemory": str(2 * 1024**3),
    "stream-node-max-bytes": "256",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "auto-aof-rewrite-min-size": str(256 * 1024**2),
    "save": "",
    "protected-mode": "yes",
    "bind": "127.0.0.1 -::1",
    "databases": "1",
    "enable-debug-command": "no",
    "enable-module-command": "no",
}


async def test_a_stream_of_one_event_takes_a_quarter_of_what_it_takes_by_default(admin: Redis) -> None:
    entry = {"s": "1", "e": "x" * 292}
    sizes = {}
    for node_bytes in ("4096", "256"):
        await admin.config_set("stream-node-max-bytes", node_bytes)
        await admin.delete("one")
        await admin.xadd("one", entry, id="1-0")
        sizes[node_bytes] = await admin.memory_usage("one")
    await admin.delete("one")
    assert sizes["4096"] > 4096
    assert sizes["256"] < sizes["4096"] / 4
