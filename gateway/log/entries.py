"""Journal and stream entries as the scripts write them, the columns of the commit, rows read back. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, TypeVar

import msgspec
from asyncpg.pgproto.pgproto import UUID

from gateway.appends import (
    SALT_BYTES,
    Append,
    Header,
    next_chain,
    pack_event,
    row_digests,
    salted,
    salts_of,
    tag_keys,
    unpack_event,
    unpack_header,
)
from gateway.events import Claim, Event, Spread, Stream, Tags, revised

_V = TypeVar("_V")


class SequencedAppend(msgspec.Struct, frozen=True, gc=False):
    """An append with the place that a script gave it: its last event stands at `last_seq`. Of one to several
    streams, `stream` and `first_version` are the first event's, and `versions` those of all events. `salts`
    are its rows', one after another; empty where an earlier release has sequenced it. `form` is its
    append's, and so are `tag_keys`."""

    stream: Stream
    append_id: bytes
    events: tuple[Event, ...]
    digests: bytes
    chosen: tuple[bytes, ...]
    request_digest: bytes
    first_version: int
    last_seq: int
    tags: Tags = ()
    spread: Spread | None = None
    versions: tuple[int, ...] = ()
    claims: tuple[Claim, ...] = ()
    salts: bytes = b""
    form: int | None = None
    tag_keys: bytes = b""

    @property
    def first_seq(self) -> int:
        return self.last_seq - len(self.events) + 1

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Each once."""
        return (self.stream,) if self.spread is None else self.spread.streams

    def places(self) -> Iterable[tuple[Stream, int]]:
        """The stream and version of each event."""
        if self.spread is not None:
            return zip(self.spread.each_stream, self.versions, strict=True)
        first = self.first_version
        return [(self.stream, version) for version in range(first, first + len(self.events))]

    def rows(self) -> Iterator[tuple[int, tuple[int, bytes]]]:
        """The seq of each event, and what tells its row from any other: version and digest."""
        for n, (_, version) in enumerate(self.places()):
            yield self.first_seq + n, (version, self.digests[32 * n : 32 * n + 32])

    def packed(self) -> Iterator[bytes]:
        """Its events as they were sequenced, with their salts."""
        for n, event in enumerate(self.events):
            yield salted(pack_event(event), self.salts[SALT_BYTES * n : SALT_BYTES * (n + 1)])

    def chain_after(self, chain: str) -> str:
        return next_chain(chain, self.first_version, self.digests, self.versions)


def sequenced_append(append: Append, firsts: Sequence[int], last_seq: int) -> SequencedAppend:
    """The append at its place: its events to each of its streams begin at these versions."""
    events, spread, retry = append.events, append.spread, append.retry
    return SequencedAppend(
        append.stream, events[0].id, events, append.digests, retry.chosen, retry.request_digest,
        firsts[0], last_seq, append.tags, spread, () if spread is None else spread.versions(firsts),
        append.claims, salts_of(append.packed), append.form, append.tag_keys,
    )  # fmt: skip


def placed_from_journal(entry: Sequence[Any]) -> list[tuple[SequencedAppend, str]]:
    """The appends of a journal entry, which are those of one call, each with the chain that the script wrote
    after it."""
    index, bodies = entry[1]
    places = index.split(b" ")
    parts = _bodies(struct.pack(">BI", 0xDD, len(places)) + bodies)
    return [_placed(*each) for each in zip(places, parts, strict=True)]


_bodies = msgspec.msgpack.Decoder(list[list[msgspec.Raw]]).decode


def _placed(place: bytes, parts: Sequence[msgspec.Raw]) -> tuple[SequencedAppend, str]:
    """Digests are computed again from the events: a commit on another's behalf is checked as one's own is."""
    last_seq, first_versions, chain = place.split(b":")
    firsts = tuple(map(int, first_versions.split(b",")))
    header: Header = unpack_header(parts[0])
    packed = tuple(map(bytes, parts[1:]))
    placed = SequencedAppend(
        stream=header.stream,
        append_id=header.append_id,
        events=tuple(unpack_event(each) for each in packed),
        digests=row_digests(header.stream, header.append_id, packed, header.spread),
        chosen=header.chosen,
        request_digest=header.request_digest,
        first_version=firsts[0],
        last_seq=int(last_seq),
        tags=header.tags,
        spread=header.spread,
        versions=() if header.spread is None else header.spread.versions(firsts),
        claims=header.claims,
        salts=salts_of(packed),
        form=header.form,
        tag_keys=tag_keys(header.stream.tenant, header.tags),
    )
    return placed, chain.decode()


def stream_entry(entry: Sequence[Any]) -> tuple[int, int, bytes]:
    """Version, seq and packed event of a stream entry."""
    entry_id, (seq, packed) = entry
    return int(entry_id[:-2]), int(seq), packed  # "<version>-0"


def chain_over(chain: str, run: Iterable[SequencedAppend]) -> str:
    for placed in run:
        chain = next_chain(chain, placed.first_version, placed.digests, placed.versions)
    return chain


def commit_columns(run: Sequence[SequencedAppend]) -> list[Any]:
    """What commit.sql takes from $7 on: a column each, then the identities that clients chose, then tags,
    revisions and forms.

    Most arrays go as literals: asyncpg looks at each item of an array twice to see whether it is one itself,
    which takes longer than anything else in a commit. Ids of appends with salts, digests, identities and
    payloads are cut out of one string each; a payload that was erased is -1 bytes long. A column without a
    value is None.
    """
    events = [event for placed in run for event in placed.events]
    if len(events) == len(run):
        versions, streams = [placed.first_version for placed in run], [placed.stream for placed in run]
        owned = b"".join([placed.append_id + (placed.salts or _NO_SALT) for placed in run])
    else:
        owned = b"".join(map(_owned, run))
        versions, streams = [], []
        for placed in run:
            count, first = len(placed.events), placed.first_version
            streams += (placed.stream,) * count if placed.spread is None else placed.spread.each_stream
            versions += range(first, first + count) if placed.spread is None else placed.versions
    payloads = [event.payload for event in events]
    begins, lengths, _ = spans(payloads)
    return [
        numbers(versions),
        numbers([event.recorded_at_ms for event in events]),
        uuids([event.id for event in events]),
        uuids([stream.tenant for stream in streams]),
        uuids([event.correlation_id for event in events]),
        _optional([event.causation_id for event in events], uuids),
        numbers([event.spec_rev for event in events]),
        _texts([stream.aggregate_type for stream in streams]),
        _texts([stream.key for stream in streams]),
        _texts([event.type for event in events]),
        _texts([event.actor_type for event in events]),
        _texts([event.actor_id for event in events]),
        _optional([event.target_type for event in events], _texts),
        _optional([event.target_id for event in events], _texts),
        _present([event.extra for event in events]),
        begins,
        lengths,
        owned,
        b"".join([placed.digests for placed in run]),
        b"".join([each or b"" for each in payloads]),
        *_claims(run),
        *_tags(run),
        _revisions(events),
        _optional([placed.form for placed in run for _ in placed.events], numbers),
    ]


_NO_SALT: Final = bytes(SALT_BYTES)
"""Stands for none in a commit."""


def _owned(placed: SequencedAppend) -> bytes:
    """Of each of its rows, the append's id and the salt."""
    salts = placed.salts or _NO_SALT * len(placed.events)
    each = [salts[n : n + SALT_BYTES] for n in range(0, len(salts), SALT_BYTES)]
    return placed.append_id + placed.append_id.join(each)


