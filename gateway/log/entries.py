"""Journal and stream entries as the scripts write them, the columns of the commit, rows read back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from asyncpg.pgproto.pgproto import UUID

from gateway.events import Event, Header, Stream, next_chain, row_digests, unpack_event, unpack_header


class Placed(msgspec.Struct, frozen=True, gc=False):
    """An append with the place that a script gave it: its last event stands at `last_seq`."""

    stream: Stream
    append_id: bytes
    events: tuple[Event, ...]
    digests: bytes
    chosen: tuple[bytes, ...]
    request_digest: bytes
    first_version: int
    last_seq: int

    @property
    def first_seq(self) -> int:
        return self.last_seq - len(self.events) + 1

    def rows(self) -> Iterator[tuple[int, tuple[int, bytes]]]:
        """The seq of each event, and what tells its row from any other: version and digest."""
        for n in range(len(self.events)):
            yield self.first_seq + n, (self.first_version + n, self.digests[32 * n : 32 * n + 32])

    def chain_after(self, chain: str) -> str:
        return next_chain(chain, self.first_version, self.digests)


def placed_from_journal(entry: Sequence[Any]) -> tuple[Placed, str]:
    """A journal entry and the chain that the script wrote after it. Digests are computed anew from the
    events, so a commit on another's behalf is checked as one's own is."""
    place, body = entry[1]
    last_seq, first_version, chain = place.split(b":")
    packed_header, *rest = map(bytes, _parts(body))
    header: Header = unpack_header(packed_header)
    packed = tuple(rest)
    placed = Placed(
        stream=header.stream,
        append_id=header.append_id,
        events=tuple(unpack_event(each) for each in packed),
        digests=row_digests(header.stream, header.append_id, packed),
        chosen=header.chosen,
        request_digest=header.request_digest,
        first_version=int(first_version),
        last_seq=int(last_seq),
    )
    return placed, chain.decode()


_parts = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def stream_entry(entry: Sequence[Any]) -> tuple[int, int, bytes]:
    """Version, seq and packed event of a stream entry."""
    entry_id, (seq, packed) = entry
    return int(entry_id[:-2]), int(seq), packed  # "<version>-0"


def chain_over(chain: str, run: Iterable[Placed]) -> str:
    for placed in run:
        chain = placed.chain_after(chain)
    return chain


def commit_columns(run: Sequence[Placed]) -> list[list[Any]]:
    """The arrays of commit.sql from $7 on: a column each, then the identities that clients chose."""
    rows = [row for placed in run for row in _rows(placed)]
    claims = [claim for placed in run for claim in _claims(placed)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    return columns + ([list(column) for column in zip(*claims, strict=True)] if claims else [[]] * 5)


# fmt: off
def _rows(placed: Placed) -> list[tuple[Any, ...]]:
    stream, append_id, digests, version = (
        placed.stream, placed.append_id, placed.digests, placed.first_version,
    )
    tenant = UUID(stream.tenant)
    return [
        (
            version + n, e.recorded_at_ms, UUID(e.id), tenant, UUID(e.correlation_id),
            None if e.causation_id is None else UUID(e.causation_id), e.spec_rev, append_id,
            digests[32 * n : 32 * n + 32], stream.aggregate_type, stream.key, e.type, e.actor_type,
            e.actor_id, e.target_type, e.target_id, e.extra, e.payload,
        )
        for n, e in enumerate(placed.events)
    ]
# fmt: on


def _claims(placed: Placed) -> list[tuple[Any, ...]]:
    tenant, count = UUID(placed.stream.tenant), len(placed.events)
    return [(tenant, identity, placed.first_seq, count, placed.request_digest) for identity in placed.chosen]


def stream_of(row: Any) -> Stream:
    """The stream that an outbox row belongs to."""
    return Stream(row["tenant"].bytes, row["aggregate_type"], row["aggregate_id"])


def event_of(row: Any) -> Event:
    """The event that an outbox row keeps; `recorded_at_ms` stands in it for `recorded_at`."""
    causation = row["causation_id"]
    return Event(
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
