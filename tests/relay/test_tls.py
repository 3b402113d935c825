"""Targets over TLS: the connection goes to an address that was judged, the certificate is the name's."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from gateway.log.redis import tls
from gateway.log.redis.servers import Server, connect, pack
from gateway.relay.targets.contract import Confirmed, Failed
from gateway.relay.targets.redis_stream import RedisStreamTarget
from gateway.relay.targets.webhook import WebhookTarget
from spec.targets.redis_stream import RedisStream
from spec.targets.webhook import Webhook
from tests.relay.contract import parcel
from tests.relay.receivers import SECRET, door, web_receiver
from tests.support.calls import new_id
from tests.support.certificates import certificate

Certified = Callable[[str], ssl.SSLContext]


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Certified:
    """A server's certificate for a name, which this process trusts."""

    def made(name: str) -> ssl.SSLContext:
        files = certificate(name, tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        return context

    return made


@pytest.mark.parametrize(("name", "arrives"), [("localhost", True), ("elsewhere.example.com", False)])
async def test_a_webhook_goes_to_a_server_with_the_certificate_of_the_name(
    certified: Certified, name: str, arrives: bool
) -> None:
    async with web_receiver(tls=certified(name)) as receiver:
        url = f"https://localhost:{receiver.port}/in"
        target = WebhookTarget(Webhook(url, SECRET), {}, allow_private=True)
        outcome = await target.send(parcel())
        await target.close()
        assert isinstance(outcome, Confirmed if arrives else Failed), outcome
        assert len(receiver.deliveries) == arrives
        if arrives:
            assert receiver.deliveries[0].headers["host"] == f"localhost:{receiver.port}"
        else:
            assert isinstance(outcome, Failed) and "certificate" in outcome.why


@pytest.mark.parametrize(("name", "arrives"), [("localhost", True), ("elsewhere.example.com", False)])
async def test_a_stream_is_written_to_a_server_with_the_certificate_of_the_name(
    certified: Certified, redis_url: str, name: str, arrives: bool
) -> None:
    async with door(urlsplit(redis_url).path, tls=certified(name)) as entry:
        declared = RedisStream(f"rediss://localhost:{entry.port}/0", f"tls:{new_id()}")
        target = RedisStreamTarget(declared, allow_private=True, timeout_s=5.0)
        outcome = await target.send(parcel())
        await target.close()
        assert isinstance(outcome, Confirmed if arrives else Failed), outcome
        if not arrives:
            assert isinstance(outcome, Failed) and "certificate" in outcome.why


def readers_of_authorities(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that read them from here on."""
    readers: list[int] = []
    read = ssl.create_default_context

    def noted() -> ssl.SSLContext:
        readers.append(threading.get_ident())
        return read()

    monkeypatch.setattr(ssl, "create_default_context", noted)
    return readers


async def test_certificate_authorities_are_read_once_for_all_streams_and_beside_the_event_loop(
    certified: Certified, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with door(urlsplit(redis_url).path, tls=certified("localhost")) as entry:
        readers = readers_of_authorities(monkeypatch)
        for _ in range(2):
            declared = RedisStream(f"rediss://localhost:{entry.port}/0", f"tls:{new_id()}")
            target = RedisStreamTarget(declared, allow_private=True, timeout_s=5.0)
            assert isinstance(await target.send(parcel()), Confirmed)
            await target.close()
    assert len(readers) == 1
    assert threading.get_ident() not in readers


async def test_certificates_of_the_gateways_redis_are_read_beside_the_event_loop_and_again_after_a_while(
    certified: Certified, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with door(urlsplit(redis_url).path, tls=certified("localhost")) as entry:
        readers = readers_of_authorities(monkeypatch)
        client = connect(f"rediss://localhost:{entry.port}/0", 5.0, 2)
        server = Server(client)
        found = await asyncio.gather(*[server.send(pack(("PING",))) for _ in range(3)], client.ping())
        assert found == [[b"PONG"], [b"PONG"], [b"PONG"], True]
        assert len(readers) == 1
        monkeypatch.setattr(tls, "CERTIFICATES_READ_S", 0.0)
        await server.close()
        await server.send(pack(("PING",)))
        await server.aclose()
    assert len(readers) == 2
    assert threading.get_ident() not in readers


async def test_a_redis_with_the_certificate_of_another_name_is_refused(
    certified: Certified, redis_url: str
) -> None:
    async with door(urlsplit(redis_url).path, tls=certified("elsewhere.example.com")) as entry:
        server = Server(connect(f"rediss://localhost:{entry.port}/0", 5.0, 1))
        with pytest.raises(RedisConnectionError, match="certificate"):
            await server.send(pack(("PING",)))
        await server.aclose()
