"""The data of events as Python values, whatever numbers they have. Pure.

Strict JSON has numbers that msgspec refuses to decode: `1e400`, an integer of 5,000 digits. What reads stored
data reads it here, so that one such event does not stop a deployment, an assignment of names or an append.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Final

import msgspec

INTEGER_DIGITS_MAX: Final = 4300
"""Longest integer kept as an `int`: Python's own default limit, beyond which `str` and the schema validator
fail. A longer one becomes a `Decimal`, whose cost is linear."""

_decode = msgspec.json.Decoder(object).decode


def decode_data(text: bytes | msgspec.Raw) -> object:
    """The value of JSON that was admitted: an integer is an `int` up to `INTEGER_DIGITS_MAX` digits, any
    other number a `float`; what does not fit is a `Decimal`."""
    try:
        value: object = _decode(text)
    except msgspec.MsgspecError:
        value = json.loads(bytes(text), parse_int=integer, parse_float=number)
    return value


def integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= INTEGER_DIGITS_MAX else Decimal(digits)


def number(digits: str) -> float | Decimal:
    value = float(digits)
    if value - value == 0:  # neither infinite nor NaN
        return value
    try:
        return Decimal(digits)
    except InvalidOperation:  # an exponent of more than 18 digits: the greatest there is stands for it
        return Decimal("-1e999999999999999999" if digits[0] == "-" else "1e999999999999999999")
