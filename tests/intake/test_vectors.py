"""The engine against the test vectors that vendors publish."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from gateway.intake.signature import Rejected, Verified, verify
from tests.intake.vectors import VECTORS, Vector, vectors

OURS = (
    "standard-webhooks", "svix", "stripe", "github", "bitbucket", "slack", "shopify", "twilio", "paddle",
    "mailgun", "sendgrid", "square", "adyen-item", "adyen-payload", "line", "gocardless", "razorpay",
    "coinbase-commerce", "generic-hmac-hex", "messagebird-jwt",
)  # fmt: skip


@pytest.mark.parametrize("vector", vectors(*OURS), ids=lambda vector: vector.id)
def test_a_published_vector_is_accepted_or_refused_as_published(vector: Vector) -> None:
    verdict = verify(vector.source, vector.request, vector.now_ms)
    assert isinstance(verdict, Verified if vector.valid else Rejected), verdict


@pytest.mark.parametrize("vector", vectors("hubspot"), ids=lambda vector: vector.id)
def test_of_hubspots_signatures_the_third_version_counts_alone(vector: Vector) -> None:
    verdict = verify(vector.source, vector.request, vector.now_ms)
    assert isinstance(verdict, Verified) == vector.id.endswith("v3")


@pytest.mark.parametrize(
    "vector", vectors("github-sha1-legacy", "messagebird-legacy"), ids=lambda vector: vector.id
)
def test_what_a_provider_has_given_up_is_not_taken(vector: Vector) -> None:
    kept = [header for header in vector.request.headers if header[0] != b"x-hub-signature-256"]
    request = replace(vector.request, headers=tuple(kept))
    assert isinstance(verify(vector.source, request, vector.now_ms), Rejected)


def test_every_other_vector_is_of_a_scheme_that_is_not_taken() -> None:
    """HTTP message signatures, and two handshakes: one of them is answered (tests/edge/test_webhooks.py)."""
    tested = {*OURS, "hubspot", "github-sha1-legacy", "messagebird-legacy"}
    others = Counter(each["scheme"] for each in VECTORS if each["scheme"] not in tested)
    assert others == {"rfc9421": 8, "braintree-challenge": 1, "x-crc-challenge": 1}
    assert len(VECTORS) == 141
