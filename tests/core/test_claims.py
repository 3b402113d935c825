"""The claims of an event, out of its data."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.events import Claim
from gateway.names.claims import NO_SCOPE, claims_of
from spec.model import EventType
from spec.tags import TagFault
from tests.core.appends import TENANT, declared

SALT = b"s" * 32
EVENTS = declared(
    {
        "aggregate_types": {
            "user": {
                "events": {
                    "was_named": {
                        "schema": {},
                        "claims": {
                            "email": {"value": "$.data.email", "fold": "case"},
                            "handle": {"value": "$.data.handle", "scope": "$.data.place.team"},
                        },
                    },
                    "was_closed": {"schema": {}, "releases": ["email", "handle"]},
                    "was_moved": {
                        "schema": {},
                        "claims": {"email": {"value": "$.data.email", "fold": "case"}},
                        "releases": ["handle"],
                    },
                }
            }
        },
        "agent_types": [],
    }
).aggregate_types["user"].events  # fmt: skip
NAMED = EVENTS["was_named"]


def claimed(data: Any, event_type: EventType = NAMED, owner: str = "user", **more: bytes) -> list[Claim]:
    found = claims_of(event_type, owner, 3, data, more.get("tenant", TENANT), more.get("salt", SALT))
    assert not isinstance(found, TagFault), found
    assert len(found[0]) == len(found[1])
    return found[0]


def test_a_claim_has_its_event_its_name_and_the_hash_of_its_value() -> None:
    (claim,) = claimed({"email": "a@b.c"})
    assert (claim.event, claim.name, claim.scope) == (3, "email", NO_SCOPE)
    assert claim.value is not None
    assert len(claim.value) == 32
    assert claimed({"email": "a@b.c"}) == [claim]


@pytest.mark.parametrize("data", [{}, {"email": None}, {"handle": None}, [], "text"])
def test_an_absent_value_claims_nothing(data: Any) -> None:
    assert claimed(data) == []


def test_only_a_folded_claim_ignores_case() -> None:
    assert claimed({"email": "STRASSE@b.c"}) == claimed({"email": "straße@b.c"})
    assert claimed({"handle": "Ada"}) != claimed({"handle": "ada"})


def test_a_number_is_one_value_however_it_is_spelled() -> None:
    for spelled in (7.0, 70e-1):
        assert claimed({"handle": spelled, "place": {"team": spelled}}) == claimed(
            {"handle": 7, "place": {"team": 7}}
        )


def test_a_scope_makes_equal_values_of_two_teams_distinct() -> None:
    claims = [claimed({"handle": "ada", "place": {"team": team}})[0] for team in ("red", "blue", None)]
    assert len({claim.value for claim in claims}) == 3
    assert [len(claim.scope) for claim in claims] == [16, 16, 0]


def test_the_hash_tells_tenants_types_names_and_salts_apart() -> None:
    same = {"email": "ada", "handle": "ada"}
    values = {claim.value for claim in claimed(same)}
    for more in ({"owner": "team"}, {"tenant": b"t" * 16}, {"salt": b"z" * 32}):
        values |= {claim.value for claim in claimed(same, **more)}  # type: ignore[arg-type]
    assert len(values) == 8


def test_releases_come_before_claims_and_have_no_value() -> None:
    assert claimed({}, EVENTS["was_closed"]) == [
        Claim(3, "email", NO_SCOPE, None),
        Claim(3, "handle", NO_SCOPE, None),
    ]
    found = claims_of(EVENTS["was_moved"], "user", 0, {"email": "a"}, TENANT, SALT)
    assert not isinstance(found, TagFault)
    claims, paths = found
    assert [(claim.name, claim.value is None) for claim in claims] == [("handle", True), ("email", False)]
    assert paths == ["", ".email"]


@pytest.mark.parametrize(
    ("data", "path", "error"),
    [
        ({"email": {}}, ".email", "A value of the claim `email` must be a string, a number or a boolean."),
        ({"handle": []}, ".handle", "A value of the claim `handle` must be a string, a number or a boolean."),
        (
            {"handle": "ada", "place": {"team": [1]}},
            ".place.team",
            "The scope of the claim `handle` must be a string, a number or a boolean.",
        ),
    ],
)
def test_an_object_or_a_list_is_refused_at_its_path(data: Any, path: str, error: str) -> None:
    assert claims_of(NAMED, "user", 0, data, TENANT, SALT) == TagFault(path, error)
