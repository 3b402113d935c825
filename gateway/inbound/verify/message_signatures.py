"""HTTP message signatures: which are there, what each covers, the bytes that it signs, who signed them. Pure.

A signature is read as the RFC spells it and no other way: what stands in `Signature-Input` is signed itself,
as it came. Covered may be headers and what the request line says; of components with parameters, a named
query parameter by itself. A component of a response is none of a request.

Source: RFC 9421; digests of bodies are RFC 9530. The RFC's examples are in tests/inbound/vectors.json.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from gateway.inbound.request import Request, query_values
from gateway.inbound.verify import public_keys
from spec.webhooks.sources import Key

INPUT: Final = "signature-input"
SIGNATURE: Final = "signature"
DIGEST: Final = "content-digest"

ALGORITHMS: Final = {
    "hmac": (b"hmac-sha256",),
    "ed25519": (b"ed25519",),
    "ecdsa": (b"ecdsa-p256-sha256",),
    "rsa": (b"rsa-pss-sha512", b"rsa-v1_5-sha256"),
}
"""By the kind of a key, which says the algorithm: a public key never becomes a shared one. The first counts
where a signature names none."""

_DIGESTS: Final = {b"sha-256": "sha256", b"sha-512": "sha512"}

_NAME = rb"[a-z*][a-z0-9_.*-]*"
_TEXT = rb'"(?:[ !#-\[\]-~]|\\["\\])*"'
_BARE = rb"(?:" + _TEXT + rb"|-?[0-9]{1,15}|\?[01]|[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*)"
_PARAMETERS = rb"(?:;" + _NAME + rb"(?:=" + _BARE + rb")?)*"
_COVERED = rb'"[ !#-\[\]-~]*"' + _PARAMETERS
_NEXT = rb"(?:, *(?!\Z)|\Z)"

_PARAMETER = re.compile(rb";(" + _NAME + rb")(?:=(" + _BARE + rb"))?")
_COMPONENT = re.compile(rb'"([^"]*)"(' + _PARAMETERS + rb")(?: |\Z)")
_LIST = rb"\(((?:" + _COVERED + rb"(?: " + _COVERED + rb")*)?)\)(" + _PARAMETERS + rb")"
_INPUTS = re.compile(rb"(" + _NAME + rb")=(" + _LIST + rb")" + _NEXT)
_OCTETS = re.compile(rb"(" + _NAME + rb")=:([A-Za-z0-9+/=]+):" + _NEXT)


@dataclass(frozen=True, slots=True)
class Signature:
    """One of a request's. `components` are names with their parameters, as written; `text` is what
    `@signature-params` says; `octets` is base64."""

    components: tuple[tuple[bytes, bytes], ...]
    parameters: dict[bytes, bytes]
    text: bytes
    octets: bytes = field(repr=False)

    @property
    def created(self) -> bytes:
        """Unix seconds as they were sent; nothing where no time or no key is told."""
        return self.parameters.get(b"created", b"") if b"keyid" in self.parameters else b""

    def has_expired(self, now_ms: int) -> bool:
        until = self.parameters.get(b"expires")
        return until is not None and not (until.isdigit() and now_ms <= int(until) * 1000)

    def covers(self, parts: tuple[str, ...], request: Request) -> bool:
        """Whether it is over all of these: `method`, `url` (all of it, at once or in its parts), `body`."""
        names = {name for name, parameters in self.components if not parameters}
        target = b"@path" in names and (b"@query" in names or not request.query)
        found = {
            "method": b"@method" in names,
            "url": b"@target-uri" in names
            or (b"@authority" in names and (b"@request-target" in names or target)),
            "body": DIGEST.encode() in names,
        }
        return all(found[part] for part in parts)


def signatures(request: Request) -> list[Signature]:
    """In their order; none where a header can't be read. Raises BadHeader."""
    inputs = _members(_INPUTS, request.one(INPUT) or b"")
    given = _members(_OCTETS, request.one(SIGNATURE) or b"")
    found = []
    for label, match in inputs.items():
        components = [(each[1], each[2]) for each in _COMPONENT.finditer(match[3])]
        parameters = [(each[1], each[2] or b"?1") for each in _PARAMETER.finditer(match[4])]
        once = len(set(components)) == len(components) and len(dict(parameters)) == len(parameters)
        if label in given and once:
            found.append(Signature(tuple(components), dict(parameters), match[2], given[label][2]))
    return found


