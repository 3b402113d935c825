"""The claims of an event, out of its data. Pure.

Owns: what a claimed value is hashed to. The same value of another tenant, aggregate type, name or scope has
another hash, which tells nothing without the tenant's salt.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec

from gateway.events import Claim
from spec.claims import ClaimRule
from spec.model import EventType
from spec.tags import Steps, TagFault, text_of, values_at

_VALUE_DOMAIN: Final = b"sluice/claim/1"
_SCOPE_DOMAIN: Final = b"sluice/claim-scope/1"
_SCOPE_BYTES: Final = 16
_encode: Final = msgspec.msgpack.Encoder().encode

NO_SCOPE: Final = b""


def claims_of(
    event_type: EventType, aggregate_type: str, n: int, data: object, tenant: bytes, salt: bytes
) -> tuple[list[Claim], list[str]] | TagFault:
    """What event `n` of an append releases, then what it claims, in the order of the declarations; and the
    path of the value of each, relative to the data."""
    claims = [Claim(n, name, NO_SCOPE, None) for name in event_type.releases]
    paths = [""] * len(claims)
    for rule in event_type.claims:
        found = _at(data, rule.steps)
        if found is None:
            continue
        path, value = found
        text = text_of(value)
        if text is None:
            why = f"A value of the claim `{rule.name}` must be a string, a number or a boolean."
            return TagFault(path, why)
        scope = _scope(rule, data, salt)
        if isinstance(scope, TagFault):
            return scope
        if rule.folded:
            text = text.casefold()
        hashed = sha256(_VALUE_DOMAIN + _encode((salt, tenant, aggregate_type, rule.name, scope, text)))
        claims.append(Claim(n, rule.name, scope, hashed.digest()))
        paths.append(path)
    return claims, paths


def _scope(rule: ClaimRule, data: object, salt: bytes) -> bytes | TagFault:
    found = None if rule.scope is None else _at(data, rule.scope)
    if found is None:
        return NO_SCOPE
    path, value = found
    text = text_of(value)
    if text is None:
        why = f"The scope of the claim `{rule.name}` must be a string, a number or a boolean."
        return TagFault(path, why)
    return sha256(_SCOPE_DOMAIN + _encode((salt, text))).digest()[:_SCOPE_BYTES]


def _at(data: object, steps: Steps) -> tuple[str, object] | None:
    """The value there with its path; None where it is absent or null."""
    return next(values_at(data, steps), None)
