"""The HTTP API, asked from within the process: the console knows no other way to read or to act."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from gateway.http.asgi_extension import AT_ONCE, ROOM, WHOLE
from gateway.http.request import Application, Message, Receive, Scope

Query = Mapping[str, str | int]

Read = Callable[[bytes], Any]
"""The body of an answer that is done, as values."""
_read: Final[Read] = msgspec.json.decode
_MEMBERS = dict[str, msgspec.Raw]


def _digits(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


read_exactly: Final[Read] = msgspec.json.Decoder(float_hook=_digits).decode
"""As values, but numbers that are no integers of 64 bits stay JSON: a float would have other digits."""


def read_rows(body: bytes) -> dict[str, Any]:
    """A page of events or of rows. The data of each stay JSON: of 4 MB that are made values of, the event
    loop would stand still for a tenth of a second."""
    page = msgspec.json.decode(body, type=_MEMBERS)
    return {
        name: [_row(each) for each in msgspec.json.decode(raw, type=list[_MEMBERS])]
        if name in ("events", "items")
        else _read(raw)
        for name, raw in page.items()
    }


def read_state(body: bytes | msgspec.Raw) -> dict[str, Any]:
    """A state, whose data stay JSON."""
    return _row(msgspec.json.decode(body, type=_MEMBERS))


def read_event(body: bytes) -> dict[str, Any]:
    """An event by itself, the same way."""
    page = msgspec.json.decode(body, type=_MEMBERS)
    return {name: read_state(raw) if name == "event" else _read(raw) for name, raw in page.items()}


def _row(members: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    return {name: _member(name, raw) for name, raw in members.items()}


def _member(name: str, raw: msgspec.Raw) -> Any:
    match name:
        case "data" | "extra":
            return raw
        case "metadata":
            return read_state(raw)
    return _read(raw)


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: Any
    """The JSON; None where there is none."""

    @property
    def done(self) -> bool:
        return self.status < 400

    @property
    def error(self) -> str:
        return str((self.body or {}).get("error", f"HTTP {self.status}"))


class Api:
    """As one key. `path` has its segments already encoded (`path_of`)."""

    def __init__(self, application: Application, key: str) -> None:
        self._application = application
        self._key = key

    async def get(
        self, path: str, query: Query | None = None, gone: asyncio.Event | None = None, read: Read = _read
    ) -> Answer:
        """`gone`: the answer is no longer waited for, where the API would wait."""
        return await self._ask("GET", path, query, None, {}, gone, read)

    async def ask(
        self, method: str, path: str, query: Query | None = None, body: object = None, **headers: str
    ) -> Answer:
        return await self._ask(method, path, query, body, headers, None)

    async def _ask(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: object,
        headers: Mapping[str, str],
        gone: asyncio.Event | None,
        read: Read = _read,
    ) -> Answer:
        got = _Got()
        content = b"" if body is None else msgspec.json.encode(body)
        more = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        if body is not None:
            more += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        scope = self._scope(method, path, urlencode(query or {}, quote_via=quote).encode(), more)
        await self._application(scope, _whole(content, gone or asyncio.Event()), got.send)
        body = (read if got.status < 400 else _read)(got.body) if got.body else None
        return Answer(got.status, got.headers, body)

    def _scope(self, method: str, path: str, query: bytes, headers: list[tuple[bytes, bytes]]) -> Scope:
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query,
            "root_path": "",
            "headers": [(b"authorization", b"Bearer " + self._key.encode()), *headers],
            "client": None,
            "server": None,
        }


def path_of(*segments: str) -> str:
    return "".join("/" + quote(segment, safe="@:") for segment in segments)


class _Got:
    def __init__(self) -> None:
        self.status = 500
        self.headers: dict[str, str] = {}
        self.body = b""

    async def send(self, message: Message) -> None:
        match message["type"]:
            case "http.response.start":
                self.status = message["status"]
                self.headers = {name.decode(): value.decode() for name, value in message.get("headers", ())}
            case "http.response.body":
                self.body += message.get("body", b"")
            case kind if kind == WHOLE:
                lines = [line.partition(b": ") for line in message["head"].split(b"\r\n")[:-1]]
                self.headers = {name.decode(): value.decode() for name, _, value in lines}
                self.status, self.body = message["status"], message["body"]
            case kind if kind not in (AT_ONCE, ROOM):
                raise NotImplementedError(kind)


def _whole(content: bytes, gone: asyncio.Event) -> Receive:
    """The body, and then that the client has gone, once it has."""
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if sent:
            await gone.wait()
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": content, "more_body": False}

    return receive
