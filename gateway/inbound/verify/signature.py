"""Whether a request comes from whom it says: one engine for every scheme, over the raw bytes. Pure.

Owns: what is signed, in which order; timestamps and tolerance on both sides; several secrets with validity;
comparison in constant time, on bytes, of the signature as the provider must have written it, so that no other
spelling of the same one passes. Must not know: providers by name, HTTP, databases; the clock is an argument.

Source: docs/webhooks.md; the vendors' published test vectors are in tests/inbound/vectors.json.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

import msgspec

from gateway.admit.strict_json import Malformed, decode
from gateway.inbound.request import (
    BadHeader,
    Request,
    as_text,
    form_pairs,
    lookup,
    query_value,
    url_variants,
)
from gateway.inbound.verdicts import Rejected, Uncertified, Verified
from gateway.inbound.verify import jwt, message_signatures, public_keys, sns
from gateway.inbound.verify.message_signatures import Signature
from spec.webhooks.presets import Scheme
from spec.webhooks.sources import Secret, Source

CANDIDATES_MAX: Final = 20
"""Signatures looked at in one header: rotation brings two or three."""

_KEYS_MAX: Final = 1_024
"""Keys that are ready for use: more than sources that are busy at a time."""

_DIGITS = re.compile(rb"[0-9]{1,15}")
_MOMENT = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?Z")
_NONE: Final[Mapping[str, sns.Certificate]] = {}


class Claim(msgspec.Struct, frozen=True, gc=False):
    """What a request says of itself: signatures by version, and what is signed beside the body."""

    signatures: tuple[tuple[bytes, bytes], ...]
    timestamp: bytes = b""
    id: bytes = b""
    token: bytes = b""


def verify(
    source: Source, request: Request, now_ms: int, certificates: Mapping[str, sns.Certificate] = _NONE
) -> Verified | Rejected | Uncertified:
    """Never raises, whatever the request is. `certificates` are those at hand, by URL."""
    if source.unsigned:
        return Verified(0)
    live = [(n, secret) for n, secret in enumerate(source.secrets, 1) if secret.valid_at(now_ms)]
    scheme = source.scheme
    if not live:
        if scheme.form == "sns":
            return _by_certificate(source, request, now_ms, certificates)
        return Rejected("no_valid_secret")
    try:
        if scheme.form in ("body", "form") or request.has(scheme.header):
            return _by_signature(source, request, live, now_ms)
        if scheme.token_header and (token := request.one(scheme.token_header)) is not None:
            return _first(n for n, secret in live if secret.text and _same(secret.text.encode(), token))
    except BadHeader:
        return Rejected("bad_header")
    if scheme.item_signature:
        return _by_items(source, request, live)
    return Rejected("no_signature")


def _by_signature(
    source: Source, request: Request, live: Sequence[tuple[int, Secret]], now_ms: int
) -> Verified | Rejected:
    scheme = source.scheme
    if scheme.form == "jwt":
        return _by_token(source, request, live, now_ms)
    if scheme.form == "message":
        return _by_message(source, request, live, now_ms)
    claim = _claim(scheme, request)
    if isinstance(claim, Rejected):
        return claim
    if scheme.timed:
        refused = _time_fault(claim.timestamp, scheme, source.tolerance_s, now_ms)
        if refused is not None:
            return refused
    contents = contents_of(scheme, request, claim, source.public_base_url)
    if source.reserved:
        contents = [content for content in contents if not source.reserves(content)]
    for number, secret in live:
        if _signed_by(scheme, secret, contents, claim.signatures):
            if scheme.fresh and not _is_fresh(source, request.body, now_ms):
                return Rejected("outside_tolerance")
            return Verified(number)
    return Rejected("mismatch")


def _by_token(
    source: Source, request: Request, live: Sequence[tuple[int, Secret]], now_ms: int
) -> Verified | Rejected:
    token = request.one(source.scheme.header) or b""
    if source.reserves(jwt.signed(token)):
        return Rejected("mismatch")
    matched = _first(n for n, secret in live if jwt.signed_by(token, secret.key.octets))
    if isinstance(matched, Rejected):
        return matched
    found = jwt.claims(token)
    if not jwt.in_time(found, source.tolerance_s, now_ms):
        return Rejected("outside_tolerance")
    url = source.public_base_url.encode() + request.target
    return matched if jwt.covers(found, source.scheme.issuer, url, request.body) else Rejected("mismatch")


def _by_message(
    source: Source, request: Request, live: Sequence[tuple[int, Secret]], now_ms: int
) -> Verified | Rejected:
    """The first signature that holds; else what is wrong with the last."""
    verdict: Verified | Rejected = Rejected("no_signature")
    for each in message_signatures.signatures(request)[:CANDIDATES_MAX]:
        verdict = _message_verdict(source, request, each, live, now_ms)
        if isinstance(verdict, Verified):
            break
    return verdict


def _message_verdict(
    source: Source, request: Request, signature: Signature, live: Sequence[tuple[int, Secret]], now_ms: int
) -> Verified | Rejected:
    if not signature.covers(source.scheme.signed, request):
        return Rejected("covers_too_little")
    refused = _time_fault(signature.created, source.scheme, source.tolerance_s, now_ms)
    if refused is not None:
        return refused
    if signature.has_expired(now_ms):
        return Rejected("outside_tolerance")
    content = message_signatures.content(signature, request, source.public_base_url)
    if (
        content is None
        or source.reserves(content)
        or ("body" in source.scheme.signed and not message_signatures.is_body_of(request))
    ):
        return Rejected("mismatch")
    return _first(n for n, secret in live if message_signatures.signed_by(secret.key, signature, content))


def _by_certificate(
    source: Source, request: Request, now_ms: int, certificates: Mapping[str, sns.Certificate]
) -> Verified | Rejected | Uncertified:
    told = sns.message(source.topics, request)
    if isinstance(told, str):
        return Rejected(told)
    refused = _time_fault(told.timestamp, source.scheme, source.tolerance_s, now_ms)
    if refused is not None:
        return refused
    certificate = certificates.get(told.certificate_url)
    if certificate is None or not certificate.valid_at(now_ms):
        return Uncertified(told.certificate_url)
    return Verified(told.topic) if sns.signed_by(certificate, told) else Rejected("mismatch")


def _first(matching: Iterator[int]) -> Verified | Rejected:
    number = next(matching, None)
    return Rejected("mismatch") if number is None else Verified(number)


def _same(expected: bytes, given: bytes) -> bool:
    return hmac.compare_digest(expected, given)


# ---- what the request claims ----


def _claim(scheme: Scheme, request: Request) -> Claim | Rejected:
    if scheme.form in ("body", "form"):
        return _claim_in_body(scheme, request)
    value = request.one(scheme.header) or b""
    timestamp = request.one(scheme.timestamp_header) if scheme.timestamp_header else b""
    identity = request.one(scheme.id_header) if scheme.id_header and "id" in scheme.signed else b""
    if timestamp is None or identity is None:
        return Rejected("no_signature")
    match scheme.form:
        case "pairs":
            return _pairs(scheme, value)
        case "versions":
            entries = [part.partition(b",") for part in value.split(b" ")]
            found = tuple((version, signature) for version, comma, signature in entries if comma)
        case _:
            prefix = scheme.prefix.encode()
            if not value.startswith(prefix):
                return Rejected("no_signature")
            found = ((b"", value.removeprefix(prefix)),)
    return Claim(found[:CANDIDATES_MAX], timestamp, identity)


def _pairs(scheme: Scheme, value: bytes) -> Claim | Rejected:
    """`t=…,v1=…,v1=…`: exactly one timestamp; names that are unknown are another version's."""
    times, signatures = [], []
    for part in value.split(scheme.separator.encode()):
        name, _, text = part.partition(b"=")
        if name == scheme.timestamp_name.encode():
            times.append(text)
        elif name == scheme.signature_name.encode():
            signatures.append((b"", text))
    if len(times) != 1 or not signatures:
        return Rejected("no_signature")
    return Claim(tuple(signatures[:CANDIDATES_MAX]), times[0])


