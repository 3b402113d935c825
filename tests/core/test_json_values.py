from __future__ import annotations

from decimal import Decimal

import pytest

from gateway.json_values import INTEGER_DIGITS_MAX, decode_data


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        ("1" * INTEGER_DIGITS_MAX, int("1" * INTEGER_DIGITS_MAX)),
        ("1" * (INTEGER_DIGITS_MAX + 1), Decimal("1" * (INTEGER_DIGITS_MAX + 1))),
        ('{"a": [1e400, 2.5, "é"]}', {"a": [Decimal("1e400"), 2.5, "é"]}),
        ("-1e400", Decimal("-1e400")),
        ("1e" + "9" * 20, Decimal("1e999999999999999999")),
        ("-1e" + "9" * 20, Decimal("-1e999999999999999999")),
    ],
)
def test_numbers_of_any_size_are_read(text: str, value: object) -> None:
    found = decode_data(text.encode())
    assert found == value and type(found) is type(value)
