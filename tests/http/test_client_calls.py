"""What the Python client can do beside an append and a read: bulk, names, receipts, batches, claims."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NewType

import asyncpg
import pytest
import uvloop
from uuid_utils import uuid7

from gateway.client import (
    Actor,
    AsyncClient,
    BulkAppend,
    Client,
    Event,
    FeedPage,
    NewEvent,
    Patience,
    PositionFile,
    Receipt,
    Refused,
    SluiceError,
    Source,
    Unavailable,
    bulk,
)
from gateway.client.async_pool import Pool
from gateway.client.retry import Answer, Lost, Request
from tests.http.test_client import make_unreliable
from tests.http.test_tenants import operators_key
from tests.support.accounts import SPEC, Account, open_account
from tests.support.calls import new_id
from tests.support.certificates import certificate
from tests.support.serving import Child, Served

ADA = Actor("user", "global")
NAMED = {
    **SPEC,
    "public_ids": {"key": "ORD", "types": ["order"]},
    "hash_ids": {"prefix": "tk", "types": ["ticket"]},
    "subscriptions": {"workers": {"start": "beginning", "target": {"type": "pull"}}},
}


@pytest.fixture
async def account(outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox, NAMED)


@pytest.fixture
async def sluice(gateway: Served, account: Account) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(gateway.url, account.write) as client:
        yield client


async def test_a_new_aggregate_says_its_names_and_is_found_by_them(sluice: AsyncClient) -> None:
    created = await sluice.create("order", [("was_noted", 1)], actor=ADA, wait=True)
    assert created.aliases == ("ORD-1",)
    resolved = await sluice.resolve("ord-1")
    assert (resolved.aggregate_type, resolved.key, resolved.alias) == ("order", created.key, "ORD-1")
    assert await sluice.aliases("order", "@ORD-1") == ("ORD-1",)
    with pytest.raises(Refused, match="unknown_alias"):
        await sluice.resolve("@ORD-2")


async def test_reads_may_have_aliases_in_place_of_keys(sluice: AsyncClient) -> None:
    key = (await sluice.create("order", [("was_noted", 1)], actor=ADA, wait=True)).key
    event_id = (await sluice.append("order", key, "was_noted", 2, actor=ADA)).event_id
    for keyless, shown in ((False, key), (True, "")):
        state = await sluice.state("order", "@ord-1", aliases=True, keyless=keyless)
        page = await sluice.feed(types=["order"], aliases=True, keyless=keyless)
        followed = sluice.follow(types=["order"], aliases=True, keyless=keyless)
        read = [
            state,
            *page.events,
            *[each async for each in sluice.events("order", "@ORD-1", aliases=True, keyless=keyless)],
            await sluice.event(event_id, aliases=True, keyless=keyless),
            await anext(followed),
        ]
        await followed.aclose()
        assert [(each.key, each.aliases) for each in read] == [(shown, ("ORD-1",))] * 7
    assert (await sluice.state("order", key)).aliases == ()


OrderId = NewType("OrderId", str)


async def test_ids_of_foreign_systems_children_and_hashes_are_told(
    sluice: AsyncClient, account: Account
) -> None:
    unit = Source("xliff", "tu/1", "a b.xlf")
    with pytest.raises(Refused, match="not_found"):
        await sluice.stands_for(unit)
    (key,) = await sluice.keys_of([unit], aggregate_type="order", mint=True)
    assert key is not None
    assert (await sluice.stands_for(unit)).key == key
    order = OrderId(key)
    assert await sluice.sources_of(order) == (unit,)
    other = Source("jira", 7, "all")
    assert (await sluice.link(other, "order", order)).key == order
    assert await sluice.keys_of([other, Source("jira", "8", "all")]) == (order, None)
    found = await sluice.hashes({"text": "Hello"}, {"name": "greeting"})
    assert len(found.content) == len(found.record or "") == 64
    assert len(set(await sluice.new_ids("base62", 3))) == 3
    assert (await sluice.tenant()).id == str(account.id)
    parent = await sluice.create("ticket", [("was_opened", {})], actor=ADA, wait=True)
    child = await sluice.create("ticket", [("was_opened", {})], actor=ADA, parent=parent.key)
    assert [each.key async for each in sluice.children("ticket", parent.key)] == [child.key]


async def test_a_child_is_created_below_its_parent(sluice: AsyncClient) -> None:
    parent = await sluice.create("ticket", [("was_opened", {})], actor=ADA, wait=True)
    (name,) = parent.aliases
    child = await sluice.create("ticket", [("was_opened", {})], actor=ADA, parent=f"@{name}")
    assert f"{name}.1" in child.aliases
    with pytest.raises(TypeError, match="unknown option 'parent'"):
        await sluice.append("ticket", parent.key, "was_opened", {}, actor=ADA, parent=parent.key)  # type: ignore[call-arg]


async def test_a_state_is_read_as_it_was_at_a_time(sluice: AsyncClient) -> None:
    created = await sluice.create("order", [("was_named", {"name": "Ada"})], actor=ADA)
    now = datetime.now(UTC)
    assert (await sluice.state("order", created.key, at=now.timestamp() + 1)).length == 1
    for before in (now.replace(year=2001), "2001-01-01T00:00:00Z", 0):
        with pytest.raises(Refused, match="not_found"):
            await sluice.state("order", created.key, at=before)
    with pytest.raises(ValueError, match="no time zone"):
        await sluice.state("order", created.key, at=datetime(2001, 1, 1))


async def test_a_program_that_comes_back_learns_what_it_did(sluice: AsyncClient) -> None:
    done = await sluice.create("order", [("was_noted", 1)], actor=ADA, idempotency_key="once")
    for found in (await sluice.receipt(idempotency_key="once"), await sluice.receipt(event_id=done.event_id)):
        assert isinstance(found, Receipt)
        assert (found.key, found.length, found.event_ids) == (done.key, 1, done.event_ids)
        assert found.position == (await sluice.feed()).events[-1].position
    assert await sluice.receipt(idempotency_key="never") is None
    several = await sluice.append_all(
        [NewEvent("order", "was_noted", 1, key=done.key)], actor=ADA, idempotency_key="all"
    )
    assert await sluice.receipt(idempotency_key="all") == several
    with pytest.raises(TypeError, match="by idempotency_key or by event_id"):
        await sluice.receipt()


def lines_of(key: str, count: int) -> list[BulkAppend]:
    return [BulkAppend("order", key, "was_noted", n, ADA) for n in range(count)]


async def test_many_are_appended_each_for_itself_and_in_their_order(
    sluice: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "LINES_MAX", 9)
    key = new_id()
    bad = BulkAppend("order", key, "was_paid", None, ADA)
    outcomes = [each async for each in sluice.bulk([*lines_of(key, 25), bad, *lines_of(key, 1)])]
    assert [each.length for each in outcomes if isinstance(each, Receipt)] == list(range(1, 27))
    refused = outcomes[25]
    assert isinstance(refused, Refused) and refused.code == "unknown_event_type"
    assert [each.data async for each in sluice.events("order", key)] == [*range(25), 0]


async def test_lines_whose_answers_are_lost_are_appended_once(gateway: Served, account: Account) -> None:
    async with AsyncClient(gateway.url, account.write, patience=Patience(first_s=0.01)) as sluice:
        make_unreliable(sluice, "answer", "request", "answer")
        key = new_id()
        outcomes = [each async for each in sluice.bulk(lines_of(key, 20))]
        assert [isinstance(each, Receipt) and each.replayed for each in outcomes] == [True] * 20
        assert await sluice.length("order", key) == 20


async def test_lines_that_are_given_up_say_what_is_known(gateway: Served, account: Account) -> None:
    async with AsyncClient(gateway.url, account.write, patience=Patience(0.05, 0.01)) as sluice:
        for loss, known in (("answer", "OutcomeUnknown"), ("request", "NotCommitted")):
            make_unreliable(sluice, *[loss] * 1000)
            outcomes = [each async for each in sluice.bulk(lines_of(new_id(), 2))]
            assert [type(each).__name__ for each in outcomes] == [known] * 2


async def test_a_feed_is_followed_in_batches_that_say_when_they_are_caught_up(
    sluice: AsyncClient, tmp_path: Path
) -> None:
    saved = PositionFile(tmp_path / "position")
    await sluice.create("order", [("was_noted", n) for n in range(5)], actor=ADA)

    async def batches(**options: Any) -> list[FeedPage]:
        found = sluice.follow_batches(saved, until_caught_up=True, **options)
        return [batch async for batch in found]

    found = await batches(limit=3)
    assert [[each.data for each in batch.events] for batch in found] == [[0, 1, 2], [3, 4]]
    assert [batch.caught_up for batch in found] == [False, True]
    assert saved.load() == found[-1].position
    (nothing,) = await batches()
    assert (nothing.events, nothing.caught_up) == ((), True)


async def test_a_batch_comes_as_soon_as_something_is_committed(sluice: AsyncClient) -> None:
    following = sluice.follow_batches(after="now")
    assert (await anext(following)).events == ()
    next_one = asyncio.ensure_future(anext(following))
    await sluice.create("order", [("was_noted", 7)], actor=ADA)
    assert [each.data for each in (await asyncio.wait_for(next_one, 20)).events] == [7]
    await following.aclose()


async def test_what_is_claimed_is_acked(sluice: AsyncClient) -> None:
    created = await sluice.create("order", [("was_noted", 1), ("was_noted", 2)], actor=ADA)
    claimed = await sluice.claim("workers", wait_s=10, lease_s=60)
    assert [(each.key, each.data) for each in claimed.events] == [(created.key, 1), (created.key, 2)]
    await sluice.ack("workers", ids=[claimed.events[0].id])
    await sluice.ack("workers", claimed)
    nothing = await sluice.claim("workers")
    assert (nothing.id, nothing.events) == (None, ())
    with pytest.raises(TypeError, match="nothing is acked"):
        await sluice.ack("workers", nothing)


async def test_repeated_attempts_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sluice.client"):
        async with AsyncClient("http://127.0.0.1:9", "sl_x", patience=Patience(0.1, 0.01)) as away:
            with pytest.raises(SluiceError):
                await away.length("order", "global")
    (record,) = caplog.records
    said = record.getMessage()
    assert said.startswith("GET /order/global/length: can't connect to http://127.0.0.1:9: ")
    assert "; repeated in 0.0" in said
    assert "sl_x" not in said


async def test_the_plain_client_does_it_too(gateway: Served, account: Account) -> None:
    def use() -> None:
        with Client(gateway.url, account.write) as sluice:
            created = sluice.create("order", [("was_noted", 1)], actor=ADA, wait=True)
            assert sluice.resolve(created.aliases[0]).key == created.key
            assert [type(each) for each in sluice.bulk(lines_of(created.key, 2))] == [Receipt, Receipt]
            (batch,) = sluice.follow_batches(until_caught_up=True)
            assert len(batch.events) == 3
            claimed = sluice.claim("workers", wait_s=10)
            sluice.ack("workers", claimed)

    await asyncio.to_thread(use)


async def test_an_append_by_fifty_tasks_costs_at_most_250_microseconds(
    child: Child, tenant: Account, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(tenant.write)
    command = ["-m", "tests.bench.client", "--url", child.served.url, "--key-file", str(tmp_path / "key")]
    limited = [*command, "--tasks", "50", "--appends", "1500", "--limit-us", "250"]
    ran = await asyncio.to_thread(subprocess.run, [sys.executable, *limited], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


async def test_the_client_runs_on_uvloop(gateway: Served, account: Account) -> None:
    async def use() -> list[Any]:
        async with AsyncClient(gateway.url, account.write) as sluice:
            await asyncio.gather(*[sluice.create("order", [("was_noted", n)], actor=ADA) for n in range(20)])
            return [each.data async for each in _first(sluice.follow(), 20)]

    seen = await asyncio.to_thread(uvloop.run, use())
    assert sorted(seen) == list(range(20))


async def _first(events: AsyncGenerator[Event, None], count: int) -> AsyncIterator[Event]:
    async with contextlib.aclosing(events) as closing:
        async for event in closing:
            yield event
            count -= 1
            if not count:
                return


async def test_https_verifies_the_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem, key = certificate("localhost", tmp_path)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(pem, key)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n{"ok": true, "length": 7}')
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving) as server:
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        short = Patience(0.05, 0.01)

        def plainly() -> int:
            with Client(url, "sl_x", patience=short) as client:
                return client.length("order", "global")

        async with AsyncClient(url, "sl_x", patience=short) as stranger:
            with pytest.raises(Unavailable, match="certificate verify failed"):
                await stranger.length("order", "global")
        with pytest.raises(Unavailable, match="certificate verify failed"):
            await asyncio.to_thread(plainly)
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        async with AsyncClient(url, "sl_x") as trusting:
            assert await trusting.length("order", "global") == 7
        assert await asyncio.to_thread(plainly) == 7


class Died(BaseException):
    """The program ends here, as by SIGKILL."""


class Mortal(Pool):
    """The real connections, until the program dies: before a request is sent, or its answer is seen."""

    steps = 0
    dies_at = -1

    async def exchange(self, request: Request) -> Answer | Lost:
        self._step()
        answer = await super().exchange(request)
        self._step()
        return answer

    def _step(self) -> None:
        if self.steps == self.dies_at:
            raise Died
        self.steps += 1


async def shop(gateway: Served, key: str, order: str, dies_at: int) -> list[Receipt]:
    """A life of a program: it places an order, decides on its state, names it, each under a derived key."""
    async with AsyncClient(gateway.url, key) as sluice:
        sluice._pool.__class__ = Mortal
        sluice._pool.dies_at = dies_at  # type: ignore[attr-defined]
        receipts = [
            await sluice.append("order", order, "was_placed", {}, actor=ADA, idempotency_key=f"{order}:place")
        ]
        for step in ("name", "note"):
            intention = f"{order}:{step}"
            done = await sluice.receipt(idempotency_key=intention)
            if not isinstance(done, Receipt):
                length = (await sluice.state("order", order)).length
                done = await sluice.append(
                    *("order", order, f"was_{step}d"), {"name": "Ada"},
                    actor=ADA, previous_length=length, idempotency_key=intention,
                )  # fmt: skip
            receipts.append(done)
        return receipts


async def test_a_program_that_dies_at_any_step_ends_with_the_same_receipts(
    gateway: Served, account: Account
) -> None:
    lives = 0
    for dies_at in range(100):
        order = new_id()
        try:
            await shop(gateway, account.write, order, dies_at)
        except Died:
            lives += 1
        else:
            break
        receipts = await shop(gateway, account.write, order, -1)
        async with AsyncClient(gateway.url, account.read) as reader:
            events = [each async for each in reader.events("order", order)]
        assert [each.type for each in events] == ["was_placed", "was_named", "was_noted"]
        assert [each.event_id for each in receipts] == [each.id for each in events]
        assert [each.length for each in receipts] == [1, 2, 3]
    assert lives >= 14, "two steps for each of seven requests"


async def test_a_provisioner_makes_tenants_and_ends_them(gateway: Served, outbox: asyncpg.Pool) -> None:
    tenant_id, name = str(uuid7()), f"theirs-{new_id()[:8]}"
    async with AsyncClient(gateway.url, await operators_key(outbox)) as operator:
        made = await operator.provision(tenant_id, name)
        assert (made.id, made.name, made.status) == (tenant_id, name, "active")
        assert made.key is not None
        async with AsyncClient(gateway.url, made.key) as theirs:
            assert (await theirs.tenant()).id == tenant_id
        assert (await operator.provision(tenant_id, name)).key is None
        assert (await operator.suspend(tenant_id)).status == "suspended"
        assert (await operator.resume(tenant_id)).status == "active"
        assert tenant_id in [each.id async for each in operator.tenants()]
        assert (await operator.delete(tenant_id)).status == "deleting"
        assert (await operator.provisioned(tenant_id)).id == tenant_id


async def test_a_claim_may_have_aliases_in_place_of_keys(sluice: AsyncClient) -> None:
    created = await sluice.create("order", [("was_noted", 1)], actor=ADA, wait=True)
    claimed = await sluice.claim("workers", wait_s=10, lease_s=0.01, keyless=True)
    assert [(each.key, each.aliases) for each in claimed.events] == [("", ("ORD-1",))]
    again = await sluice.claim("workers", wait_s=10, aliases=True)
    assert [(each.key, each.aliases) for each in again.events] == [(created.key, ("ORD-1",))]
