"""Kept states: those of long streams, in Postgres, so that a cold read folds few events.

Owns: which rows there are, and when one holds: folded by the present handlers, up to an event that is still
there, in a history of which nothing was given up since. A cache: what is lost is folded once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec

from gateway.aggregates.running import Place
from gateway.catalog.model import Deployed
from gateway.events import Stream
from gateway.log.log import Log
from gateway.log.postgres import Postgres
from gateway.postgres.errors import PostgresTrouble
from gateway.state import EMPTY, FOLD_REVISION, Folded
from gateway.telemetry.metrics import Metrics
from spec.model import AggregateType

KEEP_EVERY: Final = 500
"""Events of a stream between two kept states: where the last one is missing, a read still folds at most twice
as many."""
FOLD_EVERY: Final = KEEP_EVERY // 2
"""Events after which the next state to be kept is folded so far: Redis holds more of a stream by default, so
they are not read from Postgres. A state between two kept ones is only in memory."""
FOLD_HELD_EVERY: Final = FOLD_EVERY // 10
"""The same where the events since the last one are held: 250 events of each of many streams do not stay in
the processor's cache, for which every append pays."""
STATES_MAX: Final = 64
"""Of one stream, spread evenly over its history: `at_length` begins at one of them."""
STREAM_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of one stream: of large states fewer are kept, and the newest one always."""
_NOT_OF_A_FOLD: Final = frozenset({"name", "schema", "compiled", "rules", "tags", "claims", "releases"})

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Folded).decode
_FORM: Final = (FOLD_REVISION, Folded.__struct_fields__)


def handlers_digest(declared: AggregateType | None) -> bytes:
    """Equal for types whose events are folded alike, by this release."""
    events = () if declared is None else sorted(declared.events.values(), key=lambda each: each.name)
    folded_by = [
        (each.name, *(getattr(each, part.name) for part in fields(each) if part.name not in _NOT_OF_A_FOLD))
        for each in events
    ]
    return sha256(repr((_FORM, folded_by)).encode()).digest()[:16]


def stride_of(version: int, size: int) -> int:
    """At multiples of it, states up to this version are kept, the last of which takes `size` bytes."""
    most = max(1, min(STATES_MAX, STREAM_BYTES_MAX // max(size, 1)))
    stride = KEEP_EVERY
    while version // stride > most:
        stride *= 2
    return stride


class KeptStates:
    def __init__(self, postgres: Postgres, log: Log, metrics: Metrics, bytes_max: int) -> None:
        self._postgres = postgres
        self._log = log
        self._written, self._used = metrics.kept_written, metrics.kept_used
        self._bytes_max = bytes_max
        self._digests: dict[tuple[bytes, int, str], bytes] = {}

    def handlers(self, stream: Stream, deployed: Deployed) -> bytes:
        known = (stream.tenant, deployed.revision, stream.aggregate_type)
        digest = self._digests.get(known)
        if digest is None:
            if len(self._digests) > 10_000:
                self._digests.clear()
            digest = handlers_digest(deployed.reading.aggregate_types.get(stream.aggregate_type))
            self._digests[known] = digest
        return digest

    async def nearest(self, place: Place, deployed: Deployed, last: int) -> Folded:
        """The newest kept state up to version `last`; that of an empty stream where there is none, or where
        Postgres does not tell."""
        stream = place[0]
        try:
            rows = await self._postgres.fetch(
                "kept_nearest", *_of(stream), self.handlers(stream, deployed), last,
                self._log.partition(stream.tenant),
            )  # fmt: skip
        except PostgresTrouble:
            return EMPTY
        folded = decoded(rows[0]["folded"]) if rows else None
        if folded is None or folded.length != rows[0]["version"] or len(folded.data_json) > self._bytes_max:
            return EMPTY
        self._used.inc()
        return folded

    @property
    def step(self) -> int:
        return KEEP_EVERY

    @property
    def fold_step(self) -> int:
        return FOLD_HELD_EVERY

    def worth(self, folded: Folded, last: int) -> bool:
        """Every one that lasts, and the newest."""
        return folded.length == last or folded.length % stride_of(last, len(folded.data_json)) == 0

    async def keep(self, stream: Stream, deployed: Deployed, folded: Folded, rewound: int) -> None:
        """`rewound`: the log's, before the first of its events was read. Raises PostgresTrouble."""
        if folded.too_large_at is not None or not folded.length:
            return
        packed = _encode(folded)
        await self._postgres.fetch(
            "keep_state", *_of(stream), self.handlers(stream, deployed), folded.length, packed,
            self._log.partition(stream.tenant), rewound, stride_of(folded.length, len(packed)),
        )  # fmt: skip
        self._written.inc()

    async def drop_stale(self, stream: Stream, deployed: Deployed) -> None:
        """Raises PostgresTrouble."""
        await self._postgres.fetch("kept_drop", *_of(stream), self.handlers(stream, deployed))

    async def claim(self, tenant: bytes, deployed: Deployed, seconds: float) -> Stream | None:
        """A stream of the tenant that has stale states; no other gateway takes it for so long. Raises
        PostgresTrouble."""
        streams = [Stream(tenant, name, "") for name in deployed.reading.aggregate_types]
        handlers = [self.handlers(each, deployed) for each in streams]
        types = [each.aggregate_type for each in streams]
        rows = await self._postgres.fetch("kept_claim", UUID(bytes=tenant), types, handlers, seconds)
        return Stream(tenant, rows[0]["aggregate_type"], rows[0]["aggregate_id"]) if rows else None

    async def kept_of(self, tenants: Sequence[UUID]) -> list[UUID]:
        """Those of whose streams states are kept. Raises PostgresTrouble."""
        rows = await self._postgres.fetch("kept_tenants", list(tenants))
        return [UUID(bytes=row["tenant"].bytes) for row in rows]


def decoded(packed: bytes) -> Folded | None:
    """None where no release of this form has written it."""
    try:
        return _decode(packed)
    except msgspec.MsgspecError:
        return None


def _of(stream: Stream) -> tuple[UUID, str, str]:
    return UUID(bytes=stream.tenant), stream.aggregate_type, stream.key
