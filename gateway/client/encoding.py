"""What is sent, as JSON. Pure."""

from __future__ import annotations

from decimal import Decimal

import msgspec

_encode = msgspec.json.Encoder(decimal_format="number").encode
_UNWRITABLE = (b"null", b"NaN", b"Infinity")
"""What msgspec writes for a number that JSON has not: the first for a float, the others for a Decimal."""


def encode(value: object) -> bytes:
    """A Decimal is a number with its own digits. Raises ValueError for NaN and infinities."""
    text = _encode(value)
    if any(word in text for word in _UNWRITABLE):
        _refuse_unwritable(msgspec.to_builtins(value, builtin_types=(Decimal,), enc_hook=_as_it_is), "")
    return text


def _as_it_is(_: object) -> None:
    """For msgspec.Raw, which is JSON already."""


def _refuse_unwritable(value: object, path: str) -> None:
    match value:
        case float() | Decimal() if not Decimal(value).is_finite():
            raise ValueError(f"{path.removeprefix('.') or 'the value'} is {value}, which JSON can't express")
        case dict():
            for name, each in value.items():
                _refuse_unwritable(each, f"{path}.{name}")
        case list() | tuple():
            for n, each in enumerate(value):
                _refuse_unwritable(each, f"{path}[{n}]")
