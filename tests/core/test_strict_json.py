"""Strict JSON: what is accepted and refused; the fast way, the exact way and a second reader agree."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.admit import strict_json
from gateway.admit.strict_json import DEPTH_MAX, Malformed, decode, decode_exactly, decode_made
from tests.core import json_oracle

NOT_UTF_8 = [
    b'"\xff"',
    b'"\xc3"',
    b'"\xc0\xaf"',
    b'"\xed\xa0\x80"',
    b'{"\xff":1}',
    b'"\xf4\x90\x80\x80"',
    b"1\xa0",
]
NOT_JSON = [
    *[
        b"",
        b" ",
        b"\n\t\r ",
        b"tru",
        b"nullx",
        b"True",
        b"'a'",
        b"//a\n1",
        b"/**/1",
        b"\x0c1",
        b"\x0b1",
        b"1\x00",
    ],
    *[
        b"01",
        b"-",
        b"-01",
        b"+1",
        b"1.",
        b".5",
        b"1e",
        b"1e+",
        b"0x10",
        b"1_000",
        b"--1",
        b"1.e5",
        b"00",
        b"1 2",
    ],
    *[b"NaN", b"Infinity", b"-Infinity", b"[NaN]", b"nan", b"-NaN"],
    *[
        b'"',
        b'"a',
        b'"a\\',
        b'"\\"',
        b'"\\x"',
        b'"\\u12"',
        b'"\\u12g4"',
        b'"\\U0041"',
        b'"\x00"',
        b'"\x1f"',
        b'"\n"',
    ],
    *[
        b"[",
        b"[1",
        b"[1,",
        b"[1,]",
        b"[,1]",
        b"[1 2]",
        b"[1]]",
        b"]",
        b"[}",
        b"[1}",
        b"[" * 100_000,
        b"]" * 100,
    ],
    *[
        b"{",
        b'{"a"',
        b'{"a":',
        b'{"a":1',
        b'{"a":1,',
        b'{"a":1,}',
        b'{"a" 1}',
        b"{1:2}",
        b"{a:1}",
        b"{,}",
        b"}",
    ],
    *[b'{"a":' * 100_000, b'{"a":1}{"b":2}', "[１]".encode(), "１".encode(), b"\xe2\x80\xa81", b'{"a"::1}'],
]
DUPLICATES = [
    *[b'{"a":1,"a":1}', b'{"a":1,"a":2}', b'{"a":1,"\\u0061":2}', b'{"":1,"":2}', b'{"a":{"b":1},"a":1}'],
    *[b'[{"x":{"a":1,"b":2,"a":3}}]', b'{":":1,":":2}', b'{"a":":","a":""}', b'{"a":"\\u003a","a":":"}'],
    *[b'{"a":"\\u003A","a":1}', b'{"a":1,"b":"\\u003a","a":"\\u003a"}', '{"é":1,"\\u00e9":2}'.encode()],
    *[
        b'{"\\/":1,"/":2}',
        b'{"a":1,"a":"\\u003a"}',
        b'{"\\u003a":1,"\\u003a":2}',
        b'{"a":"::","a":"\\u003a\\u003a"}',
    ],
]
UNSTORABLE = [
    *[
        b'"\\u0000"',
        b'"a\\u0000b"',
        b'{"\\u0000":1}',
        b'{"a":{"b\\u0000":1}}',
        b'"\\\\\\u0000"',
        b'"\\n\\u0000"',
    ],
    *[
        b'"\\ud800"',
        b'"\\udc00"',
        b'"\\uDBFF"',
        b'"\\ud800\\ud800"',
        b'"\\ud800\\u0041"',
        b'"\\ud83d x \\ude00"',
    ],
    *[
        b'"\\ude00\\ud83d"',
        b'{"\\ud800":1}',
        b'"\\ud83d\\\\ude00"',
        b'"\\ud83d\\ude00\\ude00"',
        b'"\\ud83d\\n"',
    ],
]
MARKED = [
    b"\xef\xbb\xbf1",
    b"\xef\xbb\xbf",
    b"\xef\xbb\xbf{}",
    "1".encode("utf-16"),
    "{}".encode("utf-16-le"),
]
TOO_DEEP = [
    *[b"[" * 65 + b"]" * 65, b'{"a":' * 65 + b"1" + b"}" * 65, b'{"a":' * 64 + b"[]" + b"}" * 64],
    *[b"[" * 900 + b"]" * 900, b"[" * 100_000 + b"]" * 100_000, b'["[",{"a":' * 33 + b"1" + b"}]" * 33],
]

LEGAL: list[tuple[bytes, Any]] = [
    (b"0", 0),
    (b"-0", 0),
    (b"-0.0", -0.0),
    (b" \n\t\r1\r\n", 1),
    (b"1e5", 1e5),
    (b"1E-2", 0.01),
    (b"1e-400", 0.0),
    (b"1e400", Decimal("1e400")),
    (b"[-1e400, 1]", [Decimal("-1e400"), 1]),
    (b"1e99999999999999999999", Decimal("1e999999999999999999")),
    (b"-1e99999999999999999999", Decimal("-1e999999999999999999")),
    (b"-0e99999999999999999999", -0.0),
    (b"123456789012345678901234567890", 123456789012345678901234567890),
    (b"-" + b"9" * 4299, -int("9" * 4299)),
    (b"9" * 5000, Decimal("9" * 5000)),
    (b"-" + b"9" * 5000, Decimal("-" + "9" * 5000)),
    (b"0." + b"1" * 5000, 1 / 9),
    (b"[" * 64 + b"]" * 64, json.loads("[" * 64 + "]" * 64)),
    (b'{"a":' * 63 + b"[]" + b"}" * 63, json.loads('{"a":' * 63 + "[]" + "}" * 63)),
    (b"[" + b"{}," * 100 + b"[[]]]", [*[{}] * 100, [[]]]),
    (b'"' + b"[{" * 100 + b'"', "[{" * 100),
    (b'{"a":{"a":1},"b":{"a":1}}', {"a": {"a": 1}, "b": {"a": 1}}),
    (b'"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041"', '"\\/\b\f\n\r\tA'),
    (b'"\\ud83d\\ude00"', "\U0001f600"),
    (b'"\\uD83D\\uDE00:\\u003a"', "\U0001f600::"),
    (b'"\\\\u0000 \\\\ud800"', "\\u0000 \\ud800"),
    (b'"\\u0001\\u001f\x7f\\u007F"', "\x01\x1f\x7f\x7f"),
    ('"é 😀 \u2028 \ufeff \ufffe"'.encode(), "é 😀 \u2028 \ufeff \ufffe"),
    (b'{"":null," ":true,"\\n":false}', {"": None, " ": True, "\n": False}),
]

REFUSED = [*NOT_UTF_8, *NOT_JSON, *DUPLICATES, *UNSTORABLE, *MARKED, *TOO_DEEP]


@pytest.mark.parametrize("body", REFUSED, ids=lambda body: repr(body[:24]))
def test_what_is_no_strict_json_is_refused_with_a_sentence(body: bytes) -> None:
    answer = decode(body)
    assert isinstance(answer, Malformed)
    assert answer == decode_exactly(body)
    assert answer.reason[0].isupper()
    assert answer.reason.endswith(".")
    assert len(answer.reason) < 200


@pytest.mark.parametrize(("body", "value"), LEGAL, ids=lambda part: repr(part)[:24])
def test_every_legal_text_is_accepted_with_its_value(body: bytes, value: Any) -> None:
    assert json_oracle.same(decode(body), value)
    assert json_oracle.same(decode_exactly(body), value)
    assert json_oracle.same(json_oracle.read(body), value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"  ", "empty"),
        (b"\xef\xbb\xbf1", "byte order mark"),
        (b'{"a":"\xff"}', "byte 0xff at offset 6"),
        (b'{"a":1,\n  "b" 2}', "line 2, column 7"),
        (b'{"a":1,"b":2,"a":3}', 'key "a" is given twice'),
        (b'{"a":NaN}', "NaN is not a JSON number"),
        (b"[1,\n" + b"[" * 70 + b"]" * 71, "64 levels deep, at line 2, column 64"),
        (b"[" * 70 + b"]" * 70, "64 levels deep, at line 1, column 65"),
        (b'["a","\\u0000"]', "U+0000 at line 1, column 7"),
        (b'["\\ud800"]', "\\ud800, half of a surrogate pair, at line 1, column 3"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_where(body: bytes, words: str) -> None:
    answer = decode(body)
    assert isinstance(answer, Malformed)
    assert words in answer.reason


@pytest.mark.parametrize("body", [b"1e400", b"-1e400", b"9" * 5000, b"1e99999999999999999999", b"1e-400"])
def test_numbers_of_any_size_can_be_validated_by_a_schema(body: bytes) -> None:
    number = decode(body)
    assert jsonschema_rs.is_valid({"type": "number"}, number)
    assert jsonschema_rs.is_valid({"maximum": 10}, number) is (body in (b"-1e400", b"1e-400"))
    assert jsonschema_rs.is_valid({"enum": [1, 2]}, number) is False


def test_a_deep_text_never_overflows_the_stack() -> None:
    for levels in (64, 65, 500, 990, 1000, 5000, 200_000):
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")):
            body = opening * levels + b"1" + closing * levels
            deep = levels * opening.count(b"{") + levels * opening.count(b"[") > 64
            assert isinstance(decode(body), Malformed) is deep
            assert isinstance(decode(opening * levels), Malformed)


def test_the_fast_way_is_taken_by_an_ordinary_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_json, "decode_exactly", None)
    for value in (
        {"a": {"b": [1, 2.5, None, True, "é:\n"]}},
        [{"a": 1}] * 100,
        "\u0100\\u00",
        {"t": "12:30"},
    ):
        assert decode(json.dumps(value).encode()) == value
        assert decode(json.dumps(value, indent=2, ensure_ascii=False).encode()) == value


# ---- rules that hold for all texts ----

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text("ab:é\\", max_size=2), inner, max_size=5)
    ),
    max_leaves=20,
)

PARTS = [
    *[
        b'"a"',
        b'"a":1,',
        b'"\\u0061":1',
        b"\\u0000",
        b"\\u003a",
        b"\\u003A",
        b"\\ud800",
        b"\\udc00",
        b"\\ud83d\\ude00",
    ],
    *[
        b":",
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b"null",
        b"1e999",
        b"-",
        b"0",
        b".",
        b"e",
        b"E+",
        b" ",
        b"\n",
    ],
    *[
        b"\x00",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"NaN",
        b"9" * 30,
        b"[" * 30,
        b"]" * 30,
        b'{"a":' * 30,
    ],
]


@st.composite
def almost_json(draw: st.DrawFn) -> bytes:
    """A legal text with a few bytes changed, put in or taken out."""
    text = json.dumps(draw(VALUES), ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
    body = bytearray(text.encode())
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 3))] = draw(st.sampled_from(PARTS) | st.binary(max_size=2))
    return bytes(body)


@given(VALUES, st.booleans())
def test_what_the_standard_library_writes_is_read_back(value: Any, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert json_oracle.same(decode(body), value)


@given(almost_json() | st.binary(max_size=20))
@example(b'{"a":"\\u003a","a":1}')
@example(b'{"a":":","b":"\\u003a","a":1}')
def test_any_bytes_give_a_value_or_a_refusal_and_a_second_reader_agrees(body: bytes) -> None:
    answer, exact = decode(body), decode_exactly(body)
    try:
        expected = json_oracle.read(body)
    except json_oracle.Illegal:
        assert isinstance(answer, Malformed)
        assert answer == exact
    else:
        assert json_oracle.same(answer, expected)
        assert json_oracle.same(exact, expected)


@given(almost_json())
def test_what_the_fast_way_proves_strict_the_exact_way_accepts(body: bytes) -> None:
    try:
        value = strict_json._decode(body)
        colons = strict_json._encode(value).count(b":")
    except strict_json.FAST_FAILURES:
        return
    if strict_json.is_strict(body, colons, value, strict_json.DEPTH_MAX):
        assert json_oracle.same(decode_exactly(body), value)


@pytest.mark.parametrize(("body", "value"), LEGAL, ids=lambda part: repr(part)[:24])
def test_a_text_made_of_strict_values_is_read_as_any_other(body: bytes, value: Any) -> None:
    assert json_oracle.same(decode_made(body), value)


def test_a_text_made_of_strict_values_may_be_too_deep() -> None:
    assert decode_made(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX) == decode(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX)
    assert isinstance(decode_made(b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1)), Malformed)
    in_a_text = b'"' + b"[" * (DEPTH_MAX + 1) + b'"'
    assert decode_made(in_a_text) == "[" * (DEPTH_MAX + 1)
