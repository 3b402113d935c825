"""The Python client against a running gateway: plain and with asyncio, over connections that fail."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.client import (
    Actor,
    AsyncClient,
    BulkAppend,
    Client,
    Condition,
    ConditionFailed,
    Conflict,
    Event,
    NewEvent,
    NotCommitted,
    OutcomeUnknown,
    Patience,
    PositionFile,
    Receipt,
    Refused,
    Source,
    Target,
    Unavailable,
    connection,
)
from gateway.client.async_network import Connection
from gateway.client.async_pool import Pool
from gateway.client.http1 import Response
from gateway.client.retry import Answer, Lost, Request
from tests.support.accounts import Account
from tests.support.calls import new_event_id, new_id
from tests.support.serving import Served

ADA = Actor("user", "global")
DEADLINE_S = 40.0


@pytest.fixture
async def sluice(gateway: Served, tenant: Account) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(gateway.url, tenant.write) as client:
        yield client


@pytest.mark.parametrize("key", ["", "\n", "sl_secr\net", "sl_secr et", "sl_secrét"])
def test_what_can_be_no_api_key_is_refused_at_once_without_being_shown(key: str) -> None:
    for client in (Client, AsyncClient):
        with pytest.raises(Refused, match="the API key is empty, or has") as refused:
            client("http://127.0.0.1:9", key)
        assert "secr" not in str(refused.value)


async def test_an_api_key_may_end_in_a_line_break(gateway: Served, tenant: Account) -> None:
    async with AsyncClient(gateway.url, f"{tenant.read}\n") as client:
        assert await client.length("order", new_id()) == 0


async def test_an_append_is_read_back(sluice: AsyncClient) -> None:
    key, event_id, cause = new_id(), new_event_id(), new_id()
    receipt = await sluice.append(
        "order",
        key,
        "was_named",
        {"name": "Ada"},
        actor=ADA,
        target=Target("order", key),
        event_id=event_id,
        causation_id=cause,
        correlation_id=cause,
        extra={"note": 1},
        previous_length=0,
    )
    assert (receipt.key, receipt.length, receipt.event_id, receipt.replayed) == (key, 1, event_id, False)
    (event,) = [each async for each in sluice.events("order", key)]
    assert event == await sluice.event(event_id)
    assert (event.id, event.version, event.key, event.aggregate_type) == (event_id, 1, key, "order")
    assert (event.type, event.data, event.data_as(dict[str, str])) == (
        "was_named",
        {"name": "Ada"},
        {"name": "Ada"},
    )
    metadata = event.metadata
    assert (metadata.actor, metadata.target) == (ADA, Target("order", key))
    assert (metadata.correlation_id, metadata.causation_id, metadata.extra) == (cause, cause, {"note": 1})
    state = await sluice.state("order", key, min_length=1)
    assert (state.key, state.data, state.length) == (key, {"customer": {"name": "Ada"}}, 1)
    assert state.created_at == state.updated_at == int(metadata.timestamp)


async def test_several_are_appended_together_and_read_page_by_page(sluice: AsyncClient) -> None:
    receipt = await sluice.create("order", [("was_noted", n) for n in range(700)], actor=ADA)
    assert (receipt.length, len(receipt.event_ids)) == (700, 700)
    receipt = await sluice.append_many(
        "order", receipt.key, [("was_noted", n) for n in range(700, 1400)], actor=ADA
    )
    assert [each.data async for each in sluice.events("order", receipt.key)] == list(range(1400))
    assert [each.version async for each in sluice.events("order", receipt.key, start=1399)] == [1399, 1400]
    assert await sluice.length("order", receipt.key) == 1400
    assert (await sluice.state("order", receipt.key, at_length=3)).length == 3


async def test_events_of_several_aggregates_are_appended_together_if_a_condition_holds(
    sluice: AsyncClient,
) -> None:
    one, two = new_id(), new_id()
    events = [NewEvent("order", "was_noted", 1, one, 0), NewEvent("order", "was_noted", 2, two)]
    decided = Condition(({"tags": [f"order:{one}"]},))
    receipt = await sluice.append_all([*events, NewEvent("order", "was_noted", 3)], actor=ADA)
    assert [(each.key, each.length) for each in receipt.events[:2]] == [(one, 1), (two, 1)]
    assert not receipt.replayed
    with pytest.raises(ConditionFailed) as failed:
        await sluice.append_all(events[1:], condition=decided, actor=ADA)
    assert [each.data for each in failed.value.matched] == [1]
    assert failed.value.matched_next is None
    later = Condition(decided.items, failed.value.position)
    with pytest.raises(Conflict):
        await sluice.append_all(events, condition=later, actor=ADA)
    again = [
        await sluice.append_all(events[1:], condition=later, actor=ADA, idempotency_key="all")
        for _ in range(2)
    ]
    assert [each.replayed for each in again] == [False, True]
    foreign = Source("xliff", 7, new_id())
    seen = [NewEvent("order", "was_noted", n, source=foreign) for n in range(2)]
    receipt = await sluice.append_all(seen, actor=ADA)
    found = (await sluice.stands_for(foreign)).key
    assert [each.key for each in receipt.events] == [found] * 2
    assert again[0].events == again[1].events


async def test_a_refusal_is_raised_and_a_conflict_brings_what_was_missed(sluice: AsyncClient) -> None:
    key = new_id()
    await sluice.append_many("order", key, [("was_noted", n) for n in range(3)], actor=ADA)
    with pytest.raises(Conflict) as conflict:
        await sluice.append("order", key, "was_noted", actor=ADA, previous_length=1)
    assert (conflict.value.length, [each.data for each in conflict.value.missed]) == (3, [1, 2])
    with pytest.raises(Refused, match=r"422 invalid_identifier.*metadata\.actor\.id"):
        await sluice.append("order", key, "was_noted", actor=Actor("user", "nobody"))
    with pytest.raises(Refused) as refused:
        await sluice.state("order", new_id())
    assert (refused.value.status, refused.value.code) == (404, "not_found")


async def test_a_key_of_ones_own_outlives_the_process(sluice: AsyncClient) -> None:
    key = new_id()
    once = f"once-{key}"
    receipts = [
        await sluice.append("order", key, "was_noted", actor=ADA, idempotency_key=once) for _ in range(3)
    ]
    assert [each.replayed for each in receipts] == [False, True, True]
    assert len({each.event_id for each in receipts}) == 1


async def test_an_event_id_of_ones_own_outlives_the_process(sluice: AsyncClient) -> None:
    key = new_id()
    one, other = (str(uuid.uuid5(uuid.UUID(key), name)) for name in ("one", "other"))
    receipts = [
        await sluice.append("order", key, "was_noted", actor=ADA, event_id=one, previous_length=0)
        for _ in range(2)
    ]
    assert [(each.replayed, each.event_id) for each in receipts] == [(False, one), (True, one)]
    line = BulkAppend("order", key, "was_noted", None, ADA, event_id=other)
    outcomes = [each for _ in range(2) async for each in sluice.bulk([line])]
    assert [isinstance(each, Receipt) and each.event_id for each in outcomes] == [other, other]
    several = [NewEvent("order", "was_noted", n, key=key, event_id=new_event_id()) for n in range(2)]
    assert [(await sluice.append_all(several, actor=ADA)).replayed for _ in range(2)] == [False, True]
    assert await sluice.length("order", key) == 4


class Unreliable(Pool):
    """The real connections, of which some lose the answer and some the request."""

    losses: list[str]

    async def exchange(self, request: Request) -> Answer | Lost:
        loss = self.losses.pop(0) if self.losses else "none"
        if loss == "request":
            return Lost("no answer: refused", sent=False)
        answer = await super().exchange(request)
        return Lost("no answer: reset", sent=True) if loss == "answer" else answer


def make_unreliable(client: AsyncClient, *losses: str) -> None:
    client._pool.__class__ = Unreliable
    client._pool.losses = list(losses)  # type: ignore[attr-defined]


async def test_lost_answers_make_no_second_event(gateway: Served, tenant: Account) -> None:
    async with AsyncClient(gateway.url, tenant.write, patience=Patience(first_s=0.01)) as sluice:
        make_unreliable(sluice, "answer", "request", "answer", "answer")
        key = new_id()
        receipt = await sluice.append("order", key, "was_noted", actor=ADA)
        assert (receipt.replayed, receipt.length) == (True, 1)
        assert await sluice.length("order", key) == 1


async def test_what_is_given_up_can_be_settled_later(gateway: Served, tenant: Account) -> None:
    key = new_id()
    async with AsyncClient(gateway.url, tenant.write, patience=Patience(0.2, 0.01)) as sluice:
        make_unreliable(sluice, *["answer"] * 1000)
        with pytest.raises(OutcomeUnknown) as unknown:
            await sluice.append("order", key, "was_noted", 1, actor=ADA)
        with pytest.raises(Unavailable):
            await sluice.length("order", key)
    settled_by = unknown.value.idempotency_key
    async with AsyncClient(gateway.url, tenant.write) as sluice:
        receipt = await sluice.append("order", key, "was_noted", 1, actor=ADA, idempotency_key=settled_by)
        assert (receipt.replayed, receipt.length) == (True, 1)


async def taken(events: AsyncGenerator[Event, None], count: int) -> list[Event]:
    """The first of them; the follower has then processed all but the last."""
    async with asyncio.timeout(DEADLINE_S), contextlib.aclosing(events) as closing:
        return [await anext(closing) for _ in range(count)]


async def test_a_follower_continues_from_its_saved_position(sluice: AsyncClient, tmp_path: Path) -> None:
    saved = PositionFile(tmp_path / "position")
    receipt = await sluice.create("order", [("was_noted", n) for n in range(10)], actor=ADA)
    assert [each.data for each in await taken(sluice.follow(saved), 4)] == [0, 1, 2, 3]
    # The fourth was never seen to be processed.
    assert [each.data for each in await taken(sluice.follow(saved, after="now"), 5)] == [3, 4, 5, 6, 7]
    await sluice.append("order", receipt.key, "was_noted", 10, actor=ADA)
    assert [each.data for each in await taken(sluice.follow(saved), 4)] == [7, 8, 9, 10]


class Full:
    """A place for positions on a disk that is full."""

    def load(self) -> None:
        return None

    def save(self, position: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_follower_says_that_its_position_can_not_be_saved(
    sluice: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had gone on as if the network were away, and a crash would have begun all of it again."""
    monkeypatch.setattr(connection, "SAVE_EVERY_S", 0.0)
    await sluice.create("order", [("was_noted", n) for n in range(3)], actor=ADA)
    events = sluice.follow(Full())
    async with asyncio.timeout(DEADLINE_S):
        await anext(events)
        with pytest.raises(OSError, match="No space left"):
            await anext(events)


