"""HTTP framing over a real socket: what uvicorn and llhttp let through, each pinned to one answer.

The server runs in a thread, on a loop of its own; the clients are plain blocking sockets with a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import select
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn

from gateway.http.server.connection import LINGER_S
from gateway.http.server.protocol import (
    DRAINED_BYTES_MAX,
    LINE_MAX,
    PIECES_MAX,
    SLICE_BYTES,
    StrictProtocol,
    make_protocol,
)

DEADLINE_S = 40.0
HEADER_TIMEOUT_S = 1.0
TRIES = 5
"""Of what happens at once: a machine that stands still delays one or the other."""
HEADER_BYTES_MAX = 16 * 1024
HEADERS_MAX = 20
HOST = b"Host: sluice.test\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


class App:
    """Answers with what it was asked. `/early` answers before the body, `/slow` when released, `/late`
    reads the body when released, `/talk` begins to answer before the body, `/stream` says no length."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.longest_line = 0
        self.loop: asyncio.AbstractEventLoop
        self.faults: list[str] = []
        self.server: uvicorn.Server
        self.reset()

    def reset(self) -> None:
        self.seen = []
        self.gate = asyncio.Event()
        self.started = threading.Event()
        self.gone = threading.Event()

    def release(self) -> None:
        self.loop.call_soon_threadsafe(self.gate.set)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        connections: set[Any] = self.server.server_state.connections
        self.longest_line = max(self.longest_line, *(len(each.pipeline) for each in connections))
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(lambda _, context: self.faults.append(repr(context)))
        path = scope["path"]
        if path == "/late":
            self.started.set()
            await self.gate.wait()
        if path == "/talk":
            await send(response_start(1000))
            await send({"type": "http.response.body", "body": b"hello", "more_body": True})
        body = b"" if path == "/early" else await read_body(receive)
        if body is None:
            self.gone.set()
            return
        if path == "/slow":
            self.started.set()
            await self.gate.wait()
        seen = {
            "method": scope["method"],
            "raw_path": scope["raw_path"].decode(),
            "query": scope["query_string"].decode(),
            "version": scope["http_version"],
            "headers": {name.decode(): value.decode("latin-1") for name, value in scope["headers"]},
            "body": body.decode("latin-1"),
        }
        self.seen.append(seen)
        payload = json.dumps(seen).encode()
        if path == "/stream":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for part in (payload[:10], b"", payload[10:]):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body"})
            return
        await send(response_start(len(payload)))
        await send({"type": "http.response.body", "body": payload})


def response_start(length: int) -> dict[str, Any]:
    return {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % length)]}


async def read_body(receive: Any) -> bytes | None:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        if not message["more_body"]:
            return body


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self.reader = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, data: bytes) -> Answer:
        self.send(data)
        return self.answer()

    def answer(self, *, to_head: bool = False) -> Answer:
        """The next answer. Fails where the connection ends, or after the deadline."""
        line = self.reader.readline()
        assert line.startswith(b"HTTP/1.1 "), line
        headers: dict[str, str] = {}
        while (raw := self.reader.readline()) != b"\r\n":
            name, _, value = raw.decode().rstrip("\r\n").partition(": ")
            assert name not in headers
            headers[name] = value
        body = b"" if to_head else self.reader.read(int(headers["content-length"]))
        return Answer(int(line.split()[1]), headers, body)

    def ended(self) -> bool:
        """Waits for the server to end the connection, without another answer. Fails after the deadline."""
        try:
            return self.reader.read() == b""
        except ConnectionResetError:
            return True

    def ends_within(self, seconds: float) -> bool:
        return bool(select.select([self.socket], [], [], seconds)[0])

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


@dataclass
class Server:
    app: App
    port: int
    clients: list[Client]

    def connect(self) -> Client:
        client = Client(self.port)
        self.clients.append(client)
        return client

    def ask(self, data: bytes) -> Answer:
        return self.connect().ask(data)


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    app = App()
    config = uvicorn.Config(
        app,
        http=make_protocol(HEADERS_MAX, HEADER_BYTES_MAX, HEADER_TIMEOUT_S),
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        server_header=False,
        headers=[("Sluice-Api", "1")],
        timeout_keep_alive=int(2 * HEADER_TIMEOUT_S),
    )
    app.server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=app.server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield Server(app, listener.getsockname()[1], [])
        app.server.should_exit = True
        thread.join(DEADLINE_S)
    assert not thread.is_alive()


@pytest.fixture
def server(running: Server, caplog: pytest.LogCaptureFixture) -> Iterator[Server]:
    running.app.reset()
    yield running
    while running.clients:
        running.clients.pop().close()
    assert [record for record in caplog.get_records("call") if record.levelno >= logging.WARNING] == []
    assert running.app.faults == []


def get(path: bytes = b"/", *headers: bytes) -> bytes:
    return (
        b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"".join(header + b"\r\n" for header in headers) + b"\r\n"
    )


