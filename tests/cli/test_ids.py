from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from spec.identifiers import canonicalize
from tests.cli.command import Sluice

UUID = "A0000000-0000-4000-A000-000000000001"


def test_new_codes_are_printed_one_a_line(unset: Sluice) -> None:
    codes = unset("ids", "humane", "--count", "50").out.split()
    assert len(set(codes)) == 50
    assert all(canonicalize(code, ()) == code for code in codes)
    assert len(unset("ids", "humane").out.split()) == 1
    assert len(unset("ids", "humane", "--count", "3", "--json").json["ids"]) == 3


@pytest.mark.parametrize("count", ["0", "-1", "100001", "x"])
def test_a_count_that_can_not_be_is_refused_with_2(unset: Sluice, count: str) -> None:
    assert unset("ids", "humane", "--count", count).code == 2


def test_each_id_is_told_in_its_canonical_spelling(unset: Sluice) -> None:
    told = unset("ids", "check", UUID, "abc-123", f"{UUID}:2026", "abcl23xyz", "global")
    assert told.code == 1
    assert told.out.splitlines() == [
        f"{UUID.lower()}  uuid",
        f"{UUID.lower()}:2026  tagged_uuid",
        "ABC123XYZ  humane_code",
        "global  singleton",
    ]
    assert told.err.startswith('"abc-123" is not a UUID')


def test_what_is_checked_for_a_script_is_what_the_gateway_would_answer(unset: Sluice) -> None:
    told = unset("ids", "check", UUID, "stripe_webhook", "--json")
    assert told.code == 1
    answer = json.loads(told.out)
    assert answer["ok"] is False
    good, bad = answer["ids"]
    assert good == {"input": UUID, "canonical": UUID.lower(), "kind": "uuid"}
    assert bad.keys() == {"input", "error"}


def test_ids_are_read_from_stdin_one_a_line_and_nothing_is_trimmed(unset: Sluice) -> None:
    told = unset("ids", "check", "-", "--json", stdin=b"ABC123XYZ\n ABC123XYZ\n\nglobal\n")
    assert ["kind" in each for each in json.loads(told.out)["ids"]] == [True, False, False, True]


def test_singletons_are_those_of_the_spec_that_is_given(sluice: Sluice, tmp_path: Path) -> None:
    spec = {"aggregate_types": {}, "agent_types": [], "singletons": ["stripe_webhook"]}
    for document in (spec, {"spec": spec}):
        file = tmp_path / "spec.json"
        file.write_text(json.dumps(document))
        assert (
            sluice("ids", "check", "stripe_webhook", "--spec", str(file)).out == "stripe_webhook  singleton\n"
        )
    sluice("tenants", "create", "acme")
    assert sluice("ids", "check", "stripe_webhook", "--tenant", "acme").code == 1
    assert sluice("spec", "deploy", str(file), "--tenant", "acme").code == 0
    assert sluice("ids", "check", "stripe_webhook", "--tenant", "acme").code == 0
    assert sluice("ids", "check", "global", "--tenant", "nobody").code == 1
    assert sluice("ids", "check", "global", "--tenant", "acme", "--spec", str(file)).code == 2
    assert sluice("ids", "check", "stripe_webhook").code == 1  # there is no tenant main
    sluice("tenants", "create", "main")
    assert sluice("ids", "check", "stripe_webhook").code == 1
    assert sluice("spec", "deploy", str(file)).code == 0
    assert sluice("ids", "check", "stripe_webhook").out == "stripe_webhook  singleton\n"
    file.write_text("[]")
    assert "is not a spec" in sluice("ids", "check", "global", "--spec", str(file)).err
    assert sluice("ids", "check", "global", "--spec", str(tmp_path / "absent")).code == 2


def test_hashes_and_base62_ids_are_printed(unset: Sluice) -> None:
    content = hashlib.sha256(b"Hello world").hexdigest()
    assert unset("ids", "hash", " Hello world ").out == f"content {content}\n"
    assert unset("ids", "hash", "-", stdin=b"Hello world\n").out == f"content {content}\n"
    told = unset(
        "ids", "hash", "--value", '{"b": 1.0, "a": 2}', "--name", "n", "--property", "k=v", "--json"
    ).json
    assert told["content"] == hashlib.sha256(b'{"a":2,"b":1}').hexdigest()
    assert len({told["content"], told["context"], told["record"]}) == 3
    assert unset("ids", "hash").code == unset("ids", "hash", "--value", "{").code == 2
    ids = unset("ids", "base62", "--count", "20").out.split()
    assert (len(set(ids)), {len(each) for each in ids}) == (20, {8})


def test_collisions_are_computed(unset: Sluice) -> None:
    figures = {(row["names"], row["count"]): row for row in unset("ids", "collisions", "--json").json}
    seeds = figures["6 hex digits", 1_000]
    assert (round(seeds["any"], 4), round(seeds["taken"], 6)) == (0.0293, 0.00003)
    page = (Path(__file__).parents[2] / "docs" / "names.md").read_text()
    printed = [line.rstrip() for line in unset("ids", "collisions").out.splitlines()]
    assert "\n".join(printed) in page, "docs/names.md shows what the command prints"
