"""What is wrong with a request before it is one: the words for it, and the target in its one form. Pure."""

from __future__ import annotations

import re
from typing import Final

import httptools

SLASH: Final = ord("/")
HASH: Final = ord("#")


_REG_NAME: Final = rb"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
_IP_LITERAL: Final = rb"\[[A-Za-z0-9._~!$&'()*+,;=:-]+\]"
_HOST: Final = re.compile(rb"(?:%b|%b)(?::[0-9]*)?" % (_REG_NAME, _IP_LITERAL))


class Untrusted(Exception):
    """Stops the parser. `status` and `sentence` are what the client is told."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


def check_host(value: bytes) -> None:
    """Of `Host`: a name or an address, and a port (RFC 9110 section 7.2); empty where the target has none.
    Raises Untrusted."""
    if not _HOST.fullmatch(value):
        raise Untrusted(400, "The Host header is not a valid host and port.")


def origin_form(method: bytes, target: bytes) -> bytes:
    """`/path?query` of a request target (RFC 9112 section 3.2). Raises Untrusted."""
    if method == b"CONNECT":
        raise Untrusted(400, "CONNECT is for proxies; this server is not one.")
    if HASH in target:
        raise Untrusted(400, "A request target has no fragment; write `#` as %23.")
    if target[0] == SLASH or (target == b"*" and method == b"OPTIONS"):
        return target
    url = httptools.parse_url(target)
    if not url.schema or url.schema.lower() not in (b"http", b"https") or url.userinfo:
        raise Untrusted(400, "The request target must be a path, or an http URL without user and password.")
    return (url.path or b"/") + (b"?" + url.query if url.query else b"")


def blame(fault: httptools.HttpParserError) -> tuple[int, str]:
    """Status and sentence for what stopped the parser. Raises what was no fault of the client's."""
    cause = fault.__context__ if isinstance(fault, httptools.HttpParserCallbackError) else fault
    if isinstance(cause, Untrusted):
        return cause.status, cause.sentence
    if not isinstance(cause, httptools.HttpParserError):
        raise fault
    return 400, f"The request is not valid HTTP/1.1: {cause}."