async def test_a_follower_of_what_comes_now_skips_what_was(sluice: AsyncClient) -> None:
    key = new_id()
    await sluice.append("order", key, "was_noted", "old", actor=ADA)
    following = sluice.follow(after="now", types=["order"], event_types=["was_noted"])
    first = asyncio.ensure_future(anext(following))
    async with asyncio.timeout(DEADLINE_S):
        while not first.done():
            await sluice.append("order", key, "was_noted", "new", actor=ADA)
            await asyncio.wait([first], timeout=0.05)
    assert (await first).data == "new"
    await following.aclose()


async def test_broken_connections_make_no_gap(
    gateway: Served, tenant: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = Patience(first_s=0.01, most_s=0.02)
    made: list[Connection] = []
    connection_made = Connection.connection_made

    def noted(connection: Connection, transport: asyncio.BaseTransport) -> None:
        made.append(connection)
        connection_made(connection, transport)

    monkeypatch.setattr(Connection, "connection_made", noted)
    async with AsyncClient(gateway.url, tenant.write, patience=patience) as sluice:
        seen: list[Any] = []

        async def follow() -> None:
            async for event in sluice.follow():
                seen.append(event.data)
                if event.data == 59:
                    return

        following = asyncio.create_task(follow())
        key = new_id()
        async with asyncio.timeout(DEADLINE_S):
            for n in range(60):
                await sluice.append("order", key, "was_noted", n, actor=ADA)
                if n % 7 == 0:
                    await break_connections(made)
            await following
    assert seen == list(range(60))


async def test_what_was_damaged_on_its_way_is_asked_for_again(
    gateway: Served, tenant: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = []
    taken_whole = Response.taken

    def taken_once_damaged(response: Response) -> bytes:
        body = taken_whole(response)
        if body and not damaged and "content-encoding" in response.headers:
            damaged.append(body)
            return b"\x1f\x8b\x08 and so on"
        return body

    monkeypatch.setattr(Response, "taken", taken_once_damaged)
    async with AsyncClient(gateway.url, tenant.write, patience=Patience(first_s=0.01)) as sluice:
        await sluice.append("order", new_id(), "was_noted", 1, actor=ADA)
        assert [each.data for each in await taken(sluice.follow(), 1)] == [1]
    assert damaged


async def break_connections(connections: list[Connection]) -> None:
    """As if the network had reset them all."""
    while connections:
        transport = connections.pop()._transport
        if transport is not None and not transport.is_closing():
            transport.get_extra_info("socket").shutdown(2)


async def test_a_page_of_the_feed(sluice: AsyncClient) -> None:
    await sluice.create("order", [("was_noted", 1), ("was_cleared", {}), ("was_noted", 2)], actor=ADA)
    page = await sluice.feed(event_types=["was_noted"], limit=1)
    assert ([each.data for each in page.events], page.caught_up) == ([1], False)
    assert page.events[0].position == page.position
    page = await sluice.feed(after=page.position, event_types=["was_noted"], wait_s=5)
    assert ([each.data for each in page.events], page.caught_up) == ([2], True)
    with pytest.raises(Refused, match="invalid_position"):
        await sluice.feed(after="42")
    with pytest.raises(Refused, match="invalid_position"):
        await anext(sluice.follow(after="42"))


async def test_a_page_of_what_a_query_matches(sluice: AsyncClient) -> None:
    ada, bob = new_id(), new_id()
    for key in (ada, bob, ada):
        await sluice.append("order", key, "was_noted", key, actor=ADA)
    items = [{"types": ["order.was_noted"], "tags": [f"order:{ada}"]}]
    page = await sluice.query(items, limit=1)
    assert ([each.data for each in page.events], page.caught_up) == ([ada], False)
    page = await sluice.query(items, after=page.position)
    assert ([each.data for each in page.events], page.caught_up) == ([ada], True)
    with pytest.raises(Refused, match="unknown_tag"):
        await sluice.query([{"tags": ["ordr:1"]}])


async def test_the_plain_client_does_the_same(gateway: Served, tenant: Account, tmp_path: Path) -> None:
    await asyncio.to_thread(use_plainly, gateway.url, tenant.write, tmp_path)


def use_plainly(url: str, key: str, folder: Path) -> None:
    with Client(url, key) as sluice:
        order = new_id()
        receipt = sluice.append("order", order, "was_named", {"name": "Ada"}, actor=ADA, previous_length=0)
        assert sluice.event(receipt.event_id).data == {"name": "Ada"}
        sluice.append_many("order", order, [("was_noted", 1), ("was_noted", 2)], actor=ADA)
        created = sluice.create("ticket", [("was_opened", {})], actor=ADA)
        assert sluice.length("ticket", created.key) == 1
        assert sluice.state("order", order).data == {"customer": {"name": "Ada"}}
        assert [each.version for each in sluice.events("order", order)] == [1, 2, 3]
        assert len(sluice.feed().events) == 4
        with pytest.raises(Conflict):
            sluice.append("order", order, "was_noted", actor=ADA, previous_length=7)
        saved = PositionFile(folder / "position")
        versions = []
        for event in sluice.follow(saved, types=["order"]):
            versions.append(event.version)
            if event.version == 3:
                break
        assert versions == [1, 2, 3]
        assert saved.load() == sluice.feed(limit=2).position


async def test_a_gateway_that_is_not_there_is_unavailable() -> None:
    with Client("http://127.0.0.1:9", "nobody", patience=Patience(0.05, 0.01)) as sluice:
        with pytest.raises(Unavailable, match=r"can't connect to http://127\.0\.0\.1:9: "):
            await asyncio.to_thread(sluice.length, "order", "global")
        with pytest.raises(NotCommitted, match=r"can't connect to http://127\.0\.0\.1:9: "):
            await asyncio.to_thread(sluice.append, "order", "global", "was_noted", actor=ADA)


async def test_a_follower_of_what_comes_from_now_on_waits_for_a_gateway_that_is_away() -> None:
    async with AsyncClient("http://127.0.0.1:9", "sl_x", patience=Patience(0.05, 0.01)) as away:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await anext(away.follow(after="now"))
