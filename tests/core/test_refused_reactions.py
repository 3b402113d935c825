"""What a parked timer and a failed saga say of the append that was refused."""

from __future__ import annotations

import pytest

from gateway.errors import Refusal
from gateway.outcomes import (
    Conflict,
    Declined,
    ImplicationRefused,
    NotUnique,
    Outcome,
    Quarantined,
    RuleViolated,
)
from gateway.reactions.outputs import why_refused


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (Declined(Refusal("key_taken", "The key VNO belongs to the project x.")), "The key VNO belongs"),
        (RuleViolated(0, 0, "It was never paid.", 3), "It was never paid."),
        (ImplicationRefused(0, "invalid_field", "It is no number.", "data.x"), "It is no number."),
        (Quarantined("a check constraint"), "a check constraint"),
        (NotUnique("data.email", "user", "k"), "data.email: user k has this value."),
        (
            NotUnique("data.email", "user", ""),
            "data.email: another new user of the same append has this value.",
        ),
        (Conflict(3), "the outcome of the append was Conflict"),
    ],
)
def test_it_has_the_words_of_what_refused(outcome: Outcome, why: str) -> None:
    assert why_refused(outcome).startswith(why)
