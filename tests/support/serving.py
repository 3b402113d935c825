"""Real gateways for the tests of the HTTP contract: in this process, or as a process of its own.

Both serve on a loopback port what `gateway.app` composes; the process is for what takes signals, a log to
look into, or a loop that tests don't share.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import uvicorn

from gateway.app import gateway
from gateway.config import Config
from gateway.http.server.config import uvicorn_config
from gateway.inbound.verify.amazon import Amazon
from tests.support.bugs import bugs_in
from tests.support.calls import new_client

START_S = 30.0
STOP_S = 30.0
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Served:
    """A gateway that is ready, and the database it keeps its events in."""

    port: int
    postgres_url: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def serving(config: Config, amazon: Amazon | None = None) -> AsyncIterator[Served]:
    """A gateway in this process, as `sluice serve` starts one; leaving it stops it in order."""
    stopping = asyncio.Event()
    with _listening() as listening:
        async with gateway(config, stopping, amazon) as edge:
            to_serve = uvicorn_config(edge.application, edge.protocol, int(config.shutdown_grace_s))
            server = _Server(to_serve)
            task = asyncio.create_task(server.serve(sockets=[listening]))
            served = Served(listening.getsockname()[1], config.postgres_url)
            try:
                await until_ready(served.url)
                yield served
            finally:
                stopping.set()
                server.should_exit = True
                await asyncio.wait_for(task, STOP_S)


@asynccontextmanager
async def without_reactions(config: Config, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a gateway that takes appends, and sets and fires no timers and runs no sagas."""
    async with serving(replace(config, reactions=False)) as served, new_client(served.url, key) as client:
        yield client


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the test runner's."""
        yield


@contextmanager
def _listening() -> Iterator[socket.socket]:
    # asyncio turns Nagle's algorithm off only where the protocol is named.
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        yield listening


async def until_ready(url: str, alive: Callable[[], bool] = lambda: True) -> None:
    async with asyncio.timeout(START_S), httpx.AsyncClient(base_url=url, verify=False) as client:
        while alive():
            with contextlib.suppress(httpx.TransportError):
                if (await client.get("/_/health/ready")).status_code == 200:
                    return
            await asyncio.sleep(POLL_S)


@dataclass(frozen=True, slots=True)
class Child:
    """A gateway as a process. `log` is what it wrote to stderr so far."""

    process: asyncio.subprocess.Process
    served: Served
    log_file: Path

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    async def ended(self) -> int:
        """The exit code; waits for it."""
        return await asyncio.wait_for(self.process.wait(), STOP_S)


@asynccontextmanager
async def child_serving(postgres_url: str, redis_url: str, folder: Path, **more: str) -> AsyncIterator[Child]:
    """`python -m gateway serve` with these settings beside its URLs, ready; killed at the end if it still
    runs."""
    with _listening() as listening:
        descriptor, port = listening.fileno(), listening.getsockname()[1]
        settings = {"SLUICE_HOST": "127.0.0.1", "SLUICE_LISTEN_FD": str(descriptor), **more}
        process = await _child("serve", postgres_url, redis_url, folder, settings, (descriptor,))
    async with _ready(Child(process, Served(port, postgres_url), folder / "gateway.log")) as child:
        yield child


@asynccontextmanager
async def child_relaying(
    postgres_url: str, redis_url: str, folder: Path, ops_port: int
) -> AsyncIterator[Child]:
    """Likewise `python -m gateway relay`, which is served only for operators."""
    settings = {"SLUICE_OPS_PORT": str(ops_port)}
    process = await _child("relay", postgres_url, redis_url, folder, settings)
    async with _ready(Child(process, Served(ops_port, postgres_url), folder / "gateway.log")) as child:
        yield child


async def _child(
    command: str,
    postgres_url: str,
    redis_url: str,
    folder: Path,
    settings: Mapping[str, str],
    descriptors: Sequence[int] = (),
) -> asyncio.subprocess.Process:
    urls = {"SLUICE_POSTGRES_URL": postgres_url, "SLUICE_REDIS_URL": redis_url}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    with (folder / "gateway.log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway", command,
            env={**inherited, **urls, **settings},
            pass_fds=descriptors,
            stdin=asyncio.subprocess.DEVNULL,
            stderr=log,
        )  # fmt: skip


@asynccontextmanager
async def _ready(child: Child) -> AsyncIterator[Child]:
    try:
        await until_ready(child.served.url, lambda: child.alive)
        assert child.alive, child.log
        yield child
    finally:
        if child.alive:
            child.process.kill()
        await child.process.wait()
    assert not (met := bugs_in(child.log_file.parent)), "\n".join(met)
