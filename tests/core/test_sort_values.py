"""Values of lists as bytes, however a number is written."""

from __future__ import annotations

import pytest
from msgspec import Raw

from gateway.follow.sort_values import of_node


@pytest.mark.parametrize(
    "written",
    [
        ("0", "-0", "0.0", "0e5"),
        ("7", "7.0", "0.7e1"),
        ("100", "1e2", "100.00"),
        ("120", "12e1", "0.12e3"),
        ("999999999999999", "999999999999999.0"),
        ("0.05", "0.050", "5e-2"),
        ("12.5", "12.50", "1.25e1"),
        ("-12.5", "-12.50", "-1.25e1"),
        ("1000000000000000", "1e15", "1000000000000000.0"),
    ],
)
def test_a_number_has_one_value_however_it_is_written(written: tuple[str, ...]) -> None:
    assert len({of_node(Raw(each.encode())) for each in written}) == 1


def test_integers_are_in_the_order_of_their_values() -> None:
    numbers = sorted({n for size in range(17) for n in (10**size - 1, 10**size, 3 * 10**size, 10**size + 1)})
    for signed in (numbers, [-n for n in reversed(numbers) if n]):
        values = [of_node(Raw(b"%d" % n)) for n in signed]
        assert values == sorted(set(values))
