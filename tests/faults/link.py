"""A TCP port in front of a server's socket, and what can happen to bytes between two machines.

Owns: which server the port leads to, and the faults of its connections: cut at a byte, late, held, swallowed.
Must not know what the bytes mean. Bytes that were under way when a side closed its connection are still
delivered, as networks and socket buffers do: a request can be carried out long after its caller gave it up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from pathlib import Path
from typing import cast

_DIAL_S = 5.0


class Way(Enum):
    """The direction of bytes."""

    UP = "to the server"
    DOWN = "to the client"


class Link:
    """Listens on `port` of the loopback from `open` to `close`."""

    def __init__(self, upstream: Path) -> None:
        self.port = 0
        self.upstream = upstream
        self.delay_s = 0.0
        self._server: asyncio.Server | None = None
        self._lines: set[_Line] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refusing = False
        self._held: frozenset[Way] = frozenset()

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Line(self).client, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.drop()
        await asyncio.gather(*self._tasks)

    @property
    def waiting(self) -> int:
        """Connections of which bytes are held on their way to the client."""
        return sum(line.pipes[Way.DOWN].waits for line in self._lines)

    # -- what can happen

    def lead_to(self, upstream: Path, *, drop: bool) -> None:
        """New connections go there; with `drop`, the others end."""
        self.upstream = upstream
        if drop:
            self.drop()

    def drop(self) -> None:
        """Every connection is reset."""
        for line in list(self._lines):
            line.abort()

    def refuse(self) -> None:
        """Every connection is reset, new ones at once."""
        self._refusing = True
        self.drop()

    def cut(self, way: Way, after_bytes: int) -> None:
        """Each connection is reset once that many more bytes went that way."""
        for line in self._lines:
            line.pipes[way].cut_after = after_bytes

    def hold(self, *ways: Way, new_too: bool = True) -> None:
        """Bytes wait until `heal`. With `new_too` False, connections made from now on are not concerned."""
        for line in self._lines:
            for way in ways:
                line.pipes[way].hold()
        self._held = frozenset(ways) if new_too else frozenset()

    def swallow(self, *ways: Way) -> None:
        """Bytes vanish and no side is told; the connections concerned are reset by `heal`."""
        for line in self._lines:
            for way in ways:
                line.pipes[way].swallowing = True

    def heal(self) -> None:
        """As good as new: what was held continues, connections that lost bytes end."""
        self.delay_s, self._refusing, self._held = 0.0, False, frozenset()
        for line in list(self._lines):
            if any(pipe.swallowing for pipe in line.pipes.values()):
                line.abort()
            for pipe in line.pipes.values():
                pipe.cut_after = None
                pipe.go_on()

    # -- what its lines ask

    def begin(self, line: _Line) -> bool:
        """Whether a new connection may be."""
        if self._refusing:
            return False
        self._lines.add(line)
        for way in self._held:
            line.pipes[way].hold()
        return True

    def serve(self, line: _Line) -> None:
        task = asyncio.get_running_loop().create_task(line.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def ended(self, line: _Line) -> None:
        self._lines.discard(line)


class _End(asyncio.Protocol):
    """One side of a connection: what it receives goes into `pipe`."""

    def __init__(self, line: _Line, way: Way) -> None:
        self._line = line
        self._way = way
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._way is Way.UP:
            self._line.begin()

    def data_received(self, data: bytes) -> None:
        self._line.pipes[self._way].put(data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, fault: Exception | None) -> None:
        self.transport = None
        self._line.pipes[self._way].put(b"")


class _Line:
    """One connection through a link."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.client, self.server = _End(self, Way.UP), _End(self, Way.DOWN)
        self.pipes = {Way.UP: _Pipe(self, self.server), Way.DOWN: _Pipe(self, self.client)}

    def begin(self) -> None:
        if self.link.begin(self):
            self.link.serve(self)
        else:
            self.abort()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_DIAL_S):
                await loop.create_unix_connection(lambda: self.server, str(self.link.upstream))
        except (OSError, TimeoutError):
            self.abort()
            return
        await asyncio.gather(*(pipe.run() for pipe in self.pipes.values()))
        self.abort()

    def abort(self) -> None:
        for end in (self.client, self.server):
            if end.transport is not None:
                end.transport.abort()
        for pipe in self.pipes.values():
            pipe.finish()
        self.link.ended(self)


class _Pipe:
    """Bytes of one direction, in order, with what holds them up."""

    def __init__(self, line: _Line, target: _End) -> None:
        self.swallowing = False
        self.cut_after: int | None = None
        self._line = line
        self._target = target
        self._waiting: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()
        self._finished = False

    @property
    def waits(self) -> bool:
        return bool(self._waiting) and not self._free.is_set()

    def put(self, data: bytes) -> None:
        """b"": there is no more."""
        self._waiting.append(data)
        self._arrived.set()

    def hold(self) -> None:
        self._free.clear()

    def go_on(self) -> None:
        self._free.set()

    def finish(self) -> None:
        """Nothing more is delivered."""
        self._finished = True
        self._arrived.set()
        self._free.set()

    async def run(self) -> None:
        """Delivers until there is no more; then the other side is told."""
        while not self._finished:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting and not self._finished:
                if self._line.link.delay_s:
                    await asyncio.sleep(self._line.link.delay_s)
                await self._free.wait()
                data = self._waiting.popleft() if self._waiting else b""
                if not data:
                    self._end()
                    return
                self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        if self.swallowing:
            return
        if self.cut_after is not None:
            if len(data) >= self.cut_after:
                self._write(data[: self.cut_after])
                asyncio.get_running_loop().call_soon(self._line.abort)
                return
            self.cut_after -= len(data)
        self._write(data)

    def _write(self, data: bytes) -> None:
        if self._target.transport is not None and data:
            self._target.transport.write(data)

    def _end(self) -> None:
        if self._target.transport is not None and not self.swallowing:
            self._target.transport.close()