def _claims(run: Sequence[SequencedAppend]) -> list[Any]:
    claims = [(placed, identity) for placed in run for identity in placed.chosen]
    return [
        uuids([placed.stream.tenant for placed, _ in claims]),
        b"".join([identity for _, identity in claims]),
        numbers([placed.first_seq for placed, _ in claims]),
        numbers([len(placed.events) for placed, _ in claims]),
        b"".join([placed.request_digest for placed, _ in claims]),
    ]


def _tags(run: Sequence[SequencedAppend]) -> tuple[str | None, str | None]:
    """Each declared tag and the seq of its event; NULLs where there is none."""
    tagged = [placed for placed in run if placed.tags]
    if not tagged:
        return None, None
    seqs: list[int] = []
    for placed in tagged:
        for seq, tags in enumerate(placed.tags, placed.first_seq):
            seqs += [seq] * len(tags)
    return uuids([placed.tag_keys for placed in tagged]), numbers(seqs)


def _revisions(events: Sequence[Event]) -> str | None:
    """NULLs stand for 1."""
    column = [event.revision for event in events]
    return None if column.count(1) == len(column) else numbers(column)


def claim_columns(run: Sequence[SequencedAppend]) -> list[Any]:
    """What change_claims takes from $37 on: what becomes free, then what is held once all of the run is
    committed; nothing where no append of it claims or releases."""
    freed: dict[tuple[Stream, str, bytes | None], None] = {}
    held: dict[tuple[Stream, str, bytes], tuple[bytes, int]] = {}
    for placed in run:
        for claim in placed.claims:
            stream = placed.stream if placed.spread is None else placed.spread.stream_of(claim.event)
            if claim.value is None:
                freed[stream, claim.name, None] = None
                for slot in [each for each in held if each[:2] == (stream, claim.name)]:
                    del held[slot]
            else:
                freed[stream, claim.name, claim.scope] = None
                held[stream, claim.name, claim.scope] = claim.value, placed.first_seq + claim.event
    if not freed:
        return []
    return [
        *_slot_columns(list(freed)),
        [value for value, _ in held.values()],
        *_slot_columns(list(held)),
        [seq for _, seq in held.values()],
    ]


