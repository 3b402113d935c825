"""The other side of a source, to test it: a request as its provider would sign it. Pure.

What is signed by a private key can't be made here, and HTTP message signatures are not.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace

from gateway.admit.strict_json import decode
from gateway.inbound.request import FORM, Request
from gateway.inbound.verify import jwt
from gateway.inbound.verify.signature import Claim, contents_of, mac_of
from spec.webhooks.presets import Scheme
from spec.webhooks.sources import Secret, Source

JSON: Final = "application/json"
TOKEN_VALID_S: Final = 60


def sample(source: Source, delivery_id: str) -> tuple[str, bytes]:
    """Content type and body of something that could be sent, with the id where the provider has one in its
    body."""
    scheme = source.scheme
    if scheme.form == "form":
        return JSON, b"<notification><id>%b</id></notification>" % delivery_id.encode()
    if "form" in scheme.signed:
        return FORM.decode(), urlencode({"MessageSid": delivery_id}).encode()
    item: dict[str, Any] = {}
    for fields in _places(source) or [("id",)]:
        _put(item, fields, delivery_id)
    value: Any = item if scheme.item is None else {scheme.item: item}
    if source.items is not None:
        value = [value]
        for name in reversed(source.items):
            value = {name: value}
    return JSON, msgspec.json.encode(value)


def _places(source: Source) -> list[tuple[str, ...]]:
    if source.delivery_id is not None:
        return [source.delivery_id]
    first = next(iter(source.scheme.delivery), "")
    if not first.startswith("body:") or source.scheme.form == "body":
        return []
    return [tuple(each.split(".")) for each in first.removeprefix("body:").split("+")]


def _put(value: dict[str, Any], fields: tuple[str, ...], text: str) -> None:
    for name in fields[:-1]:
        value = value.setdefault(name, {})
    if fields:
        value[fields[-1]] = text


def sign(source: Source, request: Request, now_ms: int, delivery_id: str) -> Request:
    """`request` as the provider would send it now. Raises ValueError where that can't be made here."""
    scheme, secret = source.scheme, next((s for s in source.secrets if s.valid_at(now_ms)), None)
    if scheme.form == "sns" and not source.unsigned:
        raise ValueError("Amazon SNS signs by a private key of its own: publish a message to the topic")
    if source.unsigned or secret is None:
        raise ValueError("this source is unsigned, or none of its secrets is valid now")
    if secret.key.kind != "hmac" or scheme.form == "message":
        raise ValueError(
            "this provider signs by a private key or by HTTP message signatures, which this command "
            "can't make: send from its own test page"
        )
    if not scheme.header and scheme.token_header:
        return _with(request, (scheme.token_header.encode(), secret.text.encode()))
    match scheme.form:
        case "jwt":
            return _with_token(source, secret, request, now_ms, delivery_id)
        case "body":
            return _in_object(scheme, secret, request, now_ms, delivery_id)
        case "form":
            return _in_form(scheme, secret, request)
    return _by_header(source, secret, request, now_ms, delivery_id)


def _by_header(source: Source, secret: Secret, request: Request, now_ms: int, delivery_id: str) -> Request:
    scheme = source.scheme
    now = _told(now_ms, scheme.timestamp_unit)
    claim = Claim((), now if scheme.timed else b"", delivery_id.encode())
    contents = contents_of(scheme, request, claim, source.public_base_url)
    if not contents:
        raise ValueError("a body that is not a form is signed by its digest: put bodySHA256=… into the query")
    mac = mac_of(scheme, secret.key.octets, contents[0])
    match scheme.form:
        case "pairs":
            name, pair = scheme.timestamp_name.encode(), scheme.signature_name.encode()
            value = b"%b=%b%b%b=%b" % (name, now, scheme.separator.encode(), pair, mac)
        case "versions":
            value = b"v1," + mac
        case _:
            value = scheme.prefix.encode() + mac
    more = [(scheme.header.encode(), value)]
    if scheme.timestamp_header:
        more.append((scheme.timestamp_header.encode(), now))
    if scheme.id_header:
        more.append((scheme.id_header.encode(), claim.id))
    told = {name for name, _ in (*request.headers, *more)}
    for place in scheme.delivery:
        name = place.removeprefix("header:").encode()
        if place.startswith("header:") and name not in told:
            more.append((name, claim.id))
            break
    return _with(request, *more)


def _told(now_ms: int, unit: str) -> bytes:
    if unit == "rfc3339":
        return datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    return b"%d" % (now_ms if unit == "ms" else now_ms // 1000)


def _with_token(source: Source, secret: Secret, request: Request, now_ms: int, delivery_id: str) -> Request:
    now_s = now_ms // 1000
    url = source.public_base_url.encode() + request.target
    claims = {"iss": source.scheme.issuer, "nbf": now_s, "exp": now_s + TOKEN_VALID_S, "jti": delivery_id}
    claims["url_hash"] = hashlib.sha256(url).hexdigest()
    if request.body:
        claims["payload_hash"] = hashlib.sha256(request.body).hexdigest()
    return _with(request, (source.scheme.header.encode(), jwt.made(claims, secret.key.octets)))


def _in_object(scheme: Scheme, secret: Secret, request: Request, now_ms: int, delivery_id: str) -> Request:
    value = decode(request.body)
    if not isinstance(value, dict):
        raise ValueError("this provider signs within its body, which must be a JSON object")
    claim = Claim(
        (), b"%d" % (now_ms // 1000), token=hashlib.sha256(delivery_id.encode()).hexdigest().encode()
    )
    mac = mac_of(scheme, secret.key.octets, contents_of(scheme, request, claim, "")[0])
    for path, text in (
        (scheme.body_timestamp, claim.timestamp),
        (scheme.body_token, claim.token),
        (scheme.body_signature, mac),
    ):
        _put(value, tuple((path or "").split(".")), text.decode())
    return replace(request, body=msgspec.json.encode(value))


def _in_form(scheme: Scheme, secret: Secret, request: Request) -> Request:
    """The body becomes the payload."""
    claim = Claim((), token=base64.b64encode(request.body))
    if len(claim.token) < scheme.token_chars_min:
        raise ValueError(f"a payload has at least {scheme.token_chars_min * 3 // 4 + 1} bytes")
    mac = mac_of(scheme, secret.key.octets, contents_of(scheme, request, claim, "")[0])
    signer = secret.text.partition(scheme.signer_mark)[0]
    signature = f"{signer}{scheme.signer_mark}{mac.decode()}"
    told = {scheme.body_signature or "": signature, scheme.body_token or "": claim.token.decode()}
    body = urlencode(told).encode()
    kept = [header for header in request.headers if header[0] != b"content-type"]
    return replace(request, headers=(*kept, (b"content-type", FORM)), body=body)


def _with(request: Request, *more: tuple[bytes, bytes]) -> Request:
    return replace(request, headers=(*request.headers, *more))
