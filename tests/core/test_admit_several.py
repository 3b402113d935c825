"""A request to append to several aggregates becomes one append, or the refusal that comes first."""

from __future__ import annotations

import copy
import gc
import itertools
import json
import uuid
import weakref
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admit.append import EventContext, Fault
from gateway.admit.envelope_shape import Form
from gateway.admit.preconditions import NOTHING_ASKED, Asked, read_asked
from gateway.admit.several import AGGREGATES_MAX, Several, judge_ordinary, judge_several, with_sources
from gateway.admit.several_names import first_type, may_name_aliases, names_sent
from gateway.appends import ANY_LENGTH, OF_SEVERAL, FeedPlace, event_identity, identity
from gateway.errors import Refusal
from gateway.events import RevisedEvent, Stream
from gateway.items import Condition, Item
from spec.model import AggregateType, Spec
from tests.core.appends import (
    ACTOR,
    CORRELATION_ID,
    EVENT_BYTES_MAX,
    MANY,
    OTHER_V7,
    TENANT,
    UUID,
    V7,
    declared,
    minted_id,
    minting,
)

ORDER, MADE = "ABC123XYZ", "a0000000-0000-4000-a000-000000000002"
SPEC = declared(
    {
        "aggregate_types": {
            "order": {
                "events": {
                    "was_placed": {
                        "schema": {"type": "object", "properties": {"email": {"type": "string"}}},
                        "tags": ["student:$.data.student"],
                        "claims": {"email": {"value": "$.data.email"}, "badge": {"value": "$.data.badge"}},
                    },
                    "was_noted": {"schema": {}},
                }
            },
            "stock": {
                "events": {
                    "was_taken": {"schema": {}},
                    "was_counted": {
                        "schema": True,
                        "revision": 2,
                        "upcast": {"1": [{"set": {"target": "n", "value": 0}}]},
                    },
                }
            },
        },
        "agent_types": ["user"],
        "target_types": ["order"],
        "singletons": ["till"],
    }
)
ALIASES: dict[tuple[str, str], str | Refusal] = {
    ("order", "@VNO-1"): ORDER,
    ("order", "@VNO-2"): Refusal("unknown_alias", "No aggregate has this alias.", "key"),
}
PLACE = FeedPlace(2, 40, b"mark")
FULL = Refusal("storage_full", "The tenant has no room left.")


def placed(key: str | None = UUID, data: Any = None, **more: Any) -> dict[str, Any]:
    return event("order", key, "was_placed", data, **more)


def taken(key: str | None = "till", data: Any = None, **more: Any) -> dict[str, Any]:
    return event("stock", key, "was_taken", data, **more)


def event(aggregate_type: Any, key: Any, name: Any, data: Any = None, **more: Any) -> dict[str, Any]:
    sent = {"aggregate_type": aggregate_type, "type": name, "data": {} if data is None else data, **more}
    return sent if key is None else {**sent, "key": key}


def body(*events: Any, metadata: Any = None, **more: Any) -> bytes:
    return json.dumps({"events": events, "metadata": metadata or {"actor": ACTOR}, **more}).encode()


def judged(
    text: bytes,
    asked: Asked | Refusal = NOTHING_ASKED,
    spec: Spec | None = SPEC,
    context: EventContext | None = None,
) -> Several | Fault:
    def mint_key(of: AggregateType) -> str:
        assert of.name in ("order", "stock")
        return next(keys)

    keys = itertools.chain([MADE], (str(uuid.UUID(int=n)) for n in itertools.count()))
    by = minting() if context is None else context
    return judge_several(
        spec, asked, text, by, mint_key, ALIASES, lambda position: PLACE if position == "AQ" else None
    )


def admitted(answer: Several | Fault) -> Several:
    assert isinstance(answer, Several), answer
    return answer


def refused(answer: Several | Fault) -> tuple[str, str | None, int]:
    assert isinstance(answer, Fault), answer
    assert answer.refusal.error.endswith("."), answer.refusal
    return answer.refusal.code, answer.refusal.path, answer.refusal.http_status


