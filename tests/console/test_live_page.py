"""A page of an application in a browser, of another origin than the gateway's: it shows a filtered list as it
changes, by EventSource with a ticket that its server got."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import asyncpg
import httpx
import pytest
from playwright.async_api import Browser, Page, expect

from gateway.config import Config
from tests.support.accounts import Account, open_account
from tests.support.calls import appended, new_client, new_id
from tests.support.serving import Served, serving

PATH = "/order?filter[status]=open"
SHOP = {
    "aggregate_types": {
        "order": {
            "events": {"was_placed": {"schema": {}}, "was_closed": {"schema": {}}},
            "list": {"by": ["status"]},
        },
    },
    "agent_types": ["user"],
}
PAGE = """<!doctype html><title>Shop</title><p id=state><ul id=orders></ul><script>
const show = (address) => {
  const source = new EventSource(address), list = document.getElementById("orders");
  const row = (key) => list.querySelector(`[data-key="${key}"]`);
  source.addEventListener("upsert", (event) => {
    const {key, data} = JSON.parse(event.data);
    const item = row(key) ?? list.appendChild(document.createElement("li"));
    item.dataset.key = key;
    item.textContent = data.note;
  });
  source.addEventListener("delete", (event) => row(JSON.parse(event.data).key)?.remove());
  const state = (text) => () => { document.getElementById("state").textContent = text; };
  source.addEventListener("open", state("open"));
  source.addEventListener("error", state("refused"));
};
</script>"""


@pytest.fixture(scope="module")
async def origin() -> AsyncIterator[str]:
    """Of a server that has the page and nothing else."""
    body = PAGE.encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"{head}connection: close\r\n\r\n".encode() + body)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture(scope="module")
async def open_gateway(config: Config, origin: str) -> AsyncIterator[Served]:
    """Which lets pages of that origin read its answers."""
    async with serving(replace(config, cors_origins=frozenset((origin,)))) as served:
        yield served


@pytest.fixture
async def page(browser: Browser, origin: str) -> AsyncIterator[Page]:
    async with await browser.new_context() as context:
        page = await context.new_page()
        await page.goto(origin)
        yield page


async def ticketed(client: httpx.AsyncClient, served: Served) -> str:
    """As the application's server does it for a page."""
    response = await client.post("/_/tickets", json={"path": PATH})
    return f"{served.url}{PATH}&ticket={response.json()['ticket']}"


async def test_a_filtered_list_changes_in_a_page_as_events_come(
    open_gateway: Served, pool: asyncpg.Pool, page: Page
) -> None:
    account: Account = await open_account(pool, SHOP)
    async with new_client(open_gateway.url, account.admin) as client:
        first, second = new_id(), new_id()
        await appended(client, "order", first, "was_placed", {"status": "open", "note": "first"})
        response = await client.get(PATH)
        assert response.status_code == 200, response.text
        await page.evaluate("show", await ticketed(client, open_gateway))
        await expect(page.locator("#state")).to_have_text("open")
        items = page.locator("#orders li")
        await expect(items).to_have_text(["first"])
        await appended(client, "order", second, "was_placed", {"status": "open", "note": "second"})
        await expect(items).to_have_text(["first", "second"])
        await appended(client, "order", first, "was_closed", {"status": "closed"})
        await expect(items).to_have_text(["second"])
        await appended(client, "order", second, "was_placed", {"note": "changed"})
        await expect(items).to_have_text(["changed"])


async def test_a_page_of_an_origin_that_is_not_listed_sees_nothing(
    gateway: Served, pool: asyncpg.Pool, page: Page
) -> None:
    account = await open_account(pool, SHOP)
    async with new_client(gateway.url, account.admin) as client:
        await appended(client, "order", new_id(), "was_placed", {"status": "open", "note": "first"})
        assert (await client.get(PATH)).status_code == 200
        await page.evaluate("show", await ticketed(client, gateway))
    await expect(page.locator("#state")).to_have_text("refused")
