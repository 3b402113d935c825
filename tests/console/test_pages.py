"""The console in a real browser: what each page shows and does, with a `read` and an `admin` key."""

from __future__ import annotations

import json
import logging
import os
from functools import partial
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

import asyncpg
import pytest
from playwright.async_api import Browser, Page, expect

from tests.console.conftest import SHOP, signed_in
from tests.console.night import SPEC as NIGHT
from tests.console.night import all_broken, break_something
from tests.http.webhooks import open_hooks, to
from tests.relay.receivers import SECRET, Answer, web_receiver
from tests.support.accounts import Account, open_account
from tests.support.calls import appended, batch, new_client, new_id, until
from tests.support.serving import Served

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
HOSTILE = '<script>document.title="owned"</script><img src=x onerror=alert(1)>" \u202eevil\u202c'
DOCS = Path(__file__).parents[2] / "docs"
PICTURE_BYTES_MAX = 60_000
PAGES = (
    "overview",
    "find",
    "aggregates",
    "aggregates/order",
    "feed",
    "spec",
    "projections",
    "projections/totals",
    "projections/list:order",
    "webhooks",
    "out",
    "out/till",
    "schedules",
    "sagas",
    "keys",
)


async def order(served: Served, shop: Account, *totals: float, note: str = "", label: str = "") -> str:
    key = new_id()
    async with new_client(served.url, shop.write) as client:
        for total in totals:
            await appended(client, "order", key, "was_placed", {"total": total, "note": note, "label": label})
    return key


async def every_page(served: Served, shop: Account) -> list[str]:
    """Of a tenant with an order, an event of it, and a row of the projection."""
    key = await order(served, shop, 1, 2, note=HOSTILE)
    async with new_client(served.url, shop.read) as client:
        event = (await client.get(f"/order/{key}/events/1")).json()["event"]["id"]
        row = f"/_/projections/totals/{key}"

        async def folded() -> bool:
            return (await client.get(row)).status_code == 200

        await until(folded)
    of_order = f"aggregates/order/{key}"
    return [*PAGES, of_order, f"{of_order}/append", f"events/{event}", f"out/till/deliveries/{event}"]


def at(served: Served, path: str) -> str:
    return f"{served.url}/_/console/{path}"


async def findings(page: Page, *rules: str) -> list[str]:
    """What axe objects to, by all of its rules (that of WCAG 2.2, which it leaves out, too) or by these."""
    await page.evaluate(f"() => {{ {AXE}; }}") if not await page.evaluate("() => !!window.axe") else None
    options = {"runOnly": rules} if rules else {"rules": {"target-size": {"enabled": True}}}
    found = await page.evaluate("(options) => axe.run(options).then(result => result.violations)", options)
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found]


async def test_a_wrong_key_opens_nothing_and_says_so(browser: Browser, gateway: Served) -> None:
    async with await browser.new_context() as context:
        page = await context.new_page()
        await page.goto(at(gateway, "overview"))
        await expect(page).to_have_url(at(gateway, "sign-in"))
        await page.get_by_label("API key").fill("sluice_no_key")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_have_text("This key opens nothing.")


async def test_an_aggregate_is_found_by_its_key_and_shown_at_each_version(
    admin: Page, gateway: Served, shop: Account
) -> None:
    key = await order(gateway, shop, 1, 2, 3)
    await admin.get_by_role("search").get_by_label("Find anything").fill(key)
    await admin.get_by_role("button", name="Find").click()
    await expect(admin.get_by_role("heading", level=1)).to_contain_text(key)
    await expect(admin.locator("section pre").first).to_contain_text('"total": 3')
    await admin.get_by_role("link", name="Version before").click()
    await expect(admin.get_by_role("heading", name="State at version 2")).to_be_visible()
    await expect(admin.locator(".events .here")).to_contain_text("was_placed")
    await expect(admin.locator(".diff .more")).to_contain_text('"total": 2')


async def test_an_event_is_appended_by_a_form_of_its_schema(
    admin: Page, gateway: Served, shop: Account
) -> None:
    key = await order(gateway, shop, 1)
    await admin.goto(at(gateway, f"aggregates/order/{key}/append?event_type=was_placed"))
    await admin.get_by_label("total *").fill("not a number")
    await admin.get_by_label("Id", exact=True).fill(new_id())
    await admin.get_by_role("button", name="Append was_placed").click()
    await expect(admin.get_by_role("alert")).to_contain_text("total")
    await admin.get_by_label("total *").fill("12.5")
    await admin.get_by_role("button", name="Append was_placed").click()
    await expect(admin.locator("section pre").first).to_contain_text('"total": 12.5')


