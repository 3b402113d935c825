"""The client's HTTP: requests as bytes, responses however they arrive; and the module made of the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.client.http1 import Garbled, Response, address_of, request_bytes
from gateway.client.retry import Request

ROOT = Path(__file__).parents[2]


def response_of(*received: bytes) -> Response:
    response = Response()
    for data in received:
        response.feed(data)
    return response


def test_the_client_without_asyncio_is_made_of_the_one_with_it() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "deploy/synchronous.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "")


@pytest.mark.parametrize(
    ("url", "authority", "port", "tls", "prefix"),
    [
        ("http://127.0.0.1:8017", "127.0.0.1:8017", 8017, False, ""),
        ("https://sluice.example.com/", "sluice.example.com", 443, True, ""),
        ("http://[::1]:80/events/", "[::1]:80", 80, False, "/events"),
    ],
)
def test_an_address_is_read_out_of_a_url(url: str, authority: str, port: int, tls: bool, prefix: str) -> None:
    address = address_of(url)
    assert (address.authority, address.port, address.tls, address.prefix) == (authority, port, tls, prefix)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8017",
        "ftp://x",
        "http://",
        "http://x:99999",
        "http://x/?a",
        "http://x/#a",
        "http://x/\n",
        "http://a..b",
        f"http://{'a' * 64}",
    ],
)
def test_what_is_no_url_is_a_sentence_without_it(url: str) -> None:
    with pytest.raises(ValueError, match=r"^this is not a URL such as http://127\.0\.0\.1:8017$"):
        address_of(url)


def test_a_request_is_spelled_out() -> None:
    address = address_of("http://host:1/under")
    sent = request_bytes(address, b"a: b\r\n", Request("GET", "/x", {"q": "a b", "r": "é"}, {"c": "d"}))
    assert sent == (
        b"GET /under/x?q=a+b&r=%C3%A9 HTTP/1.1\r\nhost: host:1\r\n"
        b"accept-encoding: identity\r\nc: d\r\na: b\r\n\r\n"
    )
    sent = request_bytes(address, b"", Request("POST", "/x", {}, {"accept-encoding": "gzip"}, b"{}"))
    assert sent.endswith(b"accept-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}")


WHOLE = b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\nSluice-Api: 1\r\n\r\nabc"
CHUNKED = (
    b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
)


@given(st.sampled_from([WHOLE, CHUNKED]), st.data())
def test_a_response_is_whole_however_it_arrives(message: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(message)), max_size=6)))
    response = Response()
    for begin, end in zip([0, *cuts], [*cuts, len(message)], strict=True):
        if begin < end:
            assert not response.complete
            response.feed(message[begin:end])
    assert (response.complete, response.reusable, response.taken()) == (True, True, b"abc")
    assert "x" not in response.headers


def test_a_connection_that_is_to_be_closed_serves_no_other_request() -> None:
    closing = response_of(WHOLE.replace(b"Sluice-Api: 1", b"Connection: close"))
    assert (closing.complete, closing.reusable) == (True, False)


def test_a_response_without_a_length_ends_with_its_connection() -> None:
    response = response_of(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\n<html>")
    assert not response.complete
    response.end()
    assert (response.status, response.taken(), response.reusable) == (502, b"<html>", False)


@pytest.mark.parametrize("received", [b"", b"HTTP/1.1 200 OK\r\n", WHOLE[:-1], CHUNKED[:-3]])
def test_a_connection_that_ends_within_a_response_is_garbled(received: bytes) -> None:
    response = response_of(received) if received else Response()
    with pytest.raises(Garbled):
        response.end()


@pytest.mark.parametrize("received", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
def test_what_is_no_http_is_garbled(received: bytes) -> None:
    with pytest.raises(Garbled, match="not HTTP"):
        response_of(received)
