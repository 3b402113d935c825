"""What providers send, signed as they sign: by the engine's own signer where it has one, by a private key or
within the body where it has none. The vectors and vendors' libraries hold the signer itself."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlencode

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils
from cryptography.hazmat.primitives.hashes import SHA256, SHA512
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.inbound.request import Request
from gateway.inbound.signing import sign
from spec.webhooks.presets import PRESETS
from spec.webhooks.sources import Source
from tests.inbound.vectors import source

BASE_URL = "https://hooks.example.com"
FORM = "application/x-www-form-urlencoded"
BY_HEADER = tuple(
    name
    for name, scheme in PRESETS.items()
    if name == "hmac"
    or (
        scheme.header
        and scheme.key not in ("spki", "ed25519")
        and scheme.form not in ("jwt", "message")
        and name != "adyen"
    )
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


def of_discord(body: bytes, now_ms: int) -> Sent:
    private = ed25519.Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    now = b"%d" % (now_ms // 1000)
    signature = private.sign(now + body).hex().encode()
    headers = ((b"x-signature-timestamp", now), (b"x-signature-ed25519", signature))
    made = source("discord", [public.hex()], handshake="ping")
    return Sent(made, Request(b"POST", b"/hook", b"", headers, body))


def of_adobe_sign(body: bytes) -> Sent:
    made = source("adobe_sign", ["CBJCHBCAABAA"], handshake="client_id")
    return Sent(made, sign(made, Request(b"POST", b"/hook", b"", (), body), 0, ""))


def of_braintree(secret: str, now_ms: int, payload: bytes) -> Sent:
    """In a form, whose payload is base64; `now_ms` stands nowhere."""
    text = base64.b64encode(payload).decode()
    mac = hmac.digest(hashlib.sha1(secret.encode()).digest(), text.encode(), "sha1").hex()
    body = urlencode({"bt_signature": f"other|00&public|{mac}", "bt_payload": text}).encode()
    made = source("braintree", [f"public|{secret}"])
    return Sent(made, Request(b"POST", b"/hook", b"", ((b"content-type", FORM.encode()),), body))


@cache
def _rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def of_message(
    algorithm: str,
    body: bytes,
    now_ms: int,
    secret: bytes = b"k" * 32,
    path: bytes = b"/_/webhooks/main/some",
    **told: bytes,
) -> Sent:
    """A message signature by RFC 9421, over what must be covered; a new key, or `secret` where it is shared.
    `told` is what else it says of itself."""
    query, digest = b"a=1&b=%27", hashlib.sha256(body).digest()
    told = {"created": b"%d" % (now_ms // 1000), "keyid": b'"some"', **told}
    text = b'("@method" "@target-uri" "content-digest")'
    text += b"".join(b";%b=%b" % (name.encode(), value) for name, value in told.items())
    of_body = b"sha-256=:%b:" % base64.b64encode(digest)
    target = BASE_URL.encode() + path + b"?" + query
    lines = b'"@method": POST\n"@target-uri": %b\n"content-digest": %b\n"@signature-params": %b'
    key, octets = _signed_message(algorithm, lines % (target, of_body, text), secret)
    headers = (
        (b"content-digest", of_body),
        (b"signature-input", b"sig=" + text),
        (b"signature", b"sig=:%b:" % base64.b64encode(octets)),
    )
    made = source("http_message_signatures", [key], public_base_url=BASE_URL)
    return Sent(made, Request(b"POST", path, query, headers, body))


def _signed_message(algorithm: str, content: bytes, secret: bytes) -> tuple[str, bytes]:
    private: Any
    match algorithm:
        case "hmac-sha256":
            mac = hmac.digest(secret, content, "sha256")
            return "whsec_" + base64.b64encode(secret).decode(), mac
        case "ed25519":
            private = ed25519.Ed25519PrivateKey.generate()
            octets = private.sign(content)
        case "ecdsa-p256-sha256":
            private = ec.generate_private_key(ec.SECP256R1())
            r, s = utils.decode_dss_signature(private.sign(content, ec.ECDSA(SHA256())))
            octets = r.to_bytes(32, "big") + s.to_bytes(32, "big")
        case "rsa-pss-sha512":
            private = _rsa_key()
            octets = private.sign(content, padding.PSS(padding.MGF1(SHA512()), 64), SHA512())
        case _:
            private = _rsa_key()
            octets = private.sign(content, padding.PKCS1v15(), SHA256())
    return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode(), octets


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


def of_adyen_payload(secret: bytes, item: dict[str, Any]) -> Sent:
    """As a whole, by a header."""
    body = json.dumps({"notificationItems": [{"NotificationRequestItem": item}]}).encode()
    mac = base64.b64encode(hmac.digest(secret, body, "sha256"))
    request = Request(b"POST", b"/hook", b"", ((b"hmacsignature", mac),), body)
    return Sent(source("adyen", [secret.hex()]), request)


def of_messagebird(body: bytes, now_ms: int, key: bytes = b"key") -> Sent:
    """By a token over digests of URL and body."""

    def part(value: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    path, query, at = b"/hook", b"a=1", now_ms // 1000
    claims = {"iss": "MessageBird", "nbf": at, "exp": at + 60, "jti": "1"}
    claims["url_hash"] = hashlib.sha256(BASE_URL.encode() + path + b"?" + query).hexdigest()
    claims["payload_hash"] = hashlib.sha256(body).hexdigest()
    content = part({"alg": "HS256", "typ": "JWT"}) + b"." + part(claims)
    mac = base64.urlsafe_b64encode(hmac.digest(key, content, "sha256")).rstrip(b"=")
    headers = ((b"messagebird-signature-jwt", content + b"." + mac),)
    made = source("messagebird", [key.decode()], public_base_url=BASE_URL)
    return Sent(made, Request(b"POST", path, query, headers, body))
