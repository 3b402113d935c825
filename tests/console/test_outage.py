"""While Postgres does not answer: what memory knows, to those who were signed in before."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg
import httpx
import pytest

from gateway.catalog.migrate import migrate
from gateway.catalog.model import Scope
from gateway.config import Config
from gateway.console.sessions import SEEN_S, Sessions
from tests.console.test_site import SIGN_IN, token_of
from tests.support.accounts import Account, open_account, revoked
from tests.support.calls import until
from tests.support.servers import Servers, open_folder, servers_in
from tests.support.serving import serving

OVERVIEW = "/_/console/overview"


@dataclass(frozen=True)
class Stand:
    servers: Servers
    account: Account
    person: httpx.AsyncClient
    stranger: httpx.AsyncClient


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    with open_folder() as folder:
        servers = servers_in(folder)
        try:
            await servers.start()
            await migrate(servers.postgres_url, 2)
            async with asyncpg.create_pool(servers.postgres_url, min_size=1, max_size=1) as pool:
                account = await open_account(pool)
            config = Config(redis_url=servers.redis_url, postgres_url=servers.postgres_url, console=True)
            async with (
                serving(config) as served,
                httpx.AsyncClient(
                    base_url=served.url, headers={"origin": served.url}, trust_env=False, timeout=30
                ) as person,
                httpx.AsyncClient(base_url=served.url, trust_env=False, timeout=30) as stranger,
            ):
                yield Stand(servers, account, person, stranger)
        finally:
            servers.close()


async def test_without_postgres_a_person_who_was_signed_in_sees_what_memory_knows(stand: Stand) -> None:
    person = stand.person
    assert (await person.post(SIGN_IN, data={"key": stand.account.admin})).status_code == 303
    csrf = await token_of(person)
    async with asyncpg.create_pool(stand.servers.postgres_url, min_size=1, max_size=1) as pool:
        other = httpx.AsyncClient(base_url=person.base_url, headers=person.headers, trust_env=False)
        async with other:
            assert (await other.post(SIGN_IN, data={"key": stand.account.read})).status_code == 303
            assert (await other.get(OVERVIEW)).status_code == 200
            await revoked(pool, stand.account, Scope.READ)
            answer = await other.get(OVERVIEW)
            while answer.status_code == 200:
                answer = await other.get(OVERVIEW)
            gone = dict(other.cookies)
    stand.servers.postgres.kill()

    async def says_so() -> bool:
        return '<dt>Postgres</dt><dd class="bad">does not answer</dd>' in (await person.get(OVERVIEW)).text

    await until(says_so)
    for path in ("overview", "feed", "aggregates/order"):
        answer = await person.get(f"/_/console/{path}")
        assert answer.status_code == 503
        assert re.search(r"last answered this gateway at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", answer.text)
        assert '<dt>Redis</dt><dd class="good">answers</dd>' in answer.text
        assert "Rates, all tenants" in answer.text and 'id="now"' in answer.text
        assert "Appends go on through Postgres" not in answer.text
        assert stand.account.name not in answer.text, "what belongs to a tenant is not shown"
    acted = await person.post("/_/console/keys", data={"csrf": csrf, "name": "x", "scope": "read"})
    assert (acted.status_code, "Nothing was done." in acted.text) == (503, True)
    for cookies in ({}, {"sluice_console": "made-up"}, gone):
        sent = {"cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
        answer = await stand.stranger.get(OVERVIEW, headers=sent)
        told = "does not answer" in answer.text, "Rates" in answer.text
        assert told == (bool(cookies), False), cookies
    await stand.servers.start()

    async def is_back() -> bool:
        return (await person.get(OVERVIEW)).status_code == 200

    await until(is_back)


async def test_sessions_that_are_remembered_are_bounded_in_number_and_time(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.console.sessions.SEEN_MAX", 3)
    now = 0.0
    sessions = Sessions(pool, lambda: now)
    secrets = [await sessions.begin("sluice_key", "handle") for _ in range(4)]
    for secret in secrets:
        assert await sessions.find(secret) is not None
    assert sessions.seen(secrets[0]) is None
    found = sessions.seen(secrets[-1])
    assert found is not None and found.key == "sluice_key"
    now = SEEN_S
    assert sessions.seen(secrets[-1]) is None
    assert await sessions.find(secrets[-1]) is not None
    assert sessions.seen(secrets[-1]) is not None
    await sessions.end(secrets[-1])
    assert sessions.seen(secrets[-1]) is None
