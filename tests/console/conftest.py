"""A gateway with its console, a tenant with data, and a browser that is signed in."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import replace

import asyncpg
import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from gateway.config import Config
from tests.http.conftest import database
from tests.support.accounts import Account, open_account
from tests.support.servers import Servers
from tests.support.serving import Served, serving

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "" if CHROMIUM else "Chromium (apt-get install chromium)"
IN_A_BROWSER = ["test_pages.py", "test_live_page.py", "test_night.py"]
collect_ignore = IN_A_BROWSER if MISSING else []
SHOWN_WITHIN_MS = 40_000
"""On a busy machine; Playwright's own 5 s are over there now and then."""
expect.set_options(timeout=SHOWN_WITHIN_MS)

SHOP = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_placed": {
                    "schema": {
                        "type": "object",
                        "required": ["total"],
                        "properties": {
                            "total": {"type": "number", "description": "In the shop's currency."},
                            "note": {"type": "string"},
                            "label": {"type": "string"},
                            "kind": {"enum": ["gift", "own"]},
                            "paid": {"type": "boolean"},
                        },
                    },
                    "handler": {"set": {"target": "total", "value": "$.data.total"}},
                    "tags": ["label:$.data.label"],
                },
                "was_noted": {"schema": True},
                "was_refunded": {
                    "schema": {},
                    "rules": [{"require": {"exists": "@.paid_at"}, "error": "It was never paid."}],
                },
            },
            "list": {"by": ["total"]},
        },
    },
    "agent_types": ["user"],
    "target_types": [],
    "singletons": ["main_till"],
    "subscriptions": {"till": {"target": {"type": "pull"}}},
    "projections": {
        "totals": {
            "on": {
                "order.was_placed": {
                    "key": "$.key",
                    "do": [
                        {"set": {"target": "total", "value": "$.data.total"}},
                        {"set": {"target": "note", "value": "$.data.note"}},
                    ],
                }
            },
            "by": ["total"],
        }
    },
}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if MISSING:
        terminalreporter.write_line(
            f"NOT RUN: tests/console/test_pages.py and test_live_page.py, which need {MISSING}", red=True
        )


@pytest.fixture(scope="package")
async def config(servers: Servers, template: str) -> AsyncIterator[Config]:
    async with database(servers, template) as config:
        yield replace(config, console=True, allow_private_targets=True)


@pytest.fixture(scope="package")
async def gateway(config: Config) -> AsyncIterator[Served]:
    async with serving(config) as served:
        yield served


@pytest.fixture(scope="package")
async def pool(config: Config) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(config.postgres_url, min_size=1, max_size=2) as pool:
        yield pool


@pytest.fixture
async def shop(pool: asyncpg.Pool, gateway: Served) -> Account:
    return await open_account(pool, SHOP)


@pytest.fixture(scope="package")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-lcd-text"]
        )
        yield browser
        await browser.close()


async def signed_in(context: BrowserContext, served: Served, key: str) -> Page:
    page = await context.new_page()
    await page.goto(f"{served.url}/_/console/sign-in")
    await page.get_by_label("API key").fill(key)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url("**/overview")
    return page


@pytest.fixture
async def admin(browser: Browser, gateway: Served, shop: Account) -> AsyncIterator[Page]:
    async with await browser.new_context() as context:
        yield await signed_in(context, gateway, shop.admin)


@pytest.fixture
async def reader(browser: Browser, gateway: Served, shop: Account) -> AsyncIterator[Page]:
    async with await browser.new_context() as context:
        yield await signed_in(context, gateway, shop.read)
