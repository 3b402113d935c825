"""What a parsed spec says of itself to those who build on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spec.changes import Retagged, admitted_alike, claiming_events, lowered, reclaimed, retagged
from spec.differences import Difference, differences
from spec.graph import Arrow, arrows
from spec.model import Spec
from spec.parse import parse
from spec.tags import TagRule, values_at
from spec.webhooks.secrets import masked_beside
from spec.webhooks.sources import RedactedEnviron

CASES = Path(__file__).parents[2] / "spec" / "cases" / "pass"


def spec_of(events: dict[str, Any], **types: dict[str, Any]) -> Spec:
    """Of one aggregate type `order` with these events, and others."""
    aggregate_types = {"order": {"events": events}} | {name: {"events": each} for name, each in types.items()}
    spec = parse({"aggregate_types": aggregate_types, "agent_types": ["user"]})
    assert isinstance(spec, Spec), spec
    return spec


def case(name: str) -> Spec:
    spec = parse(json.loads((CASES / f"{name}.json").read_text()), RedactedEnviron())
    assert isinstance(spec, Spec)
    return spec


PLAIN: dict[str, Any] = {"schema": {}}
CLAIMING: dict[str, Any] = {"schema": {}, "claims": {"email": {"value": "$.data.email"}}}


# -- changes


def test_a_revision_that_is_lower_than_before_is_named_with_what_it_was() -> None:
    revised = {"schema": {}, "revision": 2, "upcast": {"1": []}}
    old = spec_of({"was_placed": revised, "was_left": revised}, cart={"was_filled": revised})
    new = spec_of({"was_placed": PLAIN, "was_shipped": PLAIN})
    assert lowered(old, new) == (("/aggregate_types/order/events/was_placed/revision", 2),)
    assert lowered(new, old) == ()


def test_types_whose_events_claim_other_values_are_named() -> None:
    old, new = spec_of({"was_placed": PLAIN}), spec_of({"was_placed": CLAIMING}, cart={"was_filled": PLAIN})
    assert reclaimed(old, new) == reclaimed(new, old) == {"order"}
    assert reclaimed(new, new) == frozenset()
    assert claiming_events(new, "order") == {"was_placed"}
    assert claiming_events(new, "cart") == claiming_events(new, "nothing") == frozenset()


def test_tags_that_come_and_go_are_told_by_event_type() -> None:
    old = spec_of({"was_placed": {"schema": {}, "tags": ["a:$.data.a", "b:$.data.b"]}, "was_left": PLAIN})
    new = spec_of({"was_placed": {"schema": {}, "tags": ["b:$.data.b", "c:$.data.c"]}}, cart={"x": PLAIN})
    (told,) = retagged(old, new)["order"].items()
    assert told == ("was_placed", Retagged((TagRule("c", ("c",)),), (TagRule("a", ("a",)),)))
    assert retagged(new, new) == retagged(old, spec_of({})) == {}


# -- differences


def test_fields_and_items_that_only_one_document_has_are_added_or_removed() -> None:
    assert differences({"a": 1}, {"b": 2}) == (
        Difference("removed", "/a", was=1),
        Difference("added", "/b", now=2),
    )
    assert differences([1, 2], [1]) == (Difference("removed", "/1", was=2),)


def test_a_difference_has_in_json_what_it_was_and_is_now_where_there_is_either() -> None:
    removed, added = differences({"a": None}, {"b": None})
    assert removed.as_json() == {"change": "removed", "pointer": "/a", "was": None}
    assert added.as_json() == {"change": "added", "pointer": "/b", "now": None}
    (changed,) = differences(1, 2)
    assert changed.as_json() == {"change": "changed", "pointer": "", "was": 1, "now": 2}


# -- projections and joins


def test_a_projection_and_a_join_say_whose_events_they_fold() -> None:
    projections = case("lists_and_projections").projections
    assert projections["customer_totals"].types == {"order", "customer"}
    assert projections["details"].types == {"order", "customer"}


def test_a_rule_sees_the_aggregate_where_a_path_of_it_or_its_key_begins_there() -> None:
    projections = case("lists_and_projections").projections
    totals = projections["customer_totals"].on
    assert totals["order", "was_placed"].sees_aggregate
    assert not totals["order", "was_split"].sees_aggregate
    assert not totals["customer", "was_closed"].sees_aggregate
    assert projections["months"].on["order", "was_placed"].sees_aggregate


def test_a_projection_is_fed_by_arrows() -> None:
    found = list(arrows(case("lists_and_projections")))
    assert Arrow("customer.was_closed", "feeds", "projection customer_totals") in found


def test_what_is_no_list_where_a_tag_asks_for_items_is_found_as_what_no_tag_can_be() -> None:
    assert list(values_at({"a": 3}, ("a", None), "data")) == [("data.a", {})]
    assert list(values_at({"a": [1, 2]}, ("a", None), "data")) == [("data.a[0]", 1), ("data.a[1]", 2)]


IMPLYING = {"emit": {"aggregate_type": "note", "id": "$.key", "event_type": "was_made"}}


@pytest.mark.parametrize(
    "declared",
    [
        {"schema": {"const": True}},
        {"tags": ["a:$.data.a"]},
        {"claims": CLAIMING["claims"]},
        {"releases": ["email"]},
        {"revision": 2, "upcast": {"1": []}},
        {"implications": [IMPLYING]},
    ],
)
def test_events_are_admitted_alike_by_equal_declarations(declared: dict[str, Any]) -> None:
    note = {"was_made": PLAIN}
    old = spec_of({"was_claimed": CLAIMING, "was_placed": {"schema": {"const": 1}}}, note=note)
    ruled = {
        "schema": {"const": 1},
        "rules": [{"require": {"exists": "$.key"}, "error": "No."}],
        "handler": [],
    }
    alike = [("order", "was_claimed"), ("order", "was_placed"), ("note", "was_made")]
    now = {"was_more": PLAIN, "was_claimed": CLAIMING, "was_placed": ruled}
    assert admitted_alike(old, spec_of(now, more=note, note=note)) == alike
    other = {"was_claimed": CLAIMING, "was_placed": {"schema": {"const": 1}, **declared}}
    assert admitted_alike(old, spec_of(other, note=note)) == [alike[0], alike[2]]
    assert admitted_alike(old, spec_of({"was_claimed": CLAIMING})) == [alike[0]]


def test_events_of_records_are_admitted_by_what_identifies_these() -> None:
    def identified(**declared: Any) -> Spec:
        types = {"note": {"events": {"was_made": PLAIN}, **declared}}
        spec = parse({"aggregate_types": types, "agent_types": ["user"]})
        assert isinstance(spec, Spec), spec
        return spec

    texts = identified(identity={"content": {"text": "$.data.text"}})
    assert admitted_alike(texts, texts) == [("note", "was_made")]
    assert admitted_alike(texts, identified()) == admitted_alike(identified(), texts) == []


# -- webhooks


WHEN: dict[str, Any] = {"equals": ["$.body.a", {"$literal": "$.b"}]}


@pytest.mark.parametrize(("selection", "selects"), [({}, False), ({"when": WHEN}, True)])
def test_a_source_selects_where_some_deliveries_are_ignored(selection: dict[str, Any], selects: bool) -> None:
    document = {
        "aggregate_types": {"order": {"events": {"was_placed": PLAIN}}},
        "agent_types": ["webhook"],
        "singletons": ["shop_webhook"],
        "webhooks": {
            "shop": {
                "unsigned": True,
                "to": {"type": "order", "event": "was_placed", "id": "$.body.id", **selection},
            }
        },
    }
    spec = parse(document)
    assert isinstance(spec, Spec), spec
    assert spec.webhooks["shop"].target.selects is selects


def test_a_source_of_records_may_skip_what_is_unchanged() -> None:
    document = {
        "aggregate_types": {
            "block": {"events": {"was_read": PLAIN}, "identity": {"content": {"text": "$.data.text"}}}
        },
        "agent_types": ["webhook"],
        "singletons": ["files_webhook"],
        "webhooks": {
            "files": {
                "unsigned": True,
                "to": {
                    "type": "block",
                    "event": "was_read",
                    "source_id": "$.body.id",
                    "scope": "$.body.file",
                    "if_unchanged": "skip",
                },
            }
        },
    }
    spec = parse(document)
    assert isinstance(spec, Spec), spec
    target = spec.webhooks["files"].target
    assert (target.skip_unchanged, target.scope is None) == (True, False)


def hooked(*secrets: str) -> dict[str, Any]:
    return {"webhooks": {"shop": {"provider": "stripe", "secrets": list(secrets)}}}


def test_a_secret_that_another_document_does_not_have_reads_as_another() -> None:
    shown = masked_beside(hooked("whsec_a", "whsec_b"), hooked("whsec_b"))
    assert shown == hooked("*** (another)", "***")


def test_an_address_without_a_password_is_no_secret() -> None:
    def target(url: str) -> dict[str, Any]:
        return {"subscriptions": {"s": {"target": {"type": "redis_stream", "url": url}}}}

    for url in ("redis://host/0", "redis://host/0?health_check_interval=5"):
        assert masked_beside(target(url), {}) == target(url)
    assert "pass" not in json.dumps(masked_beside(target("redis://u:pass@host/0"), {}))