async def test_a_read_key_sees_and_acts_on_nothing(reader: Page, gateway: Served, shop: Account) -> None:
    key = await order(gateway, shop, 1)
    await reader.goto(at(gateway, f"aggregates/order/{key}"))
    await expect(reader.get_by_role("link", name="Append an event")).to_have_count(0)
    for path in await every_page(gateway, shop):
        answer = await reader.goto(at(gateway, path))
        assert answer is not None and answer.status in (200, 403), path
        await expect(reader.get_by_role("heading", level=1)).to_be_visible()
        if not path.endswith("/append"):  # the API says what the key may not, as to any client
            await expect(reader.locator("main form[method=post]")).to_have_count(0)


async def test_a_spec_is_deployed_and_its_faults_are_shown_at_their_places(
    admin: Page, gateway: Served
) -> None:
    await admin.goto(at(gateway, "spec"))
    broken = {**SHOP, "agent_types": ["Not A Name"]}
    await admin.locator("textarea").fill(json.dumps(broken))
    await admin.get_by_role("button", name="Deploy").click()
    await expect(admin.get_by_role("alert")).to_contain_text("/agent_types/0")
    await admin.locator("textarea").fill(json.dumps({**SHOP, "agent_types": ["user", "robot"]}))
    await admin.get_by_role("button", name="Deploy").click()
    await expect(admin.get_by_role("heading", level=1)).to_have_text("Spec, revision 2")


async def test_a_spec_is_filled_from_a_file(admin: Page, gateway: Served) -> None:
    await admin.goto(at(gateway, "spec"))
    body = json.dumps({**SHOP, "agent_types": ["user", "robot"]}).encode()
    chooser = admin.get_by_label("Fill it from a file")
    await chooser.set_input_files({"name": "shop.json", "mimeType": "application/json", "buffer": body})
    await expect(admin.locator("textarea")).to_have_value(body.decode())
    await admin.get_by_role("button", name="Deploy").click()
    await expect(admin.get_by_role("heading", level=1)).to_have_text("Spec, revision 2")


async def test_a_spec_is_tried_on_stored_events(admin: Page, gateway: Served, shop: Account) -> None:
    key = await order(gateway, shop, 5, note=HOSTILE)
    other = json.loads(json.dumps(SHOP))
    placed = other["aggregate_types"]["order"]["events"]["was_placed"]
    placed["schema"]["properties"]["total"] = {"type": "number", "maximum": 4}
    placed["handler"] = {"set": {"target": "note", "value": "$.data.note"}}
    await admin.goto(at(gateway, "spec"))
    await admin.locator("textarea").fill(json.dumps(other))
    await admin.get_by_role("button", name="Try on stored events").click()
    said = admin.get_by_role("status")
    await expect(said).to_contain_text("Not deployed. 1 stored events of 1 aggregates were folded")
    await expect(said).to_contain_text(key)
    await expect(said).to_contain_text("<script>")
    await expect(admin.get_by_role("heading", level=1)).to_have_text("Spec, revision 1")
    assert await findings(admin) == []


async def test_a_subscription_is_tested_and_what_came_back_is_shown(
    admin: Page, gateway: Served, shop: Account
) -> None:
    async with web_receiver() as receiver, new_client(gateway.url, shop.admin) as client:
        target = {"type": "webhook", "url": receiver.url, "secret": SECRET}
        assert (await client.put("/_/subscriptions/hooks", json={"target": target})).status_code == 201
        receiver.answer = lambda _: Answer(418, body=HOSTILE.encode())
        await admin.goto(at(gateway, "out/hooks"))
        await admin.get_by_role("button", name="Send a test message").click()
        await expect(admin.get_by_role("status")).to_contain_text("failed, HTTP 418")
        await expect(admin.get_by_label("The answer to the test message")).to_contain_text("<script>")
        assert [each.event["type"] for each in receiver.deliveries] == ["_test"]
        assert await findings(admin) == []
        await client.delete("/_/subscriptions/hooks")


async def test_an_aggregate_shows_what_led_to_an_event_and_what_came_of_it(
    admin: Page, gateway: Served, shop: Account
) -> None:
    await admin.goto(at(gateway, f"aggregates/order/{await order(gateway, shop, 1)}"))
    await admin.get_by_text("Cause and effects", exact=True).click()
    causes = admin.get_by_role("group", name="Events of this correlation")
    await expect(causes.get_by_role("link")).to_have_count(1)
    assert await findings(admin) == []


