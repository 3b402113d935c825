"""What is found of a request: values that verification makes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec


class Verified(msgspec.Struct, frozen=True, gc=False):
    """`secret` is the number of the one that matched, from 1; 0 where the source is unsigned. Where topics
    stand in place of secrets, it is the topic's."""

    secret: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """`reason` is one of REASONS. The sender is not told which."""

    reason: str


@dataclass(frozen=True, slots=True)
class Uncertified:
    """All that could be checked is in order; the certificate that is at this URL is not at hand."""

    url: str


REASONS: Final = (
    "no_signature",
    "bad_header",
    "bad_timestamp",
    "outside_tolerance",
    "no_valid_secret",
    "covers_too_little",
    "other_topic",
    "bad_url",
    "mismatch",
)
