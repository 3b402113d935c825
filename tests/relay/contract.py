"""What every target must do. A further one gets a `Receiver` of its own and two classes in test_targets.py.

The first suite holds the target to `gateway.relay.targets.contract.Target`; the second holds what a user is
promised of any way out, the pulled one too: every event of the filter, each aggregate in order, the same id.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, Protocol

from gateway.relay.targets.contract import SEND_TIMEOUT_S, Confirmed, Failed, Message, Target
from tests.relay.conftest import Bench, until
from tests.support.calls import new_id


class Receiver(Protocol):
    """The other end of a target, real, and under the control of a test."""

    @property
    def document(self) -> dict[str, Any]:
        """The `target` of a subscription that leads here."""

    secret: str
    """Part of the document that is never shown; empty where there is none."""

    async def arrived(self) -> list[tuple[str, bytes]]:
        """Id and body of what was confirmed, in the order of arrival."""

    def fail(self, part: float) -> None:
        """From now on so much of what comes fails, at random: 0 is nothing, 1 is all."""


class Single(Receiver, Protocol):
    def target(self, timeout_s: float = SEND_TIMEOUT_S, *, allow_private: bool = True) -> Target:
        """A new target that leads here."""

    def hang(self) -> None:
        """From now on it takes everything, and answers nothing."""


def parcel(number: int = 1) -> Message:
    body = b'{"id": "%d", "data": "\\u00e9\xc3\xa9 \\n"}' % number
    return Message(f"01900000-0000-7000-8000-{number:012}", "order", "global", "was_placed", body)


class TargetContract:
    """Subclasses give the fixture `receiver`, an `Single`."""

    async def test_what_it_confirms_has_arrived_with_its_id_byte_for_byte(self, receiver: Single) -> None:
        target = receiver.target()
        assert isinstance(await target.send(parcel()), Confirmed)
        assert await receiver.arrived() == [(parcel().id, parcel().body)]
        await target.close()

    async def test_what_is_sent_again_arrives_again_under_the_same_id(self, receiver: Single) -> None:
        target = receiver.target()
        for _ in range(2):
            assert isinstance(await target.send(parcel()), Confirmed)
        assert [each for each, _ in await receiver.arrived()] == [parcel().id] * 2
        await target.close()

    async def test_what_is_sent_one_after_the_other_arrives_so(self, receiver: Single) -> None:
        target = receiver.target()
        for number in range(20):
            await target.send(parcel(number))
        assert [each for each, _ in await receiver.arrived()] == [parcel(n).id for n in range(20)]
        await target.close()

    async def test_many_may_be_under_way_at_once(self, receiver: Single) -> None:
        target = receiver.target()
        outcomes = await asyncio.gather(*(target.send(parcel(number)) for number in range(100)))
        assert all(isinstance(each, Confirmed) for each in outcomes), outcomes
        assert len(await receiver.arrived()) == 100
        await target.close()

    async def test_a_failure_is_an_outcome_in_a_sentence_and_the_next_attempt_may_succeed(
        self, receiver: Single
    ) -> None:
        target = receiver.target()
        await target.send(parcel(1))
        receiver.fail(1.0)
        outcome = await target.send(parcel(2))
        assert isinstance(outcome, Failed), outcome
        assert outcome.why.endswith(".") and " " in outcome.why
        receiver.fail(0.0)
        assert isinstance(await target.send(parcel(2)), Confirmed)
        await target.close()

    async def test_a_receiver_that_hangs_fails_within_the_time_of_an_attempt(self, receiver: Single) -> None:
        target = receiver.target(timeout_s=0.3)
        receiver.hang()
        async with asyncio.timeout(20):
            assert isinstance(await target.send(parcel()), Failed)
        await target.close()

    async def test_a_cancelled_attempt_leaves_the_target_usable(self, receiver: Single) -> None:
        target = receiver.target()
        for _ in range(3):
            sending = asyncio.create_task(target.send(parcel(1)))
            await asyncio.sleep(0)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        assert isinstance(await target.send(parcel(2)), Confirmed)
        await target.close()

    async def test_no_secret_is_in_what_it_says_or_shows(self, receiver: Single) -> None:
        target = receiver.target(timeout_s=0.5)
        receiver.fail(1.0)
        outcome = await target.send(parcel())
        assert receiver.secret
        assert receiver.secret not in f"{outcome!r} {target!r} {vars(target)!r}"
        await target.close()

    async def test_a_private_address_is_refused_unless_it_is_allowed(self, receiver: Single) -> None:
        target = receiver.target(allow_private=False)
        assert isinstance(await target.send(parcel()), Failed)
        assert await receiver.arrived() == []
        await target.close()

    async def test_it_can_be_closed_twice_and_unused(self, receiver: Single) -> None:
        target = receiver.target()
        await target.close()
        await target.close()


class DeliveryContract:
    """Subclasses give the fixture `receiver`, a `Receiver`; a relay delivers to it."""

    async def test_every_event_of_the_filter_arrives_each_aggregate_in_order(
        self, bench: Bench, receiver: Receiver
    ) -> None:
        keys = [new_id() for _ in range(12)]
        await bench.append(keys, 4)
        await bench.put("all", receiver.document, event_types=["was_noted"])
        async with bench.relaying():
            await bench.append(keys, 4, "was_cleared")
            await bench.append(keys, 4)
            await self.all_there(bench, receiver, 12 * 8)
        lanes = lanes_of(await receiver.arrived())
        assert all(lane == [1, 2, 3, 4, 9, 10, 11, 12] for lane in lanes.values()), lanes

    async def test_a_receiver_that_fails_now_and_then_misses_nothing_and_sees_the_same_ids(
        self, bench: Bench, receiver: Receiver
    ) -> None:
        keys = [new_id() for _ in range(10)]
        await bench.put("all", receiver.document)
        receiver.fail(0.2)
        async with bench.relaying():
            await bench.append(keys, 10)
            await self.all_there(bench, receiver, 100)
        arrived = await receiver.arrived()
        assert all(lane == [*range(1, 11)] for lane in lanes_of(arrived).values())
        assert all(each == json.loads(body)["id"] for each, body in arrived)

    async def test_a_relay_that_takes_over_continues_where_the_last_one_was(
        self, bench: Bench, receiver: Receiver
    ) -> None:
        keys = [new_id() for _ in range(5)]
        await bench.put("all", receiver.document)
        for _ in range(3):
            async with bench.relaying():
                before = len({each for each, _ in await receiver.arrived()})
                await bench.append(keys, 2)
                await self.all_there(bench, receiver, before + 10)
        arrived = await receiver.arrived()
        assert len(arrived) == 30  # stopped in order, none was sent twice
        assert all(lane == [*range(1, 7)] for lane in lanes_of(arrived).values())

    async def test_what_was_before_now_is_not_sent_to_one_that_starts_now(
        self, bench: Bench, receiver: Receiver
    ) -> None:
        key = new_id()
        await bench.append([key], 3)
        await bench.put("new", receiver.document, start="now")
        async with bench.relaying():
            await bench.append([key], 2)
            await self.all_there(bench, receiver, 2)
        assert [*lanes_of(await receiver.arrived()).values()] == [[4, 5]]

    async def all_there(self, bench: Bench, receiver: Receiver, count: int) -> None:
        """So many different events have arrived, and nothing is left to do."""

        async def holds() -> bool:
            return len({each for each, _ in await receiver.arrived()}) >= count

        await until(holds, 60)


def lanes_of(arrived: list[tuple[str, bytes]]) -> dict[tuple[str, str], list[int]]:
    """The versions of each aggregate in the order in which they first came."""
    lanes: dict[tuple[str, str], list[int]] = {}
    for _, body in arrived:
        event = json.loads(body)
        lane = lanes.setdefault((event["aggregate_type"], event["key"]), [])
        if event["version"] not in lane:
            lane.append(event["version"])
    return lanes


def failing(part: float) -> bool:
    return random.random() < part
