"""Messages of Amazon SNS over HTTP, at a gateway for which a host of these tests is Amazon's: the name, the
rules and TLS are as they are, only the way there is another."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.config import Config
from gateway.inbound.verify.amazon import CALLS_BURST, Amazon
from gateway.network import GuardedNetwork
from tests.http.webhooks import Hooks, open_hooks
from tests.inbound.amazon import (
    HOST,
    PEM_PATH,
    SIGNED,
    TOPIC,
    Host,
    host,
    message,
    request,
    rsa_key,
    signing_pem,
)
from tests.relay.receivers import Answer
from tests.support.calls import new_client, new_id, refused, until
from tests.support.serving import serving

SOURCES: dict[str, dict[str, Any]] = {
    "orders": {"provider": "sns", "topics": [TOPIC], "handshake": "subscription_confirmation"},
    "by_hand": {"provider": "sns", "topics": [TOPIC]},
}


def visited(token: str) -> str:
    return f"/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token={token}"


@dataclass(frozen=True)
class Stand:
    """`amazon` is what the gateway asks, `aws` the host that it comes to."""

    hooks: Hooks
    aws: Host
    amazon: Amazon

    async def post(self, told: object, source: str = "orders") -> httpx.Response:
        sent = request(told)
        headers = [(name.decode(), value.decode()) for name, value in sent.headers]
        return await self.hooks.client.post(self.hooks.path(source), content=sent.body, headers=headers)

    def serve(self, pem: bytes | Answer) -> None:
        """What the certificate's URL answers from now on; a confirmation is 200."""
        certificate = pem if isinstance(pem, Answer) else Answer(body=pem)
        self.aws.receiver.answer = lambda asked: certificate if asked.target.endswith(".pem") else Answer()

    def asked(self, target: str = PEM_PATH) -> int:
        return self.aws.asked.count(target)


@dataclass(frozen=True)
class Gateway:
    aws: Host
    amazon: Amazon
    url: str