# ---- what is admitted ----


def test_the_events_of_several_aggregates_become_one_append_in_their_order() -> None:
    found = admitted(judged(body(placed(), taken(), placed(UUID.upper(), previous_length=None))))
    append = found.append
    order, stock = Stream(TENANT, "order", UUID), Stream(TENANT, "stock", "till")
    assert append.streams == (order, stock)
    assert append.spread is not None
    assert append.spread.order == (0, 1, 0)
    assert [each.type for each in append.events] == ["was_placed", "was_taken", "was_placed"]
    assert [each.id for each in append.events] == [minted_id(1), minted_id(2), minted_id(3)]
    assert append.lengths == (ANY_LENGTH, ANY_LENGTH)
    assert found.minted == frozenset()


def test_an_aggregate_that_is_its_content_is_none_of_several() -> None:
    block = {
        "mint": "content",
        "identity": {"content": {"text": "$.data.text"}},
        "events": {"was_seen": {"schema": True}},
    }
    spec = declared({"aggregate_types": {"block": block}, "agent_types": ["user"]})
    for key in (None, UUID):
        told = judged(body(event("block", key, "was_seen")), spec=spec)
        assert isinstance(told, Fault)
        assert (told.refusal.code, told.refusal.path) == ("invalid_field", "events[0].aggregate_type")
    assert isinstance(judged(body(event("block", f"{UUID}:de", "was_seen")), spec=spec), Several)
    told = judged(body(event("block", f"{UUID}:de", "was_seen", x=1)), spec=spec)
    assert refused(told) == ("unknown_field", "events[0].x", 422)


def test_keys_that_are_made_at_random_are_fresh() -> None:
    block = {"mint": "humane", "events": {"was_seen": {"schema": True}}}
    paper = {"events": {"was_seen": {"schema": True}}}
    spec = declared({"aggregate_types": {"block": block, "order": paper}, "agent_types": ["user"]})
    keys = iter([UUID, ORDER])
    places = [("order", "global"), ("order", None), ("block", None)]
    text = body(*[event(*each, "was_seen") for each in places])
    told = judge_several(spec, NOTHING_ASKED, text, minting(), lambda _: next(keys), {}, lambda _: None)
    assert (admitted(told).minted, admitted(told).append.fresh) == (frozenset({1, 2}), (1,))


def test_each_event_may_be_a_record_of_its_own_source() -> None:
    append = admitted(judged(body(placed(), taken()))).append
    assert with_sources(append, {}) is append
    assert with_sources(append, {1: ("xliff", "a", "tu1")}).sources == (None, ("xliff", "a", "tu1"))


def test_an_append_to_one_aggregate_is_one_like_any_other() -> None:
    append = admitted(judged(body(taken(previous_length=4), taken()))).append
    assert (append.stream, append.spread) == (Stream(TENANT, "stock", "till"), None)
    assert append.lengths == (4,)
    assert append.form == OF_SEVERAL, "nothing else tells in which form it was answered"
    assert admitted(judged(body(taken(), placed()))).append.form is None


def test_a_key_may_be_an_alias() -> None:
    append = admitted(judged(body(placed("@VNO-1"), placed(ORDER.lower())))).append
    assert append.streams == (Stream(TENANT, "order", ORDER),)


def test_each_event_without_a_key_makes_a_new_aggregate() -> None:
    found = admitted(judged(body(taken(), placed(None), placed(None, previous_length=0))))
    assert [stream.key for stream in found.append.streams] == ["till", MADE, str(uuid.UUID(int=0))]
    assert found.append.lengths == (ANY_LENGTH, 0, 0)
    assert found.minted == {1, 2}


