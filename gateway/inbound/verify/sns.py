"""Messages of Amazon SNS: what is signed, by which certificate, and which URL confirms a subscription. Pure.

Which host is called is never a message's to say: each topic that a source names has one, that of its region,
and a message may name URLs of that host only. What is signed has no lengths in it, only lines; so that
nothing can be read in two ways, no value but `Message` may hold a line break.

Source: https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.admit.strict_json import decode
from gateway.inbound.request import Request, form_pairs
from gateway.inbound.verify import public_keys
from spec.webhooks.secrets import strict_base64
from spec.webhooks.sources import Topic

CERTIFICATE_S: Final = 86_400
"""So long a certificate is believed and not fetched again: one that Amazon withdraws is gone by then."""

RSA_BITS_MIN: Final = 2048

CONFIRMATION: Final = "SubscriptionConfirmation"

_OF_SUBSCRIPTIONS: Final = (
    "Message",
    "MessageId",
    "SubscribeURL",
    "Timestamp",
    "Token",
    "TopicArn",
    "Type",
)
_SIGNED: Final = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    CONFIRMATION: _OF_SUBSCRIPTIONS,
    "UnsubscribeConfirmation": _OF_SUBSCRIPTIONS,
}
"""Names in the order of their bytes; `Subject` may be absent."""

_DIGESTS: Final = {"1": "sha1", "2": "sha256"}
"""By `SignatureVersion`."""

_LINE_BREAK: Final = re.compile(r"[\n\r]")
_FILE: Final = re.compile(r"/[A-Za-z0-9._-]{1,200}\.pem")
_NAMES: Final = re.compile(r"sns(?:-signing)?(?:[.-][a-z]{2}-[a-z0-9-]{1,40})?\.amazonaws\.com(?:\.cn)?")
"""Those of certificates that sign: `sns.amazonaws.com`, or with the region in it."""


@dataclass(frozen=True, slots=True)
class Message:
    """One that could be of a topic of the source, the `topic`th, counted from 1. `subscribe_url` is there
    only where it confirms a subscription of that topic."""

    kind: str
    topic: int
    timestamp: bytes
    content: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    digest: str
    certificate_url: str
    subscribe_url: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Certificate:
    """`key` is an RSA public key; valid from `from_ms` until before `until_ms`, Unix milliseconds."""

    key: Any
    from_ms: int
    until_ms: int

    def valid_at(self, now_ms: int) -> bool:
        return self.from_ms <= now_ms < self.until_ms


def message(topics: Sequence[Topic], request: Request) -> Message | str:
    """All that can be known of a message without its certificate; or the reason why it is rejected."""
    value = None if request.is_form else decode(request.body)
    found = _fields(value) if isinstance(value, dict) else None
    if found is None:
        return "no_signature"
    number, topic = next(
        ((n, each) for n, each in enumerate(topics, 1) if each.arn == found["TopicArn"]), (0, None)
    )
    if topic is None:
        return "other_topic"
    if not _is_certificate_of(topic, found["SigningCertURL"]):
        return "bad_url"
    names = _SIGNED[found["Type"]]
    return Message(
        found["Type"],
        number,
        found["Timestamp"].encode(),
        "".join([f"{name}\n{found[name]}\n" for name in names if name in found]).encode(),
        strict_base64(found["Signature"]) or b"",
        _DIGESTS[found["SignatureVersion"]],
        found["SigningCertURL"],
        _confirming(topic, found) if found["Type"] == CONFIRMATION else None,
    )


def _fields(value: dict[str, Any]) -> dict[str, str] | None:
    """Those that are signed and those that say how, if all are there and texts, and none but `Message` is of
    several lines."""
    kind = value.get("Type")
    names = _SIGNED.get(kind, ()) if isinstance(kind, str) else ()
    if value.get("Subject") is None:
        names = tuple([name for name in names if name != "Subject"])
    found = {}
    for name in (*names, "SignatureVersion", "Signature", "SigningCertURL"):
        text = value.get(name)
        if not isinstance(text, str) or (name != "Message" and _LINE_BREAK.search(text)):
            return None
        found[name] = text
    octets = strict_base64(found["Signature"]) or b""
    long_enough = len(octets) * 8 >= RSA_BITS_MIN
    return found if long_enough and names and found["SignatureVersion"] in _DIGESTS else None


def _is_certificate_of(topic: Topic, url: str) -> bool:
    origin = f"https://{topic.host}"
    return url.startswith(origin) and _FILE.fullmatch(url.removeprefix(origin)) is not None


def _confirming(topic: Topic, found: dict[str, str]) -> str | None:
    """Its URL, if it confirms a subscription of this topic by this token and does nothing else."""
    url = found["SubscribeURL"]
    origin = f"https://{topic.host}/?"
    wanted = [("Action", "ConfirmSubscription"), ("Token", found["Token"]), ("TopicArn", topic.arn)]
    query = url.removeprefix(origin)
    if query == url or not url.isascii() or not url.isprintable() or urlsplit(url).fragment:
        return None
    return url if sorted(form_pairs(query.encode()) or []) == wanted else None


def signed_by(certificate: Certificate, told: Message) -> bool:
    return public_keys.signed_rsa_by(certificate.key, told.signature, told.content, told.digest)


def certificate(pem: bytes, now_ms: int) -> Certificate | str:
    """What can sign, or why it can't: it must be valid now, of a name of Amazon SNS, and of RSA. Its issuer
    is not looked up: that it came from Amazon's host over TLS is what it is believed by."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    unreadable = (
        ValueError,
        UnsupportedAlgorithm,
        x509.DuplicateExtension,
        x509.ExtensionNotFound,
        x509.InvalidVersion,
    )
    try:
        found = x509.load_pem_x509_certificate(pem)
        key = found.public_key()
        told = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = told.get_values_for_type(x509.DNSName)
    except unreadable as fault:
        return f"the fetched file is not a certificate: {type(fault).__name__}"
    if not any(_NAMES.fullmatch(name) for name in names):
        return "the certificate does not name Amazon SNS"
    if not isinstance(key, RSAPublicKey) or key.key_size < RSA_BITS_MIN:
        return f"the certificate has no RSA key of {RSA_BITS_MIN} bits or more"
    from_ms, until_ms = [
        int(moment.timestamp() * 1000) for moment in (found.not_valid_before_utc, found.not_valid_after_utc)
    ]
    if not from_ms <= now_ms < until_ms:
        return "the certificate is not valid now"
    return Certificate(key, from_ms, min(until_ms, now_ms + CERTIFICATE_S * 1000))
