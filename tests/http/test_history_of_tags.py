"""Tags and claims that are declared when events are stored already."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from gateway.cli.tags import _backfill
from gateway.config import Config
from gateway.operations.place import open_place
from gateway.operations.report import Report
from gateway.operations.unique_values import check_unique_values
from tests.http.conftest import Served
from tests.support.accounts import Account, open_account
from tests.support.calls import ACTOR, append, appended, bulk, bulk_line, new_client, new_id, refused, until

SPEC: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_made": {"schema": {}, "tags": ["student:$.data.student"]},
                "was_signed_up": {"schema": {}},
                "was_closed": {"schema": {}},
            }
        }
    },
    "agent_types": ["user"],
}


def changed(**events: dict[str, Any]) -> dict[str, Any]:
    spec = deepcopy(SPEC)
    for name, more in events.items():
        spec["aggregate_types"]["order"]["events"][name] |= more
    return spec


CLAIMING = changed(
    was_signed_up={"claims": {"email": {"value": "$.data.email", "fold": "case"}}},
    was_closed={"releases": ["email"]},
)


@pytest.fixture
async def tenant(outbox: asyncpg.Pool) -> Account:
    return await open_account(outbox, SPEC)


@pytest.fixture
async def client(gateway: Served, tenant: Account) -> Any:
    async with new_client(gateway.url, tenant.admin) as client:
        yield client


async def put(client: httpx.AsyncClient, spec: dict[str, Any], **params: str) -> dict[str, Any]:
    response = await client.put("/_/spec", json=spec, params=params)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def found(client: httpx.AsyncClient, tag: str) -> int:
    response = await client.get("/_/feed", params={"tags": tag})
    assert response.status_code == 200, response.text
    return len(response.json()["events"])


async def test_stored_events_that_lack_a_tag_are_counted_and_given_it(
    client: httpx.AsyncClient, tenant: Account, config: Config
) -> None:
    data = [{"student": "s1", "courses": ["c1", n % 2 or None]} for n in range(9)]
    lines = [bulk_line(new_id(), each, "was_made") for each in data]
    await bulk(client, *lines, bulk_line(new_id(), {"student": "s1"}, "was_made"))
    more = changed(was_made={"tags": ["student:$.data.student", "course:$.data.courses[*]"]})
    (notice,) = (await put(client, more))["notices"]
    assert notice["pointer"] == "/aggregate_types/order/events/was_made/tags"
    assert notice["notice"].startswith("9 stored events of the type was_made lack a tag")
    assert await found(client, "course:c1") == 0
    assert await _backfill(config.postgres_url, tenant.name) == (10, 13)
    assert (await found(client, "course:c1"), await found(client, "course:1")) == (9, 4)
    assert await _backfill(config.postgres_url, tenant.name) == (10, 0)
    await appended(client, "order", new_id(), "was_made", {"courses": ["c1"]})
    assert await found(client, "course:c1") == 10


async def test_conditions_count_the_tags_that_stored_events_are_given(
    client: httpx.AsyncClient, tenant: Account, config: Config
) -> None:
    """Redis remembers the tags that events had when it sequenced them."""
    await appended(client, "order", new_id(), "was_made", {"courses": ["c1"]})
    await put(client, changed(was_made={"tags": ["student:$.data.student", "course:$.data.courses[*]"]}))
    condition = {"fail_if_events_match": {"items": [{"tags": ["course:c1"]}]}}
    sent = {
        "events": [{"aggregate_type": "order", "type": "was_signed_up", "data": {}}],
        "metadata": {"actor": ACTOR},
        "condition": condition,
    }
    assert (await client.post("/_/append", json=sent)).status_code == 201
    assert await _backfill(config.postgres_url, tenant.name) == (2, 1)
    response = await client.post("/_/append", json=sent)
    assert (response.status_code, response.json()["code"]) == (409, "condition_failed"), response.text
    assert len(response.json()["matched"]) == 1


async def test_a_tag_that_stored_events_have_does_not_go_unless_forced(client: httpx.AsyncClient) -> None:
    await appended(client, "order", new_id(), "was_made", {"student": "s1"})
    without = changed(was_made={"tags": []})
    response = await client.put("/_/spec", json=without)
    told = refused(response, 409, "spec_conflict", more=("revision", "conflicts"))
    (conflict,) = told["conflicts"]
    assert conflict["pointer"] == "/aggregate_types/order/events/was_made/tags"
    assert "student" in conflict["error"]
    await put(client, without, force="true")
    assert "notices" not in await put(client, SPEC)


async def test_a_claim_counts_for_what_is_stored(client: httpx.AsyncClient) -> None:
    ada, bob, eve = new_id(), new_id(), new_id()
    await appended(client, "order", ada, "was_signed_up", {"email": "A"})
    await appended(client, "order", ada, "was_signed_up", {"email": "b"})
    await appended(client, "order", bob, "was_signed_up", {"email": "a"})
    await appended(client, "order", eve, "was_signed_up", {"email": "c"})
    await appended(client, "order", eve, "was_closed")
    await put(client, CLAIMING)
    for email, holder in (("a", bob), ("B", ada)):
        told = refused(
            await append(client, "order", eve, "was_signed_up", {"email": email}),
            409, "not_unique", "data.email", ["holder"],
        )  # fmt: skip
        assert told["holder"]["key"] == holder
    await appended(client, "order", bob, "was_signed_up", {"email": "c"})
    await appended(client, "order", eve, "was_signed_up", {"email": "a"})


async def test_what_collides_in_history_is_listed_before_anything_is_closed(
    client: httpx.AsyncClient,
) -> None:
    ada, bob = new_id(), new_id()
    await appended(client, "order", ada, "was_signed_up", {"email": "a"})
    await appended(client, "order", bob, "was_signed_up", {"email": "A"})
    told = refused(
        await client.put("/_/spec", json=CLAIMING), 409, "spec_conflict", more=("revision", "conflicts")
    )
    (conflict,) = told["conflicts"]
    assert conflict["pointer"] == "/aggregate_types/order/events/was_signed_up/claims/email"
    assert ada in conflict["error"] and f"order {bob}, version 1" in conflict["error"]
    assert (await append(client, "order", ada, "was_signed_up", {"email": "a"})).status_code == 201
    await put(client, CLAIMING, force="true")
    refused(
        await append(client, "order", bob, "was_signed_up", {"email": "a"}),
        409, "not_unique", "data.email", ["holder"],
    )  # fmt: skip
    await put(client, SPEC)
    await appended(client, "order", bob, "was_signed_up", {"email": "a"})


async def test_what_a_refused_deployment_would_have_removed_is_open_again(
    client: httpx.AsyncClient, outbox: asyncpg.Pool, tenant: Account
) -> None:
    for key, email in ((new_id(), "a"), (new_id(), "A")):
        await appended(client, "order", key, "was_signed_up", {"email": email})
    removing = deepcopy(CLAIMING)
    del removing["aggregate_types"]["order"]["events"]["was_made"]
    told = refused(
        await client.put("/_/spec", json=removing), 409, "spec_conflict", more=("revision", "conflicts")
    )
    assert [each["pointer"].rpartition("/")[2] for each in told["conflicts"]] == ["email"]
    left = "SELECT count(*) FROM spec_closing WHERE tenant = $1"
    assert await outbox.fetchval(left, UUID(tenant.id)) == 0


async def test_nothing_slips_in_while_a_claim_is_deployed(
    client: httpx.AsyncClient, second_gateway: Served, outbox: asyncpg.Pool
) -> None:
    async with new_client(second_gateway.url, None) as other:
        other.headers["authorization"] = client.headers["authorization"]
        deployed = asyncio.create_task(put(client, CLAIMING))
        kept: list[str] = []
        while not deployed.done():
            emails = [new_id(), new_id()]
            answers = await asyncio.gather(
                *(
                    append(of, "order", new_id(), "was_signed_up", {"email": email})
                    for of, email in zip((client, other), emails, strict=True)
                )
            )
            assert {each.status_code for each in answers} <= {201, 503}
            kept += [email for email, each in zip(emails, answers, strict=True) if each.status_code == 201]
        await deployed

        async def followed() -> bool:
            return (await append(other, "order", new_id(), "was_closed")).status_code == 201

        await until(followed)
        for n, email in enumerate(kept):
            again = await append((client, other)[n % 2], "order", new_id(), "was_signed_up", {"email": email})
            assert again.status_code == 409, again.text
    assert kept


async def test_the_audit_holds_the_table_of_values_to_the_events(
    client: httpx.AsyncClient, tenant: Account, config: Config, outbox: asyncpg.Pool
) -> None:
    ada, bob = new_id(), new_id()
    await put(client, CLAIMING)
    for key, email in ((ada, "a"), (ada, "b"), (bob, "A"), (new_id(), "c")):
        await appended(client, "order", key, "was_signed_up", {"email": email})
    async with open_place(config.postgres_url, config.redis_url, 5.0) as place:
        report = Report()
        await check_unique_values(place, report)
        assert (report.ok, report.checked["unique"] >= 3) == (True, True), report.violations
        await outbox.execute("UPDATE unique_claim SET aggregate_id = 'x' WHERE aggregate_id = $1", ada)
        await outbox.execute("DELETE FROM unique_claim WHERE aggregate_id = $1", bob)
        report = Report()
        await check_unique_values(place, report)
        mine = [str(each) for each in report.violations if tenant.id in each.where]
        assert len(mine) == 2
        assert any(f"give it to order {ada}, the table to order x" in each for each in mine)
        assert any(f"give it to order {bob}, the table to no aggregate" in each for each in mine)
    await outbox.execute("DELETE FROM unique_claim WHERE tenant = $1", UUID(tenant.id))
