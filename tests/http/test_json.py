"""Bodies: strict JSON in, and `data` back byte for byte."""

from __future__ import annotations

import json
import re

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.calls import ACTOR, JSON, appended, events_of, length_of, lines, new_id, refused, told_in

ACTOR_JSON = json.dumps({"actor": ACTOR}).encode()


def body(data: bytes) -> bytes:
    return b'{"data":%b,"metadata":%b}' % (data, ACTOR_JSON)


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


MALFORMED = {
    "nothing": b"",
    "blanks": b" \n\t ",
    "cut off": body(b"1")[:-1],
    "something behind": body(b"1") + b"x",
    "two values": body(b"1") * 2,
    "a trailing comma": b'{"data":1,"metadata":{},}',
    "a comment": body(b"/* no */ 1"),
    "single quotes": b"{'data':1}",
    "a bare word": body(b"yes"),
    "NaN": body(b"NaN"),
    "Infinity": body(b"Infinity"),
    "minus Infinity": body(b"-Infinity"),
    "a leading zero": body(b"01"),
    "a plus sign": body(b"+1"),
    "a point without digits": body(b"1."),
    "a point first": body(b".5"),
    "an exponent without digits": body(b"1e"),
    "hexadecimal": body(b"0x10"),
    "a duplicate key": body(b'{"a":1,"a":2}'),
    "a duplicate key far inside": body(b'[{"b":{"a":1,"c":2,"a":1}}]'),
    "a duplicate key, spelled differently": body(b'{"a":1,"\\u0061":2}'),
    "data twice": b'{"data":1,"data":1,"metadata":%b}' % ACTOR_JSON,
    "an actor twice": b'{"data":1,"metadata":{"actor":%b,"actor":%b}}' % (ACTOR_JSON[9:-1], ACTOR_JSON[9:-1]),
    "U+0000": body(b'"\\u0000"'),
    "U+0000 in a key": body(b'{"a\\u0000b":1}'),
    "a raw NUL": body(b'"\x00"'),
    "a raw line break": body(b'"\n"'),
    "a lone high surrogate": body(b'"\\ud800"'),
    "a lone low surrogate": body(b'"\\udc00"'),
    "surrogates the wrong way round": body(b'"\\udc00\\ud800"'),
    "a surrogate and a letter": body(b'"\\ud800a"'),
    "half an escape": body(b'"\\u12"'),
    "an unknown escape": body(b'"\\x41"'),
    "bad UTF-8": body(b'"\xff"'),
    "an overlong NUL": body(b'"\xc0\x80"'),
    "a surrogate in UTF-8": body(b'"\xed\xa0\x80"'),
    "Latin-1": body('"é"'.encode("latin-1")),
    "UTF-16": body(b"1").decode().encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + body(b"1"),
    "65 levels": body(nested(64)),
    "a thousand levels": body(nested(1000)),
    "a hundred thousand levels": body(nested(100_000)),
    "levels that never end": b"[" * 100_000,
}


@pytest.mark.parametrize("what", MALFORMED)
async def test_what_is_no_strict_json_is_a_400(client: httpx.AsyncClient, what: str) -> None:
    for url in ("/order/global/was_noted", "/order/global", "/order", "/_/ids/check"):
        response = await client.post(url, content=MALFORMED[what], headers=JSON)
        refused(response, 400, "invalid_json")
    assert await length_of(client, "global") == 0


VALUES = [
    b"1e400",
    b"-1E-400",
    b"123456789012345678901234567890",
    b"0.1000000000000000055511151231257827",
    b"-0",
    b"-0.0e-0",
    b"1.0",
    b"1" * 5000,
    b"1e999999999999",
    b'"\\u0041\\/\\b\\f\\n\\r\\t\\"\\\\"',
    b'"\\ud83d\\ude00 \xf0\x9f\x98\x80"',
    b'"\\u003a:\\u003A"',
    b'{"b":1,"a":2,"":3}',
    b'{ "a" : [ 1 , 2 ] ,\t"b":\r\n{ } }',
    b'{"\xc3\xa9":"\\u00e9","\\u00e8":"\xc3\xa8"}',
    b'{"__proto__":{},"constructor":1,"$ref":"#"}',
    b'"\xe2\x80\xa8\xe2\x80\xa9"',
    nested(63),
    b"null",
    b'""',
]


@pytest.mark.parametrize("data", VALUES)
async def test_data_comes_back_byte_for_byte(client: httpx.AsyncClient, data: bytes) -> None:
    await comes_back(client, data)


