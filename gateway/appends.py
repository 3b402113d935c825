"""Appends: the values that travel from the edge to the log, their bytes, and their receipts.

Owns: what an append is, how its events are packed for Redis, the identities, the digests and the chain.
Must not know: HTTP, Redis, Postgres, clocks.

Source: the append protocol (docs/guarantees.md); docs/decisions/0003 (digests without the version), 0052
(digests with a salt).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import sha1, sha256
from operator import attrgetter
from os import urandom
from typing import Final

import msgspec

from gateway.events import Claim, Event, RevisedEvent, Spread, Stream, Tags
from gateway.items import Condition

# What `Append.expected` says when it is not an exact length.
ANY_LENGTH: Final = -1
AT_LEAST_ONE: Final = -2
ANOTHER_HISTORY: Final = 2**64 - 1
"""No stream is so long, and no client can name it: what was asked for was a length in a history that a rewind
has given up."""

# What `Append.form` says where an append's events don't tell the form of its receipt. The numbers are stored.
OF_BATCH: Final = 1
"""A batch, of one event."""
OF_SEVERAL: Final = 2
"""Events that name their aggregates, and all name the same one."""

# Format versions, hashed into every digest: a new format never collides with an old one.
_ROW_DOMAIN: Final = b"sluice/row/1"
_SALTED_ROW_DOMAIN: Final = b"sluice/row/2"
_IDENTITY_DOMAIN: Final = b"sluice/identity/1"
_REQUEST_DOMAIN: Final = b"sluice/request/1"
_TAG_DOMAIN: Final = b"sluice/tag/1"

# The digest of nothing, to be copied: a third cheaper than a new one, whose algorithm OpenSSL has to look up.
_new_sha1: Final = sha1(usedforsecurity=False).copy
_new_sha256: Final = sha256().copy

_REVISED_PARTS: Final = bytes([0x90 + 13])  # the first byte of it packed

SALT_BYTES: Final = 16
# With a salt, an event has one of these first bytes packed, and its salt at the end, behind a null. The first
# byte tells whether a revision comes before the null.
_SALTED_PARTS: Final = bytes([0x90 + 14])
_SALTED_REVISED_PARTS: Final = bytes([0x90 + 15])
_DOMAIN_OF: Final = {_SALTED_PARTS: _SALTED_ROW_DOMAIN, _SALTED_REVISED_PARTS: _SALTED_ROW_DOMAIN}
"""Of a row, by the first byte of its packed event; others have no salt."""
_BEFORE_SALT: Final = b"\xc0\xc4\x10"  # null, and the beginning of 16 bytes


class Header(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What the journal keeps of an append beside its events: enough for any gateway to commit it.
    `chosen` are the identities that the client chose, for Postgres to remember permanently; where it chose
    none, the digest is empty. `tags` follow from the data and the spec, so no digest has them. `spread` is
    None where all events are of one stream. `form` is not digested; a release that does not know it commits
    the append without it."""

    stream: Stream
    append_id: bytes
    chosen: tuple[bytes, ...]
    request_digest: bytes
    tags: Tags = ()
    spread: Spread | None = None
    claims: tuple[Claim, ...] = ()
    form: int | None = None


_id_of = attrgetter("id")
_encode = msgspec.msgpack.Encoder().encode
_decode_event = msgspec.msgpack.Decoder(Event).decode
_decode_revised = msgspec.msgpack.Decoder(RevisedEvent).decode
_decode_header = msgspec.msgpack.Decoder(Header).decode

pack_event = _encode
unpack_header = _decode_header


def unpack_event(packed: bytes) -> Event:
    if packed[:1] in (_REVISED_PARTS, _SALTED_REVISED_PARTS):
        return _decode_revised(packed)
    return _decode_event(packed)


def salted(packed: bytes, salt: bytes) -> bytes:
    """A packed event with the salt of its row, SALT_BYTES random ones; as it is where that is empty: a row of
    a release that had none."""
    if not salt:
        return packed
    begins = _SALTED_REVISED_PARTS if packed[:1] == _REVISED_PARTS else _SALTED_PARTS
    return b"".join((begins, packed[1:], _BEFORE_SALT, salt))


