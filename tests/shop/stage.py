"""What the shop runs on: a gateway that may be killed behind its port, a tenant, and Stripe."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from gateway.catalog.migrate import migrate
from tests.shop.checkout import ACTOR
from tests.support.accounts import Account, open_account
from tests.support.calls import new_client
from tests.support.servers import Servers
from tests.support.serving import until_ready

FOLDER = Path(__file__).parent
SPEC: dict[str, Any] = json.loads((FOLDER / "spec.json").read_text())
SECRET: str = SPEC["webhooks"]["stripe"]["secrets"][0]
PAID = "payment_intent.succeeded"


@dataclass
class Gateway:
    """`python -m gateway serve` on a socket that outlives it: calls meanwhile wait, and are then answered."""

    listening: socket.socket
    environ: dict[str, str]
    log: Path
    kills: int = 0
    process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listening.getsockname()[1]}"

    async def start(self) -> None:
        descriptor = self.listening.fileno()
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gateway", "serve",
                env={**self.environ, "SLUICE_LISTEN_FD": str(descriptor)},
                pass_fds=(descriptor,), stdin=asyncio.subprocess.DEVNULL, stderr=log,
            )  # fmt: skip
        process = self.process
        await until_ready(self.url, lambda: process.returncode is None)

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.wait()
        self.kills += 1


@dataclass
class Stage:
    gateway: Gateway
    servers: Servers
    account: Account
    folder: Path
    client: httpx.AsyncClient
    """With a key of scope `admin`."""
    environ: dict[str, str] = field(default_factory=dict)
    """After `. .sluice/run/env`, for the shop's programs."""

    async def stock(self, quantity: int) -> str:
        """A new item."""
        stocked = [{"type": "was_stocked", "data": {"quantity": quantity}}]
        metadata = {"actor": {"type": ACTOR.type, "id": ACTOR.id}}
        answer = await self.client.post("/item", json={"events": stocked, "metadata": metadata})
        return str(answer.raise_for_status().json()["key"])

    async def pay(self, order: str, delivery: str, kind: str = PAID) -> dict[str, Any]:
        """What Stripe is answered: of an order's key, or of a name that people say."""
        event = {"id": delivery, "type": kind, "data": {"object": {"metadata": {"order": order}}}}
        body, at = json.dumps(event), int(time.time())
        signature = hmac.new(SECRET.encode(), f"{at}.{body}".encode(), hashlib.sha256).hexdigest()
        headers = {"content-type": "application/json", "stripe-signature": f"t={at},v1={signature}"}
        url = f"/_/webhooks/{self.account.name}/stripe"
        while True:  # as Stripe does, where it gets no answer
            try:
                answer = await self.client.post(url, content=body, headers=headers)
            except httpx.TransportError:
                continue
            if answer.status_code == 202:
                return dict(answer.json())
            assert answer.status_code == 503, answer.text

    async def audited(self) -> str:
        """What `sluice audit` says; fails where an invariant is broken."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway", "audit",
            env=self.gateway.environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await process.communicate()
        assert process.returncode == 0, out.decode()
        return out.decode()


@asynccontextmanager
async def open_stage(servers: Servers, folder: Path, url: str, origin: str) -> AsyncIterator[Stage]:
    """On the database `url`; pages of `origin` may call."""
    await migrate(url, 16)
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        account = await open_account(pool, SPEC)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    settings = {
        "SLUICE_POSTGRES_URL": url,
        "SLUICE_REDIS_URL": servers.redis_url,
        "SLUICE_CORS_ORIGINS": origin,
        "SLUICE_HOST": "127.0.0.1",
    }
    (folder / "key").write_text(account.write)
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(512)
        gateway = Gateway(listening, {**inherited, **settings}, folder / "gateway.log")
        await gateway.start()
        try:
            environ = {**inherited, "SLUICE_URL": gateway.url, "SLUICE_KEY_FILE": str(folder / "key")}
            async with new_client(gateway.url, account.admin) as client:
                client.timeout = httpx.Timeout(30)
                yield Stage(gateway, servers, account, folder, client, environ)
        finally:
            await gateway.kill()


@asynccontextmanager
async def shop_origin() -> AsyncIterator[str]:
    """Of a server that has the shop's page and its script, and nothing else."""
    kinds = {"/": ("page.html", "text/html"), "/checkout.mjs": ("checkout.mjs", "text/javascript")}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        name, kind = kinds.get(path, (None, "text/plain"))
        body = b"" if name is None else (FOLDER / name).read_bytes()
        status = "404 Not Found" if name is None else "200 OK"
        head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
        writer.write(f"{head}connection: close\r\n\r\n".encode() + body)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