async def test_the_live_feed_tells_what_it_leaves_out_and_pauses(
    admin: Page, gateway: Served, shop: Account
) -> None:
    await admin.goto(at(gateway, "feed"))
    async with admin.expect_response("**/feed/live*"):
        await admin.get_by_role("button", name="Go live").click()
    async with new_client(gateway.url, shop.write) as client:
        await client.post(f"/order/{new_id()}", json=batch(*[("was_noted", {"text": HOSTILE})] * 200))
    gap = admin.get_by_role("link", name="events behind position")
    await expect(gap).to_have_count(1)
    left_out = int((await gap.inner_text()).split()[2])
    shown = admin.get_by_role("link", name="was_noted")
    await expect(shown).to_have_count(200 - left_out)
    await expect(admin.locator("#events")).to_contain_text("<script>")
    assert await admin.locator("main script, main img").count() == 0
    assert await findings(admin) == []
    await admin.get_by_role("button", name="Pause").click()
    await order(gateway, shop, 7)
    async with admin.expect_response("**/feed/live*"):
        await admin.get_by_role("button", name="Go live").click()
    await expect(admin.get_by_role("link", name="was_placed")).to_have_count(1)
    await gap.click()
    await expect(admin.locator("#events tr").first).to_contain_text("was_noted")


async def test_the_live_feed_says_why_it_ends(admin: Page, gateway: Served) -> None:
    await admin.goto(at(gateway, "feed"))
    await admin.get_by_label("Type", exact=True).fill("Not A Name")
    await admin.get_by_role("button", name="Go live").click()
    await expect(admin.locator("#said")).to_contain_text("types")
    await expect(admin.get_by_role("button", name="Go live")).to_be_visible()


async def test_the_feed_goes_live(admin: Page, gateway: Served, shop: Account) -> None:
    await admin.goto(at(gateway, "feed"))
    await admin.get_by_label("Tag", exact=True).fill("label:so far")
    await admin.get_by_role("button", name="Filter").click()
    async with admin.expect_response("**/feed/live*"):
        await admin.get_by_role("button", name="Go live").click()
    key = await order(gateway, shop, 7, label="so far")
    await expect(admin.locator("#events")).to_contain_text(key)


async def test_stored_data_are_never_markup(
    browser: Browser, gateway: Served, pool: asyncpg.Pool, shop: Account
) -> None:
    """In every place that shows some: 256 KiB of an event, a row, a tag, what a receiver answered, what a
    provider sent, what a saga and a timer stand still for, what was looked for."""
    opened: list[str] = []
    key = await order(gateway, shop, 1, note=HOSTILE + "x" * 250_000, label=HOSTILE)
    hostile = json.loads(json.dumps(NIGHT))
    for name in ("cart", "inventory"):
        for event in hostile["aggregate_types"][name]["events"].values():
            for rule in event.get("rules", ()):
                rule["error"] = HOSTILE
    account = await open_account(pool, hostile)
    async with (
        new_client(gateway.url, shop.read) as reading,
        new_client(gateway.url, account.admin) as client,
        web_receiver() as receiver,
        await browser.new_context() as context,
    ):
        event = (await reading.get(f"/order/{key}/events/1")).json()["event"]
        await break_something(client, receiver, account, HOSTILE)
        await until(partial(all_broken, client))
        (webhook,) = (await client.get("/_/deliveries")).json()["deliveries"]
        (waiting,) = (await client.get("/_/subscriptions/shipping/waiting")).json()["waiting"]
        for whose, paths in (
            (
                shop.admin,
                (
                    f"aggregates/order/{key}",
                    "aggregates/order",
                    f"events/{event['id']}",
                    "feed",
                    "projections/totals",
                    f"find?q={quote(HOSTILE)}",
                    f"feed?tags={quote('label:' + HOSTILE)}",
                ),
            ),
            (
                account.admin,
                (
                    "overview",
                    "webhooks",
                    f"webhooks/{webhook['id']}",
                    "out/shipping",
                    f"out/shipping/deliveries/{waiting['event_id']}",
                    "sagas",
                    "schedules",
                    "spec",
                ),
            ),
        ):
            page = await signed_in(context, gateway, whose)
            page.on("dialog", lambda dialog: opened.append(dialog.message))
            for path in paths:
                await page.goto(at(gateway, path))
                assert "owned" not in await page.title(), path
                assert await page.locator("main script, main img").count() == 0, path
                if path not in ("overview", "webhooks", "aggregates/order"):
                    assert "<img" in (await page.locator("main").text_content() or ""), path
        await client.delete("/_/subscriptions/shipping")
    assert opened == []


