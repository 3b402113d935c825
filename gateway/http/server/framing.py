"""What is wrong with a request before it is one: the words for it, and the target in its one form; and how a
request is told that has the header of the one before. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

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


HEAD_BYTES_MAX: Final = 1024
"""Of the header lines of a Head: more is not kept for a connection."""

_VERSION: Final = b" HTTP/1.1\r\n"
_BLANK_LINE: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length"
_LENGTH_DIGITS: Final = 9
_VARIED: Final = re.compile(
    rb"\r\n(content-length|traceparent|[a-z0-9-]*-(?:id|key|uuid|delivery|timestamp|token)"
    rb"|[a-z0-9-]*(?:signature|hmac)[a-z0-9-]*): ?([!-~]+)(?=\r)",
    re.IGNORECASE,
)
"""Headers of which requests have values of their own; none of these names means anything to llhttp."""
_target: Final = re.compile(rb"/[A-Za-z0-9/._~-]{0,500}").match
"""Characters that llhttp lets through and that mean nothing to it."""
_value: Final = re.compile(rb"[!-~]{1,255}").match
"""The same of the value of a header."""


class Head(NamedTuple):
    """The header of a request that llhttp let through, as it was sent. It lets through another request too
    that has the same bytes but for target, length, and what clients give each request of its own: ids, keys,
    signatures and their times."""

    method: bytes
    begins: bytes  # the same, and the blank behind it
    varied: tuple[tuple[bytes, bytes], ...]  # of each such header, what is before its value; its name
    ends: bytes  # what follows the last of these values
    found: dict[bytes, bytes]  # the headers by name

    def again(self, chunk: bytes) -> tuple[bytes, dict[bytes, bytes], bytes] | None:
        """Target, headers and body of a chunk that is one whole request with this header, else None."""
        _, begins, varied, ends, found = self
        target = _target(chunk, len(begins))
        if target is None or not chunk.startswith(begins):
            return None
        at = target.end()
        for before, name in varied:
            value = _value(chunk, at + len(before)) if chunk.startswith(before, at) else None
            if value is None:
                return None
            at = value.end()
            if found[name] != value[0]:
                found = {**found, name: value[0]}
        if not chunk.startswith(ends, at):
            return None
        begin, length = at + len(ends), found.get(_LENGTH, b"0")
        if len(length) > _LENGTH_DIGITS or not length.isdigit() or int(length) != len(chunk) - begin:
            return None
        return target[0], found, chunk[begin:]


def head_of(
    chunk: bytes, method: bytes, target: bytes, found: dict[bytes, bytes], body: bytes
) -> Head | None:
    """Of a request with which the chunk begins, each header of which was sent once; None where the chunk has
    more than that one, or the header is too long to be kept."""
    begins = method + b" "
    lines = chunk[len(begins) + len(target) : len(chunk) - len(body)]
    whole = lines.startswith(_VERSION) and lines.find(_BLANK_LINE) == len(lines) - len(_BLANK_LINE)
    if not whole or len(lines) > HEAD_BYTES_MAX or not chunk.startswith(begins + target):
        return None
    varied: list[tuple[bytes, bytes]] = []
    at = 0
    for line in _VARIED.finditer(lines):
        start, end = line.span(2)
        varied.append((lines[at:start], line[1].lower()))
        at = end
    return Head(method, begins, tuple(varied), lines[at:], found)
