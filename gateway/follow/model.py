"""Values of followers: builds as Postgres keeps them, rows, what did not fit. No I/O."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gateway.events import Recorded
from gateway.relay.position import Place

MISFITS_SHOWN: Final = 20
"""Of what did not fit, the last ones: enough to see what is wrong."""


ROWS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of the rows that are changed together, and of the states beside them: fifteen of the longest, or 160,000
short ones. Where appends need more together, they are folded one behind the other."""


class TooMuch(Exception):
    """Several appends together need more rows or states than fit into memory: fold fewer of them."""


@dataclass(frozen=True, slots=True)
class Build:
    """A row of `follower`. `moves` is what a compare-and-swap names; rows that were deleted up to
    `pruned_seq` are forgotten."""

    id: int
    tenant: bytes
    kind: str
    name: str
    spec_rev: int
    digest: bytes
    fields: tuple[str, ...]
    state: str
    paused: bool
    p: int
    place: Place
    moves: int
    rows: int
    misfits: int
    last_misfits: bytes
    rate: float
    served_seq: int | None
    pruned_seq: int = 0

    @property
    def at_work(self) -> bool:
        return self.state in ("building", "serving") and not self.paused


class Row(msgspec.Struct, frozen=True, gc=False):
    """`length` counts the events that went into it. Without `data` it is deleted."""

    length: int
    created_at_ms: int
    updated_at_ms: int
    data: bytes | None


class Put(msgspec.Struct, frozen=True, gc=False):
    """A row as it is to be written, at the place of the last event that changed it."""

    key: str
    place: Place
    row: Row
    fields: tuple[bytes | None, ...]


class Misfit(msgspec.Struct, frozen=True, gc=False):
    """An event, or one operation of its, that did not fit. `operation` is the operation's index, if it is
    one."""

    event_id: str
    aggregate_type: str
    key: str
    version: int
    event_type: str
    operation: int | None
    error: str


class Event(msgspec.Struct, frozen=True, gc=False):
    """A committed event with its place; `append_id` is that of the append that it came with."""

    place: Place
    recorded: Recorded
    append_id: bytes


class Changes(msgspec.Struct, frozen=True):
    """What some events do to the rows of a follower. `rest` makes what is more than is held at a time, in
    parts: each is written before the next one is made, all in one transaction."""

    puts: Sequence[Put]
    rows: int
    misfits: int
    last_misfits: Sequence[Misfit]
    sources: Mapping[str, Sequence[tuple[str, str]]] = {}
    """Of rows that are joined: the aggregates that each was put together from, by type and key."""
    rest: AsyncIterator[Changes] | None = None


def build_of(row: Any) -> Build:
    return Build(
        row["id"], row["tenant"].bytes, row["kind"], row["name"], row["spec_rev"], row["digest"],
        tuple(row["fields"]), row["state"], row["paused"], row["p"], Place(row["seq"], row["mark"]),
        row["moves"], row["rows"], row["misfits"], row["last_misfits"], row["rate"], row["served_seq"],
        row["pruned_seq"],
    )  # fmt: skip


def row_of(row: Any) -> Row:
    return Row(row["length"], row["created_at_ms"], row["updated_at_ms"], row["data"])
