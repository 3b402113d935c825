"""When a delivery is attempted again. Pure: clock and chance are arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

JITTER: Final = 0.1
"""Part of a delay that may be added to it, so that what failed at once does not come back at once."""

JITTER_S_MAX: Final = 600.0
RETRY_AFTER_S_MAX: Final = 86_400.0
"""The longest that a receiver can ask for: it would lose the rest of the schedule to a wrong unit."""

FAILING_S_MAX: Final = 5 * 86_400.0
"""An endpoint that has failed for so long without one success is disabled."""

_DIGITS: Final = re.compile(rb"[0-9]+")


def delay_s(
    retry_s: Sequence[float], attempts: int, chance: float, retry_after_s: float | None = None
) -> float | None:
    """Seconds from the end of the last of so many attempts to the next, never less than scheduled or asked
    for; None after the last one. `chance` is from 0 to 1."""
    if attempts > len(retry_s):
        return None
    scheduled = retry_s[attempts - 1]
    least = max(scheduled, min(retry_after_s or 0.0, RETRY_AFTER_S_MAX))
    return least + chance * min(JITTER * least, JITTER_S_MAX)


def retry_after_s(value: bytes | None, now: float) -> float | None:
    """The seconds that a `Retry-After` asks for (RFC 9110 section 10.2.3), at most RETRY_AFTER_S_MAX: a
    number, or a date, to be compared with `now` in Unix seconds. None where it is absent or neither."""
    if value is None:
        return None
    text = value.strip()
    if _DIGITS.fullmatch(text):
        return min(float(text), RETRY_AFTER_S_MAX)
    try:
        at = parsedate_to_datetime(text.decode("ascii"))
        if at.tzinfo is None:  # the form of asctime(), which is UTC
            at = at.replace(tzinfo=UTC)
        return min(max(at.timestamp() - now, 0.0), RETRY_AFTER_S_MAX)
    except (ValueError, TypeError, OverflowError):  # what a stranger sends makes the parser raise each
        return None
