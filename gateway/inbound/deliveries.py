"""From a verified request to its deliveries: one, or one an item of a batch, each known by an id. Pure.

Owns: where an id stands, which bytes must be the same when a delivery comes again, and the identity that an
append of it claims. Nothing else in the gateway tells two deliveries apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Final

import msgspec

from gateway.admit.strict_json import CROWDED, DEPTH_MAX, Malformed, crowded, decode, is_strict
from gateway.appends import ANY_LENGTH, Retry, identity, request_digest
from gateway.inbound.request import (
    ID_BYTES_MAX,
    BadHeader,
    Request,
    as_text,
    form_object,
    form_pairs,
    lookup,
    raw_object,
)
from gateway.inbound.verify import jwt
from gateway.names.content import content_of_json, content_of_read, read_once
from spec.webhooks.sources import Source

ITEMS_MAX: Final = 5_000
"""Items of one batch: more than fit into a body of 1 MiB as any provider writes them."""

_SCHEMES_MAX: Final = 1_024
"""Whose places are remembered; a preset is one scheme."""

_ENCODE = msgspec.json.Encoder().encode


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One thing that a provider tells. `raw` is JSON as it was sent, or what a form's parameters make, and
    `content` a hash of what that says (names/content.py); `digest` is what a repetition must have in common;
    `by_digest`: the provider gave no id."""

    id: str
    by_digest: bool
    digest: bytes
    raw: bytes
    value: object
    content: str
    item: int = 0

    def __repr__(self) -> str:
        """Without what the provider tells."""
        return f"Delivery({self.id!r}, item={self.item})"

    def retry(self, tenant: bytes, source: str) -> Retry:
        """What its append is recognized by, permanently: the identity is the source's and the delivery's."""
        claimed = identity(tenant, f"webhook:{source}", self.id.encode())
        return Retry(tenant, (claimed,), (), self.digest)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A verified body that no deliveries can be made of; kept whole under its own id."""

    code: str
    error: str
    id: str
    digest: bytes


def header_fault(source: Source, request: Request) -> str | None:
    """The name of a header with a delivery id, or with the token that has it, that can't be one."""
    try:
        for kind, where in _places_of(source.scheme.delivery):
            if kind == "header" and request.one(where, ID_BYTES_MAX) is not None:
                return None
            if kind == "jwt":
                request.one(source.scheme.header)
    except BadHeader as fault:
        return fault.name
    return None


def deliveries(source: Source, request: Request) -> tuple[Delivery, ...] | Unreadable:
    """In the order of the request. `header_fault` must have found nothing."""
    body = request.body
    if request.is_form:
        pairs = form_pairs(body)
        if pairs is None:
            return _unreadable(source, request, "invalid_json", "The form is not percent-encoded UTF-8.")
        form = form_object(pairs)
        raw = _ENCODE(form)
        return (_delivery(source, request, raw, form, body),)
    value, spelled = _decoded(body)
    if isinstance(value, Malformed):
        return _unreadable(source, request, "invalid_json", value.reason)
    listed = None if source.items is None else _items(source.items, source.scheme.item, body, value)
    if listed is None:  # also a batch's sender that sends one thing for once
        return (_delivery(source, request, body, value, body, spelled=spelled),)
    if len(listed) > ITEMS_MAX:
        why = f"The batch has {len(listed)} items; at most {ITEMS_MAX} are accepted."
        return _unreadable(source, request, "too_large", why)
    return tuple([_delivery(source, request, raw, item, raw, n) for n, (raw, item) in enumerate(listed)])


def _decoded(body: bytes) -> tuple[object | Malformed, bytes | None]:
    """Its value and, where one reading tells both, as nearly always, the spelling that its content is of."""
    if crowded(body):
        return CROWDED, None
    read = read_once(body)
    if read is not None and is_strict(body, read[1].count(b":"), read[0], DEPTH_MAX):
        return read
    return decode(body), None


