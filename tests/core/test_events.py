"""Events as bytes: nothing is lost in packing, and whatever differs has another digest."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.events import (
    ANY_LENGTH,
    Appended,
    Event,
    Header,
    Page,
    Stream,
    event_bytes,
    event_identity,
    identity,
    make_append,
    make_retry,
    next_chain,
    pack_event,
    pack_header,
    request_digest,
    row_digest,
    row_digests,
    unpack_event,
    unpack_header,
)

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
    assert unpack_header(pack_header(header)) == header


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
    """Equal content without an equal identity is never a retry: an append is itself alone."""
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
    assert pack_header(Header(STREAM, FIRST, (b"c" * 32,), b"d" * 32)).hex() == HEADER


def test_the_digests_of_version_1() -> None:
    assert row_digest(STREAM, FIRST, bytes.fromhex(PACKED)).hex() == ROW
    assert identity(TENANT, "key", b"k-1").hex() == KEY
    assert event_identity(TENANT, FIRST).hex() == EVENT_ID
    assert identity(TENANT, "webhook:stripe", b"evt_1").hex() == WEBHOOK
    assert request_digest("/order/global/was_placed", b'{"data":{}}', 5).hex() == REQUEST
    assert next_chain("", 1, bytes.fromhex(ROW)) == CHAIN_1
    assert next_chain(CHAIN_1, 2, bytes.fromhex(ROW) * 2) == CHAIN_2


def test_an_event_is_as_large_as_its_payload_and_extra() -> None:
    assert event_bytes(msgspec.structs.replace(EVENT, payload=b"123", extra=b"45")) == 5
    assert event_bytes(msgspec.structs.replace(EVENT, payload=None, extra=None)) == 0