def test_metadata_is_of_all_events_and_a_target_may_be_of_one() -> None:
    metadata = {
        "actor": ACTOR,
        "target": {"type": "order", "id": UUID},
        "causation_id": V7.upper(),
        "extra": {"x": 1},
    }
    target = {"type": "order", "id": ORDER.lower()}
    first, second = admitted(judged(body(taken(), placed(target=target), metadata=metadata))).append.events
    assert (first.target_type, first.target_id) == ("order", UUID)
    assert (second.target_type, second.target_id) == ("order", ORDER)
    for each in (first, second):
        assert (each.actor_type, each.actor_id, each.extra) == ("user", UUID, b'{"x": 1}')
        assert (each.causation_id, each.correlation_id) == (uuid.UUID(V7).bytes, CORRELATION_ID)
    (plain,) = admitted(judged(body(taken(), metadata={"actor": ACTOR, "extra": None}))).append.events
    assert (plain.target_type, plain.target_id, plain.causation_id, plain.extra) == (None,) * 4


def test_an_event_has_the_revision_of_its_type() -> None:
    counted, other = admitted(judged(body(event("stock", "till", "was_counted"), taken()))).append.events
    assert isinstance(counted, RevisedEvent)
    assert (counted.revision, other.revision) == (2, 1)


def test_tags_and_claims_are_those_of_each_event() -> None:
    append = admitted(judged(body(taken(), placed(data={"student": "s1", "email": "a@b.c"})))).append
    assert append.tags == ((), ("student:s1",))
    assert [(claim.event, claim.name) for claim in append.claims] == [(1, "email")]
    assert append.claim_paths == ("events[1].data.email",)


def test_a_client_names_its_append_by_a_key_and_by_the_ids_of_events() -> None:
    asked = read_asked([(b"idempotency-key", b"k")])
    append = admitted(judged(body(taken(), placed(event_id=V7.upper())), asked)).append
    chosen = event_identity(TENANT, uuid.UUID(V7).bytes), identity(TENANT, "key", b"k")
    assert append.chosen == chosen
    assert append.identities == (event_identity(TENANT, minted_id(1)), *chosen)
    assert append.events[1].id == uuid.UUID(V7).bytes


@pytest.mark.parametrize(
    ("text", "ordinary"),
    [
        (body(placed(None), taken(data={"note": "@you"})), True),
        (body(placed("@VNO-1")), False),
        (body(placed(source={"source": "x", "id": "1"})), False),
        (body(placed(), metadata={"actor": {"type": "user", "id": "no id"}}), False),
        (b"{", False),
    ],
)
def test_what_needs_no_second_look_is_judged_as_any_other(text: bytes, ordinary: bool) -> None:
    found = judge_ordinary(SPEC, NOTHING_ASKED, text, minting(), lambda _: MADE, lambda _: PLACE)
    assert (found is not None) is ordinary
    if found is not None:
        other = admitted(judged(text))
        assert (found.minted, found.append.streams) == (other.minted, other.append.streams)
        assert [each.payload for each in found.append.events] == [
            each.payload for each in other.append.events
        ]


@pytest.mark.parametrize(
    ("more", "after", "mark"),
    [({}, 0, b""), ({"after": None}, 0, b""), ({"after": "AQ"}, 40, b"mark")],
)
def test_a_condition_begins_at_a_position_or_before_all_events(
    more: dict[str, Any], after: int, mark: bytes
) -> None:
    condition = {"fail_if_events_match": {"items": [{"types": ["order.was_noted"]}]}, **more}
    found = admitted(judged(body(taken(), condition=condition))).append.condition
    items = (Item(frozenset({("order", "was_noted")}), frozenset()),)
    query = json.dumps(condition["fail_if_events_match"]).encode()
    assert found == Condition(items, after, mark, size_bytes=len(query))
    assert admitted(judged(body(taken(), condition=None))).append.condition is None


# ---- what is refused ----


