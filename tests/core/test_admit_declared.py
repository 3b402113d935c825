"""What an event type declares beside its schema, in requests and in bulk lines: tags, claims, revisions,
records, and aggregates that are created once."""

from __future__ import annotations

import json
import uuid
from typing import Any

import msgspec
import pytest

from gateway.admit.address import Address, address
from gateway.admit.append import EventContext, Fault, compose, creation
from gateway.admit.line import (
    Creation,
    OfSeveral,
    SeveralLine,
    is_several,
    judge_line,
    judge_several_line,
)
from gateway.admit.preconditions import NOTHING_ASKED, Asked, read_asked
from gateway.appends import ANY_LENGTH, Append, identity, request_digest
from gateway.errors import Refusal
from gateway.events import RevisedEvent, Stream
from tests.core.appends import ACTOR, TENANT, UUID, V7, batch, declared, event, minting, refused, single

MADE = "a0000000-0000-4000-a000-000000000002"
SPEC = declared(
    {
        "aggregate_types": {
            "user": {
                "events": {
                    "was_named": {
                        "schema": {},
                        "tags": ["team:$.data.team"],
                        "claims": {"email": {"value": "$.data.email"}},
                    },
                    "was_closed": {"schema": {}, "releases": ["email"]},
                    "was_seen": {
                        "schema": True,
                        "revision": 2,
                        "upcast": {"1": [{"set": {"target": "n", "value": 0}}]},
                    },
                }
            },
            "ticket": {
                "identity": {"content": {"text": "$.data.text"}},
                "events": {"was_seen": {"schema": {}}},
            },
            "account": {"idempotent_create": True, "events": {"was_opened": {"schema": {}}}},
        },
        "agent_types": ["user"],
        "singletons": ["till"],
    }
)
FULL = Refusal("storage_full", "The tenant has no room left.")
SKIP = read_asked([(b"sluice-if-unchanged", b"skip")])
SOURCE = ("jira", "eu", "T-1")


def place(aggregate_type: str, event_type: str | None) -> Address:
    found = address(SPEC, aggregate_type, UUID, event_type)
    assert isinstance(found, Address), found
    return found


def judged(
    name: str, body: bytes, by: Asked | Refusal = NOTHING_ASKED, context: EventContext | None = None
) -> Append | Fault:
    """`name` is `<aggregate type>.<event type>`; of a batch there is no event type."""
    aggregate_type, _, event_type = name.partition(".")
    assert isinstance(by, Asked)
    where = place(aggregate_type, event_type or None)
    return compose(SPEC, where, by, body, minting() if context is None else context)


def admitted(answer: object) -> Append:
    assert isinstance(answer, Append), answer
    return answer


# ---- tags, claims, revisions ----


def test_tags_and_claims_are_taken_from_the_data() -> None:
    append = admitted(judged("user.was_named", single({"team": "red", "email": "a@b.c"})))
    assert append.tags == (("team:red",),)
    assert [(claim.event, claim.name) for claim in append.claims] == [(0, "email")]
    assert append.claim_paths == ("data.email",)
    plain = admitted(judged("user.was_named", single({})))
    assert (plain.tags, plain.claims) == ((), ())


def test_the_events_of_a_batch_have_their_own_tags_and_claims() -> None:
    events = [event("was_seen"), event("was_named", {"team": 5, "email": "a"}), event("was_closed")]
    append = admitted(judged("user", batch(*events)))
    assert append.tags == ((), ("team:5",), ())
    found = [(claim.event, claim.name, claim.value is None) for claim in append.claims]
    assert found == [(1, "email", False), (2, "email", True)]
    assert append.claim_paths == ("events[1].data.email", "events[2].data")


@pytest.mark.parametrize(
    ("data", "code", "path"),
    [
        ({"team": [1]}, "invalid_tag", ".team"),
        ({"email": {}}, "invalid_claim", ".email"),
        ({"team": {}, "email": {}}, "invalid_tag", ".team"),
    ],
)
def test_a_value_that_can_be_no_tag_or_claim_is_refused_at_its_place(
    data: dict[str, Any], code: str, path: str
) -> None:
    assert refused(judged("user.was_named", single(data))) == (code, f"data{path}", 422)
    text = batch(event("was_seen"), event("was_named", data))
    assert refused(judged("user", text)) == (code, f"events[1].data{path}", 422)


