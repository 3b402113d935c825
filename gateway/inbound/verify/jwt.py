"""Requests signed by a JSON Web Token in a header, whose claims hold digests of URL and body. Pure.

Source: RFC 7519 and 7515, HMAC only; the claims are MessageBird's (`url_hash`, `payload_hash`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Any, Final

import msgspec

from gateway.admit.strict_json import decode

_DIGESTS: Final = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512"}
"""Never `none`, and never an algorithm by which a public key would become a secret."""


def signed(token: bytes) -> bytes:
    """What its signature is over."""
    return token.rpartition(b".")[0]


def signed_by(token: bytes, key: bytes) -> bool:
    """Whether the key made this token."""
    content, _, signature = token.rpartition(b".")
    header = _part(content.partition(b".")[0])
    algorithm = header.get("alg")
    digest = _DIGESTS.get(algorithm) if isinstance(algorithm, str) else None
    if digest is None:
        return False
    expected = _encoded(hmac.digest(key, content, digest))
    return hmac.compare_digest(expected, signature)


def claims(token: bytes) -> dict[str, Any]:
    """The claims, {} where there are none. They mean nothing unless the token is signed."""
    parts = token.split(b".")
    return _part(parts[1]) if len(parts) == 3 else {}


def in_time(found: dict[str, Any], tolerance_s: int, now_ms: int) -> bool:
    """It must end, and may begin."""
    begins, ends, now_s = found.get("nbf", 0), found.get("exp"), now_ms // 1000
    if not isinstance(begins, int) or not isinstance(ends, int):
        return False
    return begins - tolerance_s <= now_s <= ends + tolerance_s


def covers(found: dict[str, Any], issuer: str, url: bytes, body: bytes) -> bool:
    """Whether the claims are of this request, by this issuer."""
    wanted = None if not body else hashlib.sha256(body).hexdigest()
    return (
        found.get("iss") == issuer
        and found.get("url_hash") == hashlib.sha256(url).hexdigest()
        and found.get("payload_hash") == wanted
    )


def made(told: dict[str, Any], key: bytes) -> bytes:
    """A token of these claims."""
    header = _encoded(b'{"alg":"HS256","typ":"JWT"}')
    content = header + b"." + _encoded(msgspec.json.encode(told))
    mac = hmac.digest(key, content, "sha256")
    return content + b"." + _encoded(mac)


def _encoded(octets: bytes) -> bytes:
    return base64.urlsafe_b64encode(octets).rstrip(b"=")


def _part(text: bytes) -> dict[str, Any]:
    try:
        octets = base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        return {}
    value = decode(octets)
    return value if isinstance(value, dict) else {}
