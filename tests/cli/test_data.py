"""`sluice show`, `events`, `tail`, `append`, `find`: a person looks at data, through a running gateway."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from gateway.client import AsyncClient
from gateway.client.retry import Call, Request
from gateway.config import Config
from tests.cli.command import Ran, Sluice
from tests.support.accounts import SPEC, open_account
from tests.support.databases import cloned
from tests.support.servers import Servers
from tests.support.serving import serving

ORDER = "e0000000-0000-4000-a000-000000000001"
CORRELATION = "c0000000-0000-4000-a000-000000000001"
THANKS = {
    "trigger": {"aggregate_type": "order", "event_type": "was_cleared"},
    "steps": [
        {"name": "thank", "emit": {"aggregate_type": "order", "id": "$.key", "event_type": "was_noted"}}
    ],
}
NAMED = {**SPEC, "public_ids": {"key": "ORD", "types": ["order"]}, "sagas": {"thanks": THANKS}}
COLOUR = re.compile(r"\x1b\[")
Run = Callable[..., Awaitable[Ran]]


@pytest.fixture(scope="module")
async def config(servers: Servers, template: str) -> AsyncIterator[Config]:
    async with cloned(servers, template) as url:
        yield Config(redis_url=servers.redis_url, postgres_url=url)


@pytest.fixture(scope="module")
async def run(config: Config, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Run]:
    """`sluice`, after `. .sluice/run/env`: with SLUICE_URL and SLUICE_KEY_FILE."""
    async with asyncpg.create_pool(config.postgres_url, min_size=1, max_size=1) as pool:
        account = await open_account(pool, NAMED)
    key_file: Path = tmp_path_factory.mktemp("run") / "key"
    key_file.write_text(f"{account.admin}\n")
    async with serving(config) as served:
        sluice = Sluice(SLUICE_URL=served.url, SLUICE_KEY_FILE=str(key_file))

        async def call(*words: str, stdin: bytes = b"", **environ: str) -> Ran:
            return await asyncio.to_thread(sluice, *words, stdin=stdin, **environ)

        placed = await call(
            *("append", "order", ORDER, "was_placed", '{"total": 42.50}', "--json"),
            *("--correlation", CORRELATION, "--idempotency-key", "place-1", "--actor", "user:global"),
        )
        assert placed.json["aliases"] == ["ORD-1"]
        async with AsyncClient(served.url, account.admin) as client:
            body = b'{"aggregate_type": "order", "key": "%b"}' % ORDER.encode()
            json_body = {"content-type": "application/json"}
            path = "/_/sources/xliff/a.xlf%2Fpart/tu1"
            await client.call(Call(Request("PUT", path, {}, json_body, body), lambda answer: answer))
        yield call


async def test_an_aggregate_is_shown_by_its_alias_as_it_is_and_as_it_was(run: Run) -> None:
    shown = (await run("show", "order", "@ord-1")).out
    assert shown.startswith(f"order  {ORDER}  ORD-1\nlength ")
    as_json = (await run("show", "order", "@ORD-1", "--json")).json
    assert (as_json["key"], as_json["aliases"]) == (ORDER, ["ORD-1"])
    assert (await run("show", "order", ORDER, "--at-length", "0")).code == 1
    before = await run("show", "order", "@ORD-1", "--at", "2001-01-01T00:00:00Z", "--json")
    assert (before.code, json.loads(before.out)["code"]) == (1, "not_found")


async def test_numbers_are_shown_as_they_were_written(run: Run) -> None:
    assert '"data":{"total":42.50}' in (await run("events", "order", "@ORD-1", "--limit", "1", "--json")).out


async def test_a_number_of_any_size_is_appended_read_and_counted(run: Run, config: Config) -> None:
    done = await run("append", "order", ORDER, "was_placed", '{"total": 1e400}', "--json")
    assert done.json["ok"]
    assert '"data":{"total":1e400}' in (await run("events", "order", ORDER, "--json")).out
    largest = {"key": "$.key", "do": [{"set": {"target": "total", "value": "$.data.total"}}]}
    spec = json.dumps({**NAMED, "projections": {"largest": {"on": {"order.was_placed": largest}}}}).encode()
    at = config.postgres_url
    (tenant,) = (await run("tenants", "list", "--json", SLUICE_POSTGRES_URL=at)).json
    words = "projections", "try", "-", "--name", "largest", "--tenant", tenant["name"]
    for as_json in ((), ("--json",)):
        tried = await run(*words, *as_json, stdin=spec, SLUICE_POSTGRES_URL=at)
        assert f'{{"key": "{ORDER}", "data": {{"total": 1e400}}, "length": 2}}' in tried.out, tried


async def test_what_is_no_utf_8_is_no_identifier(run: Run) -> None:
    ran = await run("show", "order", "\udcff")
    assert (ran.code, ran.out, ran.err) == (1, "", "an argument is not UTF-8\n")


async def test_an_append_says_what_it_did_and_again_that_it_was_there(run: Run) -> None:
    words = ("append", "order", "@ORD-1", "was_named", "-", "--idempotency-key", "name-1")
    first, again = [await run(*words, stdin=b'{"name": "Ada"}') for _ in range(2)]
    assert first.out.startswith("appended: event 01")
    assert again.out.startswith("already appended: event 01")
    assert first.out.split()[2] == again.out.split()[3]
    assert re.search(r"actor user:[-0-9a-f]{36} \(login ", first.err)
    assert (await run("show", "order", "@ORD-1", "--json")).json["data"]["customer"] == {"name": "Ada"}
    named = await run(*words, stdin=b"{}", SLUICE_ACTOR="user:global")
    assert (named.code, named.err.split(":")[0]) == (1, "idempotency_mismatch")


async def test_a_file_appends_to_several_aggregates(run: Run, tmp_path: Path) -> None:
    events = [
        {"aggregate_type": "order", "type": "was_noted", "data": 42.50},
        {"aggregate_type": "config", "key": "global", "type": "was_changed", "data": {}},
    ]
    file = tmp_path / "both.json"
    file.write_text(json.dumps({"events": events}))
    words = ("append", "--file", str(file), "--idempotency-key", "both-1", "--actor", "user:global")
    first = await run(*words)
    assert first.out.splitlines()[-1] == "appended: 2 events"
    assert (await run(*words)).out.splitlines()[-1] == "appended before: 2 events"
    told = (await run("append", "--file", "-", "--json", stdin=file.read_bytes())).json
    assert told["count"] == 2
    condition = {"fail_if_events_match": {"items": [{"tags": ["config:global"]}]}}
    refused = json.dumps({"events": events, "condition": condition}).encode()
    ran = await run("append", "--file", "-", "--json", stdin=refused)
    assert (ran.code, json.loads(ran.out)["code"]) == (1, "condition_failed")
    for wrong in (["append"], ["append", "order", "--file", str(file)], ["append", "--file", __file__]):
        assert (await run(*wrong)).code == 2


async def test_what_the_gateway_refuses_is_a_sentence_or_its_answer(run: Run) -> None:
    ran = await run("append", "order", ORDER, "was_payed", "{}", "--actor", "user:global")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("unknown_event_type: ")
    ran = await run("append", "order", ORDER, "was_placed", "{}", "--previous-length", "99", "--json")
    assert (ran.code, json.loads(ran.out)["code"]) == (1, "version_conflict")
    for words in (
        ["append", "order", ORDER, "was_placed", "{"],
        ["append", "order", ORDER, "was_placed", '"\udcff"'],  # a byte that is no UTF-8
        ["events", "order"],
        ["events", "--from", "1"],
    ):
        assert (await run(*words)).code == 2


async def test_events_are_listed_of_one_aggregate_and_of_all(run: Run) -> None:
    await run("append", "config", "global", "was_changed", '{"n": 1}')
    of_one = await run("events", "order", "@ORD-1", "--limit", "1")
    assert of_one.out.splitlines()[0].split() == ["at", "version", "event", "actor", "id", "data"]
    assert "was_placed" in of_one.out
    assert "--limit" in of_one.err or "was_named" not in of_one.out
    of_all = (await run("events", "--since", "1h", "--type", "config", "--json")).json
    assert {each["aggregate_type"] for each in of_all["events"]} == {"config"}
    assert of_all["more"] is False


async def test_the_feed_is_followed_a_line_an_event(run: Run) -> None:
    lines = (await run("tail", "--after", "beginning", "--limit", "1", "--json")).out.splitlines()
    (event,) = [json.loads(line) for line in lines]
    assert (event["aggregate_type"], event["version"], "position" in event) == ("order", 1, True)
    shown = await run("tail", "--after", "beginning", "--limit", "1", "--type", "order")
    assert f"order.was_placed  {ORDER}  1  user:global" in shown.out
    assert not COLOUR.search(shown.out)


@pytest.mark.parametrize(
    ("anything", "what"),
    [
        ("ORD-1", "alias"),
        ("@ord-1", "alias"),
        (ORDER.upper(), "key"),
        (CORRELATION, "correlation id"),
        ("place-1", "idempotency key"),
        ("xliff/a.xlf/part/tu1", "source id"),
    ],
)
async def test_an_identifier_of_any_kind_is_found(run: Run, anything: str, what: str) -> None:
    found = (await run("find", anything, "--json")).json["found"]
    assert [(each["what"], each["aggregate_type"], each["key"]) for each in found] == [(what, "order", ORDER)]


async def test_the_key_of_an_append_to_several_aggregates_is_found(run: Run, tmp_path: Path) -> None:
    event = {"aggregate_type": "order", "type": "was_placed", "data": {"total": 1}}
    keys = [str(uuid4()) for _ in range(2)]
    file = tmp_path / "several.json"
    file.write_text(json.dumps({"events": [{**event, "key": key} for key in keys]}))
    done = await run(
        "append", "--file", str(file), "--idempotency-key", "of-several", "--actor", "user:global"
    )
    assert done.code == 0, done.err
    (found,) = (await run("find", "of-several", "--json")).json["found"]
    assert (found["what"], found["aggregate_type"], found["key"]) == ("idempotency key", "order", keys[0])


async def test_an_event_is_found_by_its_id_and_nothing_by_another(run: Run) -> None:
    (event,) = (await run("events", "order", ORDER, "--limit", "1", "--json")).json["events"]
    (found,) = (await run("find", event["id"], "--json")).json["found"]
    assert (found["what"], found["id"], found["key"]) == ("event", event["id"], ORDER)
    nothing = await run("find", "nothing-of-ours")
    assert (nothing.code, nothing.out) == (1, "")


async def test_a_saga_is_found_by_its_id(run: Run) -> None:
    assert (
        await run("append", "order", str(uuid4()), "was_cleared", "{}", "--actor", "user:global")
    ).code == 0
    async with asyncio.timeout(40):
        while not (sagas := (await run("sagas", "list", "--json")).json["items"]):
            await asyncio.sleep(0.05)
    (found,) = (await run("find", sagas[0]["id"], "--json")).json["found"]
    assert (found["what"], found["aggregate_type"], found["key"]) == ("key", "_saga", sagas[0]["id"])


async def test_records_of_a_file_are_imported_and_again_are_unchanged(run: Run) -> None:
    words = ("import", "-", "--type", "order", "--event", "was_placed", "--ref", "no")
    file = b'{"no": "a", "total": 1}\n\n{"no": "b", "total": 2}\n'
    none = {"new": 0, "unchanged": 0, "edited": 0, "renamed": 0, "linked": 0, "refused": 0}
    assert (await run(*words, "--dry-run", "--json", stdin=file)).json == {**none, "new": 2}
    assert (await run(*words, "--dry-run", stdin=file)).out.splitlines()[:2] == ["line 1: new", "line 3: new"]
    assert (await run(*words, "--json", stdin=file)).json == {**none, "new": 2}
    assert (await run(*words, "--json", stdin=file)).json == {**none, "unchanged": 2}
    broken = await run(*words, stdin=file + b"[]\n")
    assert broken.code == 1
    assert broken.out == "0 new, 2 unchanged, 0 edited, 0 renamed, 0 linked, 1 refused\n"
    assert "line 4: invalid_field" in broken.err
    several = await run("import", "-", "--type", "order", stdin=file)
    assert (several.code, several.out) == (2, "")
    assert "Invalid value for --event: 'order' has several events" in several.err


async def test_a_file_of_several_requests_is_one_import(run: Run, tmp_path: Path) -> None:
    def written(numbers: Iterable[int], *more: str) -> str:
        records = [json.dumps({"no": f"n{n}", "total": 7}) for n in numbers]
        path = tmp_path / "records.jsonl"
        path.write_text("\n".join([*records, *more]))
        return str(path)

    words = ("--type", "order", "--event", "was_placed", "--ref", "no", "--actor", "user:global")
    first = await run("import", written(range(1, 601)), *words, "--json")
    assert (first.json["new"], first.json["refused"]) == (600, 0)
    # n0 comes first and says what all of them say; but each of these stands in the file.
    again = await run("import", written(range(601), '{"no": "n1", "total": 8}'), *words, "--json")
    told = json.loads(again.out)
    assert (again.code, told["new"], told["unchanged"], told["refused"]) == (1, 1, 600, 1)
    assert "line 602: invalid_field" in again.err
    renamed = await run("import", written([700]), *words, "--json")
    assert renamed.json["renamed"] == 1


async def test_without_a_gateway_or_a_key_it_says_what_to_set(run: Run) -> None:
    ran = await run("show", "order", ORDER, SLUICE_URL="")
    assert (ran.code, ran.err.splitlines()[0]) == (
        2,
        "the gateway's URL is missing: set SLUICE_URL, or give --url",
    )
    ran = await run("show", "order", ORDER, "--url", "localhost:8017")
    assert (ran.code, ran.err) == (
        2,
        "SLUICE_URL or --url: this is not a URL such as http://127.0.0.1:8017\n",
    )
    ran = await run("show", "order", ORDER, SLUICE_KEY_FILE="")
    assert ran.code == 2
    assert ran.err.startswith("a gateway requires a key")
    ran = await run("show", "order", ORDER, "--key", "sl_unknown")
    assert (ran.code, ran.err.split(":")[0]) == (1, "unauthorized")


async def test_an_option_of_all_aggregates_is_refused_by_its_own_name(run: Run) -> None:
    for option, value in (("--correlation", CORRELATION), ("--type", "order"), ("--since", "1h")):
        ran = await run("events", "order", ORDER, option, value)
        assert ran.code == 2
        assert f"{option} cannot be combined with TYPE and KEY" in ran.err


async def test_a_correlation_id_that_a_gateway_would_replace_is_refused(run: Run) -> None:
    words = ("append", "order", ORDER, "was_placed", '{"total": 1}', "--actor", "user:global")
    for correlation in ("x", CORRELATION.upper(), ""):
        ran = await run(*words, "--correlation", correlation, "--json")
        assert ran.code == 1
        told = json.loads(ran.out)
        assert (told["code"], told["path"]) == ("invalid_field", "X-Correlation-Id")
