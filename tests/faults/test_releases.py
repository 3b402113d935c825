"""What is known of an earlier release by its files."""

from __future__ import annotations

from tests.faults.gateway_at import ROOT
from tests.faults.releases import Release


def test_a_release_with_the_same_migrations_and_format_can_be_exchanged_both_ways() -> None:
    same = Release("same", ROOT)
    assert same.format
    assert same.starts_beside_this
    assert same.opens_epochs_of_this


def test_an_earlier_release_is_given_only_settings_that_it_knows() -> None:
    told = Release("same", ROOT).settings({"SLUICE_PORT": "1", "SLUICE_OF_TOMORROW": "2", "PATH": "/bin"})
    assert told == {"SLUICE_PORT": "1", "PATH": "/bin"}
