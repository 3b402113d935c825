from __future__ import annotations

import pytest

from tests.cli.command import Sluice

KEY = "A0000000-0000-4000-A000-000000000001"


@pytest.fixture
def acme(sluice: Sluice) -> Sluice:
    assert sluice("tenants", "create", "main").code == 0
    return sluice


def test_an_id_is_linked_found_both_ways_and_kept(acme: Sluice) -> None:
    assert acme("sources", "link", "jira", "", "PROJ-1", KEY).out == f"{KEY.lower()}\n"
    assert acme("sources", "key", "jira", "", "PROJ-1").out == f"{KEY.lower()}\n"
    listed = acme("sources", "find", KEY, "--json").json
    assert listed == [{"source": "jira", "scope": "", "source_id": "PROJ-1"}]
    assert "PROJ-1" in acme("sources", "find", KEY).out
    other = acme("sources", "link", "jira", "", "PROJ-1", "global")
    assert (other.code, other.out) == (1, "")
    assert KEY.lower() in other.err


def test_a_scope_is_renamed_and_its_ids_keep_their_keys(acme: Sluice) -> None:
    acme("sources", "link", "xliff", "a.xlf", "tu1", KEY)
    assert acme("sources", "rename", "xliff", "a.xlf", "b.xlf").code == 0
    assert acme("sources", "key", "xliff", "b.xlf", "tu1").out == f"{KEY.lower()}\n"
    gone = acme("sources", "key", "xliff", "a.xlf", "tu1")
    assert (gone.code, gone.out) == (1, "")
    assert "no request has named it" in gone.err
    assert acme("sources", "rename", "xliff", "a.xlf", "c.xlf").code == 1


def test_what_can_be_no_id_or_key_is_refused_with_2(acme: Sluice) -> None:
    assert acme("sources", "link", "jira", "", "", KEY).code == 2
    assert acme("sources", "link", "jira", "", "PROJ-1", "nothing like a key").code == 2
    assert acme("sources", "find", "scheduler").out != ""
    assert acme("sources", "link", "jira", "", "PROJ-1", "stripe_webhook").out == "stripe_webhook\n"
