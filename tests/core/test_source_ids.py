from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.names.encoding import encode
from gateway.names.source_ids import PART_BYTES_MAX, SourceId, Unusable, derived_key, read
from spec.identifiers import canonicalize

TENANT = UUID("01900000-0000-7000-8000-000000000001")
OTHER = UUID("01900000-0000-7000-8000-000000000002")
short = st.text(max_size=4)


def test_a_source_id_is_taken_as_it_is_spelled() -> None:
    spelled = [read("xliff", "a.xlf", text) for text in ("tu1", "tu1 ", " tu1", "TU1", "tu1\n", "tu１")]
    assert len(set(spelled)) == len(spelled)
    assert spelled[1] == SourceId("xliff", "a.xlf", "tu1 ")


@pytest.mark.parametrize(
    ("value", "text"), [(42, "42"), (-1, "-1"), (0, "0"), (2**63, "9223372036854775808")]
)
def test_a_whole_number_is_its_digits(value: int, text: str) -> None:
    assert read("github", "repository", value) == SourceId("github", "repository", text)


@pytest.mark.parametrize("value", [None, True, False, 1.0, 10**64, {}, [], "", b"42"])
def test_any_other_value_names_nothing(value: object) -> None:
    assert isinstance(read("github", "repository", value), Unusable)


@pytest.mark.parametrize(
    "text", ["a\0b", "\ud800", "x" * (PART_BYTES_MAX + 1), "é" * (PART_BYTES_MAX // 2 + 1)]
)
def test_what_postgres_can_not_hold_is_refused_wherever_it_stands(text: str) -> None:
    for place in (("source", text, "s", "i"), ("scope", "s", text, "i"), ("source id", "s", "s", text)):
        refused = read(*place[1:])
        assert isinstance(refused, Unusable)
        assert refused.reason.startswith(f"The {place[0]} ")


def test_a_scope_may_be_empty_and_a_source_may_not() -> None:
    assert read("stripe", "", "cus_1") == SourceId("stripe", "", "cus_1")
    assert isinstance(read("", "scope", "cus_1"), Unusable)


@given(st.text(), st.text(), st.text() | st.integers() | st.floats() | st.none())
def test_reading_is_total(source: str, scope: str, source_id: object) -> None:
    assert isinstance(read(source, scope, source_id), SourceId | Unusable)


def test_the_derived_key_is_the_golden_one() -> None:
    golden = {
        (TENANT, "github", "repository", 0, "42"): "7d2a3d73-67d6-5a36-adb0-86f172f2f6c4",
        (TENANT, "github", "repository", 1, "42"): "c70bd2be-a566-51b3-86e2-61e6d83ba00f",
        (OTHER, "github", "repository", 0, "42"): "578b253a-92dc-52e7-8753-a94715c76075",
    }
    assert {place: derived_key(*place) for place in golden} == golden


def test_the_derivation_is_that_of_rfc_9562() -> None:
    from uuid import uuid5

    name = encode("sluice/source-key/1", "github", "repository", "0", "42").decode()
    assert derived_key(TENANT, "github", "repository", 0, "42") == str(uuid5(TENANT, name))


@given(short, short, st.integers(0, 3), short)
def test_a_derived_key_is_canonical(source: str, origin: str, incarnation: int, source_id: str) -> None:
    key = derived_key(TENANT, source, origin, incarnation, source_id)
    assert canonicalize(key, ()) == key
    assert UUID(key).version == 5


places = st.tuples(st.sampled_from([TENANT, OTHER]), short, short, st.integers(0, 3), short)


@given(places, places)
def test_distinct_source_ids_have_distinct_keys(
    one: tuple[UUID, str, str, int, str], other: tuple[UUID, str, str, int, str]
) -> None:
    assert (derived_key(*one) == derived_key(*other)) == (one == other)