_salts: deque[bytes] = deque()


def _fresh_salt() -> bytes:
    """Random; from any thread. A call of the system for each costs as much as the digest."""
    try:
        return _salts.pop()
    except IndexError:
        block = urandom(256 * SALT_BYTES)
        _salts.extend([block[at : at + SALT_BYTES] for at in range(0, len(block), SALT_BYTES)])
        return urandom(SALT_BYTES)


def salts_of(packed_events: Sequence[bytes]) -> bytes:
    """The salts of an append's events, one after another; empty where they have none."""
    if packed_events[0][:1] not in _DOMAIN_OF:
        return b""
    if len(packed_events) == 1:  # as nearly always
        return packed_events[0][-SALT_BYTES:]
    return b"".join([packed[-SALT_BYTES:] for packed in packed_events])


def pack_header(
    stream: Stream,
    append_id: bytes,
    chosen: tuple[bytes, ...],
    request_digest: bytes,
    tags: Tags = (),
    spread: Spread | None = None,
    claims: tuple[Claim, ...] = (),
    form: int | None = None,
) -> bytes:
    """A Header of these, without tags, streams, claims and a form as releases wrote it that had none."""
    fields = (stream, append_id, chosen, request_digest)
    if form is not None:
        return _encode((*fields, tags, spread, claims, form))
    if claims:
        return _encode((*fields, tags, spread, claims))
    if spread is not None:
        return _encode((*fields, tags, spread))
    return _encode((*fields, tags) if tags else fields)


def sha256_of(data: bytes) -> bytes:
    digest = _new_sha256()
    digest.update(data)
    return digest.digest()


def row_digest(stream: Stream, append_id: bytes, packed_event: bytes) -> bytes:
    """SHA-256 over every stored column but p, seq, version, form, stored_at and the chain. MessagePack
    delimits its own parts, so the encoding is injective; the version enters through the chain. The salt of
    the row, which is among the event's parts, keeps the digest from telling what was in a row that is
    erased."""
    domain = _DOMAIN_OF.get(packed_event[:1], _ROW_DOMAIN)
    return sha256_of(domain + _encode(stream) + append_id + packed_event)


def row_digests(
    stream: Stream, append_id: bytes, packed_events: tuple[bytes, ...], spread: Spread | None = None
) -> bytes:
    """The row digests of one append, one after another, 32 bytes each."""
    if spread is not None:
        rows = zip(spread.each_stream, packed_events, strict=True)
        return b"".join([row_digest(of, append_id, packed) for of, packed in rows])
    prefix = _DOMAIN_OF.get(packed_events[0][:1], _ROW_DOMAIN) + _encode(stream) + append_id
    if len(packed_events) == 1:  # as nearly always: a comprehension costs as much as the digest
        return sha256_of(prefix + packed_events[0])
    return b"".join([sha256_of(prefix + packed) for packed in packed_events])


def next_chain(chain: str, first_version: int, digests: bytes, versions: tuple[int, ...] = ()) -> str:
    """The chain after an append: equal chains mean equal rows at equal versions, in one order. `versions` are
    those of all its events, where they may not follow each other: an append to several streams.
    The scripts compute the same with `redis.sha1hex`."""
    if versions and not (
        versions[-1] - versions[0] == len(versions) - 1  # as seldom: of several streams, each has its own
        and versions == tuple(range(first_version, first_version + len(versions)))
    ):
        numbers = ",".join(map(str, versions)).encode()
        framed = b"%s:%s:%s" % (chain.encode(), numbers, digests)
    else:
        framed = b"%s:%d:%s" % (chain.encode(), first_version, digests)
    digest = _new_sha1()
    digest.update(framed)
    return digest.hexdigest()


