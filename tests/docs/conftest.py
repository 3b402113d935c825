"""A gateway of its own for each page, on servers of its own: an example may have one of them hang."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.catalog.migrate import migrate
from gateway.config import Config
from tests.docs.pages import Example, call_of, check, examples
from tests.support.accounts import open_account
from tests.support.servers import Servers
from tests.support.serving import serving, until_ready

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "spec/examples/orders.json"
# What a hanging server is waited for; the default would only make the tests slow.
APPEND_DEADLINE_S = 3.0
TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Reader:
    """Does what a page says, on a fresh gateway that serves the example spec. `found` are variables whose
    values are looked for at their first use."""

    url: str
    servers: Servers
    variables: dict[str, str]
    found: dict[str, Callable[[], Awaitable[str]]] = field(default_factory=dict)

    async def follow_page(self, page: str) -> int:
        """Does every example of a page, named from the root of the project, in order; returns how many there
        are. Fails at the first whose answer is not as shown."""
        followed = 0
        for example in examples((ROOT / page).read_text()):
            try:
                await self.follow(example)
            except AssertionError as fault:
                raise AssertionError(f"{page}, line {example.line}: {fault}") from fault
            followed += 1
        return followed

    async def follow(self, example: Example) -> None:
        """Fails where the answer is not as shown. `$POSITION` is the end of the feed at its first use."""
        for name, find in {"POSITION": self._position, **self.found}.items():
            if f"${name}" in example.command and name not in self.variables:
                self.variables[name] = await find()
        call = call_of(example.command.replace("http://127.0.0.1:8017", "$URL"), self.variables)
        hanging = None if example.hanging is None else getattr(self.servers, example.hanging)
        async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, verify=False) as client:
            if hanging is None:
                await check(client, call, example.answer)
                return
            hanging.pause()
            try:
                await check(client, call, example.answer)
            finally:
                hanging.resume()
            await until_ready(self.url)

    async def ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        """The answer's body, decoded."""
        headers = dict(self.variables[name].split(": ") for name in ("AUTH", "JSON"))
        async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
            return (await client.request(method, self.url + path, headers=headers, content=body)).json()

    async def _position(self) -> str:
        text: str = (await self.ask("GET", "/_/feed"))["position"]
        return text


@pytest.fixture
async def reader(start_servers: Callable[..., Awaitable[Servers]]) -> AsyncIterator[Reader]:
    servers = await start_servers()
    await migrate(servers.postgres_url, 16)
    async with asyncpg.create_pool(servers.postgres_url, min_size=1, max_size=1) as pool:
        account = await open_account(pool, json.loads(SPEC.read_text()))
    config = Config(
        redis_url=servers.redis_url,
        postgres_url=servers.postgres_url,
        append_deadline_s=APPEND_DEADLINE_S,
        direct_after_s=30,  # a Redis that hangs is waited for
    )
    async with serving(config) as served:
        variables = {
            "URL": served.url,
            "KEY": account.admin,
            "AUTH": f"Authorization: Bearer {account.admin}",
            "READ": f"Authorization: Bearer {account.read}",
            "JSON": "Content-Type: application/json",
        }
        yield Reader(served.url, servers, variables)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if shutil.which("node") is None:
        terminalreporter.write_line(
            "NOT RUN: the program of docs/how-to/javascript.md: no node here", red=True
        )