def _claim_in_body(scheme: Scheme, request: Request) -> Claim | Rejected:
    value = _told_form(scheme, request) if scheme.form == "form" else decode(request.body)
    found = [
        as_text(lookup(value, tuple((path or "").split("."))))
        for path in (scheme.body_signature, scheme.body_timestamp, scheme.body_token)
    ]
    signature, timestamp, token = ["" if text is None else text for text in found]
    if not signature or len(token) < scheme.token_chars_min:
        return Rejected("no_signature")
    signed = [("", signature)]
    if scheme.signer_mark:
        parts = [part.partition(scheme.signer_mark) for part in signature.split(scheme.separator)]
        signed = [(signer, text) for signer, _, text in parts[:CANDIDATES_MAX]]
    found_signatures = tuple((signer.encode(), text.encode()) for signer, text in signed)
    return Claim(found_signatures, timestamp.encode(), token=token.encode())


def _told_form(scheme: Scheme, request: Request) -> dict[str, str]:
    """A form's parameters, if they are those that the scheme knows and no more: more would be unsigned."""
    pairs = (form_pairs(request.body) if request.is_form else None) or []
    known = [name for name in (scheme.body_signature, scheme.body_timestamp, scheme.body_token) if name]
    return dict(pairs) if sorted(name for name, _ in pairs) == sorted(known) else {}


def _time_fault(timestamp: bytes, scheme: Scheme, tolerance_s: int, now_ms: int) -> Rejected | None:
    sent_ms = _moment_ms(timestamp, scheme.timestamp_unit)
    if sent_ms is None:
        return Rejected("bad_timestamp")
    return None if abs(now_ms - sent_ms) <= tolerance_s * 1000 else Rejected("outside_tolerance")


def _moment_ms(timestamp: bytes, unit: str) -> int | None:
    if unit == "rfc3339":
        try:
            whole = datetime.fromisoformat(timestamp[:19].decode() + "+00:00")
        except ValueError:
            return None
        return int(whole.timestamp()) * 1000 if _MOMENT.fullmatch(timestamp) else None
    if not _DIGITS.fullmatch(timestamp):
        return None
    return int(timestamp) * (1 if unit == "ms" else 1000)


