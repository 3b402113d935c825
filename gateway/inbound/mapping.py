"""What the paths and templates of a source find in a delivery: values, and the data of its event. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.inbound.deliveries import Delivery
from gateway.inbound.request import lookup
from spec.webhooks.sources import Fixed, Path, Row, Shape, Source, Template

encode: Final = msgspec.json.Encoder(decimal_format="number").encode
_ABSENT: Final = object()


def data_of(source: Source, delivery: Delivery, headers: dict[str, str]) -> tuple[bytes, object]:
    """Its bytes and its value. Without a mapping, the body stays byte for byte."""
    if source.data is None:
        raw = b'{"body":%b,"headers":%b,"delivery_id":%b}' % (
            delivery.raw,
            encode(headers),
            encode(delivery.id),
        )
        return raw, {"body": delivery.value, "headers": headers, "delivery_id": delivery.id}
    value = _made(source.data, source, delivery, headers)
    value = None if value is _ABSENT else value
    return encode(value), value


def _made(template: Template, source: Source, delivery: Delivery, headers: dict[str, str]) -> object:
    match template:
        case Fixed(value):
            return value
        case Path():
            found = at(template, source, delivery, headers)
            return _ABSENT if found is None and template.optional else found
        case Shape(fields):
            made = [(name, _made(each, source, delivery, headers)) for name, each in fields]
            return {name: value for name, value in made if value is not _ABSENT}
        case Row(items):
            return _present([_made(each, source, delivery, headers) for each in items])


def _present(values: Sequence[object]) -> list[object]:
    return [value for value in values if value is not _ABSENT]


def at(path: Path, source: Source, delivery: Delivery, headers: dict[str, str]) -> object:
    match path.root:
        case "body":
            return lookup(delivery.value, path.fields)
        case "headers":
            return lookup(headers, path.fields)
        case "source":
            return source.name
        case "delivery_id":
            return delivery.id
