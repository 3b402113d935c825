"""What providers send, signed as they sign: by the engine's own signer where it has one, by a private key or
within the body where it has none. The vectors and vendors' libraries hold the signer itself."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.intake.request import Request
from gateway.intake.signature import sign
from spec.presets import PRESETS
from spec.webhooks import Source
from tests.intake.vectors import source

BASE_URL = "https://hooks.example.com"
FORM = "application/x-www-form-urlencoded"
BY_HEADER = tuple(
    name
    for name, scheme in PRESETS.items()
    if scheme.header and scheme.key != "spki" and scheme.form != "jwt" and name != "adyen"
)
"""Providers whose signature is an HMAC in a header."""


@dataclass(frozen=True)
class Sent:
    source: Source
    request: Request


def of_provider(provider: str, secret: bytes, now_ms: int, body: bytes, **more: Any) -> Sent:
    """A request of one of BY_HEADER."""
    options: dict[str, Any] = dict(more)
    if "url" in PRESETS[provider].signed:
        options["public_base_url"] = BASE_URL
    if provider == "hmac":
        options |= {"header": "X-Sig", "signed": ["id", ".", "timestamp", ".", "body"], "prefix": "v1="}
        options |= {"timestamp_header": "X-Time", "id_header": "X-Id"}
    key = PRESETS[provider].key
    text = {
        "standard": "whsec_" + base64.b64encode(secret).decode(),
        "hex": secret.hex(),
        "base64": base64.b64encode(secret).decode(),
    }.get(key, "s" + secret.hex())
    made = source(provider, [text], **options)
    content_type = FORM if provider == "twilio" else "application/json"
    unsigned = Request(
        b"POST",
        b"/_/webhooks/main/some",
        b"a=1&b=%27",
        ((b"content-type", content_type.encode()),),
        body,
    )
    return Sent(made, sign(made, unsigned, now_ms, "dlv_1"))


def of_sendgrid(body: bytes, now_ms: int) -> Sent:
    private = ec.generate_private_key(ec.SECP256R1())
    der = private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    now = b"%d" % (now_ms // 1000)
    signature = base64.b64encode(private.sign(now + body, ec.ECDSA(SHA256())))
    headers = (
        (b"x-twilio-email-event-webhook-signature", signature),
        (b"x-twilio-email-event-webhook-timestamp", now),
    )
    made = source("sendgrid", [base64.b64encode(der).decode()])
    return Sent(made, Request(b"POST", b"/hook", b"", headers, body))


def of_standard_v1a(body: bytes, now_ms: int) -> Sent:
    private = ed25519.Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    now = b"%d" % (now_ms // 1000)
    signature = base64.b64encode(private.sign(b"dlv_1." + now + b"." + body))
    headers = (
        (b"webhook-id", b"dlv_1"),
        (b"webhook-timestamp", now),
        (b"webhook-signature", b"v1a," + signature),
    )
    made = source("standard_webhooks", ["whpk_" + base64.b64encode(public).decode()])
    return Sent(made, Request(b"POST", b"/hook", b"", headers, body))


def of_mailgun(secret: str, now_ms: int, token: str, data: Any) -> Sent:
    now = str(now_ms // 1000)
    signature = hmac.digest(secret.encode(), f"{now}{token}".encode(), "sha256").hex()
    signed = {"timestamp": now, "token": token, "signature": signature}
    body = json.dumps({"signature": signed, "event-data": data}).encode()
    return Sent(source("mailgun", [secret]), Request(b"POST", b"/hook", b"", (), body))


def of_adyen(secret: bytes, *items: dict[str, Any]) -> Sent:
    """Each item signed by itself."""
    listed = []
    for item in items:
        amount = item.get("amount", {})
        parts = [item.get(name, "") for name in ("pspReference", "originalReference")]
        parts += [item.get(name, "") for name in ("merchantAccountCode", "merchantReference")]
        parts += [str(amount.get("value", "")), amount.get("currency", "")]
        parts += [item.get(name, "") for name in ("eventCode", "success")]
        mac = base64.b64encode(hmac.digest(secret, ":".join(parts).encode(), "sha256")).decode()
        listed.append({"NotificationRequestItem": {**item, "additionalData": {"hmacSignature": mac}}})
    body = json.dumps({"live": "false", "notificationItems": listed}).encode()
    return Sent(source("adyen", [secret.hex()]), Request(b"POST", b"/hook", b"", (), body))


def of_messagebird(body: bytes, now_ms: int) -> Sent:
    """By a token over digests of URL and body."""

    def part(value: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    path, query, at = b"/hook", b"a=1", now_ms // 1000
    claims = {"iss": "MessageBird", "nbf": at, "exp": at + 60, "jti": "1"}
    claims["url_hash"] = hashlib.sha256(BASE_URL.encode() + path + b"?" + query).hexdigest()
    claims["payload_hash"] = hashlib.sha256(body).hexdigest()
    content = part({"alg": "HS256", "typ": "JWT"}) + b"." + part(claims)
    mac = base64.urlsafe_b64encode(hmac.digest(b"key", content, "sha256")).rstrip(b"=")
    headers = ((b"messagebird-signature-jwt", content + b"." + mac),)
    made = source("messagebird", ["key"], public_base_url=BASE_URL)
    return Sent(made, Request(b"POST", path, query, headers, body))
