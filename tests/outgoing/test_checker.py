"""The checker finds what it is there for, in histories made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.outgoing.checker import (
    Arrival,
    Committed,
    Seen,
    Violation,
    Wanted,
    check_acknowledged,
    check_follower,
    check_receiver,
)

# Two aggregates, their events by turns; seqs have holes where another tenant's events stand.
ROWS = [
    Committed(seq, f"{aggregate_type}{version}", aggregate_type, "k", version, event_type)
    for seq, aggregate_type, version, event_type in (
        (1, "order", 1, "was_noted"),
        (2, "ticket", 1, "was_opened"),
        (4, "order", 2, "was_cleared"),
        (7, "ticket", 2, "was_opened"),
        (8, "order", 3, "was_noted"),
    )
]
SEEN = [Seen(each.seq, each.id) for each in ROWS]


def arrival(row: Committed, *, accepted: bool = True) -> Arrival:
    return Arrival(row.id, row.id, row.id.encode(), accepted)


ARRIVALS = [arrival(each) for each in ROWS]


def kinds(found: list[Violation]) -> list[str]:
    return [each.kind for each in found]


def test_a_filter_takes_what_it_names() -> None:
    assert Wanted().of(ROWS) == ROWS
    assert Wanted(types=frozenset({"ticket"})).of(ROWS) == [ROWS[1], ROWS[3]]
    assert Wanted(event_types=frozenset({"was_noted"})).of(ROWS) == [ROWS[0], ROWS[4]]
    assert Wanted(frozenset({"ticket"}), frozenset({"was_noted"})).of(ROWS) == []


def test_what_is_stored_is_what_was_acknowledged() -> None:
    ids = {each.id for each in ROWS}
    assert check_acknowledged(ids, ROWS) == []
    assert kinds(check_acknowledged(ids | {"order9"}, ROWS)) == ["lost"]
    assert kinds(check_acknowledged(ids - {"order1"}, ROWS)) == ["phantom"]


# ---- followers ----


def test_a_follower_that_saw_everything_once_and_in_order_is_right() -> None:
    assert check_follower("f", ROWS, SEEN) == []
    assert check_follower("f", [], []) == []


@pytest.mark.parametrize("gap", range(len(SEEN)))
def test_a_follower_that_missed_one_is_told(gap: int) -> None:
    assert kinds(check_follower("f", ROWS, SEEN[:gap] + SEEN[gap + 1 :])) == ["lost"]


@pytest.mark.parametrize("at", range(len(SEEN) - 1))
def test_a_follower_that_saw_two_the_wrong_way_round_is_told(at: int) -> None:
    swapped = [*SEEN[:at], SEEN[at + 1], SEEN[at], *SEEN[at + 2 :]]
    assert kinds(check_follower("f", ROWS, swapped)) == ["reordered"]


def test_a_follower_that_saw_one_twice_is_told() -> None:
    assert kinds(check_follower("f", ROWS, [*SEEN[:2], *SEEN[1:]])) == ["doubled"]
    assert kinds(check_follower("f", ROWS, [*SEEN, SEEN[0]])) == ["doubled", "reordered"]


def test_a_follower_that_saw_what_it_did_not_ask_for_is_told() -> None:
    tickets = Wanted(types=frozenset({"ticket"})).of(ROWS)
    assert kinds(check_follower("f", tickets, SEEN)) == ["phantom"] * 3
    assert kinds(check_follower("f", ROWS, [*SEEN, Seen(9, "another tenant's")])) == ["phantom"]


def test_a_follower_that_saw_another_position_is_told() -> None:
    assert kinds(check_follower("f", ROWS, [*SEEN[:-1], replace(SEEN[-1], seq=9)])) == ["changed"]


# ---- receivers ----


def test_a_receiver_may_get_an_event_again_and_aggregates_side_by_side() -> None:
    order1, ticket1, order2, ticket2, order3 = ARRIVALS
    refused = replace(order1, accepted=False)
    assert check_receiver("r", ROWS, ARRIVALS) == []
    assert (
        check_receiver("r", ROWS, [ticket1, ticket2, refused, refused, *ARRIVALS[:1], order2, order3]) == []
    )
    # A relay died behind its cursor: the next one begins there again, refusals and all.
    assert check_receiver("r", ROWS, [*ARRIVALS, refused, order1, order2, order3]) == []


@pytest.mark.parametrize("gap", range(len(ROWS)))
def test_a_receiver_that_never_accepted_one_is_told(gap: int) -> None:
    behind = [each for each in ROWS[gap + 1 :] if each.aggregate_type == ROWS[gap].aggregate_type]
    found = ["lost"] + ["reordered"] * bool(behind)
    assert kinds(check_receiver("r", ROWS, ARRIVALS[:gap] + ARRIVALS[gap + 1 :])) == found
    refused = [replace(each, accepted=n != gap) for n, each in enumerate(ARRIVALS)]
    assert kinds(check_receiver("r", ROWS, refused)) == found


def test_a_receiver_that_got_an_aggregates_events_the_wrong_way_round_is_told() -> None:
    order1, ticket1, order2, ticket2, order3 = ARRIVALS
    swapped = [order1, ticket1, order3, ticket2, order2]
    assert kinds(check_receiver("r", ROWS, swapped)) == ["reordered"]
    assert kinds(check_receiver("r", ROWS, [ticket2, *ARRIVALS])) == ["reordered"]


def test_an_event_that_is_sent_while_the_one_before_it_is_refused_is_told() -> None:
    refused = replace(ARRIVALS[0], accepted=False)
    assert kinds(check_receiver("r", ROWS, [refused, *ARRIVALS[1:], *ARRIVALS])) == ["reordered"]


def test_an_event_that_comes_under_another_id_is_told() -> None:
    other = replace(ARRIVALS[4], id="another")
    assert kinds(check_receiver("r", ROWS, [*ARRIVALS[:4], other])) == ["changed"]
    assert kinds(check_receiver("r", ROWS, [*ARRIVALS, other])) == ["changed"]


def test_an_event_that_comes_with_another_body_is_told() -> None:
    assert kinds(check_receiver("r", ROWS, [*ARRIVALS, replace(ARRIVALS[0], body=b"other")])) == ["changed"]


def test_an_event_without_a_signature_that_holds_is_told() -> None:
    assert kinds(check_receiver("r", ROWS, [*ARRIVALS, replace(ARRIVALS[0], signed=False)])) == ["unsigned"]


def test_an_event_that_is_not_of_the_filter_is_told() -> None:
    tickets = Wanted(types=frozenset({"ticket"})).of(ROWS)
    assert kinds(check_receiver("r", tickets, ARRIVALS)) == ["phantom"] * 3
