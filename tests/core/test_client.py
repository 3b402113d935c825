"""The client's pure parts: when a call is repeated, what is known when it is not, messages of a stream."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.client import (
    Actor,
    AsyncClient,
    BulkAppend,
    Client,
    Conflict,
    NotCommitted,
    NotUnique,
    OutcomeUnknown,
    Patience,
    PositionFile,
    Receipt,
    Refused,
    Unavailable,
    answers,
    bulk,
    calls,
    imports,
)
from gateway.client.connection import Following
from gateway.client.positions import Keeper
from gateway.client.retry import Answer, Call, Lost, Pause, Request, attempts
from gateway.client.stream import Messages
from gateway.errors import REFUSALS, Known

ACTOR = Actor("user", "global")
DONE = Answer(201, {}, b'{"ok":true,"key":"k","event_id":"e","stream_id":"6-0","length":6}')
RECEIPT = Receipt("k", 6, ("e",), False)
LOST, UNSENT = Lost("no answer: ReadTimeout", sent=True), Lost("no answer: ConnectError", sent=False)


def refused(code: str, **headers: str) -> Answer:
    body = f'{{"ok":false,"code":"{code}","error":"why","path":"somewhere"}}'
    return Answer(
        REFUSALS[code].status, {name.replace("_", "-"): v for name, v in headers.items()}, body.encode()
    )


def carry_out(
    call: Call[Receipt], *got: Answer | Lost, chance: float = 0.0, patience: Patience | None = None
) -> tuple[Receipt, list[Request], list[float]]:
    """The result, every request and every pause; the clock stands still but for the pauses."""
    now, left, sent, pauses = 0.0, list(got), [], []
    steps = attempts(call, patience or Patience(give_up_s=10), lambda: now, lambda: chance)
    step = next(steps)
    while True:
        reply: Answer | Lost | None = None
        if isinstance(step, Request):
            sent.append(step)
            reply = left.pop(0) if len(left) > 1 else left[0]
        else:
            pauses.append(step.seconds)
            now += step.seconds
        try:
            step = steps.send(reply)
        except StopIteration as done:
            return done.value, sent, pauses


def append(**options: str) -> Call[Receipt]:
    return calls.append("order", "k", "was_placed", {"n": 1}, "new-key", {"actor": ACTOR, **options})  # type: ignore[typeddict-item]


def test_an_append_is_repeated_with_the_same_key_and_bytes_until_it_is_answered() -> None:
    failures = [LOST, UNSENT, refused("not_committed"), refused("outcome_unknown"), refused("rate_limited")]
    receipt, sent, _ = carry_out(append(), *failures, DONE)
    assert receipt == RECEIPT
    assert len(sent) == 6
    assert len({(each.content, each.headers["idempotency-key"]) for each in sent}) == 1
    assert sent[0].headers["idempotency-key"] == "new-key"
    assert sent[0].content == b'{"data":{"n":1},"metadata":{"actor":{"type":"user","id":"global"}}}'


def test_the_callers_key_is_used_where_there_is_one() -> None:
    _, (sent,), _ = carry_out(append(idempotency_key="mine"), DONE)
    assert sent.headers["idempotency-key"] == "mine"


def test_an_event_id_of_the_callers_own_is_the_key_where_no_key_is_given() -> None:
    _, (sent,), _ = carry_out(append(event_id="derived"), DONE)
    assert sent.headers["idempotency-key"] == "derived"
    _, (sent,), _ = carry_out(append(event_id="derived", idempotency_key="mine"), DONE)
    assert sent.headers["idempotency-key"] == "mine"


@pytest.mark.parametrize("value", ["a\r\nb", "\u00e9", "a ", "\x00", "\ud800"])
def test_what_no_header_can_hold_is_refused_before_anything_is_sent(value: str) -> None:
    for header, option in (("Idempotency-Key", "idempotency_key"), ("X-Correlation-Id", "correlation_id")):
        with pytest.raises(Refused, match="can't be sent") as told:
            append(**{option: value})
        assert (told.value.status, told.value.code, told.value.path) == (422, "invalid_field", header)
    with pytest.raises(Refused, match="Last-Event-ID can't be sent"):
        Following({"after": "x"}, _Saved(value), Patience()).request()


@pytest.mark.parametrize("value", ["x", "0190A0B0-0000-7000-8000-000000000000", ""])
def test_a_correlation_id_that_a_gateway_would_replace_is_never_sent(value: str) -> None:
    with pytest.raises(Refused, match="UUID in lower case") as told:
        append(correlation_id=value)
    assert (told.value.code, told.value.path) == ("invalid_field", "X-Correlation-Id")


class _Saved:
    def __init__(self, position: str | None) -> None:
        self._position = position

    def load(self) -> str | None:
        return self._position

    def save(self, position: str) -> None:
        self._position = position


@pytest.mark.parametrize("code", [code for code, rule in REFUSALS.items() if not rule.retryable])
def test_what_would_be_refused_again_is_not_repeated(code: str) -> None:
    with pytest.raises(Refused) as told:
        carry_out(append(), UNSENT, refused(code))
    assert (told.value.code, told.value.status, told.value.path) == (code, REFUSALS[code].status, "somewhere")


@pytest.mark.parametrize("code", [code for code, rule in REFUSALS.items() if rule.retryable])
def test_what_may_be_repeated_is_repeated_until_patience_ends(code: str) -> None:
    expected = OutcomeUnknown if REFUSALS[code].known is Known.UNKNOWN else NotCommitted
    with pytest.raises(expected):
        carry_out(append(), refused(code))


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ((UNSENT,), NotCommitted),
        ((LOST,), OutcomeUnknown),
        ((LOST, refused("not_committed")), OutcomeUnknown),
        ((refused("outcome_unknown"), UNSENT), OutcomeUnknown),
        ((refused("not_committed"), UNSENT), NotCommitted),
        ((Answer(502, {}, b"<html>Bad gateway"),), OutcomeUnknown),
        ((Answer(503, {}, b""),), OutcomeUnknown),
        ((Answer(504, {}, b"[]"),), OutcomeUnknown),
    ],
)
def test_given_up_says_what_is_known_of_the_event(
    got: tuple[Answer | Lost, ...], expected: type[Exception]
) -> None:
    with pytest.raises(expected) as told:
        carry_out(append(), *got)
    if isinstance(told.value, OutcomeUnknown):
        assert told.value.idempotency_key == "new-key"


@pytest.mark.parametrize("code", ["unauthorized", "forbidden"])
def test_a_key_that_was_revoked_meanwhile_leaves_a_lost_append_unknown(code: str) -> None:
    with pytest.raises(OutcomeUnknown, match=code) as told:
        carry_out(append(), LOST, refused(code))
    assert told.value.idempotency_key == "new-key"
    with pytest.raises(Refused):
        carry_out(calls.length("order", "k"), LOST, refused(code))  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [400, 404, 413])
def test_a_proxys_page_leaves_a_lost_append_unknown(status: int) -> None:
    page = Answer(status, {}, b"<html>")
    with pytest.raises(OutcomeUnknown):
        carry_out(append(), LOST, page)
    with pytest.raises(Refused):
        carry_out(append(), UNSENT, page)


@pytest.mark.parametrize("content", [b"", b"<html>", b"[1]", b"{}", b"\xff"])
def test_an_answer_of_success_that_no_gateway_gives_leaves_an_append_unknown(content: bytes) -> None:
    page = Answer(200, {}, content)
    with pytest.raises(OutcomeUnknown, match="not from the service") as told:
        carry_out(append(), page)
    assert told.value.idempotency_key == "new-key"
    with pytest.raises(Refused, match="not from the service"):
        carry_out(calls.length("order", "k"), page)  # type: ignore[arg-type]


def test_one_name_in_place_of_several_is_never_sent_letter_by_letter() -> None:
    with pytest.raises(TypeError, match="`types` is a collection of names"):
        calls.feed(10, 0, {"types": "order"})
    with pytest.raises(TypeError, match="`sort` is a collection of names"):
        calls.rows(("order",), 10, None, {"sort": "-total"})


@dataclass
class Reading:
    celsius: float
    note: str | None = None


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"total": math.nan}, "data.total is nan"),
        (Reading(-math.inf), "data.celsius is -inf"),
        ([1, {"parts": (2.5, math.inf)}], r"data\[1\].parts\[1\] is inf"),
        ({"total": Decimal("NaN")}, "data.total is NaN"),
        ({"total": Decimal("sNaN")}, "data.total is sNaN"),
        ({"note": None, "sums": [Decimal("1e400"), Decimal("-Infinity")]}, r"data.sums\[1\] is -Infinity"),
    ],
)
def test_a_number_that_json_has_not_is_never_sent_as_null(data: object, path: str) -> None:
    with pytest.raises(ValueError, match=path):
        calls.append("order", "k", "was_placed", data, "new", {"actor": ACTOR})
    with pytest.raises(ValueError, match=path):
        list(bulk.parts([BulkAppend("order", "k", "was_placed", data, ACTOR)]))
    with pytest.raises(ValueError, match=path.removeprefix("data.")):
        imports.Import("order", [{"data": data}], {})


def test_a_decimal_is_sent_as_a_number_with_its_digits() -> None:
    digits = ["19.90", "0.1000000000000000000000001", "1E+400", "-0"]
    data = {"totals": [Decimal(each) for each in digits], "note": "NaN, null"}
    call = calls.append("order", "k", "was_placed", data, "new", {"actor": ACTOR})
    assert b'{"totals":[19.90,0.1000000000000000000000001,1E+400,-0],' in (call.request.content or b"")
    ((line,),) = bulk.parts([BulkAppend("order", "k", "was_placed", data, ACTOR)])
    assert b'"totals":[19.90,' in line[1]
    rows = calls.rows(("order",), 10, None, {"filters": {"total": {"gte": Decimal("19.90")}}})
    assert rows.request.params["filter[total][gte]"] == "19.90"


def test_null_is_sent_as_null_and_json_as_it_is() -> None:
    data = {"note": None, "read": Reading(21.5), "sent": msgspec.Raw(b'{"a": null}')}
    call = calls.append("order", "k", "was_placed", data, "new", {"actor": ACTOR})
    assert b'{"note":null,"read":{"celsius":21.5,"note":null},"sent":{"a": null}}' in (
        call.request.content or b""
    )


def test_lines_that_no_gateway_answered_are_sent_again() -> None:
    (part,) = bulk.parts([BulkAppend("order", "k", "was_placed", {}, ACTOR)])
    steps = bulk.attempts_of(bulk.appends_of(part), Patience(), lambda: 0.0, lambda: 0.0)
    first = next(steps)
    assert isinstance(steps.send(Answer(200, {}, b"<html>\n</html>\n")), Pause)
    assert steps.send(None) == first
    with pytest.raises(StopIteration) as done:
        steps.send(Answer(200, {}, b'{"status":201,"key":"k","length":1}\n'))
    assert [each.length for each in done.value.value] == [1]


def test_where_now_was_is_kept_before_the_first_event_is_given() -> None:
    saved = _Saved(None)
    following = Following({"after": "now"}, saved, Patience())
    assert following.from_now
    following.begin("AQposition")  # the process ends amid its first event
    again = Following({"after": "now"}, saved, Patience())
    assert again.request().params == {"after": "AQposition"}


def test_the_page_of_a_proxy_shortens_no_pause_of_a_follower() -> None:
    following = Following({}, None, Patience(first_s=0.1))
    pauses = [following.pause_s(0)]
    assert list(following.received(b"<html>\n\n</html>")) == []
    pauses.append(following.pause_s(0))
    following.request()
    assert list(following.received(b"id: AQposition\n\n")) == []
    assert [*pauses, following.pause_s(0)] == [0.1, 0.2, 0.1]


def test_what_settles_a_lost_append_is_its_refusal() -> None:
    for code in ("idempotency_mismatch", "schema_violation", "unknown_event_type"):
        with pytest.raises(Refused):
            carry_out(append(), LOST, refused(code))


def test_a_read_that_is_given_up_is_unavailable() -> None:
    with pytest.raises(Unavailable) as told:
        carry_out(calls.length("order", "k"), LOST)  # type: ignore[arg-type]
    assert type(told.value) is Unavailable


def test_a_conflict_brings_what_was_missed() -> None:
    event = (
        b'{"id":"e","stream_id":"6-0","version":6,"key":"k","aggregate_type":"order","type":"was_placed","data":[1],'
        b'"metadata":{"actor":{"type":"user","id":"global"},"target":null,"timestamp":1.5,"correlation_id":"c",'
        b'"causation_id":null,"extra":null},"of_a_later_release":1}'
    )
    body = (
        b'{"ok":false,"code":"version_conflict","error":"why","length":6,"missed":[%b],"missed_next":7}'
        % event
    )
    with pytest.raises(Conflict) as told:
        carry_out(append(), Answer(409, {}, body))
    assert (told.value.length, told.value.missed_next) == (6, 7)
    (missed,) = told.value.missed
    assert (missed.version, missed.data, missed.data_as(list[int]), missed.position) == (6, [1], [1], None)


def test_a_number_that_no_float_holds_is_a_decimal() -> None:
    body = b'{"key":"k","data":{"n":1e400},"metadata":{"length":1,"created_at":1,"updated_at":1}}'
    value = {"n": Decimal("1e400")}
    assert answers.state(Answer(200, {}, body)).data == value
    assert answers.row(Answer(200, {}, body)).data == value
    event = (
        b'{"id":"e","stream_id":"1-0","version":1,"key":"k","aggregate_type":"order","type":"was_placed",'
        b'"data":{"n":1e400},"metadata":{"actor":{"type":"user","id":"global"},"target":null,"timestamp":1.5,'
        b'"correlation_id":"c","causation_id":null,"extra":null}}'
    )
    page, _ = answers.stream_page(Answer(200, {}, b'{"events":[%b],"next":null}' % event))
    assert page[0].data == value


def test_a_value_of_another_aggregate_names_it() -> None:
    holder = b'{"aggregate_type":"user","key":"k"}'
    body = b'{"ok":false,"code":"not_unique","error":"why","path":"data.email","holder":%b}' % holder
    with pytest.raises(NotUnique) as told:
        carry_out(append(), Answer(409, {}, body))
    assert (told.value.path, told.value.aggregate_type, told.value.key) == ("data.email", "user", "k")


@given(st.floats(0, 1), st.integers(0, 30))
def test_pauses_grow_and_are_never_shorter_than_asked_for(chance: float, asked_s: int) -> None:
    patience = Patience(give_up_s=1000, first_s=0.1, most_s=4)
    failures = [refused("not_committed", retry_after=str(asked_s))] * 12
    _, _, pauses = carry_out(append(), *failures, DONE, chance=chance, patience=patience)
    for n, pause in enumerate(pauses):
        full = min(0.1 * 2**n, 4)
        assert max(full / 2, asked_s) <= pause + 1e-9
        assert pause <= max(full, asked_s)


def test_patience_is_not_overdrawn() -> None:
    with pytest.raises(NotCommitted):
        carry_out(append(), refused("not_committed", retry_after="11"), patience=Patience(give_up_s=10))
    for nonsense in ("", "soon", "-1", "1.5", "9" * 9):
        carry_out(append(), refused("not_committed", retry_after=nonsense), DONE)


def test_ids_and_aliases_are_spelled_into_paths() -> None:
    for key, path in (
        ("ABC123XYZ", "ABC123XYZ"),
        ("@VNO-42", "@VNO-42"),
        ("a/b?c%", "a%2Fb%3Fc%25"),
        ("é", "%C3%A9"),
    ):
        assert calls.length("order", key).request.path == f"/order/{path}/length"


def message(position: str, data: str) -> bytes:
    return f"id: {position}\ndata: {data}\n\n".encode()


EVENT = (
    '{"id":"%d","version":1,"key":"k","aggregate_type":"order","type":"t","data":{},"metadata":{"actor":{"type":"u",'
    '"id":"i"},"target":null,"timestamp":1.5,"correlation_id":"c","causation_id":null,"extra":null},"position":"p"}'
)


@given(st.lists(st.integers(0, 9), max_size=6), st.data())
def test_messages_are_found_however_the_bytes_arrive(numbers: list[int], data: st.DataObject) -> None:
    stream = b"".join(
        message(f"p{n}", EVENT % n) + b": still here\nid: q%d\n\n: a comment\n\n" % n for n in numbers
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    messages, found = Messages(), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += [
            (position, event and answers.decode_event(event).id)
            for position, event in messages.feed(stream[begin:end])
        ]
    assert found == [pair for n in numbers for pair in ((f"p{n}", str(n)), (f"q{n}", None))]


def test_a_position_file_keeps_the_last_position(tmp_path: Path) -> None:
    saved = PositionFile(tmp_path / "orders.position")
    assert saved.load() is None
    saved.save("a")
    saved.save("b")
    assert PositionFile(tmp_path / "orders.position").load() == "b"
    assert [each.name for each in tmp_path.iterdir()] == ["orders.position"]


def test_a_position_is_saved_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    now = 0.0
    saved = PositionFile(tmp_path / "p")
    keeper = Keeper(saved, 1.0, lambda: now)
    keeper.processed("a")
    assert saved.load() is None
    now = 1.0
    keeper.processed("b")
    assert saved.load() == "b"
    keeper.processed("c")
    assert saved.load() == "b"
    keeper.close()
    assert saved.load() == "c"
    Keeper(None, 1.0, lambda: now).processed("d")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"actor": ACTOR, "previous_lenght": 0}, "'previous_lenght': did you mean 'previous_length'"),
        ({"actor": ACTOR, "xyz": 1}, "unknown option 'xyz': there are actor, causation_id, correlation_id"),
        ({}, "the option 'actor' is missing"),
    ],
)
def test_an_append_with_an_option_that_is_not_known_is_never_sent(options: Any, words: str) -> None:
    with Client("http://127.0.0.1:9", "sl_key") as client:
        with pytest.raises(TypeError, match=words):
            client.append("order", "k", "was_placed", {}, **options)
        with pytest.raises(TypeError, match=words):
            client.append_many("order", "k", [("was_placed", {})], **options)
        with pytest.raises(TypeError, match=words):
            client.create("order", [("was_placed", {})], **options)


@pytest.mark.parametrize("unknown", [{"type": ["order"]}, {"previous_length": 1}])
def test_a_read_of_the_feed_with_an_option_that_is_not_known_is_never_sent(unknown: Any) -> None:
    with Client("http://127.0.0.1:9", "sl_key") as client:
        with pytest.raises(TypeError, match="unknown option"):
            client.feed(**unknown)
        with pytest.raises(TypeError, match="unknown option"):
            next(client.follow(**unknown))


async def test_the_client_of_asyncio_knows_the_same_options() -> None:
    wrong: Any = {"actor": ACTOR, "foo": 1}
    async with AsyncClient("http://127.0.0.1:9", "sl_key") as client:
        for call in (
            client.append("order", "k", "was_placed", {}, **wrong),
            client.append_many("order", "k", [], **wrong),
            client.create("order", [], **wrong),
            client.feed(**wrong),
            anext(client.follow(**wrong)),
        ):
            with pytest.raises(TypeError, match="unknown option"):
                await call
