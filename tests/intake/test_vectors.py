"""The engine against the test vectors that vendors publish."""

from __future__ import annotations

import pytest

from gateway.intake.signature import Rejected, Verified, verify
from tests.intake.vectors import Vector, vectors

OURS = (
    "standard-webhooks", "svix", "stripe", "github", "bitbucket", "slack", "shopify", "twilio", "paddle",
    "mailgun", "sendgrid", "square", "adyen-item", "adyen-payload", "line", "gocardless", "razorpay",
    "coinbase-commerce", "generic-hmac-hex",
)  # fmt: skip


@pytest.mark.parametrize("vector", vectors(*OURS), ids=lambda vector: vector.id)
def test_a_published_vector_is_accepted_or_refused_as_published(vector: Vector) -> None:
    verdict = verify(vector.source, vector.request, vector.now_ms)
    assert isinstance(verdict, Verified if vector.valid else Rejected), verdict
