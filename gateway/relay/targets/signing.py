"""Signatures of Standard Webhooks (github.com/standard-webhooks, spec 1.0, "v1"), and where their secrets
are found."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

from spec.targets.secrets import secret_text, signing_key


class NoSecret(Exception):
    """A secret is not where a subscription says that it is; the text names only the place."""


def headers(key: bytes, message_id: str, timestamp: int, body: bytes) -> list[tuple[bytes, bytes]]:
    """What a receiver verifies: the id is the same for all attempts, the timestamp each attempt's own."""
    signed = b"%b.%d.%b" % (message_id.encode(), timestamp, body)
    signature = base64.b64encode(hmac.digest(key, signed, hashlib.sha256))
    return [
        (b"webhook-id", message_id.encode()),
        (b"webhook-timestamp", b"%d" % timestamp),
        (b"webhook-signature", b"v1," + signature),
    ]


def key_of(secret: str, environ: Mapping[str, str]) -> bytes:
    """The bytes that sign. `secret` is as declared: literal, or where it is. Raises NoSecret."""
    where = secret if secret.startswith(("env:", "file:")) else "The secret"
    text = secret_text(secret, environ)
    if not text:
        raise NoSecret(f"{where} is not set here.")
    key = signing_key(text)
    if key is None:
        raise NoSecret(f"{where} is not whsec_ and base64.")
    return key
