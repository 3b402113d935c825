from __future__ import annotations

import json
import struct
from collections import Counter
from decimal import Decimal
from hashlib import sha256

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from gateway.names.content import (
    ALGORITHM,
    Grade,
    Graded,
    Identity,
    content_of_json,
    content_of_read,
    content_of_text,
    context_of,
    context_of_values,
    grade,
    grade_all,
    read_once,
)

EMPTY = sha256(b"").hexdigest()


def plain(text: str) -> str:
    return sha256(text.encode()).hexdigest()


# --- content of text


def test_the_content_of_a_text_is_the_golden_one() -> None:
    golden = "64ec88ca00b268e5ba1a35678a1b5316d212f4f366b2477232534a8aeca37f3c"
    assert content_of_text("Hello world") == content_of_text("\n Hello world\t\u00a0\u0085") == golden


@pytest.mark.parametrize(
    "other",
    [
        "hello world",
        "Hello  world",
        "Hello\u00a0world",
        "\ufeffHello world",
        "\u200bHello world",
        "\x1cHello world",
    ],
)
def test_nothing_but_blanks_at_the_ends_is_folded(other: str) -> None:
    assert content_of_text(other) != content_of_text("Hello world")


def test_texts_that_look_alike_differ_and_an_empty_one_is_valid() -> None:
    assert content_of_text("\u00e9") != content_of_text("e\u0301")
    assert content_of_text("") == content_of_text(" \n") == EMPTY


@given(st.text())
def test_any_text_has_a_content(text: str) -> None:
    assert content_of_text(text) == content_of_text(f"  {text}\n")


# --- content of JSON


def test_the_canonical_form_is_that_of_the_rfc() -> None:
    sent = rb"""{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"""
    canonical = (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        r'"string":"€$\u000f\nA' + "'" + r'B\"\\\\\"/"}'
    )
    assert content_of_json(sent) == plain(canonical)


def test_keys_are_sorted_by_their_utf_16_units() -> None:
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    sent = json.dumps(dict.fromkeys(keys)).encode()
    assert list(json.loads(rfc8785.dumps(json.loads(sent)))) == [keys[n] for n in (1, 3, 5, 6, 0, 4, 2)]
    assert content_of_json(sent) == content_of_json(json.dumps(dict.fromkeys(reversed(keys))).encode())


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"),
        ("41b3de4355555555", "333333333.3333333"),
        ("41b3de4355555556", "333333333.3333334"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_numbers_are_spelled_as_in_the_rfc(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert content_of_json(f"[{number!r}]".encode()) == plain(f"[{text}]")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1,"b":[1.0,"\\u00e9"]}', b' { "b" : [1, "\xc3\xa9"], "a" : 1e0 }\n'),
        (b"100000000000000000000", b"1e20"),
        (b"9007199254740992", b"9007199254740992.0"),
        (b"-0", b"0.0"),
    ],
)
def test_one_value_spelled_in_two_ways_is_one_content(one: bytes, other: bytes) -> None:
    assert content_of_json(one) == content_of_json(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"9007199254740993", b"9007199254740992"),
        (b"[1180591620717411303425]", b"[1180591620717411303424]"),
        (b'{"a":1,"a":2}', b'{"a":2}'),
        (b'{"a":1}', b'{"a":"1"}'),
        (b"null", b'"null"'),
        (b"[]", b"{}"),
        (b'"\\ud800"', b'"\\udc00"'),
        (b'{"\\ud800":1}', b'{"\\udc00":1}'),
        (b"1e999", b"1e998"),
        (b"1" * 400, b"1" * 399),
        (b"1" * 401, b"1" * 402),
        (b"NaN", b"Infinity"),
        (b"", b"0"),
        (b"\xff", b"\xfe"),
        (b"[" * 100_000, b"[" * 100_001),
    ],
)
def test_what_has_no_canonical_form_is_told_apart_as_sent(one: bytes, other: bytes) -> None:
    assert content_of_json(one) != content_of_json(other)
    assert content_of_json(one) == content_of_json(b"\n" + one + b" ")


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(1 - 2**53, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_blanks_escapes_and_the_order_of_keys_do_not_count(value: object) -> None:
    def turned(value: object) -> object:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return [turned(each) for each in value] if isinstance(value, list) else value

    one = json.dumps(value, ensure_ascii=False).encode()
    assert content_of_json(one) == content_of_json(json.dumps(turned(value), indent=1).encode())


ASCII = st.characters(codec="ascii")
plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15) + 1, 10**15 - 1)
    | st.floats(-60_000, 60_000, width=16)
    | st.text(ASCII),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(ASCII, max_size=3), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(values | plain_values, st.booleans())
