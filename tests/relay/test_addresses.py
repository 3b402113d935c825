"""Where no event may go: by what is written, and by what a name resolves to."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from typing import Any

import pytest

from gateway import network
from gateway.network import RefusedAddress, resolve
from gateway.relay.targets.contract import Failed, Message
from gateway.relay.targets.webhook import WebhookTarget
from spec.targets.addresses import is_public, unsafe
from spec.targets.webhook import Webhook
from tests.relay.conftest import until
from tests.relay.receivers import SECRET, WebReceiver

PARCEL = Message("01900000-0000-7000-8000-000000000001", "order", "global", "was_placed", b"{}")
PRIVATE = [
    "0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.9.9.9", "169.254.169.254",
    "172.16.0.1", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.31.196.1", "192.52.193.1",
    "192.175.48.1", "2620:4f:8000::1", "192.168.1.1", "198.18.0.1",
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
    def answers(*_: Any, **__: Any) -> list[Any]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, ("93.184.216.34", 443)), (*kind, ("10.1.2.3", 443))]

    monkeypatch.setattr(socket, "getaddrinfo", answers)
    with pytest.raises(RefusedAddress, match=r"10\.1\.2\.3"):
        await resolve("rebinds.example.com", 443, allow_private=False)
    assert await resolve("rebinds.example.com", 443, allow_private=True) == ["93.184.216.34", "10.1.2.3"]


async def test_a_name_that_resolves_to_loopback_is_refused_and_nothing_arrives(receiver: WebReceiver) -> None:
    """`localhost.` and the like are refused as they are written; this goes by what the resolver says."""
    url = f"https://127.1:{receiver.port}/"
    target = WebhookTarget(Webhook(url, SECRET), {}, allow_private=False)
    target._refused = None  # as a name would come through that can't be judged by looking at it
    outcome = await target.send(PARCEL)
    assert isinstance(outcome, Failed)
    assert "private address" in outcome.why
    assert receiver.deliveries == []
    await target.close()


@pytest.mark.parametrize("host", ["a..b.example", "a" * 70 + ".example"])
async def test_a_name_that_can_not_be_resolved_is_a_failure_like_any_other(host: str) -> None:
    with pytest.raises(OSError, match="is not the name of a host"):
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


async def test_silent_names_are_asked_for_once_each_and_hold_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    answered = threading.Event()

    def answers(host: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        if host.startswith("silent"):
            answered.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 443))]

    monkeypatch.setattr(socket, "getaddrinfo", answers)
    monkeypatch.setattr(network, "LOOKUPS_MAX", 40)
    names = [f"silent-{n}.example.com" for n in range(40)]
    waiting = [asyncio.ensure_future(resolve(name, 443, allow_private=False)) for name in names * 3]
    try:
        await until(lambda: len(asked) == 40)
        with pytest.raises(OSError, match="40 look-ups of other names are unanswered"):
            await resolve("one-more.example.com", 443, allow_private=False)
        waiting[0].cancel()  # who gives up takes the answer from no other caller
        answered.set()
        assert await asyncio.gather(*waiting[1:]) == [["93.184.216.34"]] * (len(waiting) - 1)
        assert sorted(asked) == sorted(names)
        assert await resolve("one-more.example.com", 443, allow_private=False) == ["93.184.216.34"]
    finally:
        answered.set()


async def test_a_name_that_does_not_exist_is_an_error_of_each_who_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    both = await asyncio.gather(
        *(resolve("nobody.example.com", 443, allow_private=False) for _ in range(2)), return_exceptions=True
    )
    assert [type(each) for each in both] == [socket.gaierror] * 2


async def test_silent_names_of_a_tenant_keep_no_other_tenants_names_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    answered = threading.Event()

    def answers(host: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        if host.startswith("silent"):
            answered.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 443))]

    async def of(tenant: str, name: str) -> list[str]:
        network.asker.set(tenant)
        return await resolve(name, 443, allow_private=False)

    monkeypatch.setattr(socket, "getaddrinfo", answers)
    names = [f"silent-{n}.example.com" for n in range(2 * network.LOOKUPS_MAX)]
    waiting = [asyncio.create_task(of("one", name)) for name in names]
    try:
        await until(lambda: len(asked) == network.LOOKUPS_OF_ONE)
        assert await asyncio.create_task(of("other", "one-more.example.com")) == ["93.184.216.34"]
        answered.set()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        refused = [each for each in outcomes if isinstance(each, OSError)]
        assert len(refused) == len(names) - network.LOOKUPS_OF_ONE
        assert "32 look-ups of other names are unanswered" in str(refused[0])
        assert await of("one", names[-1]) == ["93.184.216.34"]
    finally:
        answered.set()