def test_an_event_has_the_revision_of_its_type() -> None:
    (found,) = admitted(judged("user.was_seen", single())).events
    assert isinstance(found, RevisedEvent)
    assert found.revision == 2


def test_a_full_storage_refuses_what_has_no_other_fault() -> None:
    full = msgspec.structs.replace(minting(), not_stored=FULL)
    assert refused(judged("user.was_named", single(), context=full)) == ("storage_full", None, 403)
    assert refused(judged("user.was_named", single({"team": []}), context=full))[0] == "invalid_tag"
    fault = judged("user.was_named", single(event_id=V7), context=full)
    assert isinstance(fault, Fault)
    assert fault.retry == admitted(judged("user.was_named", single(event_id=V7))).retry


# ---- records ----


def skipping(body: bytes) -> bytes:
    return json.dumps(json.loads(body) | {"if_unchanged": "skip"}).encode()


def test_header_and_body_may_ask_to_skip_an_unchanged_record() -> None:
    assert isinstance(SKIP, Asked)
    assert admitted(judged("ticket.was_seen", single(), SKIP)).skip_unchanged
    assert admitted(judged("ticket.was_seen", skipping(single()))).skip_unchanged
    assert not admitted(judged("ticket.was_seen", single())).skip_unchanged


def test_without_records_nothing_can_be_unchanged() -> None:
    assert refused(judged("user.was_seen", skipping(single()))) == ("invalid_field", "if_unchanged", 422)


def test_an_append_keeps_the_source_that_led_to_its_key() -> None:
    where = msgspec.structs.replace(place("user", "was_seen"), source=SOURCE)
    append = admitted(compose(SPEC, where, NOTHING_ASKED, single(), minting()))
    assert (append.source, append.skip_unchanged) == (SOURCE, False)


# ---- aggregates that are created once ----


def created(body: bytes, name: str = "account.was_opened") -> Append | None:
    aggregate_type, _, event_type = name.partition(".")
    return creation(place(aggregate_type, event_type), admitted(judged(name, body)), body)


def test_a_request_that_creates_an_aggregate_is_known_by_its_path_and_body() -> None:
    body = single({"n": 1})
    first = created(body)
    assert first is not None
    digest = request_digest(f"/account/{UUID}/was_opened", body, ANY_LENGTH)
    assert (first.expected, first.request_digest) == (0, digest)
    assert first.chosen == (identity(TENANT, "create", digest),)
    assert created(single({"n": 1}, previous_length=0)) is not None


def test_any_other_request_creates_nothing() -> None:
    assert created(single(event_id=V7)) is None
    assert created(single(previous_length=3)) is None
    assert created(single(), "user.was_seen") is None


# ---- lines ----


def line(aggregate_type: str, event_type: str, key: Any = UUID, data: Any = None, **more: Any) -> bytes:
    names = {"aggregate_type": aggregate_type, "key": key, "type": event_type}
    return json.dumps({**names, "data": data or {}, "metadata": {"actor": ACTOR}, **more}).encode()


def test_a_line_that_creates_an_aggregate_is_two_appends() -> None:
    found = judge_line(SPEC, line("account", "was_opened"), minting(), {})
    assert isinstance(found, Creation)
    assert (found.first.expected, found.otherwise.expected) == (0, ANY_LENGTH)
    assert (len(found.first.chosen), found.otherwise.chosen) == (1, ())
    keyed = judge_line(SPEC, line("account", "was_opened", idempotency_key="k"), minting(), {})
    assert admitted(keyed).chosen == (identity(TENANT, "key", b"k"),)


def test_a_line_may_ask_to_skip_an_unchanged_record() -> None:
    asked = line("ticket", "was_seen", if_unchanged="skip")
    assert admitted(judge_line(SPEC, asked, minting(), {})).skip_unchanged
    unasked = line("ticket", "was_seen", if_unchanged=None)
    assert not admitted(judge_line(SPEC, unasked, minting(), {})).skip_unchanged
    wrong = judge_line(SPEC, line("ticket", "was_seen", if_unchanged=5), minting(), {})
    assert isinstance(wrong, Fault)
    assert (wrong.refusal.code, wrong.refusal.path) == ("invalid_field", "if_unchanged")


def test_a_line_that_a_source_led_to_its_key_keeps_it() -> None:
    found = judge_line(SPEC, line("ticket", "was_seen"), minting(), {}, source=SOURCE)
    assert admitted(found).source == SOURCE