def test_the_content_is_the_hash_of_what_the_library_makes(value: object, escaped: bool) -> None:
    sent = json.dumps(value, ensure_ascii=escaped).encode()
    assert content_of_json(sent) == sha256(rfc8785.dumps(value)).hexdigest()  # type: ignore[arg-type]
    assert content_of_json(sent, strict=True) == content_of_json(sent)


@given(values | plain_values, st.booleans())
def test_a_text_that_is_read_once_has_the_same_value_and_content(value: object, escaped: bool) -> None:
    sent = json.dumps(value, ensure_ascii=escaped).encode()
    read = read_once(sent)
    if read is not None:
        assert read[0] == value
        assert content_of_read(sent, read[1]) == content_of_json(sent)


@pytest.mark.parametrize("text", [b"[1.5]", b'{"a":1e3}', b"[", b'"\\ud800"', b"", b"[" * 100_000])
def test_fractions_exponents_and_what_is_no_json_are_not_read_once(text: bytes) -> None:
    assert read_once(text) is None


@pytest.mark.parametrize("text", [b"[9007199254740993]", '["\U0001f600"]'.encode()])
def test_what_is_spelled_otherwise_than_by_the_rfc_has_the_same_content_all_the_same(text: bytes) -> None:
    read = read_once(text)
    assert read is not None
    assert content_of_read(text, read[1]) == content_of_json(text)


@given(values, values)
def test_distinct_values_have_distinct_contents(one: object, other: object) -> None:
    same = rfc8785.dumps(one) == rfc8785.dumps(other)  # type: ignore[arg-type]
    contents = [content_of_json(json.dumps(value).encode()) for value in (one, other)]
    assert (contents[0] == contents[1]) == same


@given(st.binary())
def test_any_bytes_have_a_content(text: bytes) -> None:
    assert len(content_of_json(text)) == 64


# --- context and record


def test_context_and_record_are_the_golden_ones() -> None:
    context = context_of("title", "heading", {"level": "1"})
    assert ALGORITHM == 1
    assert context == "992d72293a21df26102368812fba70fea07f42885e5e23540007920f797ca938"
    assert (
        Identity(content_of_text("Hello world"), context).record
        == "19a622648a0701e0be8fe4025846c6fbe730b54eacf389f7e4eac69729a3520a"
    )


def test_the_order_of_properties_does_not_count_and_volatile_ones_are_left_out() -> None:
    one = context_of("n", "t", {"a": "1", "b": "2", "@line": "7"})
    assert (
        one
        == context_of("n", "t", {"@line": "8", "b": "2", "a": "1"})
        == context_of("n", "t", {"b": "2", "a": "1"})
    )
    assert one != context_of("n", "t", {"a": "1", "b": "2", "line@": "7"})


names = st.sampled_from(["", "a", "b", "a\0b", "1:a,", "-,", "@a", "\ud800", "k\0v"])
contexts = st.tuples(names, names, st.dictionaries(names, names, max_size=3))


@given(contexts, contexts)
def test_distinct_contexts_have_distinct_hashes(
    one: tuple[str, str, dict[str, str]], other: tuple[str, str, dict[str, str]]
) -> None:
    def stable(place: tuple[str, str, dict[str, str]]) -> object:
        return place[0], place[1], {key: value for key, value in place[2].items() if not key.startswith("@")}

    assert (context_of(*one) == context_of(*other)) == (stable(one) == stable(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a\0b", "c", {}), ("a", "b\0c", {})),
        (("n", "t", {"k": "v\0k2\0v2"}), ("n", "t", {"k": "v", "k2": "v2"})),
        (("n", "t", {"k": ""}), ("n", "t", {})),
    ],
)
def test_contexts_that_plain_joining_confuses_are_told_apart(
    one: tuple[str, str, dict[str, str]], other: tuple[str, str, dict[str, str]]
) -> None:
    assert context_of(*one) != context_of(*other)


