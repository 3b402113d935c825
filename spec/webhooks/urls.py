"""What a provider calls, up to the path, as a source names it: `public_base_url`."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_BASE_URL = re.compile(
    r"https?://(?:[!-.0-;=A-~]+@)?(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.-]{1,253})(?::[0-9]{1,5})?(?:/[!-~]*)?"
)


def is_base_url(text: str) -> bool:
    """Whether it can be taken apart as a URL, and the path and query of a request can follow it."""
    if not _BASE_URL.fullmatch(text) or "?" in text or "#" in text:
        return False
    try:
        return urlsplit(text).port != 0
    except ValueError:  # of what stands in brackets, of a port over 65,535
        return False
