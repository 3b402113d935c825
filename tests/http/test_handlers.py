"""Handlers over HTTP: what did not fit is explained, and a state that is too large is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from gateway.config import Config
from tests.support.accounts import ANYTHING, Account, open_account
from tests.support.calls import appended, batch, new_client, new_id, refused
from tests.support.serving import Served, serving

BYTES_MAX = 4096

KEEPS: dict[str, Any] = {
    "aggregate_types": {
        "cart": {
            "events": {
                "had_line": {
                    "schema": ANYTHING,
                    "handler": [
                        {"upsert": {"target": "lines", "key": "sku", "value": "$.data"}},
                        {"map": {"target": "lines", "do": [{"increment": {"target": "n"}}]}},
                        {"if": {"exists": "@.closed"}, "then": [{"decrement": {"target": "closed"}}]},
                    ],
                },
                "was_set": {"schema": ANYTHING},
                "was_doubled": {"schema": ANYTHING, "handler": {"set": {"target": "a", "value": ["@", "@"]}}},
                "was_emptied": {"schema": ANYTHING, "handler": {"remove": {"target": ""}}},
            }
        },
    },
    "agent_types": ["user"],
}


@pytest.fixture
async def small(own_config: Config, own_outbox: asyncpg.Pool) -> AsyncIterator[tuple[Served, Account]]:
    account = await open_account(own_outbox, KEEPS)
    async with serving(replace(own_config, state_bytes_max=BYTES_MAX)) as served:
        yield served, account


async def test_what_did_not_fit_is_explained_to_admins(small: tuple[Served, Account]) -> None:
    served, account = small
    key = new_id()
    async with (
        new_client(served.url, account.admin) as client,
        new_client(served.url, account.read) as reader,
    ):
        await appended(client, "cart", key, "was_set", {"lines": [{"sku": "b", "n": "x"}], "closed": "no"})
        await appended(client, "cart", key, "had_line", {"sku": "a"})
        await appended(client, "cart", key, "had_line", {"sku": "a", "n": 5})
        told = (await client.get(f"/cart/{key}?explain=true")).json()
        assert told["data"] == {"lines": [{"sku": "b", "n": "x"}, {"sku": "a", "n": 6}], "closed": "no"}
        in_list = {
            "event_type": "had_line",
            "operation": 1,
            "error": "item 0, do[0]: `n` is a string, not a number.",
        }
        in_branch = {
            "event_type": "had_line",
            "operation": 2,
            "error": "then[0]: `closed` is a string, not a number.",
        }
        assert told["metadata"]["misfits"] == [
            {"version": version, **each} for version in (2, 3) for each in (in_list, in_branch)
        ]
        etag = {"if-none-match": '"3.r1"'}
        assert (await client.get(f"/cart/{key}", headers=etag)).status_code == 304
        assert (await client.get(f"/cart/{key}?explain=true", headers=etag)).status_code == 200
        then = (await client.get(f"/cart/{key}?explain=true&at_length=2")).json()
        assert [each["version"] for each in then["metadata"]["misfits"]] == [2, 2]
        assert "misfits" not in (await client.get(f"/cart/{key}?explain=false")).json()["metadata"]
        refused(await reader.get(f"/cart/{key}?explain=true"), 403, "forbidden", "explain")
        refused(await client.get(f"/cart/{key}?explain=perhaps"), 422, "invalid_field", "explain")
        await appended(client, "cart", "global", "was_set", {})
        assert (await client.get("/cart/global?explain=true")).json()["metadata"]["misfits"] == []


async def test_a_state_that_is_too_large_is_refused_with_its_first_version(
    small: tuple[Served, Account],
) -> None:
    served, account = small
    key = new_id()
    async with new_client(served.url, account.admin) as client:
        await appended(client, "cart", key, "was_set", {"text": "x" * 1000})
        whole = (await client.get(f"/cart/{key}")).json()["data"]
        sent = batch(*[("was_doubled", {})] * 3)
        assert (await client.post(f"/cart/{key}", json=sent)).status_code == 201
        for query in ("", "", "?synchronous=true", "?consistency=strong", "?at_length=3", "?explain=true"):
            told = refused(await client.get(f"/cart/{key}{query}"), 422, "state_too_large", more=["version"])
            assert told["version"] == 3
        before = await client.get(f"/cart/{key}?at_length=2")
        assert before.json()["data"] == {**whole, "a": [whole, whole]}
        assert (await client.get(f"/cart/{key}?at_length=1")).json()["data"] == whole
        await appended(client, "cart", key, "was_emptied", {})
        refused(await client.get(f"/cart/{key}"), 422, "state_too_large", more=["version"])
        assert (await client.get(f"/cart/{key}/length")).json()["length"] == 5
        assert len((await client.get(f"/cart/{key}/events")).json()["events"]) == 5
        changed = {
            **KEEPS["aggregate_types"]["cart"]["events"],
            "was_doubled": {"schema": ANYTHING, "handler": []},
        }
        spec = {**KEEPS, "aggregate_types": {"cart": {"events": changed}}}
        assert (await client.put("/_/spec", json=spec)).status_code == 200
        assert (await client.get(f"/cart/{key}")).json()["data"] == {}