def post(path: bytes, body: bytes, *headers: bytes) -> bytes:
    length = b"Content-Length: %d" % len(body)
    return get(path, length, *headers).replace(b"GET", b"POST", 1) + body


def post_chunked(path: bytes, *chunks: bytes) -> bytes:
    return b"POST " + path + b" HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n" + b"".join(chunks)


def check_refused(answer: Answer, status: int = 400) -> str:
    assert answer.status == status
    assert answer.headers["sluice-api"] == "1"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["connection"] == "close"
    assert answer.json.keys() == {"ok", "code", "error"}
    assert answer.json["ok"] is False
    assert answer.json["code"] == "bad_request"
    assert answer.json["error"].endswith(".")
    return str(answer.json["error"])


# ---- what is refused ----

REFUSED = {
    "length and coding": b"POST / HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 5\r\n"
    + CHUNKED
    + b"\r\n0\r\n\r\n",
    "coding and length": b"POST / HTTP/1.1\r\n" + HOST + CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
    "two equal lengths": post(b"/", b"hello", b"Content-Length: 5"),
    "two lengths": post(b"/", b"hello", b"Content-Length: 6"),
    "a list of lengths": get(b"/", b"Content-Length: 5, 5") + b"hello",
    "a signed length": get(b"/", b"Content-Length: +5") + b"hello",
    "a negative length": get(b"/", b"Content-Length: -5") + b"hello",
    "an empty length": get(b"/", b"Content-Length:") + b"hello",
    "a length beyond 64 bits": get(b"/", b"Content-Length: 99999999999999999999999"),
    "a length in hex": get(b"/", b"Content-Length: 0x5") + b"hello",
    "xchunked": get(b"/", b"Transfer-Encoding: xchunked") + b"0\r\n\r\n",
    "gzip before chunked": get(b"/", b"Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
    "chunked before gzip": get(b"/", b"Transfer-Encoding: chunked, gzip") + b"0\r\n\r\n",
    "chunked twice": get(b"/", b"Transfer-Encoding: chunked, chunked") + b"0\r\n\r\n",
    "two codings": get(b"/", b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity") + b"0\r\n\r\n",
    "gzip, then chunked": get(b"/", b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "identity": get(b"/", b"Transfer-Encoding: identity"),
    "an empty coding": get(b"/", b"Transfer-Encoding:") + b"0\r\n\r\n",
    "a coding behind a vertical tab": get(b"/", b"Transfer-Encoding: \x0bchunked") + b"0\r\n\r\n",
    "a quoted coding": get(b"/", b'Transfer-Encoding: "chunked"') + b"0\r\n\r\n",
    "a coding in HTTP/1.0": b"POST / HTTP/1.0\r\n" + HOST + CHUNKED + b"\r\n0\r\n\r\n",
    "a folded line": get(b"/", b"A: b", b" c"),
    "a folded line of an empty value": get(b"/", b"A:", b"\tc"),
    "a folded first line": b"GET / HTTP/1.1\r\n A: b\r\n" + HOST + b"\r\n",
    "line feeds alone": b"GET / HTTP/1.1\nHost: x\n\n",
    "one line feed alone": b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
    "a bare CR between headers": b"GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n",
    "a bare CR in a value": get(b"/", b"A: b\rc"),
    "a bare LF in a value": get(b"/", b"A: b\nc"),
    "NUL in a value": get(b"/", b"A: b\x00c"),
    "a control character in a value": get(b"/", b"A: b\x01c"),
    "DEL in a value": get(b"/", b"A: b\x7fc"),
    "a blank before the colon": get(b"/", b"A : b"),
    "a tab before the colon": get(b"/", b"A\t: b"),
    "no name": get(b"/", b": b"),
    "no colon": get(b"/", b"Abc"),
    "a name with brackets": get(b"/", b"(a): b"),
    "a name beyond ASCII": get(b"/", b"\xc3\xa9: b"),
    "RTSP": b"GET / RTSP/1.0\r\n" + HOST + b"\r\n",
    "RTSP that lasts": b"GET / RTSP/1.1\r\n" + HOST + b"\r\n",
    "a POST by RTSP": b"POST / RTSP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\nhello",
    "ICE": b"SOURCE / ICE/1.0\r\n" + HOST + b"\r\n",
    "a Host with a blank": b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
    "a Host with a path": b"GET / HTTP/1.1\r\nHost: a/../\r\n\r\n",
    "a Host with a user": b"GET / HTTP/1.1\r\nHost: b@a\r\n\r\n",
    "two Hosts in one": b"GET / HTTP/1.1\r\nHost: a, b@\r\n\r\n",
    "a Host with half a bracket": b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
    "a Host with a port in letters": b"GET / HTTP/1.1\r\nHost: a:http\r\n\r\n",
    "a Host with two ports": b"GET / HTTP/1.1\r\nHost: a:1:2\r\n\r\n",
    "a Host beyond ASCII": b"GET / HTTP/1.1\r\nHost: \xc3\xa9\r\n\r\n",
    "a Host with half an escape": b"GET / HTTP/1.1\r\nHost: %4\r\n\r\n",
    "a bad Host in HTTP/1.0": b"GET / HTTP/1.0\r\nHost: a b\r\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": get(b"/", b"Host: sluice.test"),
    "two Hosts in HTTP/1.0": b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
    "no target": b"GET HTTP/1.1\r\n" + HOST + b"\r\n",
    "a blank in the target": get(b"/a b"),
    "NUL in the target": get(b"/\x00"),
    "a control character in the target": get(b"/\x01"),
    "a target beyond ASCII": get(b"/\xc3\xa9"),
    "a fragment": get(b"/a#b"),
    "a fragment of an absolute target": get(b"http://h/a#b"),
    "a relative target": get(b"a/b"),
    "an asterisk of GET": get(b"*"),
    "another scheme": get(b"ftp://h/a"),
    "a user in the target": get(b"http://u:p@h/a"),
    "no host in the target": get(b"http:///a"),
    "CONNECT": b"CONNECT h:443 HTTP/1.1\r\n" + HOST + b"\r\n",
    "CONNECT of a path": b"CONNECT /a HTTP/1.1\r\n" + HOST + b"\r\n",
    "a blank after the version": b"GET / HTTP/1.1 \r\n" + HOST + b"\r\n",
    "tabs in the request line": b"GET\t/\tHTTP/1.1\r\n" + HOST + b"\r\n",
    "an unknown method": b"FOO / HTTP/1.1\r\n" + HOST + b"\r\n",
    "a method in lower case": b"get / HTTP/1.1\r\n" + HOST + b"\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\n" + HOST + b"\r\n",
    "HTTP/0.9 with headers": b"GET / HTTP/0.9\r\n" + HOST + b"\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\n" + HOST + b"\r\n",
    "HTTP/2.0 kept alive": b"GET / HTTP/2.0\r\n" + HOST + b"Connection: keep-alive\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a protocol in lower case": b"GET / http/1.1\r\n" + HOST + b"\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "garbage": b"\xff\xfe\x00\x01garbage\r\n\r\n",
    "JSON": b'{"data": {}}\r\n\r\n',
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_framing_that_cannot_be_trusted_is_refused_and_never_reaches_the_app(
    server: Server, data: bytes
) -> None:
    client = server.connect()
    check_refused(client.ask(data))
    assert client.ended()
    assert server.app.seen == []


BAD_CHUNKS = {
    "a size in decimal point": b"5.0\r\nhello\r\n0\r\n\r\n",
    "a size with a prefix": b"0x5\r\nhello\r\n0\r\n\r\n",
    "a negative size": b"-5\r\nhello\r\n0\r\n\r\n",
    "a size and a blank": b"5 \r\nhello\r\n0\r\n\r\n",
    "a size beyond 64 bits": b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "a size ended by LF": b"5\nhello\r\n0\r\n\r\n",
    "an extension ended by LF": b"5;a\nhello\r\n0\r\n\r\n",
    "no end of the data": b"5\r\nhelloXX0\r\n\r\n",
    "a length in the trailers": b"0\r\nContent-Length: 5\r\n\r\n",
    "a coding in the trailers": b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a folded trailer": b"0\r\nA: b\r\n c\r\n\r\n",
}


@pytest.mark.parametrize("chunks", BAD_CHUNKS.values(), ids=BAD_CHUNKS.keys())
def test_a_body_that_cannot_be_trusted_is_refused_and_the_app_sees_a_disconnect(
    server: Server, chunks: bytes
) -> None:
    client = server.connect()
    check_refused(client.ask(post_chunked(b"/", chunks)))
    assert client.ended()
    assert server.app.gone.wait(LINGER_S / 2)
    assert server.app.seen == []


def test_a_refusal_says_what_is_wrong(server: Server) -> None:
    assert "exactly one Host header; this one has 0" in check_refused(server.ask(REFUSED["no Host"]))
    assert "HTTP/2.0 is not supported; send HTTP/1.1." in check_refused(server.ask(REFUSED["HTTP/2.0"]))
    assert "`Transfer-Encoding: chunked`" in check_refused(server.ask(REFUSED["gzip before chunked"]))
    assert "Duplicate Content-Length" in check_refused(server.ask(REFUSED["two lengths"]))
    assert "invalid url" in check_refused(server.ask(REFUSED["no host in the target"]))


def test_what_was_trusted_of_one_request_is_not_believed_of_the_next(server: Server) -> None:
    for bad in (REFUSED["a Host with a blank"], REFUSED["no Host"], REFUSED["RTSP that lasts"]):
        client = server.connect()
        assert client.ask(get(b"/1")).status == 200
        assert client.ask(get(b"/2")).status == 200
        check_refused(client.ask(bad))
        assert client.ended()


def test_a_refusal_of_head_has_no_body(server: Server) -> None:
    client = server.connect()
    client.send(b"HEAD / HTTP/1.1\r\n\r\n")
    assert client.answer(to_head=True).status == 400
    assert client.ended()


# ---- what is accepted ----

ACCEPTED: dict[str, tuple[bytes, dict[str, Any]]] = {
    "a query": (get(b"/a/b?c=d?e"), {"raw_path": "/a/b", "query": "c=d?e"}),
    "an encoded path": (get(b"/a%2Fb%ff"), {"raw_path": "/a%2Fb%ff"}),
    "two slashes": (get(b"//a//b"), {"raw_path": "//a//b"}),
    "an absolute target": (get(b"http://other/a?b=c"), {"raw_path": "/a", "query": "b=c"}),
    "an absolute target in capitals": (get(b"HTTPS://other:443"), {"raw_path": "/", "query": ""}),
    "an absolute target with a query alone": (get(b"http://other?b=c"), {"raw_path": "/", "query": "b=c"}),
    "OPTIONS of the server": (
        b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
        {"method": "OPTIONS", "raw_path": "*"},
    ),
    "HTTP/1.0": (b"GET /a HTTP/1.0\r\n\r\n", {"version": "1.0", "raw_path": "/a"}),
    "a length in blanks": (get(b"/", b"Content-Length: \t 5 \t ") + b"hello", {"body": "hello"}),
    "chunks": (post_chunked(b"/", b"5\r\nhello\r\n", b"1\r\n!\r\n", b"0\r\n\r\n"), {"body": "hello!"}),
    "chunks in capitals": (
        get(b"/", b"TRANSFER-ENCODING:  CHUNKED ") + b"A\r\n0123456789\r\n0\r\n\r\n",
        {"body": "0123456789"},
    ),
    "chunk extensions": (post_chunked(b"/", b'5;a=b;c="d"\r\nhello\r\n0;e\r\n\r\n'), {"body": "hello"}),
    "a Host with a port": (b"GET / HTTP/1.1\r\nHost: a.b-c_d:8017\r\n\r\n", {"raw_path": "/"}),
    "a Host in IPv6": (b"GET / HTTP/1.1\r\nHost: [2001:db8::1]:8017\r\n\r\n", {"raw_path": "/"}),
    "an empty Host": (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", {"raw_path": "/"}),
    "blank lines before": (b"\r\n\r\n" + get(b"/a"), {"raw_path": "/a"}),
    "a body of GET": (get(b"/", b"Content-Length: 5") + b"hello", {"method": "GET", "body": "hello"}),
    "Connection: close": (get(b"/", b"Connection: close"), {"raw_path": "/"}),
}


@pytest.mark.parametrize(("data", "expected"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_unusual_but_sound_requests_are_answered(
    server: Server, data: bytes, expected: dict[str, Any]
) -> None:
    answer = server.ask(data)
    assert answer.status == 200
    assert answer.json | expected == answer.json


def test_blanks_around_a_header_value_are_no_part_of_it(server: Server) -> None:
    answer = server.ask(get(b"/", b"X-A:\t 1 2\t ", b"X-B:3", b"X-C: \t"))
    found = answer.json["headers"]
    assert [found[name] for name in ("x-a", "x-b", "x-c")] == ["1 2", "3", ""]


def test_header_values_beyond_ascii_reach_the_app_as_bytes(server: Server) -> None:
    answer = server.ask(get(b"/", b"A: \xff\xe9\t\xc3\xa9"))
    assert answer.json["headers"]["a"] == "\xff\xe9\t\xc3\xa9"


def test_trailers_never_join_the_headers(server: Server) -> None:
    trailers = b"5\r\nhello\r\n0\r\nAuthorization: evil\r\nX-Other: y\r\nHost: other\r\n\r\n"
    client = server.connect()
    for _ in range(2):
        headers = client.ask(post_chunked(b"/", trailers)).json["headers"]
        assert headers == {"host": "sluice.test", "transfer-encoding": "chunked"}
    port = client.socket.getsockname()[1]
    (kept,) = (each for each in server.app.server.server_state.connections if each.client[1] == port)
    assert kept.headers == []


def test_expect_100_continue_is_answered_before_the_body_is_sent(server: Server) -> None:
    client = server.connect()
    client.send(get(b"/", b"Expect: 100-Continue", b"Content-Length: 5"))
    assert client.reader.readline() == b"HTTP/1.1 100 Continue\r\n"
    assert client.reader.readline() == b"\r\n"
    assert client.ask(b"hello").json["body"] == "hello"


def test_a_request_may_come_byte_by_byte(server: Server) -> None:
    client = server.connect()
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in post(b"/a?b=c", b"hello", b"X: yz") + get(b"/d"):
        client.send(bytes([byte]))
    first = client.answer().json
    assert (first["raw_path"], first["query"], first["body"], first["headers"]["x"]) == (
        "/a",
        "b=c",
        "hello",
        "yz",
    )
    assert client.answer().json["raw_path"] == "/d"


# ---- limits ----


def test_the_number_of_headers_is_limited(server: Server) -> None:
    most = get(b"/", *[b"A%d: b" % n for n in range(HEADERS_MAX - 1)])
    assert server.ask(most).status == 200
    client = server.connect()
    error = check_refused(client.ask(get(b"/", *[b"A%d: b" % n for n in range(HEADERS_MAX)])), 431)
    assert f"more than {HEADERS_MAX} headers" in error
    assert client.ended()
    check_refused(server.ask(get(b"/", *[b"A: b"] * 2500)), 431)


@pytest.mark.parametrize("body", [b"", b"x" * 50_000], ids=["no body", "a body in the same packets"])
def test_the_bytes_of_a_header_are_limited_to_the_byte(server: Server, body: bytes) -> None:
    room = HEADER_BYTES_MAX - len(post(b"/", body, b"A: ")) + len(body)
    answer = server.ask(post(b"/", body, b"A: " + b"a" * room))
    assert (answer.status, len(answer.json["headers"]["a"]), answer.json["body"]) == (
        200,
        room,
        body.decode(),
    )
    assert server.ask(post(b"/" + b"p" * room, body, b"A: ")).status == 200
    check_refused(server.ask(post(b"/", body, b"A: " + b"a" * (room + 1))), 431)
    check_refused(server.ask(post(b"/" + b"p" * (room + 1), body, b"A: ")), 431)


@pytest.mark.parametrize(
    "start", [b"GET /", get(b"/")[:-2] + b"A: ", get(b"/")[:-2] + b"A", get(b"/") + get(b"/")[:-2] + b"A: "]
)
def test_an_endless_header_is_refused_long_before_its_end(server: Server, start: bytes) -> None:
    client = server.connect()
    client.send(start + b"a" * 100)
    if start.startswith(get(b"/")):
        assert client.answer().status == 200
    client.send(b"a" * 2_000_000)
    check_refused(client.answer(), 431)
    assert client.ended()


def test_an_endless_line_of_small_headers_is_refused(server: Server) -> None:
    client = server.connect()
    client.send(get(b"/")[:-2] + b"A: b\r\n" * 300_000)
    check_refused(client.answer(), 431)
    assert client.ended()


@pytest.mark.parametrize("endless", [b"0\r\nA: ", b"5;", b"5\r\nhello\r\n0\r\nA", b"0\r\n" + b"A: b\r\n"])
def test_endless_trailers_and_chunk_extensions_are_refused(server: Server, endless: bytes) -> None:
    client = server.connect()
    client.send(post_chunked(b"/", endless))
    client.send((b"A: b\r\n" if endless.endswith(b"\n") else b"aaaaaa") * 300_000)
    check_refused(client.answer())
    assert client.ended()
    assert server.app.gone.wait(LINGER_S / 2)


def test_a_body_of_tiny_chunks_is_refused(server: Server) -> None:
    """What is read at once has 40,000 of them, each a call of Python."""
    client = server.connect()
    few = [b"1\r\na\r\n"] * PIECES_MAX
    assert client.ask(post_chunked(b"/", *few, b"0\r\n\r\n")).json["body"] == "a" * PIECES_MAX
    of_some_bytes = [b"10\r\n%b\r\n" % (b"b" * 16)] * 3 * PIECES_MAX
    assert client.ask(post_chunked(b"/", *of_some_bytes, b"0\r\n\r\n")).json["body"] == "b" * 48 * PIECES_MAX
    client.send(post_chunked(b"/", *few, *few))
    assert "chunks of the body" in check_refused(client.answer())
    assert client.ended()


def test_a_large_body_is_no_large_header(server: Server) -> None:
    client = server.connect()
    for body in (b"x" * 1_000_000, b"y" * 300_000, b"z"):
        assert client.ask(post(b"/", body)).json["body"] == body.decode()
        chunks = [b"%x\r\n%b\r\n" % (len(body), body), b"0\r\n\r\n"]
        assert client.ask(post_chunked(b"/", *chunks)).json["body"] == body.decode()


def test_large_bodies_may_be_pipelined(server: Server) -> None:
    client = server.connect()
    bodies = [b"x" * size for size in (200_000, 70_000, 10, 300_000, 100_000)]
    sender = threading.Thread(target=client.send, args=(b"".join(post(b"/", body) for body in bodies),))
    sender.start()
    assert [len(client.answer().json["body"]) for _ in bodies] == [len(body) for body in bodies]
    sender.join(DEADLINE_S)


def test_a_body_that_the_app_has_not_begun_to_read_may_be_followed_by_a_smaller_one(server: Server) -> None:
    client = server.connect()
    first, second = post(b"/late", b"x" * 100_000), post(b"/", b"y" * 30_000)
    client.send(first[:60_000])
    assert server.app.started.wait(DEADLINE_S)
    client.send(first[60_000:] + second[:20_000])
    server.app.release()
    client.send(second[20_000:])
    assert [len(client.answer().json["body"]) for _ in range(2)] == [100_000, 30_000]


# ---- deadlines ----


@pytest.mark.parametrize(
    "start",
    [b"", b"G", b"\r\n", get(b"/")[:-2], get(b"/")[:-1], b"GET /0.9\r\n", post(b"/early", b"") + b"G"],
)
def test_a_header_that_does_not_come_in_time_ends_the_connection(server: Server, start: bytes) -> None:
    client = server.connect()
    client.send(start)
    if b"early" in start:
        assert client.answer().status == 200
    assert client.ended()


def test_the_deadline_runs_from_the_first_byte_of_the_header(server: Server) -> None:
    client = server.connect()
    client.ends_within(HEADER_TIMEOUT_S * 0.3)
    begun = time.monotonic()
    client.send(get(b"/")[:-2])
    assert client.ended()
    assert time.monotonic() - begun > HEADER_TIMEOUT_S * 0.9


def test_a_refused_connection_is_read_on_for_a_while_only(server: Server) -> None:
    client = server.connect()
    assert client.ask(get(b"/")).status == 200
    check_refused(client.ask(REFUSED["no Host"]))
    assert client.ended()
    client.send(get(b"/never"))
    with pytest.raises(ConnectionError):
        for _ in range(int(20 * DEADLINE_S)):
            select.select([], [], [], 0.05)
            client.send(b"x")
    assert len(server.app.seen) == 1


@pytest.mark.parametrize("drip", [b"a", b"\r\n"], ids=["a name", "blank lines"])
def test_dripping_does_not_put_the_deadline_off(server: Server, drip: bytes) -> None:
    client = server.connect()
    client.send(get(b"/")[:-2] if drip == b"a" else b"")
    with contextlib.suppress(ConnectionError):
        for _ in range(100):
            if client.ends_within(HEADER_TIMEOUT_S / 10):
                break
            client.send(drip)
        else:
            pytest.fail("the connection is still open")
    assert client.ended()


def test_a_connection_at_rest_ends_after_the_time_that_uvicorn_gives_it(server: Server) -> None:
    client = server.connect()
    begun = time.monotonic()
    assert client.ask(get(b"/")).status == 200
    assert client.ended()
    assert time.monotonic() - begun > HEADER_TIMEOUT_S * 1.5


def test_the_rest_of_an_answered_request_has_a_deadline_too(server: Server) -> None:
    client = server.connect()
    assert client.ask(get(b"/early", b"Content-Length: 5")).status == 200
    client.send(b"h")
    assert client.ended()


def test_a_request_under_way_has_no_deadline_of_ours(server: Server) -> None:
    assert any(_stalled_ends_soon(server) for _ in range(TRIES))


def _stalled_ends_soon(server: Server) -> bool:
    """Once the answers before it are sent, since its own deadline is over."""
    server.app.reset()
    slow, stalled, silent = server.connect(), server.connect(), server.connect()
    slow.send(get(b"/slow"))
    stalled.send(get(b"/slow") + b"GET /par")
    assert server.app.started.wait(DEADLINE_S)
    assert silent.ended()
    assert not stalled.ends_within(HEADER_TIMEOUT_S)
    server.app.release()
    assert slow.answer().status == 200
    assert slow.ask(get(b"/")).status == 200
    assert stalled.answer().status == 200
    soon = stalled.ends_within(HEADER_TIMEOUT_S / 2)
    assert stalled.ended()
    return soon


# ---- the order of answers ----


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    client = server.connect()
    paths = [b"/%d" % n for n in range(50)]
    client.send(b"".join(post(path, b"x" * n) if n % 2 else get(path) for n, path in enumerate(paths)))
    assert [client.answer().json["raw_path"].encode() for _ in paths] == paths
    assert client.ask(get(b"/after")).json["raw_path"] == "/after"


def test_a_refusal_waits_for_the_answers_before_it(server: Server) -> None:
    client = server.connect()
    client.send(get(b"/slow") + get(b"/second") + b"GARBAGE\r\n\r\n" + get(b"/never"))
    assert server.app.started.wait(DEADLINE_S)
    assert not client.ends_within(0.05)
    server.app.release()
    assert [client.answer().json["raw_path"] for _ in range(2)] == ["/slow", "/second"]
    check_refused(client.answer())
    assert client.ended()
    assert [seen["raw_path"] for seen in server.app.seen] == ["/slow", "/second"]


def test_a_refusal_waits_for_the_one_answer_before_it(server: Server) -> None:
    client = server.connect()
    client.send(get(b"/slow"))
    assert server.app.started.wait(DEADLINE_S)
    client.send(b"GET / HTTP/1.1\r\n\r\n")
    client.send(get(b"/never"))
    server.app.release()
    assert client.answer().json["raw_path"] == "/slow"
    check_refused(client.answer())
    assert client.ended()


def test_a_refused_body_takes_its_request_out_of_the_line(server: Server) -> None:
    client = server.connect()
    client.send(get(b"/slow") + post_chunked(b"/second", b"5\r\nhello\r\nX"))
    assert server.app.started.wait(DEADLINE_S)
    server.app.release()
    assert client.answer().json["raw_path"] == "/slow"
    check_refused(client.answer())
    assert client.ended()
    assert [seen["raw_path"] for seen in server.app.seen] == ["/slow"]


def test_a_client_may_send_the_rest_of_a_refused_body_before_it_reads(server: Server) -> None:
    client = server.connect()
    client.send(post_chunked(b"/late", b"%x\r\n" % 100_000, b"x" * 100_000, b"X"))
    client.send(b"x" * 5_000_000)
    check_refused(client.answer())
    server.app.release()


def test_a_refused_body_of_an_answered_request_gets_no_second_answer(server: Server) -> None:
    client = server.connect()
    assert client.ask(post_chunked(b"/early", b"5\r\nhe")).status == 200
    client.send(b"llo\r\nX")
    assert client.ended()


def test_a_refused_body_of_a_half_answered_request_ends_the_connection(server: Server) -> None:
    client = server.connect()
    client.send(post_chunked(b"/talk", b"5\r\nhe"))
    while client.reader.readline() != b"\r\n":
        pass
    assert client.reader.read(5) == b"hello"
    client.send(b"llo\r\nX")
    assert client.ended()
    assert server.app.gone.wait(LINGER_S / 2)


def test_the_line_of_waiting_requests_stays_short_while_the_client_keeps_sending(server: Server) -> None:
    client = server.connect()
    one = post(b"/" + b"p" * 50, b"x" * 10)
    count = 6000
    sender = threading.Thread(target=client.send, args=(one * count,))
    server.app.longest_line = 0
    sender.start()
    for _ in range(count):
        assert client.answer().status == 200
    sender.join(DEADLINE_S)
    assert server.app.longest_line <= LINE_MAX + SLICE_BYTES // len(one) + 1


# ---- upgrades and early answers ----


@pytest.mark.parametrize(
    "connection", [b"Upgrade", b"upgrade, HTTP2-Settings", b"keep-alive, Upgrade", b"upgrade, x"]
)
def test_an_offer_to_upgrade_is_passed_over_with_the_body_in_its_place(
    server: Server, connection: bytes
) -> None:
    client = server.connect()
    offer = (b"Connection: " + connection, b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk")
    client.send(get(b"/1", *offer) + post(b"/2", b"GET /smuggled HTTP/1.1\r\n", *offer) + get(b"/3"))
    answers = [client.answer().json for _ in range(3)]
    assert [answer["raw_path"] for answer in answers] == ["/1", "/2", "/3"]
    assert answers[1]["body"] == "GET /smuggled HTTP/1.1\r\n"
    assert "upgrade" not in answers[0]["headers"]
    assert "upgrade" not in answers[0]["headers"]["connection"].lower()


def test_the_body_behind_an_offer_to_upgrade_may_come_later(server: Server) -> None:
    client = server.connect()
    request = post(b"/", get(b"/smuggled"), b"Upgrade: websocket", b"Connection: Upgrade")
    client.send(request[:-40])
    assert not client.ends_within(0.05)
    assert client.ask(request[-40:]).json["body"].encode() == get(b"/smuggled")
    assert client.ask(get(b"/after")).json["raw_path"] == "/after"
    assert [seen["raw_path"] for seen in server.app.seen] == ["/", "/after"]


def test_thousands_of_offers_to_upgrade_are_passed_over(server: Server) -> None:
    client = server.connect()
    sender = threading.Thread(
        target=client.send, args=(get(b"/", b"Upgrade: h2c", b"Connection: Upgrade") * 2000,)
    )
    sender.start()
    assert all(client.answer().status == 200 for _ in range(2000))
    sender.join(DEADLINE_S)


@pytest.mark.parametrize(
    "data",
    [
        get(b"/", b"Upgrade: h2c", b"Connection: Upgrade", b"Host: two"),
        get(b"/", b"Upgrade: h2c", b"Connection: Upgrade") + b"GARBAGE\r\n\r\n",
        get(b"/", b"Upgrade: h2c", b"Connection: Upgrade", b"Transfer-Encoding: chunked") + b"X",
    ],
)
def test_behind_an_offer_to_upgrade_the_same_is_refused(server: Server, data: bytes) -> None:
    client = server.connect()
    client.send(data)
    answer = client.answer()
    if answer.status == 200:
        answer = client.answer()
    check_refused(answer)
    assert client.ended()


def test_after_an_early_answer_the_body_is_read_on_and_the_connection_stays(server: Server) -> None:
    client = server.connect()
    for _ in range(12):
        assert client.ask(get(b"/early", b"Content-Length: 300000")).status == 200
        assert client.ask(b"x" * 300_000 + get(b"/next")).json["raw_path"] == "/next"


def test_after_an_early_answer_an_endless_body_ends_the_connection(server: Server) -> None:
    def ends_soon() -> bool:
        client = server.connect()
        assert client.ask(get(b"/early", b"Content-Length: %d" % (100 * DRAINED_BYTES_MAX))).status == 200
        client.send(b"x" * 10 * DRAINED_BYTES_MAX)
        soon = client.ends_within(HEADER_TIMEOUT_S / 2)
        assert client.ended()
        return soon

    assert any(ends_soon() for _ in range(TRIES))


@pytest.mark.parametrize(
    "start",
    [
        b"POST /early HTTP/1.1\r\n" + HOST + b"Connection: close\r\n",
        b"POST /early HTTP/1.0\r\n",
    ],
)
def test_a_client_may_send_its_whole_body_before_it_reads_the_last_answer_of_its_connection(
    server: Server, start: bytes
) -> None:
    for _ in range(8):
        client = server.connect()
        client.send(start + b"Content-Length: 3000000\r\n\r\n")
        client.send(b"x" * 3_000_000)
        answer = client.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert client.ended()


def test_http_1_0_is_answered_once(server: Server) -> None:
    for header in (b"", b"Connection: keep-alive\r\n"):
        client = server.connect()
        assert client.ask(b"GET / HTTP/1.0\r\n" + header + b"\r\n").headers["connection"] == "close"
        assert client.ended()


@pytest.mark.parametrize("header", [b"", b"Connection: keep-alive\r\n"])
def test_to_http_1_0_a_body_of_unknown_length_ends_with_the_connection(server: Server, header: bytes) -> None:
    client = server.connect()
    client.send(b"GET /stream HTTP/1.0\r\n" + header + b"\r\n")
    head, _, body = client.reader.read().partition(b"\r\n\r\n")
    assert b"connection: close" in head.split(b"\r\n")
    assert b"transfer-encoding" not in head
    assert b"content-length" not in head
    assert json.loads(body)["version"] == "1.0"


def test_http_1_0_is_not_told_to_continue(server: Server) -> None:
    """RFC 9110 section 10.1.1."""
    expecting = post(b"/", b"hello", b"Expect: 100-continue").replace(b"HTTP/1.1", b"HTTP/1.0")
    assert server.ask(expecting).status == 200


def test_what_follows_connection_close_is_not_heard(server: Server) -> None:
    client = server.connect()
    answer = client.ask(get(b"/1", b"Connection: close") + get(b"/2"))
    assert answer.headers["connection"] == "close"
    assert client.ended()
    assert [seen["raw_path"] for seen in server.app.seen] == ["/1"]


# ---- any bytes ----

SEEDS = [
    *REFUSED.values(),
    *(data for data, _ in ACCEPTED.values()),
    *(post_chunked(b"/", c) for c in BAD_CHUNKS.values()),
]
PARTS = [
    b"\r\n",
    b"\n",
    b"\r",
    b":",
    b" ",
    b"\x00",
    b"\xff",
    b"0",
    b"Host: x\r\n",
    CHUNKED,
    b"Content-Length: 3\r\n",
    b"GET / ",
]


@pytest.mark.parametrize("seed", range(3))
def test_any_bytes_are_answered_or_the_connection_ends(server: Server, seed: int) -> None:
    dice = random.Random(seed)
    clients = []
    for _ in range(150):
        stream = bytearray(b"".join(dice.choices(SEEDS, k=dice.randint(1, 3))))
        for _ in range(dice.randint(0, 3)):
            at = dice.randint(0, len(stream))
            stream[at : at + dice.randint(0, 3)] = dice.choice([*PARTS, dice.randbytes(1)])
        client = server.connect()
        clients.append(client)
        with contextlib.suppress(ConnectionError):
            client.send(bytes(stream))
    for client in clients:
        received = b""
        with contextlib.suppress(ConnectionError):
            received = client.reader.read()  # no later than the deadlines of header and keep-alive
        for line in received.splitlines():
            if line.startswith(b"HTTP/1.1 "):
                assert line.split()[1] in (b"100", b"200", b"400", b"431"), line


def test_the_limits_have_defaults() -> None:
    protocol = make_protocol()
    assert issubclass(protocol, StrictProtocol)
    assert (protocol.headers_max, protocol.header_bytes_max, protocol.header_timeout_s) == (100, 65536, 10.0)
