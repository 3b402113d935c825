"""When a delivery is attempted again."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.relay.schedule import JITTER, JITTER_S_MAX, RETRY_AFTER_S_MAX, delay_s, retry_after_s
from spec.targets.form import RETRY_S

CHANCES = st.floats(0, 1)


@given(
    st.lists(st.floats(0, 604_800), min_size=1, max_size=12),
    st.data(),
    CHANCES,
    st.none() | st.floats(0, 10**6),
)
def test_no_attempt_is_early_and_none_later_than_its_jitter(
    retry_s: list[float], data: st.DataObject, chance: float, asked: float | None
) -> None:
    attempts = data.draw(st.integers(1, len(retry_s)))
    waits = delay_s(retry_s, attempts, chance, asked)
    assert waits is not None
    least = max(retry_s[attempts - 1], min(asked or 0, RETRY_AFTER_S_MAX))
    assert least <= waits <= least + min(JITTER * least, JITTER_S_MAX)


def test_the_schedule_ends_after_three_days() -> None:
    waits = [delay_s(RETRY_S, attempt, 0.0) for attempt in range(1, len(RETRY_S) + 1)]
    assert waits == [*RETRY_S]
    assert 3 <= sum(RETRY_S) / 86_400 < 3.5
    assert delay_s(RETRY_S, len(RETRY_S) + 1, 0.5) is None
    assert delay_s((), 1, 0.5, 100.0) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (b"120", 120.0),
        (b" 0 ", 0.0),
        (formatdate(1_000_060, usegmt=True).encode(), 60.0),
        (formatdate(999_000, usegmt=True).encode(), 0.0),
        (b"soon", None),
        (b"-5", None),
        (b"1.5", None),
        (b"\xff", None),
        (b"1000000000", RETRY_AFTER_S_MAX),
        (b"9" * 400, RETRY_AFTER_S_MAX),
        (b"Fri Jan 16 22:00:00 1970", RETRY_AFTER_S_MAX),
        (b"Mon Jan 12 13:47:40 1970", 60.0),
        (b"Mon, 01 Jan 99999999999 00:00:00 GMT", None),
        (b"Mon, 01 Jan 2026 00:00:00 +99999999999999", None),
        (b"Mon, 01 Jan 2026 99999999999999999999:00:00 GMT", None),
        (b"Fri, 31 Dec 9999 23:59:59 -2359", RETRY_AFTER_S_MAX),
        (b"Mon, 99 Foo 2026 00:00:00 GMT", None),
    ],
)
def test_retry_after_is_read_as_a_number_or_a_date(value: bytes | None, seconds: float | None) -> None:
    assert retry_after_s(value, 1_000_000.0) == seconds
