"""ETags and `If-Match` once a rewind has given events up."""

from __future__ import annotations

import msgspec
import pytest

from gateway.admit.append import compose
from gateway.admit.preconditions import LENGTH_MAX, etag
from gateway.appends import ANOTHER_HISTORY, Append
from tests.core.appends import SPEC, asked, minting, place, single


def test_no_length_that_a_client_can_name_means_another_history() -> None:
    assert float(ANOTHER_HISTORY) > float(LENGTH_MAX)  # as Redis compares them


def test_an_etag_has_a_mark_only_after_a_rewind() -> None:
    assert (etag(6, 0), etag(5, 0, 3), etag(6, 9), etag(5, 9, 3)) == ('"6"', '"5.r3"', '"6.e9"', '"5.r3.e9"')


@pytest.mark.parametrize(
    ("tag", "rewound", "expected"),
    [
        (b'"5"', 0, 5), (b'"5.r3.e9"', 9, 5), (b'"0"', 9, 0), (b"*", 9, -2), (b'"5"', 9, ANOTHER_HISTORY),
        (b'"5.e8"', 9, ANOTHER_HISTORY), (b'"5.e8"', 0, ANOTHER_HISTORY),
    ],
)  # fmt: skip
def test_if_match_of_another_history_matches_no_length(tag: bytes, rewound: int, expected: int) -> None:
    made = compose(
        SPEC,
        place(),
        asked((b"if-match", tag)),
        single(),
        msgspec.structs.replace(minting(), rewound=rewound),
    )
    assert isinstance(made, Append)
    assert made.expected == expected
