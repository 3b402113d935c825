"""Requests with the header of the one before are not parsed again: they mean what llhttp says of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import httptools
import pytest

from gateway.http.server.framing import HEAD_BYTES_MAX, Head, head_of
from gateway.http.server.protocol import UNLIKE_MAX
from spec.webhooks.presets import PRESETS
from tests.http.peers import Peer, get, post

MUTATIONS = 20_000


@dataclass
class Parsed:
    """What llhttp says of a chunk."""

    messages: list[tuple[bytes, dict[bytes, bytes], bytes]] = field(default_factory=list)
    begun: int = 0

    def on_message_begin(self) -> None:
        self.begun += 1
        self.target, self.body, self.headers = b"", b"", dict[bytes, bytes]()

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value.rstrip(b" \t")

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.messages.append((self.target, self.headers, self.body))


def parsed(chunk: bytes) -> Parsed | None:
    found = Parsed()
    try:
        httptools.HttpRequestParser(found).feed_data(chunk)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    return found


def head(chunk: bytes) -> Head:
    told = parsed(chunk)
    assert told is not None
    ((target, found, body),) = told.messages
    known = head_of(chunk, chunk[: chunk.index(b" ")], target, found, body)
    assert known is not None
    return known


SIGNED = b"X-GitHub-Delivery: 7\r\nX-Hub-Signature-256: sha256=00ff\r\nwebhook-timestamp:1\r\n"
KEYED = b"Idempotency-Key: k-1\r\nX-Correlation-Id:7\r\n"


@pytest.mark.parametrize(
    "first",
    [
        post(b"/order/1/was_placed", b"{}"),
        post(b"/order/1/was_placed", b"{}", more=KEYED),
        post(b"/_/webhooks/main/github", b"{}", more=SIGNED),
        get(b"/order/1/state"),
    ],
)
def test_a_chunk_that_is_known_again_is_what_llhttp_parses(first: bytes) -> None:
    known, chance, again = head(first), random.Random(11), 0
    for _ in range(MUTATIONS):
        chunk = bytearray(first)
        for _ in range(chance.randint(1, 2)):
            at = chance.randrange(len(chunk))
            chunk[at : at + chance.choice((0, 1, 1, 1))] = chance.choice(
                (b"", b"\r\n", b"\r", b" ", b"/", b"#", b"0", b"9", b"\0", b"\t", b"x", b"Y", b":", b"\xff")
            )
        told = known.again(bytes(chunk))
        if told is not None:
            again += 1
            meant = parsed(bytes(chunk))
            assert meant is not None
            assert (meant.messages, meant.begun) == ([told], 1)
    assert again > MUTATIONS // 100


@pytest.mark.parametrize("length", [b"Content-Length: 3", b"content-length:3", b"CONTENT-LENGTH: 003"])
def test_another_length_is_told_as_it_was_sent(length: bytes) -> None:
    chunk = b"POST /a HTTP/1.1\r\nHost: h\r\n%b\r\nX: y\r\n\r\nabc" % length
    known = head(chunk)
    assert known.again(chunk) == (b"/a", known.found, b"abc")
    longer = chunk.replace(b"3\r\n", b"12\r\n") + b"defghijkl"
    told = known.again(longer)
    assert told is not None
    meant = parsed(longer)
    assert meant is not None
    assert [told] == meant.messages


@pytest.mark.parametrize("lines", [b"%b%b", b"%b\r\nX: y%b", b"\r\nX: y%b%b"])
@pytest.mark.parametrize("swapped", [False, True])
def test_another_key_is_told_as_it_was_sent(lines: bytes, *, swapped: bool) -> None:
    each = [b"\r\nIdempotency-Key: %b", b"\r\ncontent-length: %b"]
    form = b"POST /a HTTP/1.1\r\nHost: h" + lines % tuple(each[::-1] if swapped else each) + b"\r\n\r\n%b"

    def request(key: bytes, body: bytes) -> bytes:
        values = [key, b"%d" % len(body)]
        return form % (*(values[::-1] if swapped else values), body)

    known = head(request(b"first", b"abc"))
    for chunk in (request(b"second-and-longer", b"abc"), request(b"3", b"abcdefghijkl")):
        meant = parsed(chunk)
        assert meant is not None
        assert [known.again(chunk)] == meant.messages
    assert known.again(request(b"two words", b"abc")) is None
    assert known.again(request(b"3", b"abc")[:-1]) is None
    assert known.found[b"idempotency-key"] == b"first"


@pytest.mark.parametrize(
    "chunk",
    [
        post(b"/a", b"{}") * 2,
        post(b"/a", b"{}", more=b"X: " + b"x" * HEAD_BYTES_MAX + b"\r\n"),
        b"\r\n" + post(b"/a", b"{}"),
    ],
)
def test_no_header_is_kept_of_a_chunk_that_holds_more_or_too_much(chunk: bytes) -> None:
    told = parsed(chunk)
    assert told is not None
    target, found, body = told.messages[0]
    assert head_of(chunk, b"POST", target, found, body) is None


async def test_a_request_with_the_header_of_the_one_before_is_not_parsed() -> None:
    peer = Peer()
    await peer.send(*[post(b"/a/%d/b" % n, b"1" * n) for n in range(1, 20)])
    assert [(target, body) for target, _, body in peer.fast_path.asked] == [
        (b"/a/%d/b" % n, b"1" * n) for n in range(1, 20)
    ]
    assert peer.parsed == 1
    assert peer.transport.written.count(b"HTTP/1.1 200") == 19


async def test_a_client_with_a_header_of_its_own_for_each_request_is_parsed_without_a_look() -> None:
    peer = Peer()
    await peer.send(*[post(b"/a", b"{}", b"%d" % n) for n in range(UNLIKE_MAX + 1)])
    await peer.send(*[post(b"/a", b"{}")] * 3)
    assert peer.parsed == UNLIKE_MAX + 4
    assert [headers[b"authorization"] for _, headers, _ in peer.fast_path.asked[:2]] == [
        b"Bearer 0",
        b"Bearer 1",
    ]


async def test_a_key_of_its_own_for_each_request_is_not_another_header() -> None:
    peer = Peer()
    await peer.send(*[post(b"/a", b"{}", more=b"Idempotency-Key: %d\r\n" % n) for n in range(20)])
    assert peer.parsed == 1
    keys = [headers[b"idempotency-key"] for _, headers, _ in peer.fast_path.asked]
    assert keys == [b"%d" % n for n in range(20)]


@pytest.mark.parametrize("provider", sorted(PRESETS))
async def test_a_signature_and_an_id_of_its_own_for_each_delivery_are_not_another_header(
    provider: str,
) -> None:
    scheme = PRESETS[provider]
    ids = [where for kind, _, where in (each.partition(":") for each in scheme.delivery) if kind == "header"]
    names = dict.fromkeys(each for each in (scheme.header, scheme.timestamp_header, *ids) if each)
    peer = Peer()
    for n in range(5):
        more = b"".join([b"%b: %d\r\n" % (name.encode(), n) for name in names])
        await peer.send(post(b"/_/webhooks/main/a", b"{}", more=more))
    assert peer.parsed == 1
    assert [[found[name.encode()] for name in names] for _, found, _ in peer.fast_path.asked] == [
        [b"%d" % n] * len(names) for n in range(5)
    ]


async def test_a_header_that_an_id_makes_too_long_is_refused() -> None:
    peer = Peer(header_bytes_max=200)
    await peer.send(post(b"/a", b"{}", more=b"X-Request-Id: 1\r\n"))
    await peer.send(post(b"/a", b"{}", more=b"X-Request-Id: %b\r\n" % (b"1" * 150)))
    assert len(peer.fast_path.asked) == 1
    assert peer.transport.written.startswith(b"HTTP/1.1 431", peer.transport.written.find(b"HTTP/1.1", 1))


async def test_what_the_fast_path_declines_is_offered_once_and_goes_to_the_application() -> None:
    peer = Peer()
    await peer.send(post(b"/a", b"{}"), post(b"/a/no", b"[]"))
    assert [target for target, _, _ in peer.fast_path.asked] == [b"/a", b"/a/no"]
    assert peer.application == [(b"/a/no", b"[]")]
    await peer.send(post(b"/b", b"{}"))
    assert peer.fast_path.asked[-1][0] == b"/b"


async def test_a_header_in_a_body_is_never_kept() -> None:
    """Else who shares a connection, behind a proxy, could lend its key to the requests of others."""
    peer = Peer()
    other = post(b"/a", b"{}", b"others")
    lines = other[: -len(b"{}")]
    mine = post(b"/a", other + b" " * len(lines), b"mine")
    at = mine.index(b"\r\n\r\n") + 4
    blanks = b"\r\n" * (len(lines) // 2)  # are no message
    assert len(blanks) == len(lines)
    await peer.send(mine[:at], mine[at:] + blanks, other)
    keys = [headers[b"authorization"] for _, headers, _ in peer.fast_path.asked]
    assert keys == [b"Bearer mine", b"Bearer others"]


async def test_a_request_in_pieces_is_not_taken_for_a_whole_one() -> None:
    peer = Peer()
    whole = post(b"/a", b'{"n":1}')
    for chunks in ((whole,), (whole[:-3], whole[-3:]), (whole,), (whole[:20], whole[20:]), (whole,)):
        await peer.send(*chunks)
    bodies = [body for _, _, body in peer.fast_path.asked] + [body for _, body in peer.application]
    assert bodies == [b'{"n":1}'] * 5
