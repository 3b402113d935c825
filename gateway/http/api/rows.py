"""Rows of lists and projections as they are served: which build answers, the wait for a position, the form of
rows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.errors import Refusal
from gateway.follow.model import Build
from gateway.follow.moves import Moves
from gateway.follow.query import COUNTED_MAX, Keep, Query, encode_cursor
from gateway.follow.reading import Reading, Rows, Stored
from gateway.follow.standing import position_text
from gateway.http.api.list_query import Asked
from gateway.http.api.reads import unavailable
from gateway.http.key_watch import KeyWatch
from gateway.http.render import encode
from gateway.http.request import Head, Refused
from gateway.postgres.errors import PostgresTrouble
from gateway.relay.outbox import Filter, LostPlace, Outbox
from gateway.relay.position import START, Position
from gateway.relay.position import encode as encode_position
from gateway.state.values import Node, decode_fields, fields_of

_NONE: Final = b"null"
MADE_S: Final = 0.002
"""How long rows are made in one go."""


@dataclass(frozen=True, slots=True)
class Named:
    """A list or projection of a tenant, with the fields that its spec declares."""

    tenant: bytes
    kind: str
    name: str
    by: tuple[str, ...]


class RowReader:
    """What serves a named list: the build, and its rows once they cover a position. `head` is that of the
    request. Raises Refused, also where its key ends while it waits."""

    def __init__(self, reading: Reading, moves: Moves, outbox: Outbox, keys: KeyWatch) -> None:
        self.reading = reading
        self.moves = moves
        self._outbox = outbox
        self._keys = keys

    async def serving(
        self,
        named: Named,
        after: Position | None,
        wait_s: float,
        head: Head,
        fields: frozenset[str] = frozenset(),
    ) -> Build:
        """The build that serves, once it has these fields and covers `after`. Raises Refused (503
        `behind`)."""
        try:
            seq = 0 if after is None else await self._seq(named, after)
            build = await self._covering(named, seq, fields)
            if build is not None or not wait_s:
                return build or await self._refuse(named, fields)
            if after is not None:
                self.moves.hurry(named.tenant)
            until = asyncio.get_running_loop().time() + wait_s
            with self.moves.watching(named.tenant) as watch, self._keys.watching(head, watch.wake) as key:
                while True:
                    if key.ended:
                        raise Refused(key.ended)
                    build = await self._covering(named, seq, fields)
                    left_s = until - asyncio.get_running_loop().time()
                    if build is not None or left_s <= 0:
                        return build or await self._refuse(named, fields)
                    await watch.wait(left_s)
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble

    async def _seq(self, named: Named, after: Position) -> int:
        """Of a position of the tenant's feed. Raises Refused (400)."""
        try:
            await self._outbox.page(Filter(named.tenant), after, 1, 1)
        except LostPlace as lost:
            raise Refused(
                Refusal("invalid_position", f"Not a position of this feed: {lost}", "after")
            ) from lost
        return after.at(self._outbox.partition(named.tenant)).seq

    async def _covering(self, named: Named, seq: int, fields: frozenset[str]) -> Build | None:
        build = await self.reading.serving(named.tenant, named.kind, named.name)
        if build is None or not fields <= {*build.fields}:
            return None
        if build.place.seq >= seq:
            return build
        reached = await self.reading.reached(build, seq)
        return build if reached is not None and reached[1] else None

    async def _refuse(self, named: Named, fields: frozenset[str]) -> Build:
        build = await self.reading.serving(named.tenant, named.kind, named.name)
        if build is None:
            why = "The rows are being built, or were dropped; GET /_/projections has the state."
            raise Refused(Refusal("behind", why, position=encode_position(START)))
        position = position_text(build.p, build.place)
        why = "The rows have not reached the requested position. Try again, with a longer `wait`."
        missing = sorted(fields.difference(build.fields))
        if missing:
            why = (
                f"The rows that are served are not listed by {missing[0]!r} yet; others are being built. "
                "GET /_/projections has the progress."
            )
        raise Refused(Refusal("behind", why, position=position))

    async def page(self, named: Named, asked: Asked, head: Head) -> tuple[Build, Rows]:
        """Raises Refused."""
        while True:
            build = await self.serving(named, asked.after, asked.wait_s, head, asked.query.fields)
            try:
                rows = await self.reading.page(build, asked.query)
            except PostgresTrouble as trouble:
                raise Refused(unavailable()) from trouble
            if rows is not None:
                return build, rows

    async def row(self, named: Named, key: str, asked: Asked, head: Head) -> tuple[Build, Rows]:
        while True:
            build = await self.serving(named, asked.after, asked.wait_s, head)
            try:
                rows = await self.reading.row(build, key)
            except PostgresTrouble as trouble:
                raise Refused(unavailable()) from trouble
            if rows is not None:
                return build, rows


async def page_json(build: Build, rows: Rows, query: Query) -> bytes:
    """The members of a page."""
    items = b",".join(await items_json(rows.rows, query.keep))
    following = _NONE
    if rows.more:
        last = rows.rows[-1]
        following = encode(encode_cursor(query.sort, last.values, last.key))
    count = b""
    if rows.count is not None:
        exact = rows.count <= COUNTED_MAX
        count = b',"count":%b' % encode(rows.count if exact else {"at_least": COUNTED_MAX})
    return b'"items":[%b],"position":%b,"next":%b%b' % (
        items, encode(position_text(build.p, rows.place)), following, count
    )  # fmt: skip


async def items_json(rows: Iterable[Stored], keep: Keep | None) -> list[bytes]:
    """Where only some fields are kept, made a few at a time: other requests do not wait for all of them."""
    if keep is None:
        return [item_json(each) for each in rows]
    made: list[bytes] = []
    ends = time.perf_counter() + MADE_S
    for each in rows:
        made.append(item_json(each, keep))
        if time.perf_counter() > ends:
            await asyncio.sleep(0)
            ends = time.perf_counter() + MADE_S
    return made


def item_json(stored: Stored, keep: Keep | None = None) -> bytes:
    row = stored.row
    assert row.data is not None
    data = row.data if keep is None else _kept(row.data, keep)
    return b'{"key":%b,"data":%b,"metadata":{"length":%d,"created_at":%d,"updated_at":%d}}' % (
        encode(stored.key), data, row.length, row.created_at_ms // 1000, row.updated_at_ms // 1000
    )  # fmt: skip


def _kept(data: bytes, keep: Keep) -> bytes:
    """The fields named, dotted ones within their objects; what is absent is left out."""
    state = decode_fields(data)
    kept: dict[str, Any] = {}
    for path in keep:
        _keep(state, kept, path)
    return encode(kept)


def _keep(state: dict[str, Node], kept: dict[str, Any], path: Sequence[str]) -> None:
    name, *rest = path
    if name not in state:
        return
    if not rest:
        kept[name] = state[name]
        return
    inner = fields_of(state[name])
    if inner is None:
        return
    state[name] = inner  # read once for all names that lead into it
    if isinstance(within := kept.setdefault(name, {}), dict):
        _keep(inner, within, rest)