def is_batch(source: Source, request: Request) -> bool:
    """Whether the answer lists several."""
    return source.items is not None and not request.is_form


def _items(
    path: tuple[str, ...], wrapper: str | None, body: bytes, value: object
) -> list[tuple[bytes, object]] | None:
    """The items' bytes and values; None where there is no list."""
    values = lookup(value, path)
    if not isinstance(values, list):
        return None
    for name in path:
        body = bytes(raw_object(body)[name])
    raws = [bytes(each) for each in msgspec.json.decode(body, type=list[msgspec.Raw])]
    if wrapper is None:
        return list(zip(raws, values, strict=True))
    inner = [
        (raw_object(raw).get(wrapper, raw), lookup(each, (wrapper,)))
        for raw, each in zip(raws, values, strict=True)
    ]
    return [(bytes(raw), each) for raw, each in inner]


def _delivery(
    source: Source,
    request: Request,
    raw: bytes,
    value: object,
    digested: bytes,
    item: int | None = None,
    spelled: bytes | None = None,
) -> Delivery:
    """`item` is its number where it is one of a list; `spelled`: as `_decoded` told it of `raw`."""
    content = content_of_json(raw, strict=True) if spelled is None else content_of_read(raw, spelled)
    digest = _digest(source, digested)
    given = _id(source, request, value, item)
    known = f"sha256:{sha256(digested).hexdigest()}" if given is None else given
    return Delivery(known, given is None, digest, raw, value, content, item or 0)


def _unreadable(source: Source, request: Request, code: str, error: str) -> Unreadable:
    given = _id(source, request, None) or f"sha256:{sha256(request.body).hexdigest()}"
    return Unreadable(code, error, given, _digest(source, request.body))


def _id(source: Source, request: Request, value: object, item: int | None = None) -> str | None:
    """As the provider gives it, at the first of its places that has one. One that all items of a list share,
    since it came in a header, gets the number of each."""
    numbered = "" if item is None else f"#{item}"
    if source.delivery_id is not None:
        return _bounded(as_text(lookup(value, source.delivery_id)))
    for kind, where in _places_of(source.scheme.delivery):
        if kind == "header":
            sent = request.last(where)
            if sent:
                return _bounded(sent.decode("latin-1") + numbered)
            continue
        if kind == "jwt":
            told = as_text(jwt.claims(request.last(source.scheme.header) or b"").get(where))
            found = None if told is None else told + numbered
        else:
            texts = [_part(lookup(value, tuple(each.split(".")))) for each in where.split("+")]
            found = None if None in texts else "+".join([text or "" for text in texts])
        if found:
            return _bounded(found)
    return None


@lru_cache(_SCHEMES_MAX)
def _places_of(delivery: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Of each place the kind, and where it is: a header, a claim of a token, or fields of the body."""
    return tuple((kind, where) for kind, _, where in (place.partition(":") for place in delivery))


def _part(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return as_text(value)


def _bounded(found: str | None) -> str | None:
    """A longer one is known by its digest, and one with U+0000, which Postgres keeps in no text."""
    if found is None or (len(found.encode()) <= ID_BYTES_MAX and "\0" not in found):
        return found
    return f"sha256:{sha256(found.encode()).hexdigest()}"


def _digest(source: Source, body: bytes) -> bytes:
    """Over the bytes, but for the values of what the provider changes when it tries again."""
    for pattern in _patterns_of(source.scheme.volatile):
        body = pattern.sub(rb"\1", body)
    return request_digest(f"webhook:{source.name}", body, ANY_LENGTH)


@lru_cache(_SCHEMES_MAX)
def _patterns_of(volatile: tuple[str, ...]) -> tuple[re.Pattern[bytes], ...]:
    value = rb'("%b"\s*:\s*)(?:"[^"\\]*"|[0-9a-z.+-]+)'
    return tuple(re.compile(value % re.escape(name.encode())) for name in volatile)
