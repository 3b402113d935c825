"""The document on hash ids, by its own examples: what is imported, shown, abbreviated, migrated, computed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.command import Sluice

SPEC: dict[str, Any] = {
    "aggregate_types": {"issue": {"events": {"was_opened": {"schema": True}}}},
    "agent_types": ["user"],
    "public_ids": {"key": "BD", "types": ["issue"]},
    "hash_ids": {"prefix": "bd", "types": ["issue"]},
}
HASHED = (
    "bd-a3f2dd", "bd-a3f2dda", "bd-a3f2dda8", "bd-af78e9a2", "bd-9f4a", "bd-df11",
    "bd-537e", "bd-a3f2dd.1", "bd-a3f2dda.1.2", "bd-a3f2dd.1.2.3", "bd-af78e9a2.1", "bd-af78e9a2.2",
    "bd-af78e9a2.3", "bd-a3f2dd.1.2",
)  # fmt: skip
NUMBERED = ("BD-1", "BD-2", "BD-165", "BD-166", "BD-168", "BD-169")
KEYS = {alias: f"{n:08}-0000-4000-a000-000000000001" for n, alias in enumerate((*HASHED, *NUMBERED))}


@pytest.fixture
def beads(sluice: Sluice, redis_url: str, postgres_url: str) -> Sluice:
    """With a tenant that has all names which the document mentions."""
    whole = Sluice(SLUICE_POSTGRES_URL=postgres_url, SLUICE_REDIS_URL=redis_url)
    assert whole("tenants", "create", "main").code == 0
    assert whole("spec", "deploy", "-", stdin=json.dumps(SPEC).encode()).code == 0
    lines = [{"alias": alias, "aggregate_type": "issue", "key": key} for alias, key in KEYS.items()]
    file = b"".join([json.dumps(line).encode() + b"\n" for line in lines])
    ran = whole("names", "import", "-", stdin=file)
    assert (ran.code, ran.out) == (0, f"{len(KEYS)} names imported, 0 already present\n"), ran
    return whole


def test_the_documents_examples_are_imported_shown_and_migrated_under_one_prefix(beads: Sluice) -> None:
    def shown(text: str) -> str:
        ran = beads("names", "resolve", text)
        assert ran.code == 0, ran
        alias, _, key = ran.out.split()
        assert key == KEYS[alias]
        return str(alias)

    # "All of these work (prefix optional in input)", "Output always shows prefix".
    assert shown("a3f2dd") == shown("bd-a3f2dd") == "bd-a3f2dd"
    assert shown("a3f2dd.1") == "bd-a3f2dd.1"
    assert shown("bd-a3f2dd.1.2") == "bd-a3f2dd.1.2"
    assert {each["alias"] for each in beads("names", "list", "--json").json} == set(KEYS)
    assert shown("bd-1") == "BD-1"
    # "bd show af78" is unique. `af7` is ambiguous with a child there; here children never count.
    assert shown("af78") == "bd-af78e9a2"
    longer = {"alias": "bd-af78e9a2c4d5e6f7", "aggregate_type": "issue", "key": f"{99:08}{KEYS['BD-1'][8:]}"}
    assert beads("names", "import", "-", stdin=json.dumps(longer).encode()).code == 0
    ambiguous = beads("names", "resolve", "af78")
    assert ambiguous.err.splitlines()[1:] == ["bd-af78e9a2", "bd-af78e9a2c4d5e6f7"]
    assert shown("df11") == "bd-df11"
    # "bd migrate --hash-ids": each number gets a hash id under the same prefix, and continues to resolve.
    words = ("names", "migrate", "--from", "public", "--to", "hash")
    dry = beads(*words, "--dry-run")
    ran = beads(*words)
    assert (ran.code, ran.out) == (0, dry.out)
    mapped = dict([line.split() for line in ran.out.splitlines()])
    assert list(mapped) == list(NUMBERED)
    assert all(each.startswith("bd-") and not each[3:].isdigit() for each in mapped.values())
    assert beads("names", "resolve", mapped["BD-166"]).out.split()[2] == KEYS["BD-166"]
    assert shown("bd-166") == "BD-166"


def test_the_documents_table_of_collisions_is_recomputed(sluice: Sluice) -> None:
    theirs = {
        "6 hex digits": (0.03, 2.94, 94.9),
        "7 hex digits": (0.002, 0.19, 17.0),
        "8 hex digits": (0.0001, 0.01, 1.16),
    }
    lines = sluice("ids", "collisions").out.partition("a name's place")[0].splitlines()
    ours = {line[:21].strip(): line[21:].replace("%", "").split() for line in lines}
    for name, figures in theirs.items():
        computed = [float(figure) for figure in ours[name][:3]]
        # It rounds to one digit at times, and counts n²/2 pairs in place of n(n-1)/2.
        assert computed == pytest.approx(figures, rel=0.17), name