async def test_every_page_has_no_finding_of_axe_in_light_or_dark_and_fits_a_phone(
    admin: Page, gateway: Served, shop: Account
) -> None:
    found: list[str] = []
    for path in await every_page(gateway, shop):
        await admin.set_viewport_size({"width": 1280, "height": 720})
        await admin.emulate_media(color_scheme="light")
        await admin.goto(at(gateway, path))
        found += [f"light {path}: {each}" for each in await findings(admin)]
        await admin.emulate_media(color_scheme="dark")
        found += [f"dark {path}: {each}" for each in await findings(admin, "color-contrast")]
        await admin.set_viewport_size({"width": 360, "height": 740})
        if (width := await admin.evaluate("document.documentElement.scrollWidth")) > 360:
            found.append(f"{path}: {width} px wide")
    assert found == []


async def test_names_as_long_as_may_be_fit_a_phone(
    browser: Browser, gateway: Served, pool: asyncpg.Pool
) -> None:
    long = "a" * 64
    spec = {
        "aggregate_types": {long: {"events": {long: {"schema": True}}}},
        "agent_types": ["user"],
        "singletons": [long],
    }
    account = await open_account(pool, spec)
    async with await browser.new_context(viewport={"width": 360, "height": 740}) as context:
        page = await signed_in(context, gateway, account.admin)
        async with new_client(gateway.url, account.admin) as client:
            await appended(client, long, long, long, {})
            emit = {"aggregate_type": long, "id": long, "event_type": long}
            timer = {"delay": "7d", "emit": emit}
            await client.post("/_/schedules", json=timer, headers={"idempotency-key": "later"})
        of_type = f"aggregates/{long}"
        paths = ["aggregates", of_type, f"{of_type}/{long}", f"{of_type}/{long}/append", "schedules", "feed"]
        found = {}
        for path in paths:
            await page.goto(at(gateway, path))
            found[path] = await page.evaluate("document.documentElement.scrollWidth")
    assert found == dict.fromkeys(paths, 360)


async def test_no_page_has_a_fault_in_the_browser(admin: Page, gateway: Served, shop: Account) -> None:
    """Of a script, of what a page loads, or of what its policy forbids."""
    said: list[str] = []
    admin.on("pageerror", lambda error: said.append(f"{admin.url}: {error}"))
    admin.on("console", lambda message: said.append(f"{admin.url}: {message.text}"))
    for path in await every_page(gateway, shop):
        await admin.goto(at(gateway, path))
        for each in await admin.locator("summary").all():
            await each.click()
    assert said == []


async def test_pages_before_and_beside_a_session_have_no_finding_of_axe(
    browser: Browser, admin: Page, gateway: Served
) -> None:
    found: list[str] = []
    async with await browser.new_context() as context:
        page = await context.new_page()
        for each, path in ((page, "sign-in"), (admin, "nowhere"), (admin, "spec?revision=1&against=1")):
            for scheme in ("light", "dark"):
                await each.emulate_media(color_scheme="light" if scheme == "light" else "dark")
                await each.goto(at(gateway, path))
                found += [f"{scheme} {path}: {finding}" for finding in await findings(each)]
    assert found == []


async def test_the_console_works_by_the_keyboard(admin: Page, gateway: Served, shop: Account) -> None:
    key = await order(gateway, shop, 1, 2, 3)
    await admin.goto(at(gateway, "overview"))
    await admin.keyboard.press("Tab")
    await expect(admin.get_by_role("link", name="Skip to content")).to_be_focused()
    await admin.keyboard.press("Enter")
    await expect(admin.locator("main")).to_be_focused()
    search = admin.get_by_role("search").get_by_label("Find anything")
    for _ in range(20):
        await admin.keyboard.press("Shift+Tab")
        if await search.evaluate("each => each === document.activeElement"):
            break
    await admin.keyboard.type(key)
    await admin.keyboard.press("Enter")
    await expect(admin.get_by_role("heading", level=1)).to_contain_text(key)
    slider = admin.get_by_role("slider", name="Version")
    await slider.focus()
    await admin.keyboard.press("ArrowLeft")
    await expect(admin.get_by_role("heading", name="State at version 2")).to_be_visible()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    await admin.keyboard.press("Tab")
    assert await admin.evaluate(outline) == "solid", "what has the focus is seen"


