"""A receipt that is looked up has the form in which it was given: single, batch, or of several aggregates."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

from tests.support.accounts import SPEC, open_account
from tests.support.calls import ACTOR, batch, bulk, bulk_line, envelope, new_client, new_event_id, new_id
from tests.support.serving import Served


def of(key: str, event_type: str = "was_noted", **more: Any) -> dict[str, Any]:
    return {"aggregate_type": "order", "key": key, "type": event_type, "data": 1, **more}


def several(*events: dict[str, Any]) -> dict[str, Any]:
    return {"events": list(events), "metadata": {"actor": ACTOR}}


RECORDED = {"identity": {"content": {"json": ["$.data"]}}}
IMPLYING = {
    "implications": [
        {"emit": {"aggregate_type": "log", "id": {"mint": True}, "event_type": "was_noted", "data": {}}}
    ]
}

FORMS = {
    "single": ("/order/{key}/was_noted", envelope(1)),
    "batch of one": ("/order/{key}", batch(("was_noted", 1))),
    "batch of two": ("/order/{key}", batch(("was_noted", 1), ("was_noted", 2))),
    "new aggregate of one": ("/order", batch(("was_noted", 1))),
    "several of one": ("/_/append", ("{key}",)),
    "several of one aggregate": ("/_/append", ("{key}", "{key}")),
    "several of two aggregates": ("/_/append", ("{key}", "{other}")),
}


def sent(form: str) -> tuple[str, dict[str, Any]]:
    key, other = new_id(), new_id()
    path, body = FORMS[form]
    if isinstance(body, tuple):
        body = several(*[of(each.format(key=key, other=other)) for each in body])
    return path.format(key=key), body


def ids(receipt: dict[str, Any]) -> list[str]:
    if "events" in receipt:
        return [each["event_id"] for each in receipt["events"]]
    found: list[str] = receipt.get("event_ids") or [receipt["event_id"]]
    return found


async def looked_up(client: httpx.AsyncClient, key: str, first: httpx.Response) -> list[bytes]:
    queries: list[dict[str, str]] = [{"idempotency_key": key}]
    queries += [{"event_id": each} for each in ids(first.json())]
    found = [await client.get("/_/receipts", params=query) for query in queries]
    assert {each.status_code for each in found} == {200}
    return [each.content for each in found]


@pytest.mark.parametrize("form", list(FORMS))
async def test_a_receipt_that_is_looked_up_is_the_first_answers_body(
    client: httpx.AsyncClient, form: str
) -> None:
    path, body = sent(form)
    headers = {"idempotency-key": form.replace(" ", "-")}
    first = await client.post(path, json=body, headers=headers)
    assert first.status_code == 201, first.text
    assert set(await looked_up(client, headers["idempotency-key"], first)) == {first.content}
    again = await client.post(path, json=body, headers=headers)
    assert (again.content, again.headers["idempotency-replayed"]) == (first.content, "true")


@pytest.mark.parametrize("form", list(FORMS))
async def test_a_mismatch_brings_the_receipt_in_the_form_in_which_it_was_given(
    client: httpx.AsyncClient, form: str
) -> None:
    path, body = sent(form)
    headers = {"idempotency-key": new_id()}
    first = await client.post(path, json=body, headers=headers)
    other = await client.post(f"/order/{new_id()}/was_noted", json=envelope(7), headers=headers)
    assert other.status_code == 422
    assert other.json()["receipt"] == first.json()


async def test_the_event_of_a_batch_that_the_gateway_named_finds_it(client: httpx.AsyncClient) -> None:
    for path, body in map(sent, ("batch of one", "several of one")):
        first = await client.post(path, json=body)
        (event_id,) = ids(first.json())
        found = await client.get("/_/receipts", params={"event_id": event_id})
        assert found.content == first.content


async def test_lines_in_bulk_are_looked_up_in_the_form_of_their_answers(client: httpx.AsyncClient) -> None:
    key, of_both = new_id(), {**several(of(new_id())), "idempotency_key": "line-of-several"}
    single, listed = await bulk(client, bulk_line(key, 1, idempotency_key="line-single"), of_both)
    for line, name in ((single, "line-single"), (listed, "line-of-several")):
        found = await client.get("/_/receipts", params={"idempotency_key": name})
        receipt = {name: value for name, value in line.items() if name not in ("line", "status")}
        assert found.json() == receipt


async def test_a_batch_whose_ids_the_client_chose_is_looked_up_by_them(client: httpx.AsyncClient) -> None:
    chosen = new_event_id()
    body = batch({"type": "was_noted", "data": 1, "event_id": chosen})
    first = await client.post(f"/order/{new_id()}", json=body)
    found = await client.get("/_/receipts", params={"event_id": chosen})
    assert (found.content, found.json()["event_ids"]) == (first.content, [chosen])


@pytest.mark.parametrize("more_of", ["records", "implied events"])
async def test_what_is_made_of_an_append_behind_its_admission_keeps_its_form(
    gateway: Served, outbox: asyncpg.Pool, more_of: str
) -> None:
    declared: dict[str, Any] = {"events": {"was_noted": {"schema": True}}}
    if more_of == "records":
        declared |= RECORDED
    else:
        declared["events"]["was_noted"] |= IMPLYING
    types = {"order": declared, "log": {"events": {"was_noted": {"schema": True}}}}
    account = await open_account(outbox, {**SPEC, "aggregate_types": types})
    async with new_client(gateway.url, account.admin) as client:
        for form in FORMS:
            path, body = sent(form)
            headers = {"idempotency-key": new_id()}
            first = await client.post(path, json=body, headers=headers)
            assert first.status_code == 201, first.text
            assert ("implied_count" in first.json()) == (more_of == "implied events")
            assert set(await looked_up(client, headers["idempotency-key"], first)) == {first.content}