async def comes_back(client: httpx.AsyncClient, data: bytes) -> None:
    """By every way to read an event."""
    key = new_id()
    response = await client.post(f"/order/{key}/was_noted", content=body(data), headers=JSON)
    assert response.status_code == 201, response.text
    event_id = response.json()["event_id"]
    exactly = b'"data":%b,"metadata":{"actor"' % data
    for path in (
        f"/order/{key}/events",
        f"/order/{key}/events?consistency=strong",
        f"/order/{key}/events/1",
        f"/_/events/{event_id}",
    ):
        assert exactly in (await client.get(path)).content, path
    conflict = await client.post(
        f"/order/{key}/was_noted", content=body(b"1"), headers={**JSON, "if-match": '"0"'}
    )
    assert (conflict.status_code, exactly in conflict.content) == (409, True)
    response = await client.get(f"/order/{key}/events", headers={"accept": "application/x-ndjson"})
    assert exactly.replace(b"\n", b" ").replace(b"\r", b" ") in response.content


NUMBERS = st.from_regex(
    re.compile(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?"), fullmatch=True
)
CHARACTERS = st.one_of(
    st.sampled_from(
        ['\\"', "\\\\", "\\/", "\\b", "\\f", "\\n", "\\r", "\\t", "\\u003a", "\\uD83D\\uDE00", ":", " "]
    ),
    st.integers(1, 0xD7FF).map(lambda code: f"\\u{code:04x}"),
    st.characters(exclude_characters='"\\', exclude_categories=("Cs", "Cc")),
)
STRINGS = st.lists(CHARACTERS, max_size=12).map(lambda parts: '"' + "".join(parts) + '"')
BLANKS = st.text(" \t\r\n", max_size=3)


@st.composite
def arrays(draw: st.DrawFn, items: st.SearchStrategy[str]) -> str:
    texts = [draw(BLANKS) + each + draw(BLANKS) for each in draw(st.lists(items, max_size=4))]
    return "[" + (",".join(texts) or draw(BLANKS)) + "]"


@st.composite
def objects(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    names = draw(st.lists(STRINGS, max_size=4, unique_by=json.loads))
    pairs = [
        f"{draw(BLANKS)}{name}{draw(BLANKS)}:{draw(BLANKS)}{draw(values)}{draw(BLANKS)}" for name in names
    ]
    return "{" + (",".join(pairs) or draw(BLANKS)) + "}"


TEXTS = st.recursive(
    st.one_of(NUMBERS, STRINGS, st.sampled_from(["null", "true", "false"])),
    lambda inner: arrays(inner) | objects(inner),
    max_leaves=12,
)
RELAXED = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@RELAXED
@given(text=TEXTS)
async def test_any_json_comes_back_byte_for_byte(client: httpx.AsyncClient, text: str) -> None:
    await comes_back(client, text.encode())


@RELAXED
@given(extra=objects(TEXTS), texts=st.lists(TEXTS, min_size=1, max_size=5))
async def test_extra_and_the_data_of_a_batch_come_back_so_too(
    client: httpx.AsyncClient, extra: str, texts: list[str]
) -> None:
    key = new_id()
    events = ",".join(f'{{"type":"was_noted","data":{text}}}' for text in texts)
    sent = f'{{"events":[{events}],"metadata":{{"actor":{json.dumps(ACTOR)},"extra":{extra}}}}}'.encode()
    response = await client.post(f"/order/{key}", content=sent, headers=JSON)
    assert response.status_code == 201, response.text
    got = (await client.get(f"/order/{key}/events")).content
    for text in texts:
        assert b'"data":%b,"metadata"' % text.encode() in got
    assert got.count(b'"extra":%b,"revision":1}' % extra.encode()) == len(texts)


@RELAXED
@given(texts=st.lists(TEXTS, min_size=1, max_size=5))
async def test_the_data_of_bulk_lines_comes_back_so_too(client: httpx.AsyncClient, texts: list[str]) -> None:
    key = new_id()
    head = f'{{"aggregate_type":"order","key":"{key}","type":"was_noted",'.encode()
    on_one_line = [text.replace("\n", " ").encode() for text in texts]
    sent = lines(*[head + body(text)[1:] for text in on_one_line])
    response = await client.post("/_/bulk", content=sent, headers={"content-type": "application/x-ndjson"})
    assert {told["status"] for told in told_in(response.content)} == {201}, response.text
    got = (await client.get(f"/order/{key}/events")).content
    for text in on_one_line:
        assert b'"data":%b,"metadata"' % text in got


async def test_a_state_keeps_the_numbers_that_were_sent(client: httpx.AsyncClient) -> None:
    key = new_id()
    data = b'{"big":123456789012345678901234567890,"small":1e-400,"exact":1.10,"text":"\\u00e9"}'
    await client.post(f"/order/{key}/was_placed", content=body(data), headers=JSON)
    state = (await client.get(f"/order/{key}")).content
    for part in (b"123456789012345678901234567890", b"1e-400", b"1.10", b'"\\u00e9"'):
        assert part in state


async def test_a_null_extra_and_an_empty_one_are_told_apart(client: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(client, "order", key, "was_noted", extra={})
    await appended(client, "order", key, "was_noted", extra=None)
    extras = [event["metadata"]["extra"] for event in await events_of(client, "order", key)]
    assert extras == [{}, None]
