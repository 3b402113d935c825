"""The engine against the test vectors that vendors publish."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from msgspec.structs import replace as altered

from gateway.inbound.handshakes import Answered, handshake
from gateway.inbound.request import JSON
from gateway.inbound.verdicts import Rejected, Verified
from gateway.inbound.verify import message_signatures
from gateway.inbound.verify.signature import verify
from tests.inbound.vectors import VECTORS, Vector, source, vectors

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
def test_of_hubspots_signatures_only_the_third_version_counts(vector: Vector) -> None:
    verdict = verify(vector.source, vector.request, vector.now_ms)
    assert isinstance(verdict, Verified) == vector.id.endswith("v3")


@pytest.mark.parametrize(
    "vector", vectors("github-sha1-legacy", "messagebird-legacy"), ids=lambda vector: vector.id
)
def test_what_a_provider_has_given_up_is_not_taken(vector: Vector) -> None:
    kept = [header for header in vector.request.headers if header[0] != b"x-hub-signature-256"]
    request = altered(vector.request, headers=tuple(kept))
    assert isinstance(verify(vector.source, request, vector.now_ms), Rejected)


def test_a_provider_that_signs_by_only_sha1_is_taken_where_a_spec_says_so() -> None:
    (vector,) = vectors("github-sha1-legacy")
    scheme = {"header": "X-Hub-Signature", "prefix": "sha1=", "digest": "sha1"}
    made = source("hmac", [vector.source.secrets[0].text], **scheme)
    assert verify(made, vector.request, vector.now_ms) == Verified(1)
    changed = altered(vector.request, body=vector.request.body + b" ")
    assert verify(made, changed, vector.now_ms) == Rejected("mismatch")


@pytest.mark.parametrize("vector", vectors("rfc9421"), ids=lambda vector: vector.id)
def test_a_message_signature_is_taken_if_it_covers_method_url_and_body(vector: Vector) -> None:
    """Of the RFC's examples one does."""
    verdict = verify(vector.source, vector.request, vector.now_ms)
    assert verdict == (Verified(1) if vector.id.endswith("B.2.3") else Rejected("covers_too_little"))


@pytest.mark.parametrize("vector", vectors("rfc9421"), ids=lambda vector: vector.id)
def test_every_message_signature_of_the_rfc_holds_for_what_it_covers(vector: Vector) -> None:
    """By the same verifier, of which nothing is wanted to be covered. One is of a response."""
    scheme = msgspec.structs.replace(vector.source.scheme, signed=())
    verdict = verify(replace(vector.source, scheme=scheme), vector.request, vector.now_ms)
    (signature,) = message_signatures.signatures(vector.request)
    made = message_signatures.content(signature, vector.request, vector.source.public_base_url)
    if vector.id.endswith("B.2.4"):
        assert (verdict, made) == (Rejected("mismatch"), None)
    else:
        assert (verdict, made) == (Verified(1), vector.content.encode())

    key, content = vector.source.secrets[0].key, vector.content.encode()
    assert signature.octets == vector.expected.encode()
    assert message_signatures.signed_by(key, signature, content)
    assert not message_signatures.signed_by(key, signature, content + b" ")
    first = b"A" if signature.octets[:1] != b"A" else b"B"
    other = replace(signature, octets=first + signature.octets[1:])
    assert not message_signatures.signed_by(key, other, content)


def test_challenges_are_answered_as_published() -> None:
    (crc,), (braintree,) = vectors("x-crc-challenge"), vectors("braintree-challenge")
    answered = handshake(crc.source, crc.request, crc.now_ms)
    assert answered == Answered(b'{"response_token":"%b"}' % crc.expected.encode(), JSON)
    answered = handshake(braintree.source, braintree.request, braintree.now_ms)
    assert answered == Answered(braintree.expected.encode())


def test_there_is_no_other_vector() -> None:
    tested = {*OURS, "hubspot", "github-sha1-legacy", "messagebird-legacy", "rfc9421"}
    tested |= {"x-crc-challenge", "braintree-challenge"}
    assert {each["scheme"] for each in VECTORS} == tested
    assert len(VECTORS) == 141
