"""What identifies an event as a record, by what its type declares."""

from __future__ import annotations

from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from gateway.names.content import Grade, content_of_json, content_of_text, context_of
from gateway.names.records import Record, key_of_content, record_of
from spec.identity import IdentityRule
from tests.core.appends import TENANT, declared


def rule(identity: dict[str, Any]) -> IdentityRule:
    types = {"ticket": {"identity": identity, "events": {"was_seen": {"schema": {}}}}}
    found = declared({"aggregate_types": types, "agent_types": []}).aggregate_types["ticket"].identity
    assert found is not None
    return found


def record(identity: dict[str, Any], data: Any) -> Record | None:
    return record_of(rule(identity), data, "T-1", "was_seen")


TEXT = {"content": {"text": "$.data.body.text"}}


def test_the_content_of_a_text_is_the_hash_of_it() -> None:
    assert record(TEXT, {"body": {"text": " Hello "}}) == Record(sha256(b"Hello").hexdigest(), None)


@pytest.mark.parametrize("data", [{}, {"body": {}}, {"body": {"text": 5}}, {"body": [1]}, None])
def test_an_event_without_its_text_is_no_record(data: Any) -> None:
    assert record(TEXT, data) is None


def test_content_of_several_values_is_a_list_with_null_for_what_is_absent() -> None:
    identity = {"content": {"json": ["$.data.title", "$.data.tags[0]", "$.data.tags[-2]"]}}
    assert record(identity, {"title": "x", "tags": ["a"]}) == Record(content_of_json(b'["x","a",null]'), None)
    assert record(identity, {"tags": ["a", "b"]}) == Record(content_of_json(b'[null,"a","a"]'), None)
    assert record(identity, {"tags": []}) is None
    assert record(identity, "text") is None


def test_the_context_is_name_type_and_properties_of_the_event() -> None:
    identity = {
        "content": {"text": "$.data.text"},
        "context": {"name": "$.key", "type": "$.type", "properties": "$.data.at"},
    }
    found = record(identity, {"text": "x", "at": {"file": "a.py", "@line": "5"}})
    assert found == Record(content_of_text("x"), context_of("T-1", "was_seen", {"file": "a.py"}))


@pytest.mark.parametrize(
    ("data", "name", "kind"),
    [
        ({"name": "a", "kind": 5}, "a", "5"),
        ({"name": {"b": [1]}, "kind": True}, '{"b":[1]}', "true"),
        ({"name": None}, "", ""),
    ],
)
def test_values_of_a_context_count_as_their_json_and_absent_ones_as_empty(
    data: dict[str, Any], name: str, kind: str
) -> None:
    identity = {
        "content": {"text": "$.data.text"},
        "context": {"name": "$.data.name", "type": "$.data.kind", "properties": "$.data.at"},
    }
    found = record(identity, {"text": "x", "at": "no object", **data})
    assert found == Record(content_of_text("x"), context_of(name, kind, {}))


def test_a_context_may_declare_no_part() -> None:
    found = record({"content": {"text": "$.data.text"}, "context": {}}, {"text": "x"})
    assert found == Record(content_of_text("x"), context_of("", "", {}))


def test_a_record_is_graded_against_the_one_before() -> None:
    one = Record("a", "c")
    grades = [
        one.graded(prior) for prior in (None, one, Record("a", "d"), Record("b", "c"), Record("b", "d"))
    ]
    assert grades == [Grade.NEW, Grade.UNCHANGED, Grade.MOVED, Grade.EDITED, Grade.NEW]
    assert Record("a", None).graded(Record("a", None)) == Grade.UNCHANGED
    assert Record("a", None).graded(Record("b", None)) == Grade.EDITED


def test_equal_content_has_one_key_in_each_tenant() -> None:
    tenant = UUID(bytes=TENANT)
    assert key_of_content(tenant, "a") == key_of_content(tenant, "a")
    assert key_of_content(tenant, "a") != key_of_content(UUID(int=1), "a")
    assert UUID(key_of_content(tenant, "a")).version == 5
