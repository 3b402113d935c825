"""`sluice subscriptions` and `sluice relay`."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Sluice

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
DOCUMENT: dict[str, Any] = {
    "filter": {"types": ["order"]},
    "start": "beginning",
    "target": {"type": "webhook", "url": "https://hooks.example.com/in", "secret": SECRET},
}


@pytest.fixture
def billing(sluice: Sluice, tmp_path: Path) -> Path:
    """A file with a subscription, which tenant main has."""
    file = tmp_path / "billing.json"
    file.write_text(json.dumps(DOCUMENT))
    assert sluice("tenants", "create", "main").code == 0
    assert sluice("subscriptions", "put", "billing", str(file)).out == "billing is created\n"
    return file


def test_relay_and_subscriptions_point_to_each_other_and_a_relay_needs_no_command(unset: Sluice) -> None:
    assert "`sluice subscriptions`" in " ".join(unset("relay", "--help").out.split())
    assert "runs a relay until SIGTERM" in " ".join(unset("relay", "--help").out.split())
    assert "`sluice relay`" in " ".join(unset("subscriptions", "--help").out.split())


def test_one_is_put_listed_shown_and_ended_without_its_secret(sluice: Sluice, billing: Path) -> None:
    assert (
        sluice("subscriptions", "put", "billing", "-", stdin=billing.read_bytes()).out
        == "billing is changed\n"
    )
    shown = sluice("subscriptions", "show", "billing").json
    assert shown["target"] == {**DOCUMENT["target"], "secret": "***"}
    assert sluice("subscriptions", "list", "--json").json == [shown]
    table = sluice("subscriptions", "list")
    assert "https://hooks.example.com/in" in table.out and SECRET not in table.out
    assert sluice("subscriptions", "delete", "billing").out == "billing is deleted\n"
    gone = sluice("subscriptions", "show", "billing")
    assert (gone.code, gone.out) == (1, "")
    assert "no subscription 'billing'" in gone.err


def test_names_that_the_spec_does_not_declare_are_refused(sluice: Sluice, billing: Path) -> None:
    spec = {"aggregate_types": {"order": {"events": {"was_placed": {"schema": {}}}}}, "agent_types": ["user"]}
    assert sluice("spec", "deploy", "-", stdin=json.dumps(spec).encode()).code == 0
    document = {**DOCUMENT, "filter": {"types": ["order", "oder"], "event_types": ["was_sent"]}}
    told = sluice("subscriptions", "put", "billing", "-", stdin=json.dumps(document).encode())
    assert told.code == 1
    assert [line.split("  ")[:2] for line in told.err.splitlines()] == [
        ["/filter/event_types/0", "undeclared"],
        ["/filter/types/1", "undeclared"],
    ]
    document["filter"]["include_undeclared"] = True
    told = sluice("subscriptions", "put", "billing", "-", stdin=json.dumps(document).encode())
    assert told.out == "billing is changed\n"


def test_a_document_that_can_not_be_used_is_refused_with_every_fault(
    sluice: Sluice, billing: Path, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps({"start": 5, "target": {**DOCUMENT["target"], "url": "https://10.0.0.1"}}))
    told = sluice("subscriptions", "put", "wrong", str(file))
    assert told.code == 1
    assert "/start  invalid_value" in told.err and "/target/url  unsafe_target" in told.err
    private = json.dumps({"target": {**DOCUMENT["target"], "url": "http://10.0.0.1"}}).encode()
    words = ("subscriptions", "put", "private", "-")
    assert sluice(*words, stdin=private).code == 1
    assert sluice(*words, stdin=private, SLUICE_ALLOW_PRIVATE_TARGETS="on").code == 0
    file.write_text('{"target": {"type": "pull"}, "target": {"type": "pull"}}')
    told = sluice("subscriptions", "put", "wrong", str(file))
    assert told.code == 2
    assert '"target"' in told.err
    file.write_text("[]")
    assert sluice("subscriptions", "put", "wrong", str(file)).code == 2
    assert sluice("subscriptions", "put", "Wrong", str(billing)).code == 2


def test_status_pause_resume_and_replay(sluice: Sluice, billing: Path) -> None:
    (stands,) = sluice("relay", "status", "--json").json
    assert (stands["tenant"], stands["name"], stands["state"]) == ("main", "billing", "active")
    assert (stands["lag_events"], stands["lag_s"], stands["parked"], stands["owner"]) == (0, 0.0, 0, None)
    assert sluice("relay", "pause", "billing").out == "billing is paused\n"
    assert "paused" in sluice("relay", "status").out
    assert sluice("relay", "resume", "billing").out == "billing is resumed\n"
    assert sluice("relay", "replay", "billing").out == "0 parked events will be delivered again\n"
    assert sluice("subscriptions", "waiting", "billing", "--json").json == []
    assert sluice("subscriptions", "attempts", "billing", "--json").json == []
    assert sluice("relay", "skip", "billing", str(uuid.uuid4())).code == 1
    assert sluice("relay", "skip", "billing", "x").code == 2
    assert sluice("relay", "pause", "nobody").code == 1
    assert sluice("relay", "status", "--tenant", "main", "--json").json == [stands]
    nobody = sluice("relay", "status", "--tenant", "other", "--json")
    assert (nobody.code, nobody.err) == (1, "")
    assert "there is no tenant 'other'" in nobody.out


def test_a_spec_whose_subscriptions_begin_nowhere_is_refused(sluice: Sluice) -> None:
    assert sluice("tenants", "create", "main").code == 0
    declared = {"all": {"start": "AQAAAAAAAAAAAQAAAAA", "target": {"type": "pull"}}}
    spec = {"aggregate_types": {}, "agent_types": [], "subscriptions": declared}
    told = sluice("spec", "deploy", "-", stdin=json.dumps(spec).encode())
    assert told.code == 1
    assert "/subscriptions/all/start  invalid_value" in told.err


def test_a_relay_by_itself_wants_its_settings(unset: Sluice) -> None:
    told = unset("relay")
    assert told.code == 2
    assert "SLUICE_POSTGRES_URL" in told.err