def _slot_columns(slots: Sequence[tuple[Stream, str, bytes | None]]) -> list[list[Any]]:
    return [
        [UUID(stream.tenant) for stream, _, _ in slots],
        [stream.aggregate_type for stream, _, _ in slots],
        [stream.key for stream, _, _ in slots],
        [name for _, name, _ in slots],
        [scope for _, _, scope in slots],
    ]


def spans(column: Sequence[bytes | None], begin: int = 1) -> tuple[str, str, int]:
    """Where each value begins in all of them one behind the other, and how long it is, -1 for None, as
    literals; and where a next one would begin. asyncpg would look at each item of an array twice."""
    *begins, end = accumulate([len(each or b"") for each in column], initial=begin)
    lengths = [-1 if each is None else len(each) for each in column]
    return numbers(begins), numbers(lengths), end


def numbers(column: list[int]) -> str:
    """An array of integers, as a literal."""
    return "{" + str(column)[1:-1].replace(" ", "") + "}"


def uuids(column: Sequence[bytes]) -> str:
    """An array of them, as a literal."""
    return "{" + b"".join(column).hex(",", 16) + "}"


def _texts(column: Sequence[str]) -> str:
    """Names and keys, each held to a grammar without quotes and backslashes before it came here."""
    joined = '","'.join(column)
    if "\\" in joined or joined.count('"') != 2 * len(column) - 2:
        raise ValueError("a name or key with a quote or backslash came to a commit")
    return '{"' + joined + '"}'


def _optional(column: Sequence[_V | None], literal: Callable[[list[_V]], str]) -> str | None:
    """A column that most rows have no value in."""
    present = [each for each in column if each is not None]
    if not present:
        return None
    if len(present) == len(column):
        return literal(present)
    return "{" + ",".join(["NULL" if each is None else literal([each])[1:-1] for each in column]) + "}"


def _present(column: Sequence[Any]) -> Sequence[Any] | None:
    """The column; None where no row has a value."""
    return column if column.count(None) < len(column) else None


def stream_of(row: Any) -> Stream:
    """The stream that an outbox row belongs to."""
    return Stream(row["tenant"].bytes, row["aggregate_type"], row["aggregate_id"])


def event_of(row: Any) -> Event:
    """The event that an outbox row keeps; `recorded_at_ms` stands in it for `recorded_at`."""
    causation = row["causation_id"]
    event = Event(
        id=row["id"].bytes,
        type=row["type"],
        actor_type=row["actor_type"],
        actor_id=row["actor_id"],
        target_type=row["target_type"],
        target_id=row["target_id"],
        correlation_id=row["correlation_id"].bytes,
        causation_id=None if causation is None else causation.bytes,
        spec_rev=row["spec_rev"],
        recorded_at_ms=row["recorded_at_ms"],
        extra=row["extra"],
        payload=row["payload"],
    )
    return event if row["revision"] is None else revised(event, row["revision"])