@pytest.fixture(scope="module")
async def at_amazon(own_config: Config, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with host(tmp_path_factory.mktemp("aws")) as aws:
        amazon = Amazon(aws.network, wait_s=20.0, trusted=aws.trusted)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gateway.inbound.verify.amazon.CALL_S", 20.0)
            async with serving(own_config, amazon) as served:
                yield Gateway(aws, amazon, served.url)


@pytest.fixture
async def stand(at_amazon: Gateway, own_outbox: asyncpg.Pool) -> AsyncIterator[Stand]:
    """A tenant at a gateway that has no certificate yet."""
    aws, amazon = at_amazon.aws, at_amazon.amazon
    amazon.certificates.clear()
    aws.receiver.deliveries.clear()
    aws.network.asked.clear()
    async with new_client(at_amazon.url, None) as client:
        stand = Stand(await open_hooks(own_outbox, client, SOURCES), aws, amazon)
        stand.serve(signing_pem())
        yield stand


def told(kind: str = "Notification", **more: Any) -> dict[str, Any]:
    """A message of now, with an id and a token of its own."""
    if kind != "Notification":
        token = new_id().replace("-", "")
        more = {"Token": token, "SubscribeURL": f"https://{HOST}{visited(token)}", **more}
    return message(kind, time.time_ns() // 1_000_000, **{"MessageId": new_id(), **more})


async def test_a_notification_is_one_event_and_its_certificate_is_fetched_once(stand: Stand) -> None:
    sent = told(Subject="a subject")
    answers = [await stand.post(sent) for _ in range(2)]
    assert [each.status_code for each in answers] == [202, 202]
    first, again = [each.json() for each in answers]
    assert again == {**first, "duplicate": True}
    signed_anew = told(version="1", **{name: sent[name] for name in sent.keys() & set(SIGNED)})
    assert (await stand.post(signed_anew)).json() == again, "what changes when Amazon tries again"
    forged = {**sent, "MessageAttributes": {"a": {"Type": "String", "Value": "not signed"}}}
    assert (await stand.post(forged)).json()["quarantined"] is True

    (event,) = await stand.hooks.events()
    assert event["data"]["delivery_id"] == sent["MessageId"]
    assert event["data"]["body"] == sent
    answers = await asyncio.gather(*(stand.post(told()) for _ in range(5)))
    assert [each.status_code for each in answers] == [202] * 5
    assert stand.aws.asked == [PEM_PATH]
    assert stand.aws.network.asked == [(HOST, 443)]
    (asked,) = stand.aws.receiver.deliveries
    assert asked.headers["host"] == HOST


async def test_of_many_at_once_one_fetches(stand: Stand) -> None:
    sent = [told() for _ in range(20)]
    answers = await asyncio.gather(*(stand.post(each) for each in sent))
    assert [each.status_code for each in answers] == [202] * 20
    assert stand.asked() == 1


async def test_a_subscription_is_confirmed_once_and_is_no_event(stand: Stand) -> None:
    sent = told("SubscriptionConfirmation")
    for _ in range(3):
        answer = await stand.post(sent)
        assert (answer.status_code, answer.content) == (200, b"")
    assert stand.aws.asked == [PEM_PATH, visited(sent["Token"])]
    assert await stand.hooks.events() == []


async def test_a_confirmation_that_fails_is_a_503_and_done_when_it_comes_again(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await stand.post(told())).status_code == 202
    sent = told("SubscriptionConfirmation")
    for status in (500, 403, 302):
        headers = {"location": f"https://{HOST}/elsewhere"}
        stand.aws.receiver.answer = lambda _, status=status, headers=headers: Answer(status, headers)
        refused(await stand.post(sent), 503, "not_committed")
    stand.serve(signing_pem())
    assert (await stand.post(sent)).status_code == 200
    assert stand.aws.asked == [PEM_PATH, *[visited(sent["Token"])] * 4]
    logged = [each for each in caplog.records if each.message == "webhook_call_failed"]
    assert [each.__dict__["what"] for each in logged] == ["confirmation"] * 3
    assert sent["Token"] not in caplog.text


async def test_without_the_handshake_a_confirmation_is_an_event_and_nothing_is_called(stand: Stand) -> None:
    for kind, source in (("SubscriptionConfirmation", "by_hand"), ("UnsubscribeConfirmation", "orders")):
        assert (await stand.post(told(kind), source)).status_code == 202
    assert [event["data"]["body"]["Type"] for event in await stand.hooks.events()] == [
        "SubscriptionConfirmation",
        "UnsubscribeConfirmation",
    ]
    assert stand.aws.asked == [PEM_PATH]


async def test_what_is_not_in_order_is_a_401_and_nothing_is_called(stand: Stand) -> None:
    sent = told("SubscriptionConfirmation")
    for changed in (
        {**sent, "TopicArn": TOPIC + "2"},
        {**sent, "SigningCertURL": f"https://evil.example{PEM_PATH}"},
        {**sent, "SigningCertURL": "https://169.254.169.254/latest.pem"},
        {**sent, "Signature": "?"},
        {**sent, "Timestamp": "2020-01-01T00:00:00.000Z"},
        {**sent, "Type": "Notificatio"},
        b"",
        b"[]",
        b"\xff",
        b'{"Type": "SubscriptionConfirmation"',
    ):
        refused(await stand.post(changed), 401, "unauthorized")
    assert stand.aws.network.asked == []
    forged = told("SubscriptionConfirmation", key=rsa_key(3072))
    refused(await stand.post(forged), 401, "unauthorized")
    refused(await stand.post({**sent, "Token": "mine"}), 401, "unauthorized")
    assert stand.aws.asked == [PEM_PATH], "no URL of a message that is not signed"


async def test_a_certificate_that_can_not_be_had_is_a_503_until_it_can(stand: Stand) -> None:
    sent = told()
    answers = [
        Answer(404, body=signing_pem()),
        Answer(302, {"location": f"https://{HOST}{PEM_PATH}"}),
        Answer(503),
        Answer(body=b"<Error>AccessDenied</Error>"),
        Answer(body=b"x" * 100_000),
        Answer(body=signing_pem(name="evil.example")),
    ]
    for answer in answers:
        stand.serve(answer)
        refused(await stand.post(sent), 503, "not_committed")
        assert stand.amazon.certificates == {}
    assert stand.aws.asked == [PEM_PATH] * len(answers)
    stand.serve(signing_pem())
    assert (await stand.post(sent)).status_code == 202


async def test_a_host_that_says_nothing_holds_up_no_other_request(
    own_config: Config,
    own_outbox: asyncpg.Pool,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.inbound.verify.amazon.CALL_S", 60.0)
    async with host(tmp_path_factory.mktemp("aws")) as aws:
        amazon = Amazon(aws.network, wait_s=0.2, trusted=aws.trusted)
        aws.receiver.answer = lambda _: Answer(hang=True)
        async with serving(own_config, amazon) as served, new_client(served.url, None) as client:
            stand = Stand(await open_hooks(own_outbox, client, SOURCES), aws, amazon)
            sent = told()
            refused(await stand.post(sent), 503, "not_committed")
            refused(await stand.post(sent), 503, "not_committed")
            await until(lambda: _is(stand.asked() == 1))
            refused(await stand.post({**sent, "TopicArn": "x"}), 401, "unauthorized")


async def _is(found: bool) -> bool:
    return found


async def test_a_host_without_a_certificate_of_amazons_is_not_asked(
    own_config: Config, own_outbox: asyncpg.Pool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with host(tmp_path_factory.mktemp("aws"), ["sns.us-east-1.amazonaws.com"]) as aws:
        amazon = Amazon(aws.network, wait_s=20.0, trusted=aws.trusted)
        async with serving(own_config, amazon) as served, new_client(served.url, None) as client:
            stand = Stand(await open_hooks(own_outbox, client, SOURCES), aws, amazon)
            stand.serve(signing_pem())
            refused(await stand.post(told()), 503, "not_committed")
    assert aws.network.asked == [(HOST, 443)]
    assert aws.asked == []


async def test_strangers_can_not_bring_about_any_number_of_calls(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.inbound.verify.amazon.CALLS_PER_S", 1 / 86_400)
    async with host(tmp_path_factory.mktemp("aws")) as aws:
        aws.receiver.answer = lambda asked: Answer(
            403 if asked.target != PEM_PATH else 200, body=signing_pem()
        )
        amazon = Amazon(aws.network, wait_s=20.0, trusted=aws.trusted)
        for n in range(CALLS_BURST + 5):
            failed = await amazon.certify(f"https://{HOST}/{n}.pem", "some")
            assert failed is not None
            assert (failed.retry_after_s > 3_600) == (n >= CALLS_BURST)
        assert len(aws.asked) == CALLS_BURST
        assert await amazon.confirm(f"https://{HOST}{PEM_PATH}", "some") is None, "that is counted apart"
        assert await amazon.certify(f"https://{HOST}{PEM_PATH}", "another source") is None
        await amazon.close()


async def test_a_host_at_a_private_address_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def answers(*_: Any, **__: Any) -> list[Any]:
        return [(0, 0, 0, "", ("10.1.2.3", 443))]

    monkeypatch.setattr(socket, "getaddrinfo", answers)
    amazon = Amazon(GuardedNetwork(allow_private=False), wait_s=20.0)
    told_ = await amazon.certify(f"https://{HOST}{PEM_PATH}", "some")
    await amazon.close()
    assert told_ is not None
    assert "10.1.2.3" not in told_.why, "nobody is told the addresses of names"
    assert "10.1.2.3" in str([each.__dict__.get("reason") for each in caplog.records])


async def test_certificates_are_kept_within_a_bound(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.inbound.verify.amazon.CERTIFICATES_MAX", 2)
    async with host(tmp_path_factory.mktemp("aws")) as aws:
        pem = signing_pem()
        aws.receiver.answer = lambda _: Answer(body=pem)
        amazon = Amazon(aws.network, wait_s=20.0, trusted=aws.trusted)
        urls = [f"https://{HOST}/{n}.pem" for n in range(4)]
        for url in urls:
            assert await amazon.certify(url, "some") is None
        await amazon.close()
    assert list(amazon.certificates) == urls[2:]