def test_a_query_is_read_by_the_spec_and_the_salt_of_its_append() -> None:
    """Though the same text was read before."""
    text = body(taken(), condition={"fail_if_events_match": {"items": [{"tags": ["order:x"]}]}})
    assert admitted(judged(text)).append.condition is not None
    other = declared(
        {
            "aggregate_types": {"stock": {"events": {"was_taken": {"schema": {}}}}},
            "agent_types": ["user"],
            "target_types": [],
            "singletons": ["till"],
        }
    )
    unknown = ("unknown_tag", "condition.fail_if_events_match.items[0].tags[0]", 422)
    assert refused(judged(text, spec=other)) == unknown
    assert admitted(judged(text)).append.condition is not None
    hashed = body(taken(), condition={"fail_if_events_match": {"items": [{"tags": [{"hash": "order:x"}]}]}})
    one, two = [
        admitted(judged(hashed, context=msgspec.structs.replace(minting(), salt=salt))).append.condition
        for salt in (b"1" * 32, b"2" * 32)
    ]
    assert one != two


def test_a_long_query_is_read_as_a_short_one_is() -> None:
    items = [{"tags": [f"order:{n:0100}"]} for n in range(20)]
    text = body(taken(), condition={"fail_if_events_match": {"items": items}})
    condition = admitted(judged(text)).append.condition
    assert condition is not None
    assert len(condition.items) == 20


def test_queries_are_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.admit.several.KEPT_QUERIES", 1)
    for name in "ab":
        items = [{"tags": [f"order:{name}"]}]
        text = body(taken(), condition={"fail_if_events_match": {"items": items}})
        condition = admitted(judged(text)).append.condition
        assert condition is not None
        assert condition.items[0].tags == {f"order:{name}"}


def test_a_kept_query_keeps_no_spec_that_was_replaced() -> None:
    types = {"stock": {"events": {"was_taken": {"schema": {}}}}}
    spec = declared({"aggregate_types": types, "agent_types": ["user"], "singletons": ["till"]})
    text = body(taken(), condition={"fail_if_events_match": {"items": [{"tags": ["stock:till"]}]}})
    assert admitted(judged(text, spec=spec)).append.condition is not None
    there = weakref.ref(spec)
    del spec
    gc.collect()
    assert there() is None


def with_target(**target: Any) -> bytes:
    return body(taken(), metadata={"actor": ACTOR, "target": target})


def with_condition(**condition: Any) -> bytes:
    return body(taken(), condition=condition)


