"""What is sent, as JSON. Pure."""

from __future__ import annotations

import math

import msgspec

_encode = msgspec.json.Encoder().encode


def encode(value: object) -> bytes:
    """Raises ValueError for NaN and infinities, which JSON has not: msgspec writes null in their place."""
    text = _encode(value)
    if b"null" in text:
        _refuse_unwritable(msgspec.to_builtins(value, enc_hook=_as_it_is), "")
    return text


def _as_it_is(_: object) -> None:
    """For msgspec.Raw, which is JSON already."""


def _refuse_unwritable(value: object, path: str) -> None:
    match value:
        case float() if not math.isfinite(value):
            raise ValueError(f"{path.removeprefix('.') or 'the value'} is {value}, which JSON can't express")
        case dict():
            for name, each in value.items():
                _refuse_unwritable(each, f"{path}.{name}")
        case list() | tuple():
            for n, each in enumerate(value):
                _refuse_unwritable(each, f"{path}[{n}]")
