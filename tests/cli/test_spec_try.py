"""`sluice spec try`: real history by a spec that is not deployed."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import asyncpg
import pytest
from uuid_utils.compat import uuid7

from tests.cli.command import Ran, Sluice

ONE, TWO = "a0000000-0000-4000-a000-000000000001", "a0000000-0000-4000-a000-000000000002"
SPEC: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_placed": {"schema": {"type": "object", "examples": [{"total": 1}]}},
                "had_line": {
                    "schema": {"type": "object"},
                    "handler": {"append": {"target": "lines", "value": "$.data"}},
                },
            }
        },
        "cart": {"events": {"was_made": {"schema": True}}},
    },
    "agent_types": ["user"],
}
HISTORY = [
    ("order", ONE, 1, "was_placed", {"total": 5}),
    ("order", ONE, 2, "had_line", {"sku": "a"}),
    ("order", ONE, 3, "had_line", {"sku": "a", "n": 2}),
    ("order", TWO, 1, "was_placed", {"total": "free"}),
    ("cart", ONE, 1, "was_made", {"a": 1}),
]


async def _store(url: str) -> None:
    conn = await asyncpg.connect(url)
    try:
        tenant = await conn.fetchval("SELECT id FROM tenant")
        for seq, (aggregate_type, key, version, event_type, data) in enumerate(HISTORY, 1):
            await conn.execute(
                """
                INSERT INTO outbox (p, seq, version, recorded_at, id, tenant, correlation_id, spec_rev,
                    append_id, digest, aggregate_type, aggregate_id, type, actor_type, actor_id, payload)
                VALUES (0, $1, $2, now(), $3, $4, $3, 1, '', '', $5, $6, $7, 'user', 'global', $8)
                """,
                seq, version, uuid7(), tenant, aggregate_type, key, event_type, json.dumps(data).encode(),
            )  # fmt: skip
    finally:
        await conn.close()


@pytest.fixture
async def main(sluice: Sluice, postgres_url: str) -> Sluice:
    await asyncio.to_thread(sluice, "tenants", "create", "main")
    await asyncio.to_thread(sluice, "spec", "deploy", "-", stdin=json.dumps(SPEC).encode())
    await _store(postgres_url)
    return sluice


async def tried(main: Sluice, spec: dict[str, Any], *options: str) -> Ran:
    return await asyncio.to_thread(main, "spec", "try", "-", *options, stdin=json.dumps(spec).encode())


def changed(**events: Any) -> dict[str, Any]:
    spec = copy.deepcopy(SPEC)
    spec["aggregate_types"]["order"]["events"] |= events
    return spec


REVISED = {
    "revision": 2,
    "schema": {"type": "object", "properties": {"total": {"type": "number"}, "currency": {"const": "EUR"}}},
    "upcast": {"1": [{"set": {"target": "currency", "value": "EUR"}}, {"increment": {"target": "total"}}]},
}
UPSERTS = {
    "schema": {"type": "object"},
    "handler": {"upsert": {"target": "lines", "key": "n", "value": "$.data"}},
}


async def test_the_deployed_spec_changes_nothing(main: Sluice) -> None:
    told = (await tried(main, SPEC, "--json")).json
    assert (told["ok"], told["events"], told["aggregates"], told["whole"]) == (True, 5, 3, True)
    assert (told["refused"]["count"], told["states"]["differ"], told["misfits"]["count"]) == (0, 0, 0)
    assert told["largest_state_bytes"] > 20
    assert told["seconds"] >= 0
    assert told["memory_bytes"] > 1_000_000
    ran = await tried(main, SPEC)
    assert ran.code == 0
    assert "5 events of 3 aggregates" in ran.out
    assert "refused: 0 events; states that differ: 0; operations that do not fit: 0" in ran.out


async def test_what_would_be_refused_and_what_would_be_another_state(main: Sluice) -> None:
    ran = await tried(main, changed(was_placed=REVISED, had_line=UPSERTS), "--json")
    assert ran.code == 1
    told = json.loads(ran.out)
    at = {"aggregate_type": "order", "key": TWO, "version": 1, "event_type": "was_placed"}
    assert told["refused"]["count"] == 1
    (refused,) = told["refused"]["first"]
    assert refused == {**at, "path": "data.total", "error": refused["error"]}
    assert told["states"]["differ"] == 2
    first = told["states"]["first"][0]
    assert (first["aggregate_type"], first["key"], first["length"], first["too_large_at"]) == (
        "order", ONE, 3, None,
    )  # fmt: skip
    diff = {each["pointer"]: each for each in first["diff"]}
    assert diff["/total"] == {"change": "changed", "pointer": "/total", "was": 5, "now": 6}
    assert diff["/currency"] == {"change": "added", "pointer": "/currency", "now": "EUR"}
    assert diff["/lines/1"]["change"] == "removed"
    misfits = [(each["version"], each["operation"], each["error"]) for each in told["misfits"]["first"]]
    assert misfits == [
        (2, 0, "The value has no `n`, by which items are matched."),
        (1, 1, "upcast of revision 1: `total` is a string, not a number."),
    ]
    text = await tried(main, changed(was_placed=REVISED, had_line=UPSERTS))
    assert text.code == 1
    assert f"! order {TWO} version 1, was_placed: data.total: " in text.out
    assert '    + /currency  "EUR"' in text.out
    shown = await asyncio.to_thread(main, "spec", "show", "--json")
    assert shown.json["revision"] == 1


async def test_only_a_type_and_only_so_many_events(main: Sluice) -> None:
    told = (await tried(main, SPEC, "--type", "cart", "--json")).json
    assert (told["events"], told["aggregates"]) == (1, 1)
    told = (await tried(main, SPEC, "--type", "order", "--limit", "2", "--json")).json
    assert (told["events"], told["aggregates"], told["whole"]) == (2, 1, False)
    told = (await tried(main, SPEC, "--limit", "5", "--json")).json
    assert (told["events"], told["whole"]) == (5, True)
    ran = await tried(main, SPEC, "--type", "cat")
    assert (ran.code, ran.err) == (1, "neither this spec nor the deployed one has an aggregate type cat\n")


async def test_faults_are_told_and_a_check_runs_steps_on_the_examples_of_what_was_deployed(
    main: Sluice,
) -> None:
    strict = {**REVISED, "schema": {"properties": {"total": {"maximum": 1}}}}
    document = json.dumps(changed(was_placed=strict)).encode()
    ran = await asyncio.to_thread(main, "spec", "check", "-", stdin=document)
    assert ran.code == 1
    pointer = "/aggregate_types/order/events/was_placed/upcast/1"
    assert ran.out.startswith(
        f"{pointer}  refused_example  Example 0 of the schema of revision 1 becomes data"
    )
    good = json.dumps(changed(was_placed=REVISED)).encode()
    assert (await asyncio.to_thread(main, "spec", "check", "-", stdin=good)).code == 0
    ran = await tried(main, changed(was_placed={"schema": True, "revision": 2}))
    assert (ran.code, ran.out.split("  ")[1]) == (1, "missing_key")


async def test_a_spec_that_was_shown_is_tried_without_its_secrets(main: Sluice) -> None:
    to = {"type": "order", "id": "global", "event": "was_placed"}
    github = {"provider": "github", "secrets": ["***"], "to": to, "actor": {"type": "user", "id": "global"}}
    told = await tried(main, {**SPEC, "webhooks": {"github": github}}, "--json")
    assert (told.code, told.json["refused"]["count"]) == (0, 0)