MATCH = {"items": [{"tags": ["order:x"]}]}
LONG = "x" * EVENT_BYTES_MAX


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (b"{", ("invalid_json", None, 400)),
        (b"[]", ("invalid_field", None, 422)),
        (b"{}", ("missing_field", "events", 422)),
        (body(), ("invalid_field", "events", 422)),
        (body(taken(), x=1), ("unknown_field", "x", 422)),
        (body(*[taken()] * 1001), ("invalid_field", "events", 422)),
        (body(*[placed(None)] * (AGGREGATES_MAX + 1)), ("invalid_field", "events", 422)),
        (body(taken(), 5), ("invalid_field", "events[1]", 422)),
        (body(taken(), {"type": "x"}), ("missing_field", "events[1].aggregate_type", 422)),
        (body(taken(metadata={})), ("unknown_field", "events[0].metadata", 422)),
        (body(event(5, "till", "was_taken")), ("invalid_field", "events[0].aggregate_type", 422)),
        (body(event([], "till", "was_taken")), ("invalid_field", "events[0].aggregate_type", 422)),
        (body(taken(), event("stock", 5, "was_taken")), ("invalid_field", "events[1].key", 422)),
        (body(event("stock", "till", 5)), ("invalid_field", "events[0].type", 422)),
        (body(taken(previous_length=-1)), ("invalid_field", "events[0].previous_length", 422)),
        (body(taken(previous_length=True)), ("invalid_field", "events[0].previous_length", 422)),
        (body(taken(event_id=5)), ("invalid_field", "events[0].event_id", 422)),
        (body(taken(target=5)), ("invalid_field", "events[0].target", 422)),
        (body(taken(target={"type": "order"})), ("missing_field", "events[0].target.id", 422)),
        (body(taken(target={"type": 5, "id": UUID})), ("invalid_field", "events[0].target.type", 422)),
        (body(taken(), metadata=5), ("invalid_field", "metadata", 422)),
        (
            body(taken(), metadata={"actor": ACTOR, "skip_occ": True}),
            ("unknown_field", "metadata.skip_occ", 422),
        ),
        (body(taken(), metadata={"actor": 5}), ("invalid_field", "metadata.actor", 422)),
        (body(taken(), condition=5), ("invalid_field", "condition", 422)),
        (with_condition(), ("missing_field", "condition.fail_if_events_match", 422)),
        (with_condition(fail_if_events_match=MATCH, x=1), ("unknown_field", "condition.x", 422)),
        (with_condition(fail_if_events_match=MATCH, after=5), ("invalid_field", "condition.after", 422)),
        (
            with_condition(fail_if_events_match=MATCH, after="BQ"),
            ("invalid_position", "condition.after", 400),
        ),
        (
            with_condition(fail_if_events_match={"items": []}),
            ("invalid_field", "condition.fail_if_events_match.items", 422),
        ),
        (body(taken(), event("stock", "till", "_x")), ("reserved_event_type", "events[1].type", 422)),
        (
            body(taken(), event("stok", "till", "was_taken")),
            ("unknown_aggregate_type", "events[1].aggregate_type", 404),
        ),
        (body(taken(), event("stock", "till", "was_placed")), ("unknown_event_type", "events[1].type", 422)),
        (body(taken(), taken("not an id")), ("invalid_identifier", "events[1].key", 422)),
        (body(taken(), placed("@VNO-2")), ("unknown_alias", "events[1].key", 404)),
        (body(taken(event_id="x")), ("invalid_field", "events[0].event_id", 422)),
        (body(taken(event_id=V7), placed(event_id=V7)), ("invalid_field", "events[1].event_id", 422)),
        (
            body(taken(), metadata={"actor": ACTOR, "causation_id": "x"}),
            ("invalid_field", "metadata.causation_id", 422),
        ),
        (body(taken(), taken(previous_length=5)), ("contradiction", "events[1].previous_length", 422)),
        (body(placed(None, previous_length=5)), ("invalid_field", "events[0].previous_length", 422)),
        (
            body(taken(), metadata={"actor": {**ACTOR, "type": "stranger"}}),
            ("unknown_actor_type", "metadata.actor.type", 422),
        ),
        (
            body(taken(), metadata={"actor": {"type": "user", "id": "not an id"}}),
            ("invalid_identifier", "metadata.actor.id", 422),
        ),
        (with_target(type="stock", id=UUID), ("unknown_target_type", "metadata.target.type", 422)),
        (with_target(type="order", id="not an id"), ("invalid_identifier", "metadata.target.id", 422)),
        (
            body(taken(), taken(target={"type": "stock", "id": UUID})),
            ("unknown_target_type", "events[1].target.type", 422),
        ),
        (
            body(taken(), taken(target={"type": "order", "id": "not an id"})),
            ("invalid_identifier", "events[1].target.id", 422),
        ),
        (body(taken(), placed(data={"email": 5})), ("schema_violation", "events[1].data.email", 422)),
        (body(taken(), placed(data={"student": {}})), ("invalid_tag", "events[1].data.student", 422)),
        (body(taken(), placed(data={"badge": []})), ("invalid_claim", "events[1].data.badge", 422)),
        (body(taken(), taken(data=LONG)), ("too_large", "events[1].data", 413)),
        (body(taken(), taken(data=LONG), x=1), ("too_large", "events[1].data", 413)),
        (
            body(taken(data=LONG), condition={"fail_if_events_match": MATCH}),
            ("too_large", "events[0].data", 413),
        ),
        (body(taken(), x=LONG), ("unknown_field", "x", 422)),
        (
            json.dumps({"events": LONG, "metadata": {"actor": ACTOR}}).encode(),
            ("invalid_field", "events", 422),
        ),
    ],
)
def test_a_body_is_refused_with_the_place_at_fault(text: bytes, answer: tuple[str, str | None, int]) -> None:
    assert refused(judged(text)) == answer