async def test_the_chart_of_the_overview_fits_a_window_that_becomes_narrow(admin: Page) -> None:
    await admin.evaluate(
        """() => {
            const chart = document.querySelector(".chart");
            chart.replaceChildren();
            document.querySelector("main").append(chart);  // from what is drawn again every 10 s
            chart.dataset.series = "[[1,2,3],[1,2,3],[1,2,3],[1,null,3]]";
            drawCharts();
        }"""
    )
    await expect(admin.locator("main > .chart canvas")).to_be_visible()
    await admin.set_viewport_size({"width": 360, "height": 740})
    fits = "() => document.querySelector('main > .chart .uplot').scrollWidth <= 360"
    await admin.wait_for_function(fits)
    assert await admin.evaluate("document.documentElement.scrollWidth") <= 360


async def test_every_page_reads_without_javascript(browser: Browser, gateway: Served, shop: Account) -> None:
    async with await browser.new_context(java_script_enabled=False) as context:
        page = await signed_in(context, gateway, shop.admin)
        for path in await every_page(gateway, shop):
            await page.goto(at(gateway, path))
            await expect(page.get_by_role("heading", level=1)).to_be_visible()


async def test_signing_out_ends_the_session(admin: Page, gateway: Served) -> None:
    await admin.get_by_role("button", name="Sign out").click()
    await admin.goto(at(gateway, "overview"))
    await expect(admin).to_have_url(at(gateway, "sign-in"))