KEYS: dict[tuple[str, str], str | Refusal] = {
    ("user", "@VNO-1"): MADE,
    ("user", "@VNO-2"): Refusal("unknown_alias", "No aggregate has this alias.", "key"),
}


def test_an_alias_in_a_line_is_the_key_that_it_names() -> None:
    found = admitted(judge_line(SPEC, line("user", "was_seen", "@VNO-1"), minting(), {}, KEYS))
    assert found.stream == Stream(TENANT, "user", MADE)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (line("user", "was_seen", "@VNO-2"), "unknown_alias"),
        (line("user", "was_eaten", "@VNO-2"), "unknown_event_type"),
        (line("user", "was_seen", "@VNO-2", x=1), "unknown_alias"),
    ],
)
def test_an_alias_that_names_nothing_is_refused_after_the_other_names(text: bytes, code: str) -> None:
    found = judge_line(SPEC, text, minting(), {}, KEYS)
    assert isinstance(found, Fault)
    assert (found.refusal.code, found.retry) == (code, None)


def test_a_line_whose_alias_names_nothing_any_more_may_repeat_one_by_its_key() -> None:
    text = line("user", "was_seen", "@VNO-2", idempotency_key="k")
    found = judge_line(SPEC, text, minting(), {}, KEYS)
    assert isinstance(found, Fault)
    assert found.retry is not None
    assert found.retry.chosen == (identity(TENANT, "key", b"k"),)


# ---- lines of several aggregates ----


def several(*events: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"events": events, "metadata": {"actor": ACTOR}, **more}).encode()


SEEN = {"aggregate_type": "user", "key": "till", "type": "was_seen", "data": {}}
OPENED = {"aggregate_type": "account", "type": "was_opened", "data": {}}


def judged_several(text: bytes) -> SeveralLine | Fault:
    return judge_several_line(SPEC, text, minting(), OfSeveral(lambda _: MADE, lambda _: None))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (several(SEEN), True),
        (b'{"events":5}', True),
        (line("user", "was_seen"), False),
        (line("user", "was_seen", data={"events": []}), False),
        (line("user", "was_seen", events=[]), False),
        (b'["events"]', False),
        (b'{"events"', False),
    ],
)
def test_a_line_with_events_and_no_type_is_meant_for_several_aggregates(text: bytes, meant: bool) -> None:
    assert is_several(text) is meant


def test_a_line_of_several_aggregates_is_one_append() -> None:
    found = judged_several(several(SEEN, OPENED, idempotency_key="k"))
    assert isinstance(found, SeveralLine)
    assert found.first_type == "user"
    assert [stream.key for stream in found.append.streams] == ["till", MADE]
    assert found.append.chosen == (identity(TENANT, "key", b"k"),)


def test_the_key_of_a_line_is_no_part_of_the_request_that_it_is_known_by() -> None:
    one = judged_several(several(SEEN, idempotency_key="k"))
    spaced = b" " + several(SEEN, idempotency_key="k").replace(b', "metadata"', b' , "metadata"')
    other = judged_several(spaced)
    assert isinstance(one, SeveralLine)
    assert isinstance(other, SeveralLine)
    assert one.append.retry == other.append.retry
    assert uuid.UUID(bytes=one.append.append_id).int == 1


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (b'{"events":[],"events":[]}', ("invalid_json", None, 400)),
        (several(), ("invalid_field", "events", 422)),
        (several(SEEN, x=1), ("unknown_field", "x", 422)),
        (several(SEEN, idempotency_key=""), ("invalid_field", "idempotency_key", 422)),
        (several(SEEN, idempotency_key=5), ("invalid_field", "idempotency_key", 422)),
        (several({**SEEN, "type": "_x"}, idempotency_key=5), ("reserved_event_type", "events[0].type", 422)),
        (several(SEEN, condition={}), ("missing_field", "condition.fail_if_events_match", 422)),
    ],
)
def test_a_line_of_several_aggregates_is_refused_as_its_request_would_be(
    text: bytes, answer: tuple[str, str | None, int]
) -> None:
    found = judged_several(text)
    assert isinstance(found, Fault)
    assert "body" not in found.refusal.error
    assert (found.refusal.code, found.refusal.path, found.refusal.http_status) == answer
