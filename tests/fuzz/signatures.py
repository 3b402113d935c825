"""HTTP message signatures (RFC 9421) with bytes changed: none is taken for a request that was not signed.

A request is signed by one of five algorithms, over method, URL and body. Then bytes of any of its parts are
flipped, cut out, put in, doubled, or taken from another signature. It may be verified only if what arrived is
what was signed: else it is a forgery. No verdict (an exception) is a fault too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

from msgspec.structs import replace as altered

from gateway.inbound.request import Request
from gateway.inbound.verdicts import Rejected, Verified
from gateway.inbound.verify.message_signatures import ALGORITHMS
from gateway.inbound.verify.signature import verify
from tests.inbound.senders import Sent, of_message

NOW_MS = 1_750_000_000_000
BODY = b'{"type":"order.paid","amount":100}'
NAMES = [name.decode() for names in ALGORITHMS.values() for name in names]
SEPARATORS = (
    b'"',
    b"(",
    b")",
    b";",
    b",",
    b"=",
    b":",
    b" ",
    b"\t",
    b"\\",
    b"\0",
    b"sig=",
    b"()",
    b";req",
    b"%2f",
)
CHANGES_MAX = 3

Change = Callable[[random.Random, bytes], bytes]


@cache
def signed(algorithm: str) -> tuple[Sent, Sent]:
    """A request of a source, and the same signed by a key that is not the source's."""
    sent = of_message(algorithm, BODY, NOW_MS, alg=b'"%b"' % algorithm.encode())
    return sent, of_message("ed25519", BODY, NOW_MS)


def _flipped(numbers: random.Random, value: bytes) -> bytes:
    at = numbers.randrange(len(value))
    return value[:at] + bytes([value[at] ^ 1 << numbers.randrange(8)]) + value[at + 1 :]


def _cut(numbers: random.Random, value: bytes) -> bytes:
    at = numbers.randrange(len(value))
    return value[:at] + value[at + numbers.randint(1, 8) :]


def _grown(numbers: random.Random, value: bytes) -> bytes:
    at = numbers.randint(0, len(value))
    more = numbers.choice((*SEPARATORS, numbers.randbytes(2)))
    return value[:at] + more + value[at:]


def _doubled(numbers: random.Random, value: bytes) -> bytes:
    return value + numbers.choice((b"", b", ", b",", b" ")) + value


CHANGES: tuple[Change, ...] = (_flipped, _cut, _grown, _doubled)


def changed(numbers: random.Random, request: Request, other: Request) -> Request:
    """A part of it, in a way that a stranger could."""
    part = numbers.randrange(7)
    change = numbers.choice(CHANGES)
    if part == 0:
        return altered(request, method=numbers.choice((b"GET", b"PUT", b"post", b"POST ")))
    if part == 1 and request.path:
        return altered(request, path=change(numbers, request.path))
    if part == 2 and request.query:
        return altered(request, query=change(numbers, request.query))
    if part == 3 and request.body:
        return altered(request, body=change(numbers, request.body))
    at = numbers.randrange(len(request.headers))
    name, value = request.headers[at]
    headers = list(request.headers)
    if part == 4:
        headers[at] = other.headers[numbers.randrange(len(other.headers))]
    elif part == 5:
        headers.insert(at, headers[numbers.randrange(len(headers))])
    elif value:
        headers[at] = (name, change(numbers, value))
    return altered(request, headers=tuple(headers))


def wrong(seed: int) -> str | None:
    """A sentence where this request is taken for what it is not, or has no verdict."""
    numbers = random.Random(seed)
    algorithm = numbers.choice(NAMES)
    sent, other = signed(algorithm)
    request = sent.request
    for _ in range(numbers.randint(1, CHANGES_MAX)):
        request = changed(numbers, request, other.request)
    try:
        verdict = verify(sent.source, request, NOW_MS)
    except Exception as fault:  # whatever it is: a stranger would be answered 500
        return f"seed {seed}, {algorithm}: {fault!r} for {request}"
    if isinstance(verdict, Verified) and not _is_what_was_signed(request, sent.request):
        return f"seed {seed}, {algorithm}: {verdict} for {request}"
    if not isinstance(verdict, (Verified, Rejected)):
        return f"seed {seed}, {algorithm}: {verdict!r}"
    return None


def _is_what_was_signed(request: Request, sent: Request) -> bool:
    """By the bytes: what the signature covers is what was sent, its own parameters among it."""
    parts = (request.method, request.path, request.query, request.body)
    if parts != (sent.method, sent.path, sent.query, sent.body):
        return False
    given, meant = dict(request.headers), dict(sent.headers)
    covered = given.get(b"content-digest", b"").strip() == meant[b"content-digest"]
    return covered and meant[b"signature-input"].removeprefix(b"sig") in given.get(b"signature-input", b"")