def identity(tenant: bytes, kind: str, value: bytes) -> bytes:
    """What makes an append itself and no other. `kind` is `key` (an Idempotency-Key), `event` (an event's
    id), `webhook:<source>` (a delivery id) or `create` (path and body of what created an aggregate).
    Equal content without an equal identity is never a retry. Each
    part has its length in front: distinct tuples have distinct encodings."""
    name = kind.encode()
    framed = b"%b%d:%b%d:%b%d:%b" % (
        _IDENTITY_DOMAIN,
        len(tenant),
        tenant,
        len(name),
        name,
        len(value),
        value,
    )
    return sha256_of(framed)


def event_identity(tenant: bytes, event_id: bytes) -> bytes:
    """`identity(tenant, "event", event_id)`, for every append: the lengths are known."""
    return sha256_of(b"sluice/identity/116:%b5:event16:%b" % (tenant, event_id))


def key_identity(tenant: bytes, key: bytes) -> bytes:
    """`identity(tenant, "key", key)`, for every append with a key."""
    return sha256_of(b"sluice/identity/116:%b3:key%d:%b" % (tenant, len(key), key))


def tag_key(tenant: bytes, tag: str) -> bytes:
    """By what a tag is stored and looked up, 16 bytes: the same tag of another tenant has another key."""
    return sha256_of(_TAG_DOMAIN + tenant + tag.encode())[:16]


def tag_keys(tenant: bytes, tags: Tags) -> bytes:
    """Of the tags of all events of an append, one after another."""
    return b"".join([tag_key(tenant, tag) for of_event in tags for tag in of_event])


def request_digest(path: str, body: bytes, expected: int) -> bytes:
    """What must be equal in a retry: canonical path, body bytes and the version asked for beside them."""
    text, number = path.encode(), b"%d" % expected
    return sha256_of(b"%b%d:%b%d:%b%b" % (_REQUEST_DOMAIN, len(text), text, len(number), number, body))


class Retry(msgspec.Struct, frozen=True, gc=False):
    """What a repeated request is recognized by: the identities that the client chose (the event ids among
    them once more by themselves) and the digest of the request, which may be empty where it chose none."""

    tenant: bytes
    chosen: tuple[bytes, ...]
    chosen_events: tuple[bytes, ...]
    request_digest: bytes


def make_retry(tenant: bytes, key: bytes | None, event_ids: tuple[bytes, ...], digest: bytes) -> Retry:
    """`key` is the Idempotency-Key, `event_ids` the ids that the client chose."""
    chosen = tuple([event_identity(tenant, each) for each in event_ids]) if event_ids else ()
    if key is not None:
        chosen = (*chosen, key_identity(tenant, key)) if chosen else (key_identity(tenant, key),)
    return Retry(tenant, chosen, event_ids, digest)


