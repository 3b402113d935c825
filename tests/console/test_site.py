"""What keeps the console safe, over plain HTTP."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from importlib.resources import files
from ipaddress import ip_network
from uuid import UUID

import asyncpg
import httpx
import pytest

from gateway.catalog import tenants
from gateway.catalog.model import Scope
from gateway.config import Config
from gateway.console.sessions import SESSIONS_OF_KEY_MAX
from gateway.console.site import FIELDS_MAX, SIGN_IN_BYTES_MAX
from gateway.console.views import views
from gateway.names import tokens
from tests.http.lag import holds_up_no_other
from tests.http.raw import ask, request
from tests.support.accounts import Account, revoked
from tests.support.calls import new_client, until
from tests.support.serving import Served, serving

SIGN_IN = "/_/console/sign-in"


@pytest.fixture
async def person(gateway: Served) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"origin": gateway.url}
    async with httpx.AsyncClient(
        base_url=gateway.url, headers=headers, trust_env=False, verify=False
    ) as client:
        yield client


@pytest.fixture
async def signed_in(person: httpx.AsyncClient, shop: Account) -> httpx.AsyncClient:
    assert (await person.post(SIGN_IN, data={"key": shop.admin})).status_code == 303
    return person


async def token_of(person: httpx.AsyncClient) -> str:
    found = re.search(r'name="csrf" value="(\w+)"', (await person.get("/_/console/overview")).text)
    assert found is not None
    return found[1]


async def test_the_cookie_is_for_the_console_only(person: httpx.AsyncClient, shop: Account) -> None:
    answer = await person.post(SIGN_IN, data={"key": shop.admin})
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/_/console"} <= set(cookie.split("; "))
    assert "Secure" not in cookie, "a browser keeps none over plain HTTP, on loopback either"
    elsewhere = {"host": "sluice.example", "origin": "https://sluice.example"}
    assert (
        "; Secure"
        in (await person.post(SIGN_IN, data={"key": shop.admin}, headers=elsewhere)).headers["set-cookie"]
    )
    assert shop.admin not in cookie


async def test_a_session_ends_with_its_key(
    signed_in: httpx.AsyncClient, shop: Account, pool: asyncpg.Pool, gateway: Served
) -> None:
    assert (await signed_in.get("/_/console/overview")).status_code == 200
    await revoked(pool, shop, Scope.ADMIN)
    async with new_client(gateway.url, shop.admin) as client:
        while (await client.get("/_/tenant")).status_code != 401:
            pass
    answer = await signed_in.get("/_/console/overview")
    assert (answer.status_code, answer.headers["location"]) == (303, SIGN_IN)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://[", None])
async def test_no_other_site_can_act(signed_in: httpx.AsyncClient, origin: str | None) -> None:
    csrf = await token_of(signed_in)
    del signed_in.headers["origin"]
    headers = {} if origin is None else {"origin": origin}
    answer = await signed_in.post("/_/console/sign-out", data={"csrf": csrf}, headers=headers)
    assert answer.status_code == 403


@pytest.mark.parametrize("csrf", ["", "0" * 64, "é"])
async def test_an_act_brings_the_token_of_its_page(signed_in: httpx.AsyncClient, csrf: str) -> None:
    assert (await signed_in.post("/_/console/sign-out", data={"csrf": csrf})).status_code == 403
    assert (await signed_in.get("/_/console/overview")).status_code == 200


@pytest.mark.parametrize(
    "others",
    [
        'theme={"dark": true}; {}',
        "path=/; {}",
        'a=b,c"; {}',
        '{}; theme={"dark": true}',
        "sluice_console_2=x; {}",
    ],
)
async def test_cookies_of_other_programs_end_no_session(signed_in: httpx.AsyncClient, others: str) -> None:
    mine = f"sluice_console={signed_in.cookies['sluice_console']}"
    signed_in.cookies.clear()
    headers = {"cookie": others.replace("{}", mine)}
    assert (await signed_in.get("/_/console/overview", headers=headers)).status_code == 200


async def test_cookies_in_two_lines_are_read(signed_in: httpx.AsyncClient) -> None:
    mine = f"sluice_console={signed_in.cookies['sluice_console']}"
    signed_in.cookies.clear()
    headers = [("cookie", "theme=dark"), ("cookie", mine)]
    assert (await signed_in.get("/_/console/overview", headers=headers)).status_code == 200


@pytest.mark.parametrize("path", ["overview", "find", "enter", "feed/live"])
async def test_a_query_of_many_fields_is_refused(signed_in: httpx.AsyncClient, path: str) -> None:
    query = "&".join(f"a{n}=1" for n in range(FIELDS_MAX + 1))
    answer = await signed_in.get(f"/_/console/{path}?{query}")
    assert answer.status_code == 400
    assert f"at most {FIELDS_MAX} fields" in answer.text


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "overview", "GET, HEAD"),
        ("PUT", "spec", "GET, HEAD, POST"),
        ("OPTIONS", "keys/x/revoke", "POST"),
        ("POST", "static/console.js", "GET, HEAD"),
        ("PUT", "sign-in", "GET, HEAD, POST"),
        ("HEAD", "enter", "GET"),
        ("GET", "sign-out", "POST"),
        ("GET", "tickets", "POST"),
        ("POST", "feed/live", "GET"),
    ],
)
async def test_a_page_names_the_methods_that_it_takes(
    signed_in: httpx.AsyncClient, method: str, path: str, allow: str
) -> None:
    answer = await signed_in.request(method, f"/_/console/{path}")
    assert (answer.status_code, answer.headers["allow"]) == (405, allow)


async def test_every_page_forbids_what_it_does_not_need(signed_in: httpx.AsyncClient) -> None:
    for path in ("overview", "nowhere", "static/console.js", "static/none", "sign-in"):
        headers = (await signed_in.get(f"/_/console/{path}")).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy, path
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["sign-in", "overview", "nowhere"])
async def test_all_that_a_page_names_is_there(signed_in: httpx.AsyncClient, path: str) -> None:
    """An icon, too: for a page that names none, a browser asks the API for one, and shows its 401 as a
    fault."""
    page = (await signed_in.get(f"/_/console/{path}")).text
    named = re.findall(r'<(?:link|script)[^>]* (?:href|src)="([^"]+)"', page)
    assert re.search(r'<link rel="icon"', page)
    assert [each for each in named if (await signed_in.get(each)).status_code != 200] == []


def test_what_a_browser_loads_is_below_150_kb() -> None:
    static = files("gateway.console") / "static"
    assert sum(len(each.read_bytes()) for each in static.iterdir()) < 150_000


async def test_a_link_signs_in_once(person: httpx.AsyncClient, shop: Account) -> None:
    made = await person.post("/_/console/tickets", headers={"authorization": f"Bearer {shop.read}"})
    ticket = made.json()["ticket"]
    first = await person.get("/_/console/enter", params={"once": ticket})
    assert first.status_code == 303, first.text
    assert first.headers["location"] == "/_/console/"
    person.cookies.clear()
    assert (await person.get("/_/console/enter", params={"once": ticket})).status_code == 401
    assert (await person.post("/_/console/tickets")).status_code == 401


async def test_what_is_kept_of_a_session_opens_nothing(
    signed_in: httpx.AsyncClient, shop: Account, pool: asyncpg.Pool
) -> None:
    secret = signed_in.cookies["sluice_console"]
    for row in await pool.fetch("SELECT digest, sealed FROM console_session"):
        assert secret.encode() not in bytes(row["digest"]) + bytes(row["sealed"])
        assert shop.admin.encode() not in bytes(row["sealed"])


async def test_a_key_has_a_bounded_number_of_sessions(
    signed_in: httpx.AsyncClient, shop: Account, pool: asyncpg.Pool
) -> None:
    first = signed_in.cookies["sluice_console"]
    for _ in range(SESSIONS_OF_KEY_MAX):
        signed_in.cookies.clear()
        assert (await signed_in.post(SIGN_IN, data={"key": shop.admin})).status_code == 303
    assert (await signed_in.get("/_/console/overview")).status_code == 200
    handle = "SELECT handle FROM console_session ORDER BY began_at DESC LIMIT 1"
    count = f"SELECT count(*) FROM console_session WHERE handle = ({handle})"
    assert await pool.fetchval(count) == SESSIONS_OF_KEY_MAX
    signed_in.cookies.clear()
    before = await signed_in.get("/_/console/overview", headers={"cookie": f"sluice_console={first}"})
    assert before.headers["location"] == SIGN_IN, "the oldest session has ended"


async def test_a_sign_in_ends_the_session_that_the_browser_had(
    signed_in: httpx.AsyncClient, shop: Account
) -> None:
    before = signed_in.cookies["sluice_console"]
    assert (await signed_in.post(SIGN_IN, data={"key": "wrong"})).status_code == 401
    assert (await signed_in.get("/_/console/overview")).status_code == 200
    assert (await signed_in.post(SIGN_IN, data={"key": shop.read})).status_code == 303
    assert signed_in.cookies["sluice_console"] != before
    signed_in.cookies.clear()
    answer = await signed_in.get("/_/console/overview", headers={"cookie": f"sluice_console={before}"})
    assert (answer.status_code, answer.headers["location"]) == (303, SIGN_IN)


async def test_a_suspended_tenant_is_shown_no_page_and_acts_on_none(
    signed_in: httpx.AsyncClient, shop: Account, pool: asyncpg.Pool, gateway: Served
) -> None:
    csrf = await token_of(signed_in)
    await tenants.suspend(pool, UUID(shop.id))
    async with new_client(gateway.url, shop.admin) as client:
        await until(lambda: answered(client.get("/_/tenant"), 403))
    for method, path in [*views(), ("GET", "/nowhere"), ("GET", "/")]:
        at = f"/_/console{re.sub('{[a-z_]+}', 'x', path)}"
        answer = await signed_in.request(method, at, data={"csrf": csrf} if method == "POST" else None)
        assert answer.status_code == 403, at
        assert "This tenant is suspended" in answer.text
    ticket = await signed_in.post("/_/console/tickets", headers={"authorization": f"Bearer {shop.read}"})
    assert ticket.status_code == 403
    assert (await signed_in.post(SIGN_IN, data={"key": shop.read})).status_code == 403
    answer = await signed_in.post("/_/console/sign-out", data={"csrf": csrf})
    assert (answer.status_code, answer.headers["location"]) == (303, SIGN_IN)


async def answered(asked: Awaitable[httpx.Response], status: int) -> bool:
    return (await asked).status_code == status


async def test_a_form_to_sign_in_is_small(person: httpx.AsyncClient) -> None:
    answer = await person.post(SIGN_IN, data={"key": "x" * SIGN_IN_BYTES_MAX})
    assert answer.status_code == 413


async def test_forms_count_with_the_bodies_of_their_key(config: Config, shop: Account) -> None:
    async with (
        serving(replace(config, key_bodies_bytes_max=200_000)) as small,
        httpx.AsyncClient(
            base_url=small.url, headers={"origin": small.url}, trust_env=False, verify=False
        ) as person,
    ):
        assert (await person.post(SIGN_IN, data={"key": shop.admin})).status_code == 303
        csrf = await token_of(person)
        answer = await person.post("/_/console/keys", data={"csrf": csrf, "name": "x" * 400_000})
        assert answer.status_code == 429
        assert "bodies under way" in answer.text
        assert (await person.get("/_/console/overview")).status_code == 200


async def test_unknown_sessions_are_limited_and_delay_no_key(config: Config, shop: Account) -> None:
    async with (
        serving(replace(config, unknown_keys_per_min=3)) as strict,
        httpx.AsyncClient(base_url=strict.url, trust_env=False, verify=False) as person,
        new_client(strict.url, shop.read) as client,
    ):
        asked = [
            person.get("/_/console/overview", headers={"cookie": f"sluice_console=made-up-{n}"})
            for n in range(6)
        ]
        answers = await asyncio.gather(*asked)
        assert sorted([each.status_code for each in answers]) == [303, 303, 303, 429, 429, 429]
        assert all(each.headers["retry-after"] for each in answers if each.status_code == 429)
        assert (await client.get("/_/tenant")).status_code == 200


async def test_wrong_keys_count_for_the_client_and_not_for_its_proxy(config: Config) -> None:
    behind = replace(config, unknown_keys_per_min=2, trusted_proxies=(ip_network("127.0.0.0/8"),))
    async with (
        serving(behind) as strict,
        httpx.AsyncClient(
            base_url=strict.url, headers={"origin": strict.url}, trust_env=False, verify=False
        ) as person,
    ):

        async def tried(address: str) -> int:
            wrong, headers = tokens.mint("AAAAAAAA", secrets.token_bytes), {"x-forwarded-for": address}
            return (await person.post(SIGN_IN, data={"key": wrong}, headers=headers)).status_code

        assert [await tried("192.0.2.1") for _ in range(3)] == [401, 401, 429]
        assert await tried("192.0.2.2") == 401


async def test_without_the_setting_there_is_no_console(config: Config, shop: Account) -> None:
    async with serving(replace(config, console=False)) as plain, new_client(plain.url, shop.admin) as client:
        assert (await client.get("/_/console/overview")).status_code == 404


async def test_a_large_form_holds_up_no_other_request(signed_in: httpx.AsyncClient) -> None:
    form = b"spec=" + b"%41" * 340_000

    async def asking() -> None:
        headers = {"content-type": "application/x-www-form-urlencoded"}
        answer = await signed_in.post("/_/console/spec", content=form, headers=headers)
        assert answer.status_code == 403

    await holds_up_no_other(asking)


async def test_many_cookies_hold_up_no_other_request(gateway: Served) -> None:
    async def asking() -> None:
        answer = await ask(
            gateway.port, request("GET", "/_/console/overview", headers=[(b"Cookie", b";" * 60_000)])
        )
        assert answer is not None
        assert answer.status == 303

    await holds_up_no_other(asking)
