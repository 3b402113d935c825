"""Outbox rows in the order of seq, held against their digests, the chain and the rule of partitions.

Owns: what one partition's rows must be, page by page, at constant memory. Rows up to a committed seq never
change, so the pages of a walk are consistent with each other without one long transaction, which would keep
Postgres from cleaning up behind the row that every commit updates.
"""

from __future__ import annotations

import random
from collections.abc import Container, Iterable
from typing import Any, Final
from uuid import UUID

from gateway.appends import pack_event, row_digest, salted
from gateway.events import Stream
from gateway.log.entries import event_of, stream_of
from gateway.log.epoch.chain import ChainWalk
from gateway.operations.report import Report
from gateway.partitions import partition_of

PAGE_ROWS: Final = 250
PAGE_BYTES: Final = 512 * 1024
"""Of the payloads of a page, and one row more: to check so many takes the event loop a millisecond or two. An
event of a saga has up to 12 MB."""
STREAMS_SAMPLED: Final = 64
"""Of each partition, drawn evenly over its rows."""


Anchors = dict[int, list[tuple[str, str]]]
"""seq → the chains that were seen there, each with its witness."""


class RowWalk:
    """Takes the rows of partition `p`, from seq 1 on."""

    def __init__(self, p: int, partitions: int, report: Report, anchors: Anchors | None = None) -> None:
        self.seq = 0
        self.streams: list[Stream] = []
        self._p = p
        self._partitions = partitions
        self._report = report
        self._anchors = anchors or {}
        self._walk = ChainWalk("")
        self._before: Any = None
        self._stream: Stream | None = None
        self._versions: dict[Stream, int] = {}  # the last of the append in each of its streams
        self._walked = 0
        self._random = random.Random()  # noqa: S311 - a sample, no secret

    def check(self, rows: Iterable[Any], deleted: Container[UUID] = ()) -> None:
        """`deleted` are tenants of whose events only places and digests are left: the chain continues."""
        for row in rows:
            self._check_place(row)
            stream = stream_of(row)
            begins = self._walk.add(row["append_id"], row["version"], row["digest"])
            gone = row["aggregate_type"] == "" and UUID(bytes=row["tenant"].bytes) in deleted
            if gone:
                self._report.count("rows")
            else:
                self._check_digest(row, stream)
                self._check_append(row, stream, begins)
            self._check_tenant(row, stream)
            for chain, who in self._anchors.get(row["seq"], ()):
                if self._walk.chain != chain:
                    self._violated("seen", row, f"{who} saw another history committed up to here")
            if not gone:
                self._sample(stream)
            self._before, self._stream, self.seq = row, stream, row["seq"]

    def finish(self, to_seq: int, chain: str, last_seq: int) -> None:
        """All rows up to `to_seq`, where Postgres says the partition stands, were taken; `last_seq` is the
        greatest there is."""
        if self.seq < to_seq:
            self._report.violated("order", self._p, f"seq {self.seq + 1}…{to_seq}", "these rows are missing")
        if last_seq > to_seq:
            what = f"rows are there, but the partition is at seq {to_seq}"
            self._report.violated("order", self._p, f"seq {to_seq + 1}…{last_seq}", what)
        self._report.count("chain")
        if self._walk.chain != chain:
            what = f"the rows give {self._walk.chain or 'no chain'}, stored is {chain or 'none'}"
            self._report.violated("chain", self._p, f"seq 1…{to_seq}", what)

    def _check_place(self, row: Any) -> None:
        self._report.count("order")
        if row["seq"] != self.seq + 1:
            missing = f"seq {self.seq + 1}…{row['seq'] - 1}"
            self._report.violated("order", self._p, missing, "these rows are missing")

    def _check_digest(self, row: Any, stream: Stream) -> None:
        self._report.count("rows")
        packed = salted(pack_event(event_of(row)), row["salt"])
        if row["payload"] is None:
            self._violated("rows", row, "its payload is gone")
        elif row_digest(stream, row["append_id"], packed) != row["digest"]:
            self._violated("rows", row, "the row is not what its digest says")

    def _check_append(self, row: Any, stream: Stream, begins: bool) -> None:
        if begins:
            self._versions = {}
            if row["append_id"] != row["id"].bytes:
                self._violated("order", row, "an append begins here without its first event")
        elif row["version"] != self._versions.get(stream, row["version"] - 1) + 1:
            self._violated("order", row, "an append does not continue in its stream")
        self._versions[stream] = row["version"]

    def _check_tenant(self, row: Any, stream: Stream) -> None:
        if self._before is not None and row["tenant"] == self._before["tenant"]:
            return
        home = partition_of(stream.tenant, self._partitions)
        if home != self._p:
            self._violated("tenants", row, f"tenant {row['tenant']} belongs to partition {home}")

    def _violated(self, invariant: str, row: Any, what: str) -> None:
        self._report.violated(invariant, self._p, f"seq {row['seq']}", what)

    def _sample(self, stream: Stream) -> None:
        """A reservoir: every row walked so far had the same chance to bring its stream in."""
        self._walked += 1
        if stream == self._stream:
            return
        if len(self.streams) < STREAMS_SAMPLED:
            if stream not in self.streams:
                self.streams.append(stream)
        elif (n := self._random.randrange(self._walked)) < STREAMS_SAMPLED and stream not in self.streams:
            self.streams[n] = stream
