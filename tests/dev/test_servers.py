"""The embedded servers, each by itself: what they survive."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest
import redis.asyncio

from gateway.dev.process import Command, find_titled, spawn
from tests.dev.conftest import DEADLINE_S, gone
from tests.support.servers import INITIALIZED, Servers, servers_in

StartServers = Callable[..., Awaitable[Servers]]


@pytest.fixture
async def pair(start_servers: StartServers) -> Servers:
    return await start_servers()


@pytest.fixture
async def redis_only(folder: Path) -> AsyncIterator[Servers]:
    """A pair of which only the Redis runs."""
    found = servers_in(folder)
    await found.redis.start()
    yield found
    found.close()


async def ask_redis(pair: Servers, *words: str | bytes) -> object:
    async with redis.asyncio.from_url(pair.redis_url) as client:
        return await client.execute_command(*words)  # type: ignore[no-untyped-call]


async def ask_postgres(pair: Servers, query: str) -> object:
    connection = await asyncpg.connect(pair.postgres_url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_redis_is_set_up_as_the_append_protocol_needs_it(servers: Servers) -> None:
    async with redis.asyncio.from_url(servers.redis_url, decode_responses=True) as client:
        found = await client.config_get(
            "appendonly", "appendfsync", "auto-aof-rewrite-min-size", "maxmemory-policy", "save", "port",
            "stream-node-max-bytes",
        )  # fmt: skip
    assert found == {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "auto-aof-rewrite-min-size": str(256 * 1024**2),
        "maxmemory-policy": "noeviction",
        "save": "",
        "port": "0",
        "stream-node-max-bytes": "256",
    }


async def test_postgres_is_set_up_as_the_append_protocol_needs_it(start_servers: StartServers) -> None:
    pair = await start_servers(durable=True)
    settings = {
        name: await ask_postgres(pair, f"SHOW {name}")
        for name in ("fsync", "synchronous_commit", "max_connections", "listen_addresses", "server_encoding")
    }
    assert settings == {
        "fsync": "on",
        "synchronous_commit": "on",
        "max_connections": "200",
        "listen_addresses": "",
        "server_encoding": "UTF8",
    }
    assert await ask_postgres(pair, "SELECT lower('ÄÖ') = 'äö'")


async def test_redis_keeps_what_it_has_over_a_stop(redis_only: Servers) -> None:
    await ask_redis(redis_only, "SET", "key", "value")
    redis_only.redis.stop()
    await redis_only.redis.start()
    assert await ask_redis(redis_only, "GET", "key") == b"value"


async def test_a_redis_file_that_does_not_load_is_moved_aside(
    redis_only: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    await ask_redis(redis_only, "SET", "key", "value")
    redis_only.redis.stop()
    for file in (redis_only.folder / "redis/appendonlydir").glob("*.incr.aof"):
        file.write_bytes(b"*3\r\n$3\r\nSET\r\nnot what it should be")
    await redis_only.redis.start()
    assert await ask_redis(redis_only, "GET", "key") is None
    (aside,) = redis_only.folder.glob("redis.*.unreadable")
    assert list(aside.glob("appendonlydir/*"))
    assert f"moved to {aside}" in capsys.readouterr().out


async def test_a_redis_file_that_was_cut_off_loads_as_far_as_it_goes(redis_only: Servers) -> None:
    await ask_redis(redis_only, "SET", "key", "value")
    await ask_redis(redis_only, "SET", "later", "lost")
    redis_only.redis.stop()
    (file,) = (redis_only.folder / "redis/appendonlydir").glob("*.incr.aof")
    file.write_bytes(file.read_bytes()[:-3])
    await redis_only.redis.start()
    assert await ask_redis(redis_only, "MGET", "key", "later") == [b"value", None]


async def test_a_postgres_that_a_test_kills_leaves_no_backend_at_work(pair: Servers) -> None:
    await ask_postgres(pair, "SELECT 1")
    busy = asyncio.create_task(ask_postgres(pair, "SELECT count(*) AS busy FROM generate_series(1, 1e10)"))
    while "AS busy" not in str(
        await ask_postgres(
            pair, "SELECT string_agg(query, '') FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )
    ):
        pass
    pair.postgres.kill()
    assert find_titled("postgres:", pair.postgres_server.data) == []
    with pytest.raises((asyncpg.PostgresError, OSError)):
        await busy


async def test_postgres_starts_again_at_once_though_a_backend_outlives_its_parent(pair: Servers) -> None:
    await ask_postgres(pair, "CREATE TABLE kept AS SELECT 1 AS one")
    busy = asyncio.create_task(ask_postgres(pair, "SELECT pg_sleep(60)"))
    while "pg_sleep" not in str(
        await ask_postgres(pair, "SELECT string_agg(query, '') FROM pg_stat_activity")
    ):
        pass
    before = find_titled("postgres:", pair.postgres_server.data)
    async with asyncio.timeout(DEADLINE_S):
        pair.postgres.kill_it_only()
        await pair.postgres.start()
        with pytest.raises((asyncpg.PostgresError, OSError)):
            await busy
    assert gone(*before)
    assert await ask_postgres(pair, "SELECT one FROM kept") == 1


async def test_a_stale_postmaster_pid_that_is_another_programs_by_now_does_no_harm(pair: Servers) -> None:
    """As after a restart of a container, where pids start again."""
    pair.postgres.kill()
    account = pair.postgres_server.account
    other = spawn(Command(["/bin/sleep", "600"], signal.SIGKILL, Path("/"), {}, account))
    try:
        lock = pair.postgres_server.data / "postmaster.pid"
        _, rest = lock.read_text().split("\n", 1)
        with lock.open("r+") as file:
            file.write(f"{other.pid}\n{rest}")
            file.truncate()
        await pair.postgres.start()
        assert await ask_postgres(pair, "SELECT 1") == 1
        assert other.poll() is None
    finally:
        other.signal(signal.SIGKILL)
        assert other.wait(DEADLINE_S)


async def test_a_data_folder_that_was_made_half_is_made_again(
    pair: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(INITIALIZED)
    pair.postgres.stop()
    home = pair.postgres_server.home
    (home / "data").rename(home / "unfinished-0")
    (home / "unfinished-0/PG_VERSION").unlink()
    await pair.start()
    assert await ask_postgres(pair, "SELECT 1") == 1
    assert [each.name for each in home.iterdir() if each.name.startswith("unfinished")] == []


async def test_a_paused_postgres_answers_no_client_and_continues_afterwards(pair: Servers) -> None:
    connection = await asyncpg.connect(pair.postgres_url)
    pair.postgres.pause()
    asked = asyncio.create_task(connection.fetchval("SELECT 1"))
    done, _ = await asyncio.wait({asked}, timeout=0.2)
    assert not done
    pair.postgres.resume()
    assert await asked == 1
    await connection.close()


async def test_no_other_user_can_reach_the_sockets(servers: Servers) -> None:
    for folder in (servers.postgres_server.socket_folder, servers.folder / "run"):
        assert folder.stat().st_mode & 0o077 == 0
    assert (servers.folder / "run/redis.sock").stat().st_mode & 0o077 == 0
