"""The published test vectors, each as a source and a request."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from gateway.inbound.request import Request
from spec.model import Spec
from spec.parse import parse
from spec.webhooks.sources import Source

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_bytes())["vectors"]

PROVIDERS = {
    "standard-webhooks": "standard_webhooks",
    "adyen-item": "adyen",
    "adyen-payload": "adyen",
    "messagebird-jwt": "messagebird",
    "messagebird-legacy": "messagebird",
    "github-sha1-legacy": "github",
    "coinbase-commerce": "coinbase_commerce",
    "generic-hmac-hex": "hmac",
    "x-crc-challenge": "hmac",
    "braintree-challenge": "braintree",
    "rfc9421": "http_message_signatures",
}


@dataclass(frozen=True)
class Vector:
    id: str
    source: Source
    request: Request
    now_ms: int
    valid: bool
    content: str
    """What is signed, where it is published."""
    expected: str
    """The signature, or the answer to a challenge."""


def source(provider: str, secrets: list[Any], **more: Any) -> Source:
    """A source of a spec that declares no more than that."""
    declared = {
        "provider": provider,
        **({"secrets": secrets} if secrets else {}),
        "to": {"type": "webhook_log", "id": "some_webhook", "event": "was_received"},
        **more,
    }
    found = parse(
        {
            "aggregate_types": {"webhook_log": {"events": {"was_received": {"schema": True}}}},
            "agent_types": ["webhook"],
            "singletons": ["some_webhook"],
            "webhooks": {"some": declared},
        }
    )
    assert isinstance(found, Spec), found
    return found.webhooks["some"]


def vectors(*schemes: str) -> list[Vector]:
    """Those of these schemes; what is a form is said by a header, which the vectors leave out."""
    return [_vector(each) for each in VECTORS if each["scheme"] in schemes]


def _vector(vector: dict[str, Any]) -> Vector:
    sent, scheme = vector["request"], vector["scheme"]
    headers = {name.lower(): value for name, value in sent.get("headers", {}).items()}
    body = (sent.get("body") or "").encode()
    if "body_repeat" in sent:
        body = sent["body_repeat"]["text"].encode() * sent["body_repeat"]["count"]
    if sent.get("form_params") is not None:
        body = urlencode([tuple(pair) for pair in sent["form_params"]]).encode()
        headers["content-type"] = "application/x-www-form-urlencoded"
    url = urlsplit(sent.get("url", "https://example.com/hook"))
    more: dict[str, Any] = {}
    if scheme in ("twilio", "square", "hubspot", "messagebird-jwt", "messagebird-legacy", "rfc9421"):
        more["public_base_url"] = f"{url.scheme}://{url.netloc}"
    if scheme.endswith("-challenge"):
        more |= {"x-crc-challenge": {"header": "X-Signature", "handshake": "crc"}}.get(
            scheme, {"handshake": "bt_challenge"}
        )
    if scheme == "adyen-item":
        body = _adyen(json.loads(body), vector["expected_signature"])
    if scheme == "generic-hmac-hex":
        headers |= {"x-time": "1234567890", "x-signature": vector["expected_signature"]}
        more |= {"header": "X-Signature", "timestamp_header": "X-Time", "signed": ["timestamp", ".", "body"]}
        more["digest"] = vector["algorithm"].removeprefix("hmac-")
    return Vector(
        vector["id"],
        source(PROVIDERS.get(scheme, scheme), _secrets(vector), **more),
        Request(
            sent["method"].encode(),
            url.path.encode(),
            url.query.encode(),
            tuple((name.encode(), value.encode()) for name, value in headers.items()),
            body,
        ),
        1000 * (vector.get("now") or _time_in(headers, body)),
        vector["valid"],
        vector.get("signed_content", ""),
        vector.get("expected_signature", ""),
    )


def _secrets(vector: dict[str, Any]) -> list[str]:
    """As a spec has them: a shared key of HTTP message signatures by its prefix."""
    secrets: list[str] = vector.get("secrets") or [vector.get("public_key", "none")]
    shared = vector["scheme"] == "rfc9421" and "secrets" in vector
    return [f"whsec_{text}" for text in secrets] if shared else secrets


def _adyen(item: dict[str, Any], signature: str) -> bytes:
    item.setdefault("additionalData", {})["hmacSignature"] = signature
    return json.dumps({"notificationItems": [{"NotificationRequestItem": item}]}).encode()


def _time_in(headers: dict[str, str], body: bytes) -> int:
    """Where a vector names no clock, its own time."""
    text = json.dumps(headers) + body.decode()
    found = re.search(r'(?:t=|ts=|created=|"[a-z-]*time(?:stamp)?\\?": ?\\?")([0-9]{10})', text)
    return int(found[1]) if found else 1_700_000_000
