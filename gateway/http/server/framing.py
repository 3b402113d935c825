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
_LENGTH: Final = re.compile(rb"\r\ncontent-length: ?([0-9]{1,9})\r\n", re.IGNORECASE)
_LENGTH_DIGITS: Final = 9
_target: Final = re.compile(rb"/[A-Za-z0-9/._~-]{0,500}").match
"""Characters that llhttp lets through and that mean nothing to it."""


class Head(NamedTuple):
    """The header of a request that llhttp let through, as it was sent. It lets through another request too
    that has the same bytes but for target and length."""

    method: bytes
    begins: bytes  # the same, and the blank behind it
    lines: bytes  # from behind the target up to the length of the body; all that follows, without a body
    ends: bytes  # what follows the length
    found: dict[bytes, bytes]  # the headers by name

    def again(self, chunk: bytes) -> tuple[bytes, dict[bytes, bytes], bytes] | None:
        """Target, headers and body of a chunk that is one whole request with this header, else None."""
        _, begins, lines, ends, found = self
        target = _target(chunk, len(begins))
        if target is None or not chunk.startswith(begins):
            return None
        at = target.end()
        if not chunk.startswith(lines, at):
            return None
        at += len(lines)
        if not ends:
            return (target[0], found, b"") if at == len(chunk) else None
        end = chunk.find(b"\r", at, at + _LENGTH_DIGITS + 1)
        digits, begin = chunk[at:end], end + len(ends)
        if not digits.isdigit() or not chunk.startswith(ends, end) or int(digits) != len(chunk) - begin:
            return None
        if found[b"content-length"] != digits:
            found = {**found, b"content-length": digits}
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
    if b"content-length" not in found:
        return Head(method, begins, lines, b"", found)
    length = _LENGTH.search(lines)
    return (
        None
        if length is None
        else Head(method, begins, lines[: length.start(1)], lines[length.end(1) :], found)
    )