def _members(pattern: re.Pattern[bytes], value: bytes) -> dict[bytes, re.Match[bytes]]:
    """Of a structured field that is a dictionary; {} where something else stands in it, or a name twice."""
    found: dict[bytes, re.Match[bytes]] = {}
    at = 0
    while at < len(value):
        match = pattern.match(value, at)
        if match is None or match[1] in found:
            return {}
        found[match[1]] = match
        at = match.end()
    return found


def content(signature: Signature, request: Request, base_url: str) -> bytes | None:
    """What it signs of this request; None where that is not there. Raises BadHeader."""
    lines = []
    for name, parameters in signature.components:
        value = _component(name, parameters, request, base_url.encode())
        if value is None:
            return None
        lines.append(b'"%b"%b: %b' % (name, parameters, value))
    return b"\n".join([*lines, b'"@signature-params": ' + signature.text])


def _component(name: bytes, parameters: bytes, request: Request, base_url: bytes) -> bytes | None:
    if name == b"@query-param":
        return _query_parameter(parameters, request.query)
    if parameters:
        return None
    if not name.startswith(b"@"):
        return request.one(name.decode())
    scheme, _, rest = base_url.partition(b"://")
    authority, slash, prefix = rest.partition(b"/")
    host = authority.rpartition(b"@")[2].lower()
    return {
        b"@method": request.method,
        b"@target-uri": base_url + request.target,
        b"@scheme": scheme,
        b"@authority": host.removesuffix({b"https": b":443", b"http": b":80"}.get(scheme, b"")),
        b"@request-target": slash + prefix + request.target,
        b"@path": slash + prefix + request.path,
        b"@query": b"?" + request.query,
    }.get(name)


def _query_parameter(parameters: bytes, query: bytes) -> bytes | None:
    """The value of the one of this name, escaped as in a form; none where it is there several times."""
    named = re.fullmatch(rb';name="([^"\\]*)"', parameters)
    return None if named is None else _escaped_values(query).get(named[1])


@lru_cache(1)
def _escaped_values(query: bytes) -> Mapping[bytes, bytes]:
    """Read once for all that the signatures of a request cover."""
    return {_escaped(name): _escaped(value) for name, value in query_values(query).items()}


def _escaped(text: str) -> bytes:
    return quote(text, safe="*").replace("~", "%7E").encode()


def is_body_of(request: Request) -> bool:
    """Whether `Content-Digest` is of this body, by each algorithm that is known, and at least one. Raises
    BadHeader."""
    told = _members(_OCTETS, request.one(DIGEST) or b"")
    known = [(match[2], _DIGESTS[name]) for name, match in told.items() if name in _DIGESTS]
    held = [
        hmac.compare_digest(base64.b64encode(hashlib.new(digest, request.body).digest()), given)
        for given, digest in known
    ]
    return bool(held) and all(held)


def signed_by(key: Key, signature: Signature, content: bytes) -> bool:
    """Whether this key signed, by an algorithm of its kind."""
    algorithms = ALGORITHMS.get(key.kind, ())
    told = signature.parameters.get(b"alg")
    match next((name for name in algorithms if told in (None, b'"%b"' % name)), None):
        case b"hmac-sha256":
            expected = base64.b64encode(hmac.digest(key.octets, content, "sha256"))
            return hmac.compare_digest(expected, signature.octets)
        case b"ed25519":
            return public_keys.signed_ed25519(key.octets, signature.octets, content)
        case b"ecdsa-p256-sha256":
            return public_keys.signed_ecdsa_raw(key.octets, signature.octets, content)
        case b"rsa-pss-sha512":
            return public_keys.signed_rsa_pss(key.octets, signature.octets, content)
        case b"rsa-v1_5-sha256":
            return public_keys.signed_rsa(key.octets, signature.octets, content)
    return False
