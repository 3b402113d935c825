"""What must hold of the rows by themselves, and of Redis beside them, whatever clients were told. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby

from gateway.appends import row_digest, salted
from gateway.log.epoch.chain import ChainWalk
from tests.faults.evidence import Copy, Evidence, Row
from tests.faults.history import StreamName

Told = Iterator[tuple[str, str]]


def check_stored(evidence: Evidence, *, digests: bool = True) -> Told:
    """(kind, sentence) of every violation. Without `digests`, those of the rows are not recomputed."""
    by_partition = {p: list(rows) for p, rows in groupby(evidence.rows, key=lambda row: row.partition)}
    yield from _versions(evidence.rows)
    for partition in evidence.standings:
        rows = by_partition.get(partition, [])
        yield from _partition(evidence, partition, rows, digests=digests)
        yield from _claims(evidence, partition, rows)


def _versions(rows: list[Row]) -> Told:
    lengths: dict[StreamName, int] = defaultdict(int)
    for row in rows:
        lengths[row.stream] += 1
        if row.version != lengths[row.stream]:
            yield (
                "gap",
                f"{row.stream}: version {row.version} at seq {row.seq}, expected {lengths[row.stream]}",
            )
            lengths[row.stream] = row.version


def _partition(evidence: Evidence, partition: int, rows: list[Row], *, digests: bool) -> Told:
    standing = evidence.standings[partition]
    walk = ChainWalk("")
    chains: dict[int, str] = {0: ""}
    for n, row in enumerate(rows, 1):
        if row.seq != n:
            yield "gap", f"partition {partition}: seq {row.seq}, expected {n}"
            return
        packed = salted(row.packed, row.salt)
        if digests and row_digest(row.place, row.append_id, packed) != row.digest:
            yield "chain", f"partition {partition}: the row at seq {n} is not what its digest says"
        walk.add(row.append_id, row.version, row.digest)
        chains[n] = walk.chain
    if len(rows) != standing.seq:
        yield "gap", f"partition {partition} stands at seq {standing.seq} and holds {len(rows)} rows"
    if walk.chain != standing.chain:
        yield "chain", f"partition {partition}: the rows give chain {walk.chain}, stored is {standing.chain}"
    copy = evidence.copies.get(partition)
    if copy is not None:
        yield from _copy(partition, copy, rows, chains)


def _claims(evidence: Evidence, partition: int, rows: list[Row]) -> Told:
    """Each identity that a client chose leads to all rows of one append."""
    sizes: dict[bytes, int] = defaultdict(int)
    for row in rows:
        sizes[row.append_id] += 1
    for claim in evidence.claims:
        if claim.partition != partition:
            continue
        row = rows[claim.seq - 1] if claim.seq <= len(rows) else None
        if (
            row is None
            or sizes[row.append_id] != claim.count
            or row.append_id.hex() != row.event_id.replace("-", "")
        ):
            yield (
                "identity",
                f"partition {partition}: an identity leads to seq {claim.seq}, {claim.count} events",
            )


def _copy(partition: int, copy: Copy, rows: list[Row], chains: dict[int, str]) -> Told:
    """What Redis calls committed is what Postgres holds."""
    meta = copy.meta
    if meta.c > len(rows) or chains.get(meta.c) != meta.chain_at_c:
        yield "copy", f"partition {partition}: Redis calls seq {meta.c} committed, Postgres holds {len(rows)}"
        return
    for placed in copy.journal:
        last = placed.first_seq + len(placed.packed) - 1
        if last > meta.c:
            continue
        there = rows[placed.first_seq - 1 : last]
        if [row.packed for row in there] != list(placed.packed) or placed.chain != chains[last] or (
            there[0].version != placed.first_version
        ):  # fmt: skip
            yield (
                "copy",
                f"partition {partition}: the journal holds other rows at seq {placed.first_seq} to {last}",
            )
    for place, entries in copy.streams.items():
        for version, seq, packed in entries:
            if seq > meta.c:
                continue
            row = rows[seq - 1]
            if (row.place, row.version, row.packed) != (place, version, packed):
                yield (
                    "copy",
                    f"partition {partition}: Redis holds another event at seq {seq}, version {version}",
                )