# From the last to the first: each brings its fault into a body that has all the later ones.
FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("schema_violation", {"data": {"email": 1}}),
    ("unknown_target_type", {"target": {"type": "stock", "id": UUID}}),
    ("contradiction", {"previous_length": 5}),
    ("invalid_field", {"event_id": "x"}),
    ("unknown_field", {"x": 1}),
    ("too_large", {"data": LONG}),
    ("invalid_identifier", {"key": "not an id"}),
    ("unknown_event_type", {"type": "was_eaten"}),
    ("unknown_aggregate_type", {"aggregate_type": "nothing"}),
    ("reserved_event_type", {"type": "_x"}),
]


def test_of_all_faults_the_first_of_the_table_answers() -> None:
    sent = placed()
    for code, fault in FAULTS:
        sent |= fault
        assert refused(judged(body(placed(), sent)))[0] == code


def test_a_header_at_fault_comes_after_names_and_before_the_body() -> None:
    header = Refusal("invalid_field", "The header is wrong.", "If-Match")
    assert refused(judged(body(taken("not an id")), header))[0] == "invalid_identifier"
    assert refused(judged(b"{", header)) == ("invalid_field", "If-Match", 422)


@pytest.mark.parametrize("name", ["nothing", "order"])
def test_without_a_spec_no_body_is_admitted(name: str) -> None:
    answer = ("unknown_aggregate_type", "events[1].aggregate_type", 404)
    assert refused(judged(body({}, event(name, "not an id", "was_noted")), spec=None)) == answer
    assert refused(judged(b"{}", spec=None)) == ("missing_field", "events", 422)
    assert refused(judged(body(), spec=None)) == ("invalid_field", "events", 422)


def test_too_much_work_for_the_schemas_is_refused() -> None:
    events = [event("order", UUID, "was_placed", [1] * 5) for _ in range(4)]
    context = msgspec.structs.replace(minting(), schema_work_max=100_000)
    answer = judge_several(MANY, NOTHING_ASKED, body(*events), context, lambda _: MADE, {}, lambda _: None)
    assert refused(answer) == ("schema_violation", "events[2].data", 422)


def test_a_full_storage_refuses_what_has_no_other_fault() -> None:
    full = msgspec.structs.replace(minting(), not_stored=FULL)
    assert refused(judged(body(taken()), context=full)) == ("storage_full", None, 403)
    assert refused(judged(body(placed(data={"email": 1})), context=full))[0] == "schema_violation"


# ---- what a repeated request is answered by ----


KEYED = read_asked([(b"idempotency-key", b"k")])


@pytest.mark.parametrize(
    "later",
    [
        None,
        declared({"aggregate_types": {"order": {"events": {}}}, "agent_types": ["user"]}),
        declared(
            {"aggregate_types": {"order": {"events": {"was_placed": {"schema": {}}}}}, "agent_types": []}
        ),
        declared(
            {
                "aggregate_types": {"order": {"events": {"was_placed": {"schema": False}}}},
                "agent_types": ["user"],
            }
        ),
    ],
    ids=["no spec", "no event type", "no actor type", "another schema"],
)
def test_a_request_that_a_later_spec_refuses_is_recognized(later: Spec | None) -> None:
    text = body(placed(event_id=OTHER_V7))
    original = admitted(judged(text, KEYED)).append.retry
    assert len(original.chosen) == 2
    fault = judged(text, KEYED, later)
    assert isinstance(fault, Fault)
    assert fault.retry == original


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        (body(placed("not an id")), NOTHING_ASKED),
        (body(placed(event_id="x")), KEYED),
        (b"{", KEYED),
    ],
    ids=["no identity", "a fault of the body", "no json"],
)
def test_what_no_spec_ever_accepted_has_no_original(text: bytes, asked: Asked) -> None:
    fault = judged(text, asked)
    assert isinstance(fault, Fault)
    assert fault.retry is None


