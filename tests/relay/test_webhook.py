"""Webhooks as their receivers see them."""

from __future__ import annotations

import asyncio
import itertools

from standardwebhooks import Webhook

from gateway.relay.targets.contract import Confirmed, Message
from gateway.relay.targets.webhook import WebhookTarget
from spec.targets.webhook import Webhook as Declared
from tests.relay.conftest import Bench, until
from tests.relay.receivers import SECRET, Answer, Delivery, WebReceiver
from tests.support.calls import new_id


def target(receiver: WebReceiver, **more: object) -> dict[str, object]:
    return {"type": "webhook", "url": receiver.url, "secret": SECRET, **more}


def in_order(deliveries: list[Delivery]) -> dict[tuple[str, str], list[int]]:
    """The versions of each aggregate as they first came."""
    lanes: dict[tuple[str, str], list[int]] = {}
    for each in deliveries:
        lane = lanes.setdefault(each.aggregate, [])
        if each.event["version"] not in lane:
            lane.append(each.event["version"])
    return lanes


async def test_a_receiver_verifies_each_delivery_with_the_standard_webhooks_library(
    bench: Bench, receiver: WebReceiver
) -> None:
    await bench.put("all", target(receiver))
    async with bench.relaying():
        await bench.append([new_id() for _ in range(5)], 3)
        await until(lambda: len(receiver.deliveries) == 15)
    for each in receiver.deliveries:
        event = Webhook(SECRET).verify(each.body, each.headers)
        assert event["id"] == each.id
        assert each.headers["content-type"] == "application/json"


async def test_a_delivery_is_the_event_as_the_feed_has_it(bench: Bench, receiver: WebReceiver) -> None:
    await bench.put("all", target(receiver))
    await bench.append([new_id()], 2)
    async with bench.relaying():
        await until(lambda: len(receiver.deliveries) == 2)
    fed = (await bench.client.get("/_/feed")).json()["events"]
    assert [each.event for each in receiver.deliveries] == fed


async def test_a_failing_aggregate_waits_and_the_others_go_on(bench: Bench, receiver: WebReceiver) -> None:
    keys = [new_id() for _ in range(10)]
    receiver.answer = lambda each: Answer(500) if each.aggregate[1] == keys[0] else Answer()
    await bench.put("all", target(receiver, retry_s=[0.2] * 40))
    async with bench.relaying():
        await bench.append(keys, 5)
        await until(lambda: len(receiver.accepted) == 45)

        async def retrying() -> bool:
            stands = await bench.stands("all")
            return bool((stands["retrying"], stands["parked"]) == (1, 0))

        await until(retrying)
        receiver.answer = lambda _: Answer()
        await until(lambda: len(receiver.accepted) == 50)
    assert all(lane == [1, 2, 3, 4, 5] for lane in in_order(receiver.accepted).values())
    retried = [
        each for each in receiver.deliveries if each.event["version"] == 1 and each.aggregate[1] == keys[0]
    ]
    assert len({each.id for each in retried}) == 1 < len(retried)
    assert all(later.at - before.at >= 0.2 for before, later in itertools.pairwise(retried))


async def test_a_receiver_that_has_said_2xx_has_it_however_its_body_hangs() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
        target = WebhookTarget(Declared(url, SECRET), {}, allow_private=True, timeout_s=0.5)
        outcome = await target.send(Message(new_id(), "order", "k", "was_noted", b"{}"))
        await target.close()
    assert isinstance(outcome, Confirmed), outcome
