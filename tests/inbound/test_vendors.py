"""Vendors' own libraries as the sender: what they sign is accepted, a changed body of theirs is not."""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
import stripe
from slack_sdk.signature import SignatureVerifier
from standardwebhooks import Webhook

from gateway.inbound.request import Request
from gateway.inbound.signing import sign
from gateway.inbound.verdicts import Rejected, Verified
from gateway.inbound.verify.signature import verify
from tests.inbound.vectors import source

BODY = '{"id": "evt_1", "type": "charge.succeeded", "name": "Zoë"}'
SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


def held(provider: str, secret: str, headers: dict[str, str]) -> None:
    """Accepted as it is, refused with another body."""
    made = source(provider, [secret])
    raw = tuple((name.lower().encode(), value.encode()) for name, value in headers.items())
    now_ms = time.time_ns() // 1_000_000
    assert verify(made, Request(b"POST", b"/", b"", raw, BODY.encode()), now_ms) == Verified(1)
    tampered = Request(b"POST", b"/", b"", raw, BODY.replace("evt_1", "evt_2").encode())
    assert isinstance(verify(made, tampered, now_ms), Rejected)


@pytest.mark.parametrize(("provider", "prefix"), [("standard_webhooks", "webhook"), ("svix", "svix")])
def test_standard_webhooks(provider: str, prefix: str) -> None:
    now = datetime.now(UTC)
    signature = Webhook(SECRET).sign("msg_1", now, BODY)
    headers = {"id": "msg_1", "timestamp": str(int(now.timestamp())), "signature": signature}
    held(provider, SECRET, {f"{prefix}-{name}": value for name, value in headers.items()})


def test_stripe() -> None:
    now = int(time.time())
    signature = stripe.WebhookSignature._compute_signature(f"{now}.{BODY}", SECRET)
    held("stripe", SECRET, {"Stripe-Signature": f"t={now},v1={signature}"})


def test_slack() -> None:
    now = str(int(time.time()))
    signature = SignatureVerifier("slack-secret").generate_signature(timestamp=now, body=BODY)
    assert signature is not None
    held("slack", "slack-secret", {"X-Slack-Request-Timestamp": now, "X-Slack-Signature": signature})


def signed(provider: str, secret: str) -> dict[str, str]:
    request = Request(b"POST", b"/", b"", (), BODY.encode())
    made = sign(source(provider, [secret]), request, time.time_ns() // 1_000_000, "msg_1")
    return {name.decode(): value.decode() for name, value in made.headers}


def test_what_we_sign_their_libraries_accept() -> None:
    payload: Any = Webhook(SECRET).verify(BODY, signed("standard_webhooks", SECRET))
    assert payload == json.loads(BODY)
    header = signed("stripe", SECRET)["stripe-signature"]
    assert stripe.WebhookSignature.verify_header(BODY, header, SECRET, 300)
    assert SignatureVerifier("s").is_valid_request(BODY, signed("slack", "s"))
