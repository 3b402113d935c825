"""DNS rebinding for real: a name server that answers a public address first and a private one from then on.

    python -m tests.relay.rebinding REDIS_SOCKET [--bad NAME]

Runs itself in a network namespace of its own (Linux, `unshare`, `ip`). Its loopback has one public and one
private address, and its resolver is a name server of this program: the targets of the relay resolve, judge
and connect by the code, the C library and the sockets that a gateway uses. At both addresses a server with a
certificate of the name counts connections. Prints a sentence for each broken promise, and exits 1 if there is
one. `--bad NAME` removes a part of the guard, as an upgrade of a library could: the program then has to find
harm.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import ssl
import struct
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import httpcore

from gateway import network
from gateway.relay.targets.addresses import GuardedConnection, GuardedTlsConnection
from gateway.relay.targets.contract import Confirmed, Failed, Message, Target
from gateway.relay.targets.redis_stream import RedisStreamTarget
from gateway.relay.targets.webhook import WebhookTarget
from spec.targets.redis_stream import RedisStream
from spec.targets.webhook import Webhook
from tests.relay.receivers import SECRET, door, web_receiver
from tests.support.certificates import certificate

NAME = "rebinds.example.com"
PUBLIC, PRIVATE = "93.184.216.34", "10.1.2.3"
INSIDE = "--inside"
MISSING = "this machine gives this account no network namespace (Linux, unshare, iproute2)"
REDIS_PORT = 6379
PARCEL = Message("01900000-0000-7000-8000-000000000001", "order", "global", "was_placed", b"{}")


def command(*words: str) -> list[str] | None:
    """How to run this program in a namespace; None where this machine has none for this account."""
    if None in (shutil.which("unshare"), shutil.which("ip")):
        return None
    for rights in (["--net", "--mount"], ["--user", "--map-root-user", "--net", "--mount"]):
        enter = ["unshare", *rights]
        if subprocess.run([*enter, "ip", "link", "set", "lo", "up"], capture_output=True).returncode == 0:
            return [*enter, sys.executable, "-m", "tests.relay.rebinding", INSIDE, *words]
    return None


# -- the name server


@dataclass(slots=True)
class NameServer(asyncio.DatagramProtocol):
    """`answers` are given one after the other, then always the last; `asked` counts questions for IPv4."""

    answers: Sequence[Sequence[str]] = ()
    asked: int = 0
    _transport: asyncio.DatagramTransport | None = None

    def expect(self, *answers: Sequence[str]) -> None:
        self.answers, self.asked = answers, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        end = data.index(b"\0", 12) + 5
        question, kind = data[12:end], data[end - 4 : end - 2]
        addresses: Sequence[str] = ()
        if kind == b"\0\1":
            addresses = self.answers[min(self.asked, len(self.answers) - 1)]
            self.asked += 1
        head = data[:2] + struct.pack("!HHHHH", 0x8580, 1, len(addresses), 0, 0)
        # A pointer to the question's name, A, IN, not to be kept, four bytes.
        records = [struct.pack("!HHHIH4B", 0xC00C, 1, 1, 0, 4, *map(int, a.split("."))) for a in addresses]
        self._transport.sendto(head + question + b"".join(records), addr)


# -- what is tried


@dataclass(slots=True)
class Attack:
    """A kind of target at the name; `arrived` counts connections at (public, private)."""

    kind: str
    target: Callable[[], Target]
    arrived: Callable[[], tuple[int, int]]


@dataclass(slots=True)
class Found:
    wrong: list[str] = field(default_factory=list)

    def require(self, fine: bool, sentence: str) -> None:
        if not fine:
            self.wrong.append(sentence)


async def tried(attack: Attack, names: NameServer) -> list[str]:
    """A sentence for each broken promise."""
    found, kind = Found(), attack.kind

    async def sent() -> tuple[bool, str, tuple[int, int]]:
        before = attack.arrived()
        target = attack.target()
        outcome = await target.send(PARCEL)
        await target.close()
        after = attack.arrived()
        why = outcome.why if isinstance(outcome, Failed) else ""
        return isinstance(outcome, Confirmed), why, (after[0] - before[0], after[1] - before[1])

    names.expect([PUBLIC], [PRIVATE])
    confirmed, why, (public, private) = await sent()
    found.require(confirmed and public == 1, f"{kind}: nothing arrived at the public address: {why}")
    found.require(private == 0, f"{kind}: a connection went to an address that was not judged")
    found.require(names.asked == 1, f"{kind}: the name was resolved {names.asked} times for one connection")
    for answer in ([PRIVATE], [PUBLIC, PRIVATE], ["169.254.169.254"], ["127.0.0.1"]):
        names.expect(answer)
        confirmed, why, arrived = await sent()
        found.require(arrived == (0, 0), f"{kind}: {answer} was connected to")
        found.require(not confirmed and "private address" in why, f"{kind}: {answer} is not refused: {why}")
    return found.wrong


@asynccontextmanager
async def _attacks(folder: Path, redis_socket: str) -> AsyncIterator[list[Attack]]:
    files = certificate(NAME, folder)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(*files)
    os.environ["SSL_CERT_FILE"] = str(files[0])
    stream = RedisStream(f"rediss://{NAME}:{REDIS_PORT}/0", "rebinding")
    async with AsyncExitStack() as ending:
        receivers = [await ending.enter_async_context(web_receiver(served, at, 443)) for at in BOTH]
        doors = [await ending.enter_async_context(door(redis_socket, served, at, REDIS_PORT)) for at in BOTH]
        yield [
            Attack(
                "webhook",
                lambda: WebhookTarget(Webhook(f"https://{NAME}/in", SECRET), {}, allow_private=False),
                lambda: (len(receivers[0].deliveries), len(receivers[1].deliveries)),
            ),
            Attack(
                "redis stream",
                lambda: RedisStreamTarget(stream, allow_private=False),
                lambda: (doors[0].taken, doors[1].taken),
            ),
        ]


BOTH = (PUBLIC, PRIVATE)


async def _inside(redis_socket: str) -> list[str]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _set_up(folder)
        names = NameServer()
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: names, local_addr=("127.0.0.1", 53)
        )
        async with _attacks(folder, redis_socket) as attacks:
            wrong = [sentence for each in attacks for sentence in await tried(each, names)]
        transport.close()
        return wrong


def _set_up(folder: Path) -> None:
    """Only of this namespace: addresses, and the C library's resolver."""
    files = {
        "resolv.conf": "nameserver 127.0.0.1\noptions timeout:2 attempts:1\n",
        "nsswitch.conf": "hosts: dns\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
        subprocess.run(["mount", "--bind", folder / name, f"/etc/{name}"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in BOTH:
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)


# -- guards that are gone


def _stream_by_name() -> None:
    """As if redis-py no longer asked `_connection_arguments`: judged, then connected to by name."""
    del GuardedConnection._connection_arguments, GuardedTlsConnection._connection_arguments


def _stream_unjudged() -> None:
    """As if redis-py no longer called `_connect` and `_connection_arguments`."""
    _stream_by_name()
    del GuardedConnection._connect


async def _by_name(
    guarded: network.GuardedNetwork, host: str, port: int, *more: object, **named: object
) -> httpcore.AsyncNetworkStream:
    await network.resolve(host, port, allow_private=False)
    return await guarded._network.connect_tcp(host, port, *more, **named)  # type: ignore[arg-type]


async def _unjudged(
    guarded: network.GuardedNetwork, host: str, port: int, *more: object, **named: object
) -> httpcore.AsyncNetworkStream:
    return await guarded._network.connect_tcp(host, port, *more, **named)  # type: ignore[arg-type]


BAD: dict[str, Callable[[], None]] = {
    "stream-by-name": _stream_by_name,
    "stream-unjudged": _stream_unjudged,
    "webhook-by-name": lambda: setattr(network.GuardedNetwork, "connect_tcp", _by_name),
    "webhook-unjudged": lambda: setattr(network.GuardedNetwork, "connect_tcp", _unjudged),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.relay.rebinding", description=__doc__)
    parser.add_argument("redis_socket")
    parser.add_argument("--bad", choices=sorted(BAD))
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if not wanted.inside:
        argv = command(*sys.argv[1:])
        if argv is None:
            print(MISSING)
            return 2
        return subprocess.run(argv).returncode
    if wanted.bad:
        BAD[wanted.bad]()
    wrong = asyncio.run(_inside(wanted.redis_socket))
    print("\n".join(wrong or ["every connection went to a judged address"]))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