@pytest.mark.parametrize(
    "text",
    [
        body(placed("not an id"), x=1),
        body(placed("not an id", event_id="x")),
        body(event("x", "till", "x", event_id="")),
    ],
)
def test_a_body_that_can_not_be_read_may_still_repeat_one_by_its_key(text: bytes) -> None:
    fault = judged(text, KEYED)
    assert isinstance(fault, Fault)
    assert fault.retry is not None
    assert fault.retry.chosen == (identity(TENANT, "key", b"k"),)


# ---- names, before the body is judged ----


def test_the_names_of_events_are_read_as_far_as_they_can_be() -> None:
    events = [placed("@VNO-1"), taken(None), 5, event([], "till", "x"), event("stock", 5, "x"), {}]
    assert names_sent(body(*events)) == [("order", "@VNO-1")]
    for text in (b"{", b"[]", b'{"events":5}', body()):
        assert names_sent(text) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (body(taken(), placed()), "stock"),
        (body(5, placed()), "order"),
        (body({}), ""),
        (body(event([], "till", "x")), ""),
        (body(), ""),
        (b"{", ""),
    ],
)
def test_the_first_type_is_that_of_the_first_event(text: bytes, name: str) -> None:
    assert first_type(text) == name


fields = st.sampled_from(
    ["aggregate_type", "key", "type", "data", "previous_length", "event_id", "target", "x"]
)
values = st.sampled_from(
    ["order", "stock", UUID, "@VNO-2", "was_placed", "_x", "", None, 1, True, [], {}, 1e300]
)


@given(st.lists(st.dictionaries(fields, values), max_size=3), st.sampled_from([SPEC, None]))
def test_any_events_are_an_append_or_a_refusal(changes: list[dict[str, Any]], spec: Spec | None) -> None:
    for events in (changes, [placed() | each for each in changes]):
        assert isinstance(judged(body(*events), spec=spec), Several | Fault)


@pytest.mark.parametrize(
    ("text", "may"),
    [
        (b'{"key":"@VNO-1"}', True),
        (b'{"key": "\\u0040VNO-1"}', True),
        (b'{"data":{"email":"ada@example.com","more":"\\u0041@"}}', False),
        (b"", False),
    ],
)
def test_only_a_string_that_begins_with_the_sigil_may_be_an_alias(text: bytes, may: bool) -> None:
    assert may_name_aliases(text) is may


# ---- two ways, one answer ----

