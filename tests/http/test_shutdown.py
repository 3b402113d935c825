"""A gateway that stops finishes what it accepted; clients that go, or never end, harm no others."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from gateway.catalog.imports import Import
from gateway.config import Config
from gateway.http.api.deliveries import Deliveries
from gateway.inbound.replayer import Replayer
from tests.http.raw import connected, request
from tests.support.accounts import Account
from tests.support.calls import (
    append,
    appended,
    bulk_line,
    events_of,
    length_of,
    lines,
    new_client,
    new_id,
    told_in,
)
from tests.support.serving import Served, child_serving, serving

GOOD = b'{"data":1,"metadata":{"actor":{"type":"user","id":"global"}}}'


async def test_sigterm_under_load_loses_nothing(
    own_config: Config, own_tenant: Account, own_outbox: asyncpg.Pool, tmp_path: Path
) -> None:
    """Whatever was answered by 201 is in Postgres, and what was not accepted is not half there."""
    receipts: list[dict[str, Any]] = []
    broken = 0
    async with child_serving(own_config.postgres_url, own_config.redis_url, tmp_path) as child:

        async def write() -> None:
            nonlocal broken
            async with new_client(child.served.url, own_tenant.write) as client:
                key = new_id()
                while True:
                    try:
                        response = await append(client, "order", key, "was_noted", 1)
                    except httpx.TransportError:
                        broken += 1
                        return
                    assert response.status_code in (201, 503), response.text
                    if response.status_code == 201:
                        receipts.append(response.json())

        writers = [asyncio.create_task(write()) for _ in range(12)]
        async with asyncio.timeout(60):
            while len(receipts) < 200:
                await asyncio.sleep(0.01)
        child.terminate()
        code = await child.ended()
        await asyncio.gather(*writers)
        log = child.log
    assert code == 0, log
    assert "Traceback" not in log, log
    assert broken == 12
    found = await own_outbox.fetch(
        "SELECT id, version, aggregate_id FROM outbox WHERE tenant = $1 ORDER BY aggregate_id, version",
        UUID(own_tenant.id),
    )
    stored = {str(row["id"]): row["version"] for row in found}
    assert {each["event_id"]: each["length"] for each in receipts}.items() <= stored.items()
    # At most the one append that each writer had under way was committed without its being told.
    assert len(stored) <= len(receipts) + 12


async def test_what_is_under_way_at_sigterm_is_answered(
    own_config: Config, own_tenant: Account, own_outbox: asyncpg.Pool, tmp_path: Path
) -> None:
    """A request whose body has begun, and a bulk request that continues for a while."""
    key = new_id()
    async with child_serving(own_config.postgres_url, own_config.redis_url, tmp_path) as child:
        data = request("POST", f"/order/{key}/was_noted", own_tenant.write, GOOD)
        head = request("POST", "/_/bulk", own_tenant.write, headers=[(b"Transfer-Encoding", b"chunked")])
        head = head.replace(b"\r\n\r\n", b"\r\nContent-Type: application/x-ndjson\r\n\r\n")
        async with connected(child.served.port) as single, connected(child.served.port) as many:
            await single.send(data[:-5])
            line = lines(bulk_line(key, 1))
            await many.send(head + b"%x\r\n%b\r\n" % (len(line), line))
            while not (await many.line()).startswith(b'{"line":1,'):
                pass
            child.terminate()
            await until_refused(child.served)
            await single.send(data[-5:])
            answer = await single.answer(b"POST")
            assert answer is not None
            assert (answer.status, answer.headers["connection"]) == (201, "close")
            await many.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(line), line))
            rest = await many.rest()
            assert b'{"line":2,"status":201,' in rest
            assert rest.endswith(b"0\r\n\r\n")
            assert await child.ended() == 0
        assert "Traceback" not in child.log
    count = await own_outbox.fetchval("SELECT count(*) FROM outbox WHERE aggregate_id = $1", key)
    assert count == 3


async def until_refused(served: Served) -> None:
    async with asyncio.timeout(40):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", served.port)
            except OSError:
                return
            writer.transport.abort()
            await asyncio.sleep(0.02)


async def test_a_stop_that_waits_no_longer_still_answers(own_config: Config, own_tenant: Account) -> None:
    """A body that never ends holds the stop up to `shutdown_grace_s`, and no longer."""
    async with asyncio.timeout(40), contextlib.AsyncExitStack() as open_until_then:
        async with serving(replace(own_config, shutdown_grace_s=1)) as served:
            connection = await open_until_then.enter_async_context(connected(served.port))
            await connection.send(request("POST", "/order/global/was_noted", own_tenant.write, GOOD)[:-5])
        answer = await connection.answer(b"POST")
        assert answer is not None
        assert (answer.status, answer.code) == (503, "not_committed")


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/_/import?type=order&event=was_noted", b'{"a":1}', b"application/x-ndjson"),
        ("/_/deliveries/replay", b'{"ids":["a0000000-0000-4000-a000-000000000001"]}', b"application/json"),
    ],
    ids=["import", "replay"],
)
async def test_what_may_have_been_appended_is_not_said_never_to_appear(
    own_config: Config,
    own_tenant: Account,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    body: bytes,
    kind: bytes,
) -> None:
    """Of a request of many appends some are committed when the gateway waits no longer for it."""
    under_way = asyncio.Event()

    async def known(_deliveries: Deliveries, _request: object, ids: list[str]) -> list[bytes]:
        return [UUID(each).bytes for each in ids]

    async def hanging(*_: object) -> None:
        under_way.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Import, "appended", hanging)
    monkeypatch.setattr(Deliveries, "_known", known)
    monkeypatch.setattr(Replayer, "replay", lambda *_, again: hanging())
    async with asyncio.timeout(40), contextlib.AsyncExitStack() as open_until_then:
        async with serving(replace(own_config, shutdown_grace_s=1)) as served:
            connection = await open_until_then.enter_async_context(connected(served.port))
            await connection.send(request("POST", path, own_tenant.admin, body, content_type=kind))
            await under_way.wait()
        answer = await connection.answer(b"POST")
        assert answer is not None
        assert (answer.status, answer.code) == (504, "outcome_unknown")


async def test_a_client_that_goes_in_the_middle_of_its_body_leaves_nothing_behind(
    gateway: Served, client: httpx.AsyncClient, tenant: Account
) -> None:
    key = new_id()
    data = request("POST", f"/order/{key}/was_noted", tenant.write, GOOD)
    for end in (10, -1, -20, -len(GOOD)):
        async with connected(gateway.port) as connection:
            await connection.send(data[:end])
    for chunk in (b'5\r\n{"dat', b'5\r\n{"dat\r\n', b"zz"):
        head = request(
            "POST",
            f"/order/{key}/was_noted",
            tenant.write,
            headers=[(b"Transfer-Encoding", b"chunked"), (b"Content-Type", b"application/json")],
        )
        async with connected(gateway.port) as connection:
            await connection.send(head + chunk)
    await appended(client, "order", key, "was_noted", 1)
    assert await length_of(client, key) == 1


async def test_an_append_whose_client_has_gone_is_written_or_not_and_never_twice(
    gateway: Served, client: httpx.AsyncClient, tenant: Account
) -> None:
    key = new_id()
    for n in range(20):
        body = json.dumps({"data": n, "metadata": {"actor": {"type": "user", "id": "global"}}}).encode()
        headers = [(b"Idempotency-Key", b"gone-%d" % n)]
        async with connected(gateway.port) as connection:
            await connection.send(request("POST", f"/order/{key}/was_noted", tenant.write, body, headers))
        async with connected(gateway.port) as connection:
            answer = await connection.ask(
                request("POST", f"/order/{key}/was_noted", tenant.write, body, headers)
            )
            assert answer is not None
            assert answer.status == 201
    assert [event["data"] for event in await events_of(client, "order", key)] == list(range(20))


@pytest.fixture
async def impatient(own_config: Config) -> Any:
    async with serving(replace(own_config, body_timeout_s=0.4, shutdown_grace_s=2)) as served:
        yield served


async def test_a_body_that_does_not_come_in_time_is_refused(impatient: Served, own_tenant: Account) -> None:
    for path, content_type in (
        ("/order/global/was_noted", b"application/json"),
        ("/_/ids/check", b"application/json"),
    ):
        data = request("POST", path, own_tenant.write, GOOD, content_type=content_type)
        for end in (-len(GOOD), -5):
            async with connected(impatient.port) as connection:
                await connection.send(data[:end])
                answer = await connection.answer(b"POST")
                assert answer is not None
                assert (answer.status, answer.code) == (408, "bad_request")
                assert answer.headers["connection"] == "close"
                assert await connection.rest() == b""


async def test_a_body_that_drips_is_refused_too(impatient: Served, own_tenant: Account) -> None:
    data = request("POST", "/order/global/was_noted", own_tenant.write, GOOD)
    async with connected(impatient.port) as connection:
        await connection.send(data[: -len(GOOD)])
        answering = asyncio.create_task(connection.answer(b"POST"))
        for byte in GOOD[:-1]:
            if answering.done():
                break
            with contextlib.suppress(ConnectionError):
                await connection.send(bytes([byte]))
            await asyncio.wait((answering,), timeout=0.05)
        answer = await answering
    assert answer is not None
    assert answer.status == 408


@pytest.fixture
async def patient(own_config: Config) -> Any:
    """So that the machine may stand still in the middle of a pause."""
    async with serving(replace(own_config, body_timeout_s=3.0, shutdown_grace_s=2)) as served:
        yield served


async def test_a_bulk_request_may_pause_but_not_stop(patient: Served, own_tenant: Account) -> None:
    key = new_id()
    sent = lines(*[bulk_line(key, n) for n in range(4)])
    data = request("POST", "/_/bulk", own_tenant.write, sent, content_type=b"application/x-ndjson")
    async with connected(patient.port) as connection:
        at = data.index(sent)
        await connection.send(data[:at])
        answering = asyncio.create_task(connection.answer(b"POST"))
        for start in range(0, len(sent), len(sent) // 4):
            await connection.send(data[at + start : at + start + len(sent) // 4])
            await asyncio.wait((answering,), timeout=0.8)
        answer = await answering
        assert answer is not None
        assert len(told_in(answer.body)) == 4
    async with connected(patient.port) as connection:
        await connection.send(data[:-10])
        assert b'{"line":3' in await connection.rest()
