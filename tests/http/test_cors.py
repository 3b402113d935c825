"""Pages of other origins: preflights, and the headers that let a page read an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import asyncpg
import httpx
import pytest

from gateway.config import Config
from tests.support.accounts import Account, open_account
from tests.support.calls import ACTOR, append, new_client, new_id, refused
from tests.support.serving import serving

SHOP = "https://shop.example"
OTHER = {"origin": "https://evil.example"}


@pytest.fixture(scope="module")
async def calling(own_config: Config, own_outbox: asyncpg.Pool) -> AsyncIterator[tuple[str, Account]]:
    origins = frozenset({SHOP, "http://localhost:5173"})
    async with serving(replace(own_config, cors_origins=origins)) as served:
        yield served.url, await open_account(own_outbox)


async def test_a_preflight_needs_no_key(calling: tuple[str, Account]) -> None:
    async with new_client(calling[0], None) as page:
        asked = {"origin": SHOP, "access-control-request-method": "POST"}
        answer = await page.options("/order/global/was_noted", headers=asked)
        assert (answer.status_code, answer.content) == (204, b"")
        assert answer.headers["access-control-allow-origin"] == SHOP
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert {"Authorization", "Content-Type", "Idempotency-Key", "If-Match"} <= set(
            answer.headers["access-control-allow-headers"].split(", ")
        )
        assert "Origin" in answer.headers["vary"]
        assert int(answer.headers["access-control-max-age"]) > 0
        assert "access-control-allow-credentials" not in answer.headers
        refused(await page.options("/order/global", headers={**asked, **OTHER}), 401, "unauthorized")
        refused(await page.options("/order/global", headers={"origin": SHOP}), 401, "unauthorized")


async def test_a_page_may_send_and_read_every_header_of_the_document(calling: tuple[str, Account]) -> None:
    url, account = calling
    async with new_client(url, account.write) as page:
        shared = (await page.get("/_/openapi.json")).json()["components"]
        sent = {each["name"] for each in shared["parameters"].values() if each["in"] == "header"}
        asked = {"origin": SHOP, "access-control-request-method": "POST"}
        answer = await page.options("/order/global/was_noted", headers=asked)
        assert "Sluice-If-Unchanged" in sent
        assert sent - set(answer.headers["access-control-allow-headers"].split(", ")) == set()
        exposed = (await page.get("/_/tenant", headers={"origin": SHOP})).headers[
            "access-control-expose-headers"
        ]
        readable_by_all = {
            "Cache-Control"
        }  # https://fetch.spec.whatwg.org/#cors-safelisted-response-header-name
        assert set(shared["headers"]) - set(exposed.split(", ")) - readable_by_all == set()


async def test_answers_to_an_allowed_origin_may_be_read(calling: tuple[str, Account]) -> None:
    url, account = calling
    async with new_client(url, account.write) as page:
        key = new_id()
        answers = [
            await append(page, "order", key, "was_noted", headers={"origin": SHOP}),
            await page.get(f"/order/{key}", headers={"origin": SHOP}),
            await page.get(f"/order/{key}/nothing/more", headers={"origin": SHOP}),
            await page.get("/_/feed", headers={"origin": SHOP}),
            await page.get("/_/ids/humane", headers={"origin": SHOP}),
        ]
        assert [each.status_code for each in answers] == [201, 200, 404, 200, 200]
        for answer in answers:
            assert answer.headers["access-control-allow-origin"] == SHOP
            exposed = answer.headers["access-control-expose-headers"].split(", ")
            assert {"ETag", "Location", "X-Correlation-Id", "Idempotency-Replayed"} <= set(exposed)
            assert "Origin" in answer.headers.get_list("vary", split_commas=True)
        for headers in (OTHER, {"origin": "null"}):
            answer = await page.get(f"/order/{key}", headers=headers)
            assert answer.status_code == 200
            assert "access-control-allow-origin" not in answer.headers
            assert "Origin" in answer.headers.get_list("vary", split_commas=True)
    async with new_client(url, "sl_wrong") as page:
        answer = await page.get("/order/global", headers={"origin": SHOP})
        refused(answer, 401, "unauthorized")
        assert answer.headers["access-control-allow-origin"] == SHOP


async def test_an_answer_to_no_page_says_that_another_origin_would_change_it(
    calling: tuple[str, Account],
) -> None:
    url, account = calling
    async with new_client(url, account.write) as caller:
        key = new_id()
        event = {"aggregate_type": "order", "key": key, "type": "was_noted", "data": 1}
        for _ in range(2):  # the second time the key is known
            for answer in (
                await append(caller, "order", key, "was_noted"),
                await caller.post("/_/append", json={"events": [event], "metadata": {"actor": ACTOR}}),
                await caller.get(f"/order/{key}"),
                await caller.get(f"/order/{key}/events"),
                await caller.get("/_/feed"),
            ):
                assert set(answer.headers.get_list("vary", split_commas=True)) >= {"authorization", "Origin"}


async def test_a_star_allows_all(own_config: Config, own_outbox: asyncpg.Pool) -> None:
    async with serving(replace(own_config, cors_origins=frozenset({"*"}))) as served:
        account = await open_account(own_outbox)
        async with new_client(served.url, account.read) as page:
            answer = await page.get("/config/global", headers=OTHER)
            assert answer.headers["access-control-allow-origin"] == "*"
            asked = {**OTHER, "access-control-request-method": "DELETE"}
            assert (await page.options("/_/spec", headers=asked)).headers[
                "access-control-allow-origin"
            ] == "*"


async def test_without_the_setting_no_page_may_call(client: httpx.AsyncClient) -> None:
    answer = await client.get("/config/global", headers={"origin": SHOP})
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]
    asked = {"origin": SHOP, "access-control-request-method": "POST"}
    assert "access-control-allow-origin" not in (await client.options("/order", headers=asked)).headers
