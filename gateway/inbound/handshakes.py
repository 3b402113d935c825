"""What providers ask before they send: the answers to their handshakes. Pure.

Only a source that declares a handshake answers it. Nothing is written, and nothing is told that the asker did
not send, but for proofs that we know the secret: X's CRC, Braintree's challenge, Zoom's token. What such a
proof signs is in `SIGNED_BY_HANDSHAKE`, and verifies no delivery (signature.py).
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.admit.strict_json import decode
from gateway.inbound.request import JSON, BadHeader, Request, lookup, query_value, query_values
from gateway.inbound.verdicts import Rejected, Verified
from gateway.inbound.verify import sns
from gateway.inbound.verify.signature import verify
from spec.webhooks.sources import SIGNED_BY_HANDSHAKE, Source

CHALLENGE_CHARS_MAX: Final = 1_000

TEXT: Final = b"text/plain; charset=utf-8"

_ORIGIN = re.compile(rb"[A-Za-z0-9.*:/_-]{1,255}")


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a handshake: 200 unless it is refused."""

    body: bytes
    content_type: bytes = TEXT
    headers: Sequence[tuple[bytes, bytes]] = ()
    status: int = 200


@dataclass(frozen=True, slots=True)
class Confirming:
    """If the request is verified, this URL confirms what it asks."""

    url: str


REFUSED: Final = Answered(b"", status=403)


def handshake(source: Source, request: Request, now_ms: int) -> Answered | Confirming | None:
    """The answer, or None where this is no handshake of the source's kind."""
    match source.handshake, request.method:
        case "url_verification", b"POST":
            return _url_verification(source, request, now_ms)
        case "hub_challenge" | "hub_challenge_json", b"GET":
            return _hub_challenge(source, request, now_ms)
        case "validation_token", b"POST" | b"GET":
            token = _bounded(query_value(request.query, "validationToken"))
            return None if token is None else Answered(token.encode())
        case "crc", b"GET":
            return _crc(source, request, now_ms)
        case "bt_challenge", b"GET":
            return _bt_challenge(source, request, now_ms)
        case "plain_token", b"POST":
            return _plain_token(source, request, now_ms)
        case "callback_verification", b"POST":
            return _callback_verification(source, request, now_ms)
        case "challenge", b"GET":
            challenge = _bounded(query_value(request.query, "challenge"))
            return None if challenge is None else Answered(challenge.encode())
        case "okta", b"GET":
            return _okta(request)
        case "client_id", b"GET":
            known = _proven(source, request, now_ms)
            return Answered(b"", headers=echoed(source, request)) if known else REFUSED
        case "ping", b"POST":
            return _ping(source, request, now_ms)
        case "hook_secret", b"POST":
            return _hook_secret(source, request)
        case "subscription_confirmation", b"POST":
            return _subscription_confirmation(source, request)
        case "cloudevents", b"OPTIONS":
            return _cloudevents(request)
    return None


def echoed(source: Source, request: Request) -> list[tuple[bytes, bytes]]:
    """The header that goes with each answer to what was verified: Adobe Sign's client id, its token."""
    if source.handshake != "client_id":
        return []
    name = (source.scheme.token_header or "").encode()
    return [header for header in request.headers if header[0] == name]


def _proven(source: Source, request: Request, now_ms: int) -> bool:
    """Whether it was signed, or had the token: what an unsigned source gets proves nothing."""
    verdict = verify(source, request, now_ms)
    return isinstance(verdict, Verified) and verdict.secret > 0


def _bounded(text: object) -> str | None:
    return text if isinstance(text, str) and 0 < len(text) <= CHALLENGE_CHARS_MAX else None


def _url_verification(source: Source, request: Request, now_ms: int) -> Answered | None:
    """Slack's. It is signed like everything that Slack sends; a signature that is there must be right."""
    if b"url_verification" not in request.body:
        return None
    value = decode(request.body)
    challenge = _bounded(lookup(value, ("challenge",)))
    if challenge is None or lookup(value, ("type",)) != "url_verification":
        return None
    match verify(source, request, now_ms):
        case Rejected(reason) if reason != "no_signature":
            return None  # judged as a delivery, which it is not
    return Answered(msgspec.json.encode({"challenge": challenge}), JSON)


def _signs(handshake: str, text: str) -> bool:
    return SIGNED_BY_HANDSHAKE[handshake].fullmatch(text.encode()) is not None


def _hub_challenge(source: Source, request: Request, now_ms: int) -> Answered | None:
    """Meta's: the token that was agreed on, else any secret of the source."""
    told = query_values(request.query)
    if told.get("hub.mode") != "subscribe":
        return None
    challenge = _bounded(told.get("hub.challenge"))
    token = told.get("hub.verify_token") or ""
    secrets = [secret.text for secret in source.secrets if secret.valid_at(now_ms)]
    agreed = secrets if source.verify_token is None else [source.verify_token]
    known = [bool(each) and hmac.compare_digest(each.encode(), token.encode()) for each in agreed]
    if challenge is None or not any(known):
        return REFUSED
    if source.handshake == "hub_challenge_json":  # Strava's way to answer the same question
        return Answered(msgspec.json.encode({"hub.challenge": challenge}), JSON)
    return Answered(challenge.encode())