def _is_fresh(source: Source, body: bytes, now_ms: int) -> bool:
    """By a time within the signed body; True where there is none. What is there and no number is no time."""
    sent = lookup(decode(body), (source.scheme.fresh or "",))
    if sent is None:
        return True
    return isinstance(sent, int | float) and abs(now_ms - sent) <= source.tolerance_s * 1000


# ---- what is signed ----


def contents_of(scheme: Scheme, request: Request, claim: Claim, base_url: str) -> Sequence[bytes]:
    """The bytes that may have been signed: more than one only where a provider is inconsistent itself."""
    if scheme.signed == ("body",):  # as most: what follows costs as much as the digest
        return (request.body,)
    urls = [base_url.encode() + request.target] if "url" in scheme.signed else [b""]
    if scheme.url_variants:
        urls = list(url_variants(urls[0]))
    form = _form(request) if "form" in scheme.signed else b""
    contents: list[bytes] = []
    if form is None:
        return contents
    for url in urls:
        words = {
            "body": request.body,
            "timestamp": claim.timestamp,
            "id": claim.id,
            "token": claim.token,
            "method": request.method,
            "form": form,
            "url": url,
        }
        contents.append(b"".join([words[part] if part in words else part.encode() for part in scheme.signed]))
    return contents


def _form(request: Request) -> bytes | None:
    """Twilio's: names and values of a form, sorted, each pair once. Of any other body, its digest must stand
    in the signed URL. None: nothing that could have been signed."""
    if request.is_form:
        pairs = form_pairs(request.body)
        return None if pairs is None else "".join([k + v for k, v in sorted(set(pairs))]).encode()
    if request.body:
        told = query_value(request.query, "bodySHA256")
        if told is None or not _same(hashlib.sha256(request.body).hexdigest().encode(), told.encode()):
            return None
    return b""


# ---- who signed it ----


def _signed_by(
    scheme: Scheme, secret: Secret, contents: Sequence[bytes], signatures: Sequence[tuple[bytes, bytes]]
) -> bool:
    """Every candidate is compared, so that the time taken does not tell which one matched."""
    key = secret.key
    match key.kind:
        case "hmac":
            wanted = b"v1" if scheme.form == "versions" else b""
            if scheme.signer_mark:
                wanted = secret.text.partition(scheme.signer_mark)[0].encode()
            signed = False
            for content in contents:
                expected = mac_of(scheme, key.octets, content)
                for version, given in signatures:
                    if version == wanted and hmac.compare_digest(expected, given):
                        signed = True
            return signed
        case "ed25519":
            wanted = b"v1a" if scheme.form == "versions" else b""
            return any(
                public_keys.signed_ed25519(key.octets, given, content, scheme.encoding)
                for content in contents
                for version, given in signatures
                if version == wanted
            )
        case "ecdsa":
            return any(
                public_keys.signed_ecdsa(key.octets, given, content)
                for content in contents
                for _, given in signatures
            )
    return False


def mac_of(scheme: Scheme, key: bytes, content: bytes) -> bytes:
    """The signature as the provider writes it."""
    mac = _keyed(key, scheme.digest).copy()
    mac.update(content)
    digest = mac.digest()
    return digest.hex().encode() if scheme.encoding == "hex" else base64.b64encode(digest)


@lru_cache(_KEYS_MAX)
def _keyed(key: bytes, digest: str) -> hmac.HMAC:
    """To copy: what OpenSSL does again for each one-shot digest takes longer than 1 KB."""
    return hmac.new(key, digestmod=digest)


# ---- batches whose items are signed one by one ----


def _by_items(source: Source, request: Request, live: Sequence[tuple[int, Secret]]) -> Verified | Rejected:
    """One secret must have signed all items, and there must be one."""
    scheme = source.scheme
    body = decode(request.body)
    listed = None if isinstance(body, Malformed) else lookup(body, tuple((scheme.items or "").split(".")))
    if not isinstance(listed, list) or not listed:
        return Rejected("no_signature")
    items = [lookup(item, (scheme.item,)) if scheme.item else item for item in listed]
    return _first(n for n, secret in live if all(_item_signed(source, secret, item) for item in items))


def _item_signed(source: Source, secret: Secret, item: object) -> bool:
    scheme = source.scheme
    given = as_text(_field(item, scheme.item_signature or ""))
    parts = [_item_text(_field(item, path)) for path in scheme.item_signed]
    if given is None or secret.key.kind != "hmac" or None in parts:
        return False
    content = ":".join([part or "" for part in parts]).encode()
    return not source.reserves(content) and _same(mac_of(scheme, secret.key.octets, content), given.encode())


def _item_text(part: object) -> str | None:
    """As it is signed: nothing for what is absent; None for what can't be signed."""
    if isinstance(part, bool):
        return "true" if part else "false"
    return "" if part is None or part == "" else as_text(part)


def _field(item: object, path: str) -> object:
    return lookup(item, tuple(path.split(".")))