def test_properties_that_are_texts_count_as_they_are() -> None:
    assert context_of_values("n", "t", {"a": "1", "@line": 7}) == context_of("n", "t", {"a": "1"})


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        (1, "1"),
        (1.0, "1"),
        (0.5, "0.5"),
        (True, "true"),
        (None, "null"),
        (2**53, "9007199254740992"),
        ([1, {"b": "x", "a": [False, None]}], '[1,{"a":[false,null],"b":"x"}]'),
        (2**53 + 1, r'"\u00009007199254740993"'),
        (10**400, r'"\u00001' + "0" * 400 + '"'),
        (Decimal("1e400"), r'"\u00001E+400"'),
    ],
)
def test_other_properties_count_as_their_canonical_json_and_are_no_text(
    value: object, canonical: str
) -> None:
    found = context_of_values("n", "t", {"a": value})
    assert found == context_of("n", "t", {"a": f"\0{canonical}"})
    assert found != context_of("n", "t", {"a": canonical})


# --- grading

identities = st.builds(Identity, st.sampled_from("ABC"), st.sampled_from("xyz"))


@pytest.mark.parametrize(
    ("record", "prior", "verdict"),
    [
        (("A", "x"), ("A", "x"), Grade.UNCHANGED),
        (("A", "y"), ("A", "x"), Grade.MOVED),
        (("B", "x"), ("A", "x"), Grade.EDITED),
        (("B", "y"), ("A", "x"), Grade.NEW),
        (("A", "x"), None, Grade.NEW),
    ],
)
def test_a_record_is_graded_by_what_of_it_is_as_before(
    record: tuple[str, str], prior: tuple[str, str] | None, verdict: Grade
) -> None:
    before = None if prior is None else Identity(*prior)
    assert grade(Identity(*record), before) is verdict
    expected = Graded(verdict, None if verdict is Grade.NEW else 0)
    assert grade_all([Identity(*record)], [] if before is None else [before]) == (expected,)


@given(st.lists(identities, max_size=6), st.lists(identities, max_size=6))
def test_each_prior_is_claimed_once_and_by_what_the_grade_says(
    records: list[Identity], priors: list[Identity]
) -> None:
    verdicts = grade_all(records, priors)
    claimed = [verdict.prior for verdict in verdicts if verdict.prior is not None]
    assert len(set(claimed)) == len(claimed)
    for record, verdict in zip(records, verdicts, strict=True):
        prior = None if verdict.prior is None else priors[verdict.prior]
        assert verdict.grade is grade(record, prior)
    both = Counter(records) & Counter(priors)
    assert sum(verdict.grade is Grade.UNCHANGED for verdict in verdicts) == both.total()


@given(st.lists(identities, max_size=6), st.lists(identities, max_size=6))
def test_what_is_left_new_shares_nothing_with_a_prior_that_is_left(
    records: list[Identity], priors: list[Identity]
) -> None:
    verdicts = grade_all(records, priors)
    left = [prior for index, prior in enumerate(priors) if index not in {each.prior for each in verdicts}]
    for record, verdict in zip(records, verdicts, strict=True):
        if verdict.grade is Grade.NEW:
            assert all(grade(record, prior) is Grade.NEW for prior in left)


def test_records_that_say_the_same_stay_as_many_as_they_are() -> None:
    twice = [Identity("A", "x"), Identity("A", "x")]
    assert grade_all(twice, twice) == (Graded(Grade.UNCHANGED, 0), Graded(Grade.UNCHANGED, 1))
    assert grade_all(twice, twice[:1]) == (Graded(Grade.UNCHANGED, 0), Graded(Grade.NEW, None))


def test_an_original_that_returns_does_not_share_a_prior_with_its_edited_copy() -> None:
    moved, returned = Identity("A2", "y"), Identity("A", "x")
    verdicts = grade_all([moved, returned], [Identity("A2", "x")])
    assert verdicts == (Graded(Grade.MOVED, 0), Graded(Grade.NEW, None))
