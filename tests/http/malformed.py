"""Requests that no client should send: a seeded stream of them, as bytes for a socket.

Each is drawn from one of the families below; the traps are those that strict servers were found to fall into.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

from tests.http.raw import request
from tests.http.traps import BODIES, FRAMES, GOOD, HEADERS, LINE, PATHS, SEVERAL, URLS, UUID

METHODS = [b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE"]


def malformed(seed: int, count: int, key: str) -> Iterator[bytes]:
    """`count` requests, the same ones for a seed: every trap once, then variations at random."""
    chance = random.Random(seed)
    variations = (_any_of(chance, key) for _ in itertools.repeat(None))
    yield from itertools.islice(itertools.chain(_every_trap(key), variations), count)


def _every_trap(key: str) -> Iterator[bytes]:
    yield from FRAMES
    for path in PATHS:
        yield request(b"GET", path, key)
        yield request(b"POST", path, key, GOOD)
    for header in HEADERS:
        yield request(b"POST", b"/order/global/was_placed", key, GOOD[:-1], [header])
        yield request(b"GET", b"/order/global/events", key, headers=[header])
    for body in BODIES:
        for url in URLS:
            content_type = b"application/x-ndjson" if url == b"/_/bulk" else b"application/json"
            yield request(
                b"POST",
                url,
                key,
                b"\x01" + body if body in (GOOD, SEVERAL) else body,
                content_type=content_type,
            )


def _any_of(chance: random.Random, key: str) -> bytes:
    families: list[Callable[[random.Random, str], bytes]] = [
        _strange_path,
        _strange_headers,
        _strange_body,
        _strange_frame,
    ]
    return chance.choices(families, weights=[3, 2, 4, 1])[0](chance, key)


def _strange_path(chance: random.Random, key: str) -> bytes:
    pieces = [
        b"/",
        b"order",
        b"global",
        b"events",
        b"%2f",
        b"%00",
        b"..",
        b"%ff",
        b"?",
        b"=",
        b"&",
        b"at",
        b"limit",
        b"1",
        b"\xc5\xbf",
        UUID,
    ]
    path = b"/" + b"".join(chance.choices(pieces, k=chance.randint(1, 12)))
    return request(
        chance.choice(METHODS), path, chance.choice((key, key, None)), chance.choice((None, GOOD[:-2]))
    )


def _strange_headers(chance: random.Random, key: str) -> bytes:
    headers = chance.choices(HEADERS, k=chance.randint(1, 4))
    return request(
        chance.choice(METHODS), chance.choice(URLS + PATHS), key, chance.choice((None, b"{]")), headers
    )


def _strange_body(chance: random.Random, key: str) -> bytes:
    url = chance.choice(URLS)
    body = bytearray(chance.choice((GOOD, SEVERAL, LINE, chance.choice(BODIES))))
    for _ in range(chance.randint(1, 6)):
        at = chance.randint(0, len(body))
        match chance.randint(0, 3):
            case 0:
                body[at:at] = bytes([chance.randrange(256)])
            case 1:
                del body[at : at + chance.randint(1, 5)]
            case 2:
                body[at : at + 1] = chance.choice(
                    (b"\\u0000", b"\\ud800", b"NaN", b"{", b"]", b'"', b"\xff", b",", b"\n")
                )
            case _:
                body = body[:at]
    content_type = b"application/x-ndjson" if url == b"/_/bulk" else b"application/json"
    # A version that no stream has: what is whole by chance is not accepted either.
    return request(b"POST", url, key, bytes(body), [(b"If-Match", b'"999999"')], content_type)


def _strange_frame(chance: random.Random, key: str) -> bytes:
    data = bytearray(
        chance.choice((request(b"POST", b"/order/global/was_placed", key, GOOD[:-1]), chance.choice(FRAMES)))
    )
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(max(1, min(len(data), 200)))
        data[at : at + chance.randint(0, 2)] = bytes([chance.randrange(256)])
    return bytes(data)
