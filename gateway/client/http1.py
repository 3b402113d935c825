"""HTTP/1.1 as bytes: a request to be sent, a response out of what arrives. Pure.

The parser is httptools', which the gateway's own server uses; what is here is what lies around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

import httptools

from gateway.client.retry import Request

PORTS = {"http": 80, "https": 443}


class Garbled(ConnectionError):
    """What arrived is no HTTP response, or ended within one: the connection is of no further use."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service is: what to connect to, and what its requests begin with."""

    url: str
    tls: bool
    host: str
    port: int
    authority: str
    prefix: str


def address_of(url: str) -> Address:
    """Raises ValueError for what is no such URL. A password in it is never part of the sentence."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # as it will be looked up
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in PORTS or not host or parts.query or parts.fragment or not url.isprintable():
        raise ValueError("this is not a URL such as http://127.0.0.1:8017")
    authority = parts.netloc.rpartition("@")[2]
    shown = f"{parts.scheme}://{authority}{parts.path}".rstrip("/")
    usual = PORTS[parts.scheme]
    return Address(shown, parts.scheme == "https", host, port or usual, authority, parts.path.rstrip("/"))


def request_bytes(address: Address, head: bytes, request: Request) -> bytes:
    """`head` are the header lines that all requests have."""
    query = f"?{urlencode(request.params)}" if request.params else ""
    lines = [
        f"{request.method} {address.prefix}{request.path}{query} HTTP/1.1\r\nhost: {address.authority}\r\n"
    ]
    if "accept-encoding" not in request.headers:
        lines.append("accept-encoding: identity\r\n")
    lines += [f"{name}: {value}\r\n" for name, value in request.headers.items()]
    if request.content is None:
        return b"%b%b\r\n" % ("".join(lines).encode("latin-1"), head)
    lines.append(f"content-length: {len(request.content)}\r\n")
    return b"%b%b\r\n%b" % ("".join(lines).encode("latin-1"), head, request.content)


class Response:
    """One response, as far as it has arrived. `status` is 0 until its headers are there."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.complete = False
        self._body: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        self._reusable = False

    def feed(self, data: bytes) -> None:
        """Raises Garbled."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as fault:
            raise Garbled(f"the answer is not HTTP: {fault}") from fault

    def end(self) -> None:
        """The connection has ended. Raises Garbled unless that is how this response ends."""
        framed = "content-length" in self.headers or "transfer-encoding" in self.headers
        if not self.complete and (not self.status or framed):
            raise Garbled("the connection ended before the answer did" if self.status else "no answer came")
        self.complete = True

    def taken(self) -> bytes:
        """The body that has arrived since the last call."""
        body = b"".join(self._body)
        self._body.clear()
        return body

    @property
    def reusable(self) -> bool:
        """Whether the connection serves another request."""
        return self.complete and self._reusable

    # -- httptools calls these

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
        else:
            self.headers.clear()  # of an interim response

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self.status:
            self.complete = True
            self._reusable = self._parser.should_keep_alive()