TARGET = {"type": "order", "id": UUID}
STRANGE: list[Any] = [
    None, 0, -1, 5, 5.0, 2**63, True, "", "@VNO-1", "@VNO-2", "till", UUID, "not an id", "was_noted", "order",
    "_x", V7, OTHER_V7, "AQ", {}, [], {"a:b": ":", "c": [1, {"d": None}]}, "a:b", TARGET,
    {"items": [{"tags": ["student:s1"]}]}, {"items": [{"tags": ["student:s1"]}], "x": 1}, LONG,
    {"$identity": 1}, {"student": "s1", "email": "a:b"}, {"email": 1},
]  # fmt: skip
WHOLE: dict[str, Any] = {
    "events": [
        event("order", UUID, "was_placed", {"student": "a:b"}, previous_length=0, target=TARGET),
        event("stock", "till", "was_taken", {"a": [{"b": ":"}]}, event_id=V7),
        event("stock", None, "was_counted", [1, "x:y"]),
    ],
    "metadata": {"actor": ACTOR, "extra": {"a:b": {"c": 1}}, "causation_id": V7, "target": TARGET},
    "condition": {"fail_if_events_match": {"items": [{"tags": ["student:s1"]}]}, "after": "AQ"},
}  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every object and list of a body, with each of its keys."""
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        return [(value, key) for key in keys] + [each for key in keys for each in places(value[key])]
    return []


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Legal ones, with up to three changes of any kind, and faults of the text."""
    whole = json.loads(json.dumps(WHOLE))
    for _ in range(draw(st.integers(0, 3))):
        at, key = draw(st.sampled_from(places(whole)))
        match draw(st.sampled_from(["another", "gone", "more"])):
            case "another":
                at[key] = copy.deepcopy(draw(st.sampled_from(STRANGE)))
            case "gone":
                del at[key]
            case _ if isinstance(at, dict):
                names = ["key", "x", "previous_length", "idempotency_key", "after", "source", "condition"]
                at[draw(st.sampled_from(names))] = copy.deepcopy(draw(st.sampled_from(STRANGE)))
            case _:
                at.append(copy.deepcopy(draw(st.sampled_from(STRANGE))))
    text = json.dumps(whole, separators=draw(st.sampled_from([(",", ":"), (", ", ": ")])))
    old, new = draw(
        st.sampled_from(
            [
                ("", ""),
                ('"data"', '"data":{},"data"'),
                ('"type"', '"type":"x","type"'),
                ('"a:b"', '"a\\u003ab"'),
                ("{}", "NaN"),
                ('"x:y"', '"\\u0000"'),
                ("[1,", "[" * 70 + "1" + "]" * 69 + ","),
                ('"c":1', f'"c":{"[" * 70}{"]" * 70}'),
                ("]}}", "]}"),
                ("1", "1.0"),
                ("null", "1e999"),
            ]
        )
    )
    return (text.replace(old, new, 1) if old else text).encode()


@given(bodies(), st.sampled_from([NOTHING_ASKED, KEYED]))
def test_a_body_that_is_proven_is_judged_as_one_that_is_read_exactly(text: bytes, asked: Asked) -> None:
    by = msgspec.structs.replace(minting(), mint=lambda: bytes(16))
    one = judged(text, asked, context=by)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gateway.admit.several.prove", lambda *_: None)
        other = judged(text, asked, context=by)
    if isinstance(one, Fault):
        assert one == other
        return
    assert isinstance(other, Several)
    assert one.minted == other.minted
    assert one.append.claim_paths == other.append.claim_paths
    for name in (
        "stream",
        "events",
        "header",
        "identities",
        "expected",
        "tags",
        "spread",
        "others",
        "claims",
    ):
        assert getattr(one.append, name) == getattr(other.append, name)
    assert (one.append.condition, one.append.retry) == (other.append.condition, other.append.retry)


def test_most_bodies_are_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.admit.several.decode", None)
    admitted(judged(json.dumps(WHOLE).encode()))
    admitted(judged(body(taken(), placed(None))))


@pytest.mark.parametrize(
    "text",
    [
        body(taken(), idempotency_key="k"),
        body(taken(data="[" * 50_001)),
        body(taken(data="x", key="a@b")),
        body(taken(data=json.loads("[" * 62 + "]" * 62))),
        body(taken(), metadata={"actor": ACTOR, "extra": {"a": json.loads("[" * 62 + "]" * 62)}}),
    ],
)
def test_what_is_not_proven_is_read_exactly(text: bytes) -> None:
    long = msgspec.structs.replace(minting(), event_bytes_max=100_000)
    assert isinstance(judged(text, context=long), Fault)


def test_a_bulk_line_may_name_its_idempotency_key() -> None:
    sent = json.loads(body(taken(), idempotency_key="k"))
    answer = judge_several(
        SPEC, KEYED_BY_LINE, json.dumps(sent).encode(), minting(), lambda _: MADE, {}, lambda _: None,
        Form.SEVERAL_LINE,
    )  # fmt: skip
    assert admitted(answer).append.chosen == (identity(TENANT, "key", b"k"),)


KEYED_BY_LINE = Asked(idempotency_key="k")