async def test_the_pictures_of_the_docs_can_be_taken(
    browser: Browser, gateway: Served, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    """Into docs/console by SLUICE_SCREENSHOTS=docs/console."""
    account = await open_account(pool, NIGHT)
    async with (
        new_client(gateway.url, account.admin) as client,
        web_receiver() as receiver,
        await browser.new_context(
            viewport={"width": 1120, "height": 700}, device_scale_factor=0.75
        ) as context,
    ):
        cart, _ = await break_something(client, receiver, account)
        for data in ({"colour": "red", "note": "A gift"}, {"note": "A gift, in a box"}):
            await appended(client, "cart", cart, "was_aged", data)
        await until(partial(all_broken, client))
        pictures = {
            "overview": "overview",
            "aggregate": f"aggregates/cart/{cart}",
            "feed": "feed",
            "spec": "spec",
            "webhooks": "webhooks?verdict=quarantined",
            "out": "out/shipping",
            "sagas": "sagas?state=stuck",
        }
        page = await signed_in(context, gateway, account.admin)
        folder = Path(os.environ.get("SLUICE_SCREENSHOTS", tmp_path))
        shown = (DOCS / "console.md").read_text()
        for name, path in pictures.items():
            await page.goto(at(gateway, path))
            await page.screenshot(path=folder / f"{name}.png")
            assert (folder / f"{name}.png").stat().st_size > 8_000, name
            assert f"(console/{name}.png)" in shown, name
            assert (DOCS / "console" / f"{name}.png").stat().st_size < PICTURE_BYTES_MAX, name
        await client.delete("/_/subscriptions/shipping")


async def test_acts_that_can_not_be_undone_are_asked_once_more(
    browser: Browser, gateway: Served, pool: asyncpg.Pool
) -> None:
    """And those that can be, are not."""
    account = await open_account(pool, NIGHT)
    async with (
        new_client(gateway.url, account.admin) as client,
        web_receiver() as receiver,
        await browser.new_context() as context,
    ):
        await break_something(client, receiver, account)
        await until(partial(all_broken, client))
        page = await signed_in(context, gateway, account.admin)

        async def press(name: str, *, sure: bool) -> None:
            await page.get_by_role("button", name=name, exact=True).first.click()
            if sure:
                await expect(page.get_by_role("alert")).to_contain_text("to be sure.")
                await page.get_by_role("button", name=name, exact=True).first.click()
            await expect(page.get_by_role("alert")).to_have_count(0)

        async def shows(text: str) -> bool:
            """A list follows what was done, a moment later."""
            await page.reload()
            return await page.get_by_role("cell", name=text, exact=False).count() == 1

        await page.goto(at(gateway, "out/shipping"))
        await press("Pause", sure=False)
        await expect(page.get_by_text('"state": "paused"')).to_be_visible()
        await expect(page.get_by_role("button", name="Pause", exact=True)).to_have_count(0)
        await press("Resume", sure=False)
        await expect(page.get_by_text('"state": "paused"')).to_have_count(0)
        await expect(page.get_by_role("button", name="Resume", exact=True)).to_have_count(0)
        await press("Skip", sure=True)
        await until(partial(shows, "Nothing waits."))
        await page.goto(at(gateway, "schedules"))
        await page.get_by_label("New time").fill("2090-01-01T09:00:00Z")
        await press("Move", sure=False)
        await expect(page.get_by_role("rowheader")).to_contain_text("2090-01-01T09:00:00")
        await press("Cancel", sure=True)
        await until(partial(shows, "cancelled"))
        await page.goto(at(gateway, "sagas"))
        await press("Abandon", sure=True)
        await until(partial(shows, "abandoned"))
        await page.goto(at(gateway, "webhooks"))
        await page.get_by_role("button", name="Discard", exact=True).click()
        assert await findings(page) == []
        await page.goto(at(gateway, "webhooks"))
        await press("Discard", sure=True)
        await expect(page.get_by_text("1 delivery was discarded.")).to_be_visible()
        await page.goto(at(gateway, "webhooks?reason=there_is_none"))
        await expect(page.get_by_role("button", name="Discard those chosen")).to_have_count(0)
        await client.delete("/_/subscriptions/shipping")


async def test_a_key_is_made_shown_once_rotated_and_revoked(admin: Page, gateway: Served) -> None:
    await admin.goto(at(gateway, "keys"))
    await admin.get_by_label("Name", exact=True).fill("for a report")
    await admin.get_by_role("button", name="Make").click()
    key = await admin.get_by_role("status").locator("code").inner_text()
    async with new_client(gateway.url, key) as client:
        assert (await client.get("/_/tenant")).status_code == 200
    await admin.goto(at(gateway, "keys"))
    assert key not in await admin.content()
    row = admin.get_by_role("row").filter(has_text="for a report").first
    await row.get_by_role("button", name="Rotate").click()
    await expect(admin.get_by_role("status")).to_contain_text("It replaces")
    successor = await admin.get_by_role("status").locator("code").inner_text()
    async with new_client(gateway.url, successor) as client:
        assert (await client.get("/_/tenant")).status_code == 200
    await row.get_by_role("button", name="Revoke").click()
    await expect(admin.get_by_role("alert")).to_contain_text("never opens anything")
    await row.get_by_role("button", name="Revoke").click()
    await expect(row).to_contain_text("revoked")


async def test_a_delivery_is_replayed_and_the_page_says_what_came_of_it(
    browser: Browser, gateway: Served, pool: asyncpg.Pool, caplog: pytest.LogCaptureFixture
) -> None:
    async with new_client(gateway.url, None) as client, await browser.new_context() as context:
        hooks = await open_hooks(pool, client, {"typed": {"unsigned": True, "to": to("was_typed")}})
        assert (await client.post(hooks.path("typed"), json={"n": 1})).json()["quarantined"]
        page = await signed_in(context, gateway, hooks.account.admin)
        await page.goto(at(gateway, "webhooks"))
        await page.get_by_role("row").get_by_role("link").first.click()
        await expect(page.get_by_text('{"n":1}', exact=True)).to_be_visible()
        assert await findings(page) == []
        await page.get_by_role("button", name="Replay", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text("schema_violation")
        hooks.spec["webhooks"]["typed"]["to"] = to()
        assert (await hooks.deploy(hooks.spec)).status_code == 200
        with caplog.at_level(logging.INFO, logger="sluice.console"):
            await page.get_by_role("button", name="Replay", exact=True).click()
            await expect(page.get_by_role("status")).to_contain_text("is the event")
        (act,) = [each for each in caplog.records if each.message == "console_act"]
        told = (act.page, act.path, act.tenant)  # type: ignore[attr-defined]
        assert told == ("/webhooks/replay", "/webhooks/replay", hooks.account.id)
        await page.get_by_role("button", name="Replay", exact=True).click()
        await expect(page.get_by_role("status")).to_contain_text("as before")
        assert await findings(page) == []
        assert len(await hooks.events()) == 1
        forged = await page.request.post(at(gateway, "webhooks/replay"), form={"id": "x"})
        assert forged.status == 403
        reading = await signed_in(context, gateway, hooks.account.read)
        await reading.goto(at(gateway, "webhooks"))
        await expect(reading.get_by_role("button", name="Replay", exact=True)).to_have_count(0)
