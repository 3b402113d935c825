"""Events as bytes: nothing is lost in packing, and whatever differs has another digest."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.appends import (
    ANY_LENGTH,
    AT_LEAST_ONE,
    OF_BATCH,
    OF_SEVERAL,
    Append,
    Appended,
    FeedPlace,
    Header,
    event_identity,
    fits,
    identity,
    key_identity,
    make_append,
    make_retry,
    next_chain,
    pack_event,
    pack_header,
    request_digest,
    row_digest,
    row_digests,
    salted,
    salts_of,
    same_append,
    tag_key,
    unpack_event,
    unpack_header,
    with_implied,
)
from gateway.derived_ids import derived_id, id_of, implied_among
from gateway.events import Claim, Event, Page, RevisedEvent, Spread, Stream, event_bytes, revised
from spec.identifiers import uuid_text

UUIDS = st.binary(min_size=16, max_size=16)
# Short, and full of what a careless encoding would use to tell its parts apart.
TRICKY = st.text(st.sampled_from("0159:,;/\0\n é\U0001f600"), max_size=5)
TRICKY_BYTES = st.binary(max_size=4) | TRICKY.map(str.encode)
STREAMS = st.builds(Stream, tenant=UUIDS, aggregate_type=TRICKY, key=TRICKY)
EVENTS = st.builds(
    Event,
    id=UUIDS,
    type=TRICKY,
    actor_type=TRICKY,
    actor_id=TRICKY,
    target_type=st.none() | TRICKY,
    target_id=st.none() | TRICKY,
    correlation_id=UUIDS,
    causation_id=st.none() | UUIDS,
    spec_rev=st.integers(0, 2**31 - 1),
    recorded_at_ms=st.integers(-(2**40), 2**50),
    extra=st.none() | st.binary(max_size=300),
    payload=st.none() | st.binary(max_size=300) | st.sampled_from([b"x" * 65_535, b"x" * 65_536]),
)

TENANT, FIRST, SECOND = bytes(range(16)), bytes(range(16, 32)), bytes(range(32, 48))
STREAM = Stream(TENANT, "order", "global")
EVENT = Event(
    id=FIRST,
    type="was_placed",
    actor_type="user",
    actor_id="a0000000-0000-4000-a000-000000000001",
    target_type=None,
    target_id=None,
    correlation_id=SECOND,
    causation_id=None,
    spec_rev=3,
    recorded_at_ms=1_705_312_900_123,
    extra=b'{"note":"\xc3\xa9"}',
    payload=b'{"sku":"A-1","price":1e100}',
)


# -- packing


@given(EVENTS)
def test_an_event_comes_back_from_its_packed_form(event: Event) -> None:
    assert unpack_event(pack_event(event)) == event


@given(EVENTS)
def test_the_id_stands_where_the_scripts_read_it(event: Event) -> None:
    """redis/read.lua takes bytes 4 to 19, counted from 1."""
    assert pack_event(event)[3:19] == event.id


@given(EVENTS, EVENTS)
def test_events_that_differ_are_packed_differently(one: Event, two: Event) -> None:
    assert (pack_event(one) == pack_event(two)) == (one == two)


@given(STREAMS, UUIDS, st.lists(st.binary(min_size=32, max_size=32)), st.binary(min_size=32, max_size=32))
def test_a_header_comes_back_from_its_packed_form(
    stream: Stream, append_id: bytes, chosen: list[bytes], digest: bytes
) -> None:
    header = Header(stream, append_id, tuple(chosen), digest)
    packed = pack_header(stream, append_id, tuple(chosen), digest)
    assert unpack_header(packed) == header


@pytest.mark.parametrize("packed", [b"", b"\xc0", pack_event(EVENT)[:-1], pack_event(EVENT) + b"\0"])
def test_bytes_that_are_no_event_are_refused(packed: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        unpack_event(packed)


# -- digests


@given(STREAMS, UUIDS, EVENTS, STREAMS, UUIDS, EVENTS)
def test_rows_that_differ_have_other_digests(
    stream: Stream, append_id: bytes, event: Event, stream_2: Stream, append_id_2: bytes, event_2: Event
) -> None:
    digest = row_digest(stream, append_id, pack_event(event))
    assert len(digest) == 32
    for other in [(stream_2, append_id, event), (stream, append_id_2, event), (stream, append_id, event_2)]:
        same = other == (stream, append_id, event)
        assert (row_digest(other[0], other[1], pack_event(other[2])) == digest) == same


@pytest.mark.parametrize("field", Event.__struct_fields__)
def test_every_field_of_an_event_is_in_its_digest(field: str) -> None:
    value = getattr(EVENT, field)
    other = {str: "other", bytes: SECOND + b"!", int: 7, type(None): "other"}[type(value)]
    changed = msgspec.structs.replace(EVENT, **{field: other})
    assert row_digest(STREAM, FIRST, pack_event(changed)) != row_digest(STREAM, FIRST, pack_event(EVENT))


@given(STREAMS, UUIDS, st.lists(EVENTS, min_size=1, max_size=4))
def test_the_digests_of_an_append_are_those_of_its_rows(
    stream: Stream, append_id: bytes, events: list[Event]
) -> None:
    packed = tuple(pack_event(each) for each in events)
    assert row_digests(stream, append_id, packed) == b"".join(
        row_digest(stream, append_id, each) for each in packed
    )


IDENTITIES = st.tuples(TRICKY_BYTES, TRICKY, TRICKY_BYTES)
REQUESTS = st.tuples(TRICKY, TRICKY_BYTES, st.integers(-2, 120))


@given(IDENTITIES, IDENTITIES)
def test_identities_that_differ_have_other_digests(
    one: tuple[bytes, str, bytes], two: tuple[bytes, str, bytes]
) -> None:
    assert (identity(*one) == identity(*two)) == (one == two)


@given(UUIDS, UUIDS)
def test_the_identity_of_an_event_is_one_of_its_kind(tenant: bytes, event_id: bytes) -> None:
    assert event_identity(tenant, event_id) == identity(tenant, "event", event_id)


@pytest.mark.parametrize("key", [b"k", b"k" * 255])
def test_the_identity_of_a_key_is_that_of_its_kind(key: bytes) -> None:
    tenant = bytes(range(16))
    assert key_identity(tenant, key) == identity(tenant, "key", key)


@given(REQUESTS, REQUESTS)
def test_requests_that_differ_have_other_digests(
    one: tuple[str, bytes, int], two: tuple[str, bytes, int]
) -> None:
    assert (request_digest(*one) == request_digest(*two)) == (one == two)


@given(REQUESTS, IDENTITIES)
def test_a_request_and_an_identity_never_have_one_digest(
    request: tuple[str, bytes, int], of: tuple[bytes, str, bytes]
) -> None:
    assert request_digest(*request) != identity(*of)


def test_what_moves_from_one_part_to_the_next_changes_the_digest() -> None:
    assert identity(b"ab", "key", b"c") != identity(b"a", "key", b"bc")
    assert identity(b"a", "keyb", b"c") != identity(b"a", "key", b"bc")
    assert request_digest("/a", b"1body", 1) != request_digest("/a", b"body", 11)
    assert request_digest("/a", b"/b", ANY_LENGTH) != request_digest("/a/b", b"", ANY_LENGTH)


# -- the chain


CHAINS = st.sampled_from(["", "0" * 40, "0123456789abcdef" * 2 + "01234567"])
STEPS = st.tuples(CHAINS, st.integers(1, 2**53), st.binary(max_size=96))


@given(STEPS)
def test_the_chain_is_what_the_scripts_compute(step: tuple[str, int, bytes]) -> None:
    """redis/sequence.lua: redis.sha1hex(h .. ':' .. version .. ':' .. row digests)."""
    chain, version, digests = step
    spelled = chain.encode() + b":" + str(version).encode() + b":" + digests
    assert next_chain(chain, version, digests) == hashlib.sha1(spelled, usedforsecurity=False).hexdigest()


@given(STEPS, STEPS)
def test_chains_that_differ_in_anything_go_on_differently(
    one: tuple[str, int, bytes], two: tuple[str, int, bytes]
) -> None:
    assert (next_chain(*one) == next_chain(*two)) == (one == two)


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=2, max_size=4, unique=True))
def test_the_chain_tells_how_rows_were_divided_into_appends(rows: list[bytes]) -> None:
    together = next_chain("", 1, b"".join(rows))
    apart = ""
    for n, row in enumerate(rows):
        apart = next_chain(apart, n + 1, row)
    assert together != apart


# -- appends


@given(STREAMS, st.lists(EVENTS, min_size=1, max_size=4), st.booleans(), st.integers(-2, 5))
def test_an_append_carries_its_events_packed_and_digested(
    stream: Stream, events: list[Event], chosen: bool, expected: int
) -> None:
    ids = tuple({each.id: None for each in events}) if chosen else ()
    retry = make_retry(stream.tenant, None, ids, b"d" * 32)
    one = make_append(stream, tuple(events), expected, retry)
    assert tuple(unpack_event(each) for each in one.packed) == one.events == tuple(events)
    assert one.append_id == events[0].id
    assert one.digests == row_digests(stream, one.append_id, one.packed)
    assert unpack_header(one.header) == Header(stream, one.append_id, one.chosen, one.request_digest)
    assert one.size_bytes == sum(map(len, one.packed))
    assert one.expected == expected


@given(UUIDS, st.lists(UUIDS, min_size=1, max_size=4, unique=True), st.none() | TRICKY_BYTES, st.data())
def test_the_identities_of_an_append_begin_with_its_first_event_and_name_each_choice_once(
    tenant: bytes, event_ids: list[bytes], key: bytes | None, data: st.DataObject
) -> None:
    chosen = tuple(data.draw(st.lists(st.sampled_from(event_ids), unique=True)))
    events = tuple(msgspec.structs.replace(EVENT, id=each) for each in event_ids)
    stream = Stream(tenant, "order", "global")
    one = make_append(stream, events, ANY_LENGTH, make_retry(tenant, key, chosen, b""))
    assert one.identities[0] == event_identity(tenant, event_ids[0])
    assert len(set(one.identities)) == len(one.identities)
    wanted = {event_identity(tenant, each) for each in (*chosen, event_ids[0])}
    if key is not None:
        wanted.add(identity(tenant, "key", key))
    assert set(one.identities) == wanted
    assert one.retry.chosen_events == chosen
    assert len(one.chosen) == len(chosen) + (key is not None)


def test_two_appends_of_equal_content_are_not_equal() -> None:
    """Equal content without an equal identity is never a retry: an append equals only itself."""
    retry = make_retry(TENANT, None, (), b"d")
    one, two = (make_append(STREAM, (EVENT,), ANY_LENGTH, retry) for _ in range(2))
    assert one != two
    assert len({one, two}) == 2


def test_a_receipt_tells_the_length_after_the_append() -> None:
    retry = make_retry(TENANT, None, (), b"d")
    one = make_append(STREAM, (EVENT, msgspec.structs.replace(EVENT, id=SECOND)), ANY_LENGTH, retry)
    receipt = one.committed_at(4)
    assert receipt == Appended("global", 4, (FIRST, SECOND), replayed=False)
    assert receipt.length == 5
    assert Page(0).events == ()


@given(EVENTS)
def test_an_event_can_not_be_changed(event: Event) -> None:
    with pytest.raises(AttributeError):
        event.type = "other"  # type: ignore[misc]


@given(UUIDS, UUIDS)
def test_the_same_value_of_another_tenant_is_another_identity(one: bytes, two: bytes) -> None:
    assume(one != two)
    assert identity(one, "key", b"k") != identity(two, "key", b"k")


# -- format version 1, pinned: what stands in databases out there was computed so


PACKED = (
    "9cc410101112131415161718191a1b1c1d1e1faa7761735f706c61636564a475736572d92461303030303030302d3030"
    "30302d343030302d613030302d303030303030303030303031c0c0c410202122232425262728292a2b2c2d2e2fc003cf"
    "0000018d0c91d41bc40d7b226e6f7465223a22c3a9227dc41b7b22736b75223a22412d31222c227072696365223a3165"
    "3130307d"
)
HEADER = (
    "9493c410000102030405060708090a0b0c0d0e0fa56f72646572a6676c6f62616cc410101112131415161718191a1b1c"
    "1d1e1f91c4206363636363636363636363636363636363636363636363636363636363636363c4206464646464646464"
    "646464646464646464646464646464646464646464646464"
)
ROW = "76846fa150dc2f896bde4f51170b621317cc53f2f6887d7235acb63431c523f7"
KEY = "64e2a5c919b758d2ae4dde885635d8c0f8338d9f7a71168e226844bc35a830d6"
EVENT_ID = "3e86cfa037827ced39f5d484b209affd671c0b3b58199279d820427ab8257a96"
WEBHOOK = "fd9ab479c4f848cc55dd6c659c34d168ba9083dc9f112bc9830fa2fc382bbd28"
REQUEST = "ccf6037dad3b9f613809fbf43c9d0e6426455b8c4f6747fc7bea7724118097bf"
CHAIN_1 = "12eabe72ae2c94485309a6f9cbce1dadfd356a5a"
CHAIN_2 = "cbb7f7be58598d3794ea8c199085c3ff9e83fdca"


def test_the_packed_form_of_version_1() -> None:
    assert pack_event(EVENT).hex() == PACKED
    assert pack_header(STREAM, FIRST, (b"c" * 32,), b"d" * 32).hex() == HEADER


def test_the_digests_of_version_1() -> None:
    assert row_digest(STREAM, FIRST, bytes.fromhex(PACKED)).hex() == ROW
    assert identity(TENANT, "key", b"k-1").hex() == KEY
    assert event_identity(TENANT, FIRST).hex() == EVENT_ID
    assert identity(TENANT, "webhook:stripe", b"evt_1").hex() == WEBHOOK
    assert request_digest("/order/global/was_placed", b'{"data":{}}', 5).hex() == REQUEST
    assert next_chain("", 1, bytes.fromhex(ROW)) == CHAIN_1
    assert next_chain(CHAIN_1, 2, bytes.fromhex(ROW) * 2) == CHAIN_2


# -- format version 2: rows have salts


SALT = bytes(range(0x50, 0x60))
SALTED_ROW = "a3bb4a4635e8e4a474e489d36583e3f5b86069919fe06363da33398cea8c23a4"


def test_the_packed_form_and_the_digest_with_a_salt() -> None:
    packed = salted(pack_event(EVENT), SALT)
    assert packed.hex() == "9e" + PACKED[2:] + "c0c410" + SALT.hex()
    assert row_digest(STREAM, FIRST, packed).hex() == SALTED_ROW
    assert row_digests(STREAM, FIRST, (packed,)).hex() == SALTED_ROW
    assert salted(pack_event(EVENT), b"").hex() == PACKED
    assert (salts_of((packed, packed)), salts_of((pack_event(EVENT),))) == (SALT * 2, b"")
    assert salts_of((packed,)) == SALT


@given(EVENTS, st.integers(1, 300), st.binary(min_size=16, max_size=16))
def test_a_salt_changes_the_digest_and_not_the_event(event: Event, revision: int, salt: bytes) -> None:
    event = revised(event, revision)
    plain, packed = pack_event(event), salted(pack_event(event), salt)
    assert unpack_event(packed) == unpack_event(plain) == event
    assert (salts_of((packed, packed)), salts_of((plain,))) == (salt * 2, b"")
    assert row_digest(STREAM, FIRST, packed) != row_digest(STREAM, FIRST, plain)
    other = salted(plain, bytes([salt[0] ^ 1]) + salt[1:])
    assert row_digest(STREAM, FIRST, packed) != row_digest(STREAM, FIRST, other)


def test_every_row_has_a_salt_of_its_own() -> None:
    retry = make_retry(TENANT, None, (), b"d")
    appends = [make_append(STREAM, (EVENT,) * count, ANY_LENGTH, retry) for count in (1, 1, 2)]
    assert len({packed[-16:] for append in appends for packed in append.packed}) == 4
    assert len({append.digests[-32:] for append in appends}) == 3


def test_an_event_is_as_large_as_its_payload_and_extra() -> None:
    assert event_bytes(msgspec.structs.replace(EVENT, payload=b"123", extra=b"45")) == 5
    assert event_bytes(msgspec.structs.replace(EVENT, payload=None, extra=None)) == 0


# -- revisions, several streams, and what events imply


OTHER = Stream(TENANT, "stock", "till")
SPREAD = Spread((STREAM, OTHER), (0, 1, 0))
IDS = tuple(bytes([n]) * 16 for n in range(1, 4))


def events_of(*ids: bytes) -> tuple[Event, ...]:
    return tuple(msgspec.structs.replace(EVENT, id=each) for each in ids)


def spread_append(implied: int = 0) -> Append:
    retry = make_retry(TENANT, None, (), b"d")
    return make_append(
        STREAM, events_of(*IDS), 4, retry, spread=SPREAD, others=(AT_LEAST_ONE,), implied=implied
    )


def test_an_event_of_another_revision_has_one_part_more_and_comes_back() -> None:
    second = revised(EVENT, 2)
    assert isinstance(second, RevisedEvent)
    assert (second.revision, second.id, second.payload) == (2, EVENT.id, EVENT.payload)
    assert pack_event(second) == b"\x9d" + pack_event(EVENT)[1:] + b"\x02"
    assert unpack_event(pack_event(second)) == second
    assert revised(EVENT, 1) is EVENT
    assert revised(second, 3) == revised(EVENT, 3)


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        ({}, 4),
        ({"tags": (("student:s1",), ())}, 5),
        ({"spread": SPREAD}, 6),
        ({"tags": ((), ("student:s1",)), "spread": SPREAD}, 6),
        ({"claims": (Claim(0, "email", b"", b"v" * 32), Claim(1, "email", b"", None))}, 7),
        ({"form": OF_BATCH}, 8),
    ],
)
def test_a_header_has_no_more_parts_than_its_append_needs(more: dict[str, Any], parts: int) -> None:
    packed = pack_header(STREAM, FIRST, (b"c" * 32,), b"d" * 32, **more)
    assert packed[0] == 0x90 + parts
    assert unpack_header(packed) == Header(STREAM, FIRST, (b"c" * 32,), b"d" * 32, **more)


class EarlierHeader(msgspec.Struct, array_like=True, frozen=True):
    """As the release before forms had it."""

    stream: Stream
    append_id: bytes
    chosen: tuple[bytes, ...]
    request_digest: bytes
    tags: tuple[tuple[str, ...], ...] = ()
    spread: Spread | None = None
    claims: tuple[Claim, ...] = ()


@pytest.mark.parametrize("claims", [(), (Claim(0, "email", b"", b"v" * 32),)])
def test_releases_with_forms_and_without_read_each_others_headers(claims: tuple[Claim, ...]) -> None:
    parts = (STREAM, FIRST, (b"c" * 32,), b"d" * 32, (("student:s1",),), SPREAD, claims)
    newer = pack_header(*parts, OF_BATCH)
    assert msgspec.msgpack.decode(newer, type=EarlierHeader) == EarlierHeader(*parts)
    earlier = msgspec.msgpack.encode(EarlierHeader(*parts))
    assert unpack_header(earlier) == Header(*parts)
    assert unpack_header(pack_header(*parts, 99)).form == 99, "what a later release may say is read"


def test_the_versions_of_several_streams_are_counted_apart() -> None:
    assert [SPREAD.stream_of(n) for n in range(3)] == [STREAM, OTHER, STREAM]
    assert SPREAD.versions((5, 1)) == (5, 1, 6)


def test_the_digests_of_an_append_to_several_streams_are_those_of_its_rows() -> None:
    append = spread_append()
    rows = [row_digest(SPREAD.stream_of(n), IDS[0], packed) for n, packed in enumerate(append.packed)]
    assert append.digests == b"".join(rows)
    assert append.append_id == IDS[0]
    assert append.streams == (STREAM, OTHER)
    assert append.lengths == (4, AT_LEAST_ONE)


def test_the_chain_has_all_versions_where_they_do_not_follow_each_other() -> None:
    chain = "0" * 40
    assert next_chain(chain, 5, b"rows", (5, 1, 6)) == (
        hashlib.sha1(b"%b:5,1,6:rows" % chain.encode(), usedforsecurity=False).hexdigest()
    )
    assert next_chain(chain, 5, b"rows", (5, 6, 7)) == next_chain(chain, 5, b"rows")


def test_a_tag_of_another_tenant_has_another_key() -> None:
    assert len(tag_key(TENANT, "student:s1")) == 16
    assert (
        len({tag_key(TENANT, "student:s1"), tag_key(FIRST, "student:s1"), tag_key(TENANT, "student:s2")}) == 3
    )


def test_only_an_append_that_claims_a_value_needs_its_holder() -> None:
    retry = make_retry(TENANT, None, (), b"d")
    for value, needed in ((b"v" * 32, True), (None, False)):
        append = make_append(
            STREAM,
            (EVENT,),
            ANY_LENGTH,
            retry,
            claims=(Claim(0, "email", b"", value),),
            claim_paths=("data",),
        )
        assert append.claims_values is needed
        same = same_append(append, OTHER, 3, make_retry(TENANT, b"k", (), b"e"))
        assert (same.stream, same.expected, same.events) == (OTHER, 3, append.events)
        assert (same.claims, same.claim_paths) == (append.claims, ("data",))
        assert same.chosen == (identity(TENANT, "key", b"k"),)
        assert same.request_digest == b"e"


@pytest.mark.parametrize(
    ("expected", "length", "fit"),
    [(ANY_LENGTH, 0, True), (AT_LEAST_ONE, 0, False), (AT_LEAST_ONE, 3, True), (3, 3, True), (3, 4, False)],
)
def test_a_stream_is_as_expected_or_not(expected: int, length: int, fit: bool) -> None:
    assert fits(expected, length) is fit


def test_a_receipt_of_several_streams_has_the_place_of_each_event() -> None:
    append = spread_append()
    receipt = append.committed_at(5, 2, 40, (5, 1, 6))
    assert receipt == Appended("global", 5, IDS, places=((STREAM, 5), (OTHER, 1), (STREAM, 6)))
    assert receipt.last == FeedPlace(2, 40, append.digests[-32:-28])


def test_a_receipt_leaves_out_implied_events_and_the_streams_that_only_they_have() -> None:
    receipt = spread_append(implied=2).committed_at(5, 2, 40, (5, 1, 6))
    assert receipt == Appended("global", 5, IDS[:1])
    assert (receipt.implied, receipt.length) == (2, 5)
    one = spread_append(implied=1).committed_at(5, 2, 40, (5, 1, 6))
    assert one.places == ((STREAM, 5), (OTHER, 1))
    retry, spread = make_retry(TENANT, None, (), b"d"), Spread((STREAM, OTHER), (0, 0, 1))
    two = make_append(STREAM, events_of(*IDS), 4, retry, spread=spread, implied=1)
    assert two.committed_at(5, 2, 40, (5, 6, 1)) == Appended("global", 5, IDS[:2])


def test_a_receipt_has_the_form_of_its_append_where_its_events_do_not_tell_it() -> None:
    retry = make_retry(TENANT, None, (), b"d")
    single, batch, several = (
        make_append(STREAM, events_of(FIRST), ANY_LENGTH, retry, form=form)
        for form in (None, OF_BATCH, OF_SEVERAL)
    )
    assert [each.committed_at(5).of_batch for each in (single, batch, several)] == [False, True, False]
    assert [each.committed_at(5).places for each in (single, batch)] == [(), ()]
    assert several.committed_at(5).places == ((STREAM, 5),)
    assert unpack_header(several.header).form == several.form == OF_SEVERAL
    assert same_append(several, OTHER, 3, retry).form == OF_SEVERAL
    two = make_append(STREAM, events_of(FIRST, SECOND), ANY_LENGTH, retry, form=OF_SEVERAL)
    assert two.committed_at(5).places == ((STREAM, 5), (STREAM, 6))
    assert make_append(STREAM, events_of(FIRST, SECOND), ANY_LENGTH, retry).committed_at(5).of_batch


@pytest.mark.parametrize("spread", [None, Spread((STREAM, OTHER), (0, 0, 1))])
def test_an_append_with_implied_events_is_that_of_all_its_events(spread: Spread | None) -> None:
    retry = make_retry(TENANT, b"key", (SECOND,), b"d" * 32)
    own = make_append(
        STREAM, events_of(*IDS[:1]), 4, retry, claims=(Claim(0, "n", b"", None),), form=OF_SEVERAL
    )
    others, tags = (ANY_LENGTH,) * (spread is not None), ((), ("a:b",), ())
    claims, paths = (*own.claims, Claim(2, "m", b"", b"v" * 32)), ("", "data.m")
    whole = with_implied(own, events_of(*IDS[1:]), spread, others, tags, claims, paths, (1,))
    again = make_append(
        STREAM, events_of(*IDS), 4, retry, tags, spread, others, claims, paths, None, 2, (1,), OF_SEVERAL
    )
    salted_apart = {"packed", "digests"}
    for name in Append.__struct_fields__:
        assert name in salted_apart or getattr(whole, name) == getattr(again, name), name
    assert whole.packed[0] == own.packed[0]
    assert [unpack_event(each) for each in whole.packed] == list(whole.events)
    assert len(salts_of(whole.packed)) == 3 * 16
    assert whole.digests == row_digests(STREAM, whole.append_id, whole.packed, spread)


def test_receipts_are_equal_wherever_the_feed_has_their_events() -> None:
    one = Appended("global", 4, (FIRST,), last=FeedPlace(1, 2, b"a"))
    assert one == Appended("global", 4, (FIRST,), last=FeedPlace(3, 4, b"b"))
    assert (one != Appended("global", 4, (FIRST,))) is False
    assert one != Appended("global", 5, (FIRST,))
    assert one != Appended("global", 4, (FIRST,), replayed=True)
    assert one != "global"


def test_implied_events_are_recognized_by_their_ids() -> None:
    cause, other = FIRST, SECOND
    implied = [derived_id(cause, n) for n in range(2)]
    assert derived_id(cause, 0).hex() == "560f3501832c5abdb589a95ba75dbe81"
    assert [(each[6] >> 4, each[8] >> 6) for each in implied] == [(5, 2), (5, 2)]
    assert len({*implied, derived_id(other, 0)}) == 3
    assert implied_among([cause, other]) == 0
    assert implied_among([cause, *implied]) == 2
    assert implied_among([cause, other, *implied, derived_id(other, 0)]) == 3
    assert implied_among([cause, other, derived_id(other, 0)]) == 1
    assert implied_among([]) == 0


def test_a_chosen_id_of_version_5_is_no_implied_one() -> None:
    chosen = derived_id(b"x" * 16, 0)
    assert implied_among([chosen]) == 0
    assert implied_among([FIRST, chosen]) == 0
    assert implied_among([chosen, FIRST, derived_id(FIRST, 0)]) == 1


@pytest.mark.parametrize(
    ("order", "firsts", "versions"), [((0, 1), (4, 7), (4, 7)), ((0, 1, 0), (4, 7), (4, 7, 5))]
)
def test_each_event_has_the_stream_and_the_next_version_that_its_append_says(
    order: tuple[int, ...], firsts: tuple[int, ...], versions: tuple[int, ...]
) -> None:
    spread = Spread((STREAM, OTHER), order)
    assert spread.versions(firsts) == versions
    assert list(spread.each_stream) == [spread.stream_of(n) for n in range(len(order))]


def test_the_id_of_an_implied_event_is_made_of_its_cause_and_its_number() -> None:
    cause = bytes(range(16))
    digest = hashlib.sha1(b"sluice/implied/1" + cause + b"12").hexdigest()
    assert derived_id(cause, 12) == id_of(b"sluice/implied/1" + cause + b"12")
    assert uuid_text(derived_id(cause, 12)).startswith(f"{digest[:8]}-{digest[8:12]}-5")
