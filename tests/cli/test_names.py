"""`sluice names`, as a person uses it: with the servers of a gateway, or only the database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Sluice

KEYS = [f"{n:08}-0000-4000-a000-000000000001" for n in range(4)]
SPEC: dict[str, Any] = {
    "aggregate_types": {"character": {"events": {}}, "timeline": {"events": {}}},
    "agent_types": ["user"],
    "public_ids": {"key": "VNO", "types": ["character"]},
    "webhooks": {},
}
LINES = [
    {"alias": "VNO-2", "aggregate_type": "character", "key": KEYS[0]},
    {"alias": "VNO-10", "aggregate_type": "timeline", "key": KEYS[1]},
    {"alias": "bd-k86gaq", "aggregate_type": "timeline", "key": KEYS[1], "retired": True},
    {"alias": "bd-k86gm2", "aggregate_type": "timeline", "key": KEYS[2]},
]
FILE = b"".join(json.dumps(line).encode() + b"\n" for line in LINES)


@pytest.fixture
def names(sluice: Sluice, redis_url: str, postgres_url: str) -> Sluice:
    """With a tenant `main` that has LINES."""
    whole = Sluice(SLUICE_POSTGRES_URL=postgres_url, SLUICE_REDIS_URL=redis_url)
    for name in ("main", "other"):
        assert whole("tenants", "create", name).code == 0
        ran = whole("spec", "deploy", "-", "--tenant", name, stdin=json.dumps(SPEC).encode())
        assert ran.code == 0, ran
    ran = whole("names", "import", "-", stdin=FILE)
    assert (ran.code, ran.out) == (0, "4 names imported, 0 already present\n"), ran
    return whole


def test_an_alias_is_resolved_with_only_the_database(names: Sluice, sluice: Sluice) -> None:
    for text in ("VNO-2", "@vno-2"):
        assert sluice("names", "resolve", text).out.endswith(f" character {KEYS[0]}\n")
    told = sluice("names", "resolve", "k86ga", "--json").json
    assert told == {
        "ok": True,
        "aggregate_type": "timeline",
        "key": KEYS[1],
        "alias": "bd-k86gaq",
        "retired": True,
    }


def test_names_are_listed_by_type_and_up_to_a_limit(names: Sluice) -> None:
    timeline = names("names", "list", "--type", "timeline", "--json").json
    assert [each["alias"] for each in timeline] == ["VNO-10", "bd-k86gaq", "bd-k86gm2"]
    some = names("names", "list", "--limit", "2", "--json")
    assert [each["alias"] for each in some.json] == ["VNO-2", "VNO-10"]
    assert some.err == "only the first 2 are listed: raise --limit, or narrow by --type\n"
    assert names("names", "list", "--limit", "4").err == ""
    assert names("names", "list", "--limit", "0").code == 2


def test_what_names_nothing_or_too_much_says_so(names: Sluice) -> None:
    for text, why in (("VNO-1", "no alias VNO-1"), ("VNO-0", "starts from 1"), ("nope", "is not an alias")):
        ran = names("names", "resolve", text)
        assert (ran.code, ran.out) == (1, "")
        assert why in ran.err
    ran = names("names", "resolve", "k86g")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines() == ["k86g could be any of these:", "bd-k86gaq", "bd-k86gm2"]
    assert names("names", "resolve", "VNO-2", "--tenant", "other").code == 1
    assert "no tenant 'nobody'" in names("names", "resolve", "VNO-2", "--tenant", "nobody").err


def test_names_are_listed_in_the_order_in_which_people_count(names: Sluice) -> None:
    told = names("names", "list", "--json").json
    assert [each["alias"] for each in told] == ["VNO-2", "VNO-10", "bd-k86gaq", "bd-k86gm2"]
    rows = [line.split() for line in names("names", "list").out.splitlines()[1:]]
    assert rows[0] == ["VNO-2", "character", KEYS[0]]
    assert rows[2] == ["bd-k86gaq", "timeline", KEYS[1], "retired"]


def test_a_list_that_is_printed_in_parts_has_one_header_and_every_name(names: Sluice) -> None:
    lines = [
        {"alias": f"VNO-{n}", "aggregate_type": "character", "key": f"{n:08}-0000-4000-b000-000000000001"}
        for n in range(11, 2012)
    ]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    assert names("names", "import", "-", stdin=text).code == 0
    rows = [line.split() for line in names("names", "list").out.splitlines()]
    assert rows[0] == ["alias", "type", "key"]
    expected = ["VNO-2", "VNO-10", *(line["alias"] for line in lines), "bd-k86gaq", "bd-k86gm2"]
    assert [row[0] for row in rows[1:]] == expected


def test_an_export_is_imported_by_another_tenant(names: Sluice, tmp_path: Path) -> None:
    path = tmp_path / "names.jsonl"
    one = names("names", "import", "-", "--tenant", "other", stdin=FILE.splitlines()[0])
    assert one.out == "1 name imported, 0 already present\n"
    assert names("names", "export", "--tenant", "other").err == "1 name written\n"
    ran = names("names", "export", str(path))
    assert (ran.code, ran.out, ran.err) == (0, "", "4 names written\n")
    assert [json.loads(line) for line in path.read_bytes().splitlines()] == LINES
    assert names("names", "export").out.encode() == path.read_bytes()
    assert names("names", "import", str(path), "--tenant", "other").out.startswith("3 names imported")
    assert names("names", "export", "--tenant", "other").out.encode() == path.read_bytes()
    assert names("names", "import", str(path)).out == "0 names imported, 4 already present\n"


def test_a_line_that_is_no_json_is_spoken_of_as_a_line(names: Sluice) -> None:
    ran = names("names", "import", "-", stdin=b"\xef\xbb\xbf{}\n\xff\n")
    assert ran.err.splitlines() == [
        "line 1: The line starts with a byte order mark; send plain UTF-8 without it.",
        "line 2: The line is not UTF-8: byte 0xff at offset 0.",
        "nothing was changed",
    ]


def test_an_import_that_can_not_be_whole_changes_nothing_and_says_all_that_is_wrong(names: Sluice) -> None:
    before = names("names", "export").out
    bad = [{**LINES[0], "alias": "VNO-3"}, {**LINES[1], "key": "?"}, {**LINES[2], "alias": "VNO-11"}]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in bad)
    ran = names("names", "import", "-", stdin=text)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines() == ['line 2: "?" is not an identifier.', "nothing was changed"]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in [bad[0], bad[2]])
    ran = names("names", "import", "-", stdin=text)
    assert ran.err.splitlines() == [
        f"line 1: The character {KEYS[0]} has VNO-2 already.",
        f"line 2: The timeline {KEYS[1]} has VNO-10 already.",
        "nothing was changed",
    ]
    assert names("names", "export").out == before


def test_an_alias_is_retired_and_restored(names: Sluice) -> None:
    for _ in range(2):
        assert names("names", "retire", "@vno-2").out == "VNO-2 is retired\n"
        assert names("names", "resolve", "VNO-2", "--json").json["retired"] is True
    assert names("names", "restore", "VNO-2").out == "VNO-2 is restored\n"
    assert "retired" not in names("names", "resolve", "VNO-2", "--json").json
    assert "no alias VNO-1" in names("names", "retire", "VNO-1").err
    assert "is not an exact alias" in names("names", "retire", "k86gaq").err


def test_the_tables_are_made_again(names: Sluice) -> None:
    before = names("names", "export").out
    assert names("names", "rebuild").out == "4 names rebuilt, no differences\n"
    assert names("names", "export").out == before


def test_a_file_that_is_not_there_is_said_to_be_missing(names: Sluice, tmp_path: Path) -> None:
    ran = names("names", "import", str(tmp_path / "nothing"))
    assert ran.code == 2
    assert "can't be read" in ran.err
    ran = names("names", "export", str(tmp_path / "no" / "where"))
    assert ran.code == 2
    assert "can't be written" in ran.err
    full = names("names", "export", "/dev/full")
    assert (full.code, full.out) == (1, "")
    assert full.err.startswith("sluice: the output can't be written: No space left on device")


HASHED = {**SPEC, "hash_ids": {"prefix": "bd", "types": ["character", "timeline"]}}
MIGRATE = ("names", "migrate", "--from", "public", "--to", "hash")


def hashed(names: Sluice, types: list[str]) -> None:
    spec = {**HASHED, "hash_ids": {"prefix": "bd", "types": types}}
    assert names("spec", "deploy", "-", stdin=json.dumps(spec).encode()).code == 0


def test_a_dry_run_says_what_the_run_then_writes_and_writes_nothing(names: Sluice) -> None:
    hashed(names, ["character", "timeline"])
    before = names("names", "export").out
    dry = names(*MIGRATE, "--dry-run")
    assert (dry.code, names("names", "export").out) == (0, before)
    lines = [line.split() for line in dry.out.splitlines()]
    assert [public for public, _ in lines] == ["VNO-2", "VNO-10"]
    assert lines[1] == ["VNO-10", "bd-k86gaq"], "what has a hash id keeps it"
    assert dry.err == "1 hash ids would be new; nothing was written, 1 existed already\n"
    ran = names(*MIGRATE)
    assert (ran.code, ran.out) == (0, dry.out)
    assert ran.err == "1 hash ids are new, 1 existed already\n"
    for public, hash_id in lines:
        resolved = [names("names", "resolve", each).out.split() for each in (public, hash_id)]
        assert (resolved[0][0], resolved[1][0]) == (public, hash_id)
        assert resolved[0][1:] == resolved[1][1:]
    after = names("names", "export").out
    assert set(before.splitlines()) < set(after.splitlines())
    assert (names(*MIGRATE).out, names("names", "export").out) == (dry.out, after), (
        "a second run changes nothing"
    )
    assert names("names", "rebuild").out == "5 names rebuilt, no differences\n"


def test_a_migration_gives_all_names_or_none(names: Sluice) -> None:
    before = names("names", "export").out
    for words in ((), ("--dry-run",)):
        ran = names(*MIGRATE, *words)
        assert (ran.code, ran.out) == (1, "")
        assert "declares no `hash_ids`" in ran.err
    assert names("names", "export").out == before


def test_a_migration_reaches_types_whose_new_aggregates_get_no_hash_id(names: Sluice) -> None:
    hashed(names, ["timeline"])
    dry = names(*MIGRATE, "--dry-run")
    ran = names(*MIGRATE)
    assert (ran.code, ran.out) == (0, dry.out)
    assert [line.split()[0] for line in ran.out.splitlines()] == ["VNO-2", "VNO-10"]
    assert (
        ran.err.splitlines()[1] == "`hash_ids` does not list character: new aggregates of them get no hash id"
    )
    for public, hash_id in (line.split() for line in ran.out.splitlines()):
        resolved = [names("names", "resolve", each).out.split() for each in (public, hash_id)]
        assert (resolved[0][0], resolved[1][0]) == (public, hash_id)
        assert resolved[0][1:] == resolved[1][1:]
    assert names("names", "rebuild").out == "5 names rebuilt, no differences\n"


@pytest.mark.parametrize("words", [("--from", "hash", "--to", "public"), ("--from", "public"), ()])
def test_only_public_ids_are_migrated_and_only_to_hash_ids(sluice: Sluice, words: tuple[str, ...]) -> None:
    assert sluice("names", "migrate", *words).code == 2
