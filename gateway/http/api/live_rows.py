"""Rows as server-sent events: what there is, then each change, resumed by a position.

Owns: which rows a client knows, and so what a row that no longer passes means to it. `id:` is the position
behind which nothing of what came before is sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gateway.follow.model import Build
from gateway.follow.query import Cursor, Query
from gateway.follow.reading import Rows
from gateway.follow.standing import position_text
from gateway.http.api.follow import (
    SSE,
    in_one_line,
    more,
    rest,
    start_stream,
    stream_head,
    taken,
    until_gone,
)
from gateway.http.api.known_rows import KnownRows, RowMemory
from gateway.http.api.list_query import Asked, position_of
from gateway.http.api.live_bounds import LiveBounds
from gateway.http.api.rows import Named, RowReader, items_json
from gateway.http.key_watch import KeyWatch
from gateway.http.render import encode
from gateway.http.request import Head, Receive, Refused, Send
from gateway.log.read.followers import Follower
from gateway.postgres.errors import PostgresTrouble
from gateway.relay.position import BEGINNING, Place, Position

_ROWS_AT_ONCE: Final = 200
_POLL_S: Final = 0.5
_HEARTBEAT_S: Final = 15.0
_SERVING_S: Final = 5.0


@dataclass(slots=True)
class Client:
    """What a client knows. `place` is what it was told last; `seq` and `key` are where changes are read on.
    Where it is not sure which rows it has, every row that is not in its list is told as deleted once it
    changes."""

    build: Build
    query: Query
    only: str | None
    known: KnownRows
    place: Place = BEGINNING
    seq: int = 0
    key: str = ""


class LiveRows:
    def __init__(
        self, reader: RowReader, keys: KeyWatch, bounds: LiveBounds, stopping: asyncio.Event
    ) -> None:
        self._reader = reader
        self._keys = keys
        self._bounds = bounds
        self._stopping = stopping
        self._memory = RowMemory()

    async def serve(
        self,
        holder: str,
        named: Named,
        asked: Asked,
        only: str | None,
        head: Head,
        receive: Receive,
        send: Send,
        *,
        head_only: bool,
    ) -> None:
        """Until one side goes, or the key ends. `only`: the key of the one row that is followed."""
        resumed = _resumed(head)
        after = asked.after if resumed is None else None
        build = await self._reader.serving(named, after, asked.wait_s, head, asked.query.fields)
        if head_only:
            await stream_head(send, SSE)
            return
        query = replace(asked.query, sort=(), cursor=None, count=False, limit=_ROWS_AT_ONCE)
        with (
            self._bounds.follower(holder),
            self._memory.client(named.tenant) as known,
            self._reader.moves.watching(named.tenant) as watch,
            self._keys.watching(head, watch.wake) as key,
        ):
            gone = asyncio.get_running_loop().create_task(until_gone(receive, watch.wake))
            client = Client(build, query, only, known)
            try:
                await start_stream(send, SSE)

                def over() -> bool:
                    return gone.done() or key.ended is not None or self._stopping.is_set()

                await self._follow(client, named, resumed, watch, over, head, send)
            except (PostgresTrouble, Refused):
                pass  # the client resumes where it was, or is told then what is in the way
            finally:
                gone.cancel()
        await send({"type": "http.response.body", "body": b""})

    async def _follow(
        self,
        client: Client,
        named: Named,
        resumed: Position | None,
        watch: Follower,
        over: Callable[[], bool],
        head: Head,
        send: Send,
    ) -> None:
        """Until it is `over`. Raises PostgresTrouble, Refused."""
        loop = asyncio.get_running_loop()
        begun = resumed is not None and self._resume(client, resumed)
        reset = resumed is not None and not begun
        sent_at = loop.time()
        while not over():
            if not begun:
                begun, sent_at = await self._snapshot(client, reset, over, send), loop.time()
                continue
            match await self._changes(client, send):
                case None:
                    fields = client.query.fields
                    client.build = await self._reader.serving(named, None, _SERVING_S, head, fields)
                    begun, reset = False, not client.known.sure
                    continue
                case True:
                    sent_at = loop.time()
                    continue
            await rest(self._reader.moves.pause_s(named.tenant), over)
            await watch.wait(_POLL_S)
            if loop.time() - sent_at > _HEARTBEAT_S:
                await more(send, b"id: %b\n: still here\n\n" % self._id(client, client.place))
                sent_at = loop.time()

    def _resume(self, client: Client, after: Position) -> bool:
        """Whether what changed since is known: not where another build served then, or what was
        deleted since is forgotten."""
        place = after.at(client.build.p)
        if place.seq <= max(client.build.served_seq or 0, client.build.pruned_seq):
            return False
        client.place, client.seq, client.key = place, place.seq, _LAST_KEY
        client.known.lose()
        return True

    def _id(self, client: Client, place: Place) -> bytes:
        return position_text(client.build.p, place).encode()

    async def _snapshot(self, client: Client, reset: bool, over: Callable[[], bool], send: Send) -> bool:
        """All rows, then deletes of those that the client has and that are not there any more. False: it was
        `over` before that."""
        if reset:
            await more(send, b"event: reset\ndata: {}\n\n")
        client.known.begin(reset=reset)
        first: Place | None = None
        pending: list[bytes] = []
        query, more_rows = client.query, True
        while more_rows:
            if over():
                return False
            rows = await self._page(client, query)
            if rows is None:  # the next look for changes finds out which build serves
                return True
            first = first or rows.place
            if pending:
                await self._send(client, pending, BEGINNING, send)
            for each in rows.rows:
                client.known.has(each.key)
            pending = [_upsert(item) for item in await items_json(rows.rows, query.keep)]
            more_rows = rows.more
            if more_rows:
                query = replace(query, cursor=Cursor(1, (), (), rows.rows[-1].key))
        assert first is not None
        pending += [_delete(key) for key in client.known.end()]
        # Only the last message says that all is there: a client that breaks off before it begins again.
        beginning = self._id(client, BEGINNING)
        body = b"".join([b"id: %b\n%b" % (beginning, each) for each in pending[:-1]])
        final = pending[-1] if pending else b"\n"
        client.place, client.seq, client.key = first, first.seq, _LAST_KEY
        await more(send, body + b"id: %b\n%b" % (self._id(client, first), final))
        await taken(send)
        return True

    async def _page(self, client: Client, query: Query) -> Rows | None:
        if client.only is not None:
            return await self._reader.reading.row(client.build, client.only)
        return await self._reader.reading.page(client.build, query)

    async def _send(self, client: Client, messages: Sequence[bytes], place: Place, send: Send) -> None:
        written = self._id(client, place)
        await more(send, b"".join([b"id: %b\n%b" % (written, each) for each in messages]))
        await taken(send)

    async def _changes(self, client: Client, send: Send) -> bool | None:
        """Sends what changed; whether it was anything. None: the build no longer serves."""
        found = await self._reader.reading.changed(
            client.build, client.seq, client.key, client.query.test, client.only, _ROWS_AT_ONCE
        )
        if found is None:
            return None
        changes, place = found.rows, found.place
        body: list[bytes] = []
        items = iter(await items_json([each for each, passes in changes if passes], client.query.keep))
        for number, (each, passes) in enumerate(changes):
            client.seq, client.key = each.place.seq, each.key
            last_of_its_event = (
                number + 1 < len(changes) and changes[number + 1][0].place.seq != each.place.seq
            )
            if last_of_its_event or (number + 1 == len(changes) and not found.more):
                client.place = each.place
            if passes:
                client.known.has(each.key)
                message = _upsert(next(items))
            elif client.known.may_have(each.key):
                client.known.has_no_more(each.key)
                message = _delete(each.key)
            else:
                continue
            body.append(b"id: %b\n%b" % (self._id(client, client.place), message))
        if not found.more and place.seq > client.place.seq:
            client.place, client.seq, client.key = place, place.seq, _LAST_KEY
        if body:
            await more(send, b"".join(body))
            await taken(send)
        return found.more


_LAST_KEY: Final = "\U0010ffff"
"""Behind every key: nothing at the seq is read again."""


def _upsert(item: bytes) -> bytes:
    return b"event: upsert\ndata: %b\n\n" % in_one_line(item)


def _delete(key: str) -> bytes:
    return b'event: delete\ndata: {"key":%b}\n\n' % encode(key)


def _resumed(head: Head) -> Position | None:
    value = head.joined(b"last-event-id")
    return None if value is None else position_of(value.decode("latin-1"), "Last-Event-ID")
