"""Where no event may go: by what is written, and by what a name resolves to."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

import pytest

from gateway.network import RefusedAddress, resolve
from gateway.relay.targets import Failed, Parcel
from gateway.relay.webhook import WebhookTarget
from spec.subscriptions import Webhook, is_public, unsafe
from tests.relay.receivers import SECRET, WebReceiver

PARCEL = Parcel("01900000-0000-7000-8000-000000000001", "order", "global", "was_placed", b"{}")
PRIVATE = [
    "0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.9.9.9", "169.254.169.254",
    "172.16.0.1", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
    "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::",
    "::1", "::7f00:1", "::ffff:8.8.8.8", "::ffff:10.0.0.1", "64:ff9b::808:808", "100::1",
    "2001::1", "2001:db8::1", "2002:a00:1::1", "3fff::1", "fc00::1", "fd00:ec2::254",
    "fe80::1", "fec0::1", "ff02::1",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e"]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_of_the_public_internet_is_refused(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))
    host = f"[{address}]" if ":" in address else address
    assert unsafe(f"https://{host}/x") is not None


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_a_target(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))
    assert unsafe(f"https://[{address}]/x" if ":" in address else f"https://{address}/x") is None


async def test_one_private_address_of_a_name_is_enough_to_refuse_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answers(*_: Any, **__: Any) -> list[Any]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, ("93.184.216.34", 443)), (*kind, ("10.1.2.3", 443))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", answers, raising=False)
    with pytest.raises(RefusedAddress, match=r"10\.1\.2\.3"):
        await resolve("rebinds.example.com", 443, allow_private=False)
    assert await resolve("rebinds.example.com", 443, allow_private=True) == ["93.184.216.34", "10.1.2.3"]


async def test_a_name_that_resolves_to_loopback_is_refused_and_nothing_arrives(receiver: WebReceiver) -> None:
    """`localhost.` and the like are refused as they are written; this goes by what the resolver says."""
    url = f"https://127.1:{receiver.port}/"
    target = WebhookTarget(Webhook(url, SECRET), {}, allow_private=False)
    target._refused = None  # as a name would come through that nobody can judge by looking at it
    outcome = await target.send(PARCEL)
    assert isinstance(outcome, Failed)
    assert "private address" in outcome.why
    assert receiver.deliveries == []
    await target.close()


@pytest.mark.parametrize("host", ["a..b.example", "a" * 70 + ".example"])
async def test_a_name_that_nobody_could_be_asked_for_is_a_failure_like_any_other(host: str) -> None:
    with pytest.raises(OSError, match="no name of a host"):
        await resolve(host, 443, allow_private=False)
    target = WebhookTarget(Webhook(f"https://{host}/x", SECRET), {}, allow_private=False)
    outcome = await target.send(PARCEL)
    assert isinstance(outcome, Failed)
    assert host in outcome.why
    await target.close()


async def test_plain_http_is_refused_unless_it_is_allowed(receiver: WebReceiver) -> None:
    for allow_private, arrives in ((False, 0), (True, 1)):
        target = WebhookTarget(Webhook(receiver.url, SECRET), {}, allow_private=allow_private)
        await target.send(PARCEL)
        assert len(receiver.deliveries) == arrives
        await target.close()