def _crc(source: Source, request: Request, now_ms: int) -> Answered | None:
    token = query_value(request.query, "crc_token")
    if token is None:
        return None
    secret = next((each for each in source.secrets if each.valid_at(now_ms) and each.text), None)
    if secret is None or not _signs("crc", token):
        return REFUSED
    mac = base64.b64encode(hmac.digest(secret.text.encode(), token.encode(), "sha256")).decode()
    return Answered(msgspec.json.encode({"response_token": f"sha256={mac}"}), JSON)


def _bt_challenge(source: Source, request: Request, now_ms: int) -> Answered | None:
    """Braintree's."""
    challenge = query_value(request.query, "bt_challenge")
    if challenge is None:
        return None
    secret = next((each for each in source.secrets if each.valid_at(now_ms) and each.text), None)
    if secret is None or not source.scheme.signer_mark or not _signs("bt_challenge", challenge):
        return REFUSED
    public, mark, _ = secret.text.partition(source.scheme.signer_mark)
    mac = hmac.digest(secret.key.octets, challenge.encode(), source.scheme.digest).hex()
    return Answered(f"{public}{mark}{mac}".encode())


def _plain_token(source: Source, request: Request, now_ms: int) -> Answered | None:
    """Zoom's. Only a request that is signed by the secret is answered."""
    if b"endpoint.url_validation" not in request.body:
        return None
    value = decode(request.body)
    token = lookup(value, ("payload", "plainToken"))
    if lookup(value, ("event",)) != "endpoint.url_validation" or not isinstance(token, str):
        return None
    verdict = verify(source, request, now_ms)
    if not isinstance(verdict, Verified) or not verdict.secret or not _signs("plain_token", token):
        return None  # judged as a delivery
    key = source.secrets[verdict.secret - 1].key.octets
    mac = hmac.digest(key, token.encode(), "sha256").hex()
    return Answered(msgspec.json.encode({"plainToken": token, "encryptedToken": mac}), JSON)


def _callback_verification(source: Source, request: Request, now_ms: int) -> Answered | None:
    """Twitch's, signed like everything that it sends."""
    told = [value for name, value in request.headers if name == b"twitch-eventsub-message-type"]
    if told != [b"webhook_callback_verification"]:
        return None
    challenge = _bounded(lookup(decode(request.body), ("challenge",)))
    if challenge is None or not isinstance(verify(source, request, now_ms), Verified):
        return None
    return Answered(challenge.encode())


def _ping(source: Source, request: Request, now_ms: int) -> Answered | None:
    """Discord's, signed like everything that it sends: of type 1 for an endpoint of interactions, of type 0
    for one of webhook events, whose events have the type 1 too."""
    value = decode(request.body)
    kind = lookup(value, ("type",))
    if isinstance(kind, bool) or kind not in (0, 1) or lookup(value, ("event",)) is not None:
        return None
    if not _proven(source, request, now_ms):
        return None  # judged as a delivery
    return Answered(b'{"type":1}', JSON) if kind == 1 else Answered(b"", status=204)


def _hook_secret(source: Source, request: Request) -> Answered | None:
    """Asana's. The client that makes the webhook gets the secret too, and puts it into the spec; here it is
    sent back and kept nowhere, so that none can be planted."""
    try:
        secret = request.one("x-hook-secret", CHALLENGE_CHARS_MAX)
    except BadHeader:
        return None
    if secret is None or request.has(source.scheme.header):
        return None
    return Answered(b"", headers=((b"x-hook-secret", secret),))


def _subscription_confirmation(source: Source, request: Request) -> Confirming | None:
    """Amazon SNS'. Nothing is verified here. One whose URL does anything else is a delivery."""
    if source.unsigned or sns.CONFIRMATION.encode() not in request.body:
        return None
    told = sns.message(source.topics, request)
    if isinstance(told, str) or told.subscribe_url is None:
        return None
    return Confirming(told.subscribe_url)


def _okta(request: Request) -> Answered | None:
    told = [value for name, value in request.headers if name == b"x-okta-verification-challenge"]
    if len(told) != 1 or not told[0].isascii() or not 0 < len(told[0]) <= CHALLENGE_CHARS_MAX:
        return None
    return Answered(msgspec.json.encode({"verification": told[0].decode()}), JSON)


def _cloudevents(request: Request) -> Answered | None:
    """CloudEvents' protection against abuse: the sender may send, as often as it likes."""
    origins = [value for name, value in request.headers if name == b"webhook-request-origin"]
    if len(origins) != 1 or not _ORIGIN.fullmatch(origins[0]):
        return None
    allowed = ((b"webhook-allowed-origin", origins[0]), (b"webhook-allowed-rate", b"*"))
    return Answered(b"", headers=(*allowed, (b"allow", b"POST, OPTIONS")))