class Append(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One append, admitted and ready to be sequenced; all of its events or none.

    `identities` begins with the one of the first event's id, minted or not; the others a client chose.
    `expected` is a length, ANOTHER_HISTORY, ANY_LENGTH or AT_LEAST_ONE. Where the append is to several
    streams, `spread` says which, `stream` and `expected` are the first one's, and `others` what the rest are
    asked to be, in their order. `claims` are in the order of the events; the value of each stands at its path
    in the request. `size_bytes` are those of the packed events and the condition. `source` is the foreign id
    (source, scope, id) that its events are records of, `sources` that of each where they name one each, and
    `skip_unchanged` whether nothing is to be written where they are the record before.
    """

    stream: Stream
    events: tuple[Event, ...]
    packed: tuple[bytes, ...]
    digests: bytes
    header: bytes
    identities: tuple[bytes, ...]
    retry: Retry
    expected: int
    size_bytes: int
    tags: Tags = ()
    spread: Spread | None = None
    others: tuple[int, ...] = ()
    claims: tuple[Claim, ...] = ()
    claim_paths: tuple[str, ...] = ()
    source: tuple[str, str, str] | None = None
    sources: tuple[tuple[str, str, str] | None, ...] = ()
    skip_unchanged: bool = False
    condition: Condition | None = None
    implied: int = 0
    """How many of its events, the last ones, others of them imply."""
    fresh: tuple[int, ...] = ()
    """Numbers of the streams whose keys were made for this append at random: no other append has them, so
    until this one is sequenced they have no events."""
    form: int | None = None
    """OF_BATCH or OF_SEVERAL; None where its events tell in which form its receipt is."""
    tag_keys: bytes = b""
    """By what the tags of all its events are stored, one after another."""

    @property
    def is_single(self) -> bool:
        """Whether its request was of one event, before any was implied: its receipt and the paths of its
        refusals have no numbers of events then."""
        return self.form is None and len(self.events) == 1

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Each once."""
        return (self.stream,) if self.spread is None else self.spread.streams

    @property
    def lengths(self) -> tuple[int, ...]:
        """What each of its streams is expected to be: a length, ANY_LENGTH or AT_LEAST_ONE."""
        return self.expected, *self.others

    @property
    def claims_values(self) -> bool:
        """Whether it has to be known who holds what before it is placed."""
        return any(claim.value is not None for claim in self.claims)

    @property
    def chosen(self) -> tuple[bytes, ...]:
        return self.retry.chosen

    @property
    def request_digest(self) -> bytes:
        return self.retry.request_digest

    @property
    def append_id(self) -> bytes:
        return self.events[0].id

    def committed_at(
        self, first_version: int, p: int = 0, last_seq: int = 0, versions: tuple[int, ...] = ()
    ) -> Appended:
        """Its outcome when its last event is at `last_seq` of partition `p`; `versions` of an append to
        several streams."""
        last, events, implied = FeedPlace(p, last_seq, self.digests[-32:-28]), self.events, self.implied
        if self.form is None and len(events) == 1 + implied and (implied or self.spread is None):
            # as nearly always; what is implied counts as if it was not there
            return Appended(self.stream.key, first_version, (events[0].id,), False, last, (), implied)
        ids = tuple(map(_id_of, events))
        places: tuple[tuple[Stream, int], ...] = ()
        if self.spread is not None:
            places = tuple(zip(self.spread.each_stream, versions, strict=True))
        elif self.form == OF_SEVERAL and len(ids) == 1:  # as mostly, and then none is implied
            place = self.stream, first_version
            return Appended(self.stream.key, first_version, ids, False, last, (place,), 0, OF_SEVERAL)
        elif self.form == OF_SEVERAL:
            places = tuple([(self.stream, first_version + n) for n in range(len(ids))])
        return appended_of(self.stream.key, first_version, ids, last, places, implied, self.form)


def fits(expected: int, length: int) -> bool:
    """Whether a stream of this length is as an append expects it."""
    return expected in (ANY_LENGTH, length) or (expected == AT_LEAST_ONE and length > 0)


def make_append(
    stream: Stream,
    events: tuple[Event, ...],
    expected: int,
    retry: Retry,
    tags: Tags = (),
    spread: Spread | None = None,
    others: tuple[int, ...] = (),
    claims: tuple[Claim, ...] = (),
    claim_paths: tuple[str, ...] = (),
    condition: Condition | None = None,
    implied: int = 0,
    fresh: tuple[int, ...] = (),
    form: int | None = None,
) -> Append:
    """Packs, salts and digests once; nothing downstream encodes an event again."""
    append_id = events[0].id
    minted = event_identity(stream.tenant, append_id)
    chosen = retry.chosen
    if len(events) == 1:  # as nearly always
        packed: tuple[bytes, ...] = (salted(_encode(events[0]), _fresh_salt()),)
    else:
        packed = tuple([salted(_encode(event), _fresh_salt()) for event in events])
    return Append(
        # In the order of the fields: as many names cost as much as both digests.
        stream,
        events,
        packed,
        row_digests(stream, append_id, packed, spread),
        pack_header(stream, append_id, chosen, retry.request_digest, tags, spread, claims, form),
        (
            (minted, *[each for each in chosen if each != minted])
            if retry.chosen_events
            else (minted, *chosen)
        ),
        retry,
        expected,
        sum(map(len, packed)) + (0 if condition is None else condition.size_bytes),
        tags,
        spread,
        others,
        claims,
        claim_paths,
        condition=condition,
        implied=implied,
        fresh=fresh,
        form=form,
        tag_keys=tag_keys(stream.tenant, tags) if tags else b"",
    )


def with_implied(
    append: Append,
    implied: Sequence[Event],
    spread: Spread | None,
    others: tuple[int, ...],
    tags: Tags,
    claims: tuple[Claim, ...],
    claim_paths: tuple[str, ...],
    fresh: tuple[int, ...],
) -> Append:
    """The same append, and behind its events those that they imply. What follows these is of all events;
    those that were packed already stay as they are."""
    own, retry, form = append.events, append.retry, append.form
    append_id, digest = own[0].id, retry.request_digest
    packed, digests, size = [*append.packed], append.digests, append.size_bytes
    for n, event in enumerate(implied, len(own)):
        stream = append.stream if spread is None else spread.stream_of(n)
        each = salted(_encode(event), _fresh_salt())
        packed.append(each)
        digests += row_digest(stream, append_id, each)
        size += len(each)
    return Append(
        append.stream,
        (*own, *implied),
        tuple(packed),
        digests,
        pack_header(append.stream, append_id, retry.chosen, digest, tags, spread, claims, form),
        append.identities,
        retry,
        append.expected,
        size,
        tags,
        spread,
        others,
        claims,
        claim_paths,
        condition=append.condition,
        implied=len(implied),
        fresh=fresh,
        form=form,
        tag_keys=tag_keys(append.stream.tenant, tags) if tags else b"",
    )


def same_append(append: Append, stream: Stream, expected: int, retry: Retry) -> Append:
    """An append to one stream, to another one or known by another retry; what else it says is the same."""
    return make_append(
        stream,
        append.events,
        expected,
        retry,
        append.tags,
        claims=append.claims,
        claim_paths=append.claim_paths,
        condition=append.condition,
        form=append.form,
    )


class FeedPlace(msgspec.Struct, frozen=True, gc=False):
    """Where a committed event is in the feed: its partition, its seq, and the beginning of its row digest."""

    p: int
    seq: int
    mark: bytes


class Appended(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Committed at `first_version`… of the stream of `key`; `replayed` when an earlier request did it. `last`
    is the place of its last event; `places` the stream and version of each, where they are of several
    streams, or its form is OF_SEVERAL. Receipts are equal wherever the feed has their events."""

    key: str
    first_version: int
    event_ids: tuple[bytes, ...]
    replayed: bool = False
    last: FeedPlace | None = None
    places: tuple[tuple[Stream, int], ...] = ()
    implied: int = 0
    """How many events were written beside these, since these imply them."""
    form: int | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Appended):
            return NotImplemented
        mine = (self.key, self.first_version, self.event_ids, self.replayed, self.places)
        return mine == (other.key, other.first_version, other.event_ids, other.replayed, other.places)

    def __ne__(self, other: object) -> bool:  # msgspec's own compares identities
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    @property
    def length(self) -> int:
        return self.first_version + len(self.event_ids) - 1

    @property
    def of_batch(self) -> bool:
        """Whether its receipt is that of a batch, where nothing but the append tells."""
        return self.form == OF_BATCH or len(self.event_ids) > 1


def appended_of(
    key: str,
    first_version: int,
    ids: tuple[bytes, ...],
    last: FeedPlace,
    places: tuple[tuple[Stream, int], ...],
    implied: int,
    form: int | None,
    *,
    replayed: bool = False,
) -> Appended:
    """Of all events of an append, of which the last ones are implied. Where the others are of one stream, and
    did not name it each, it is as if there were no other."""
    if implied:
        ids, places = ids[:-implied], places[:-implied]
    if places and form != OF_SEVERAL and all(stream == places[0][0] for stream, _ in places):
        places = ()
    return Appended(key, first_version, ids, replayed, last, places, implied, form)
