"""The checker of the campaign finds each kind of harm. The campaign itself: python -m tests.conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.conditions.checker import PUT, TYPE, Event, History, Item, Page, Request, Row, Told

RED = Item(tags=("red:1",))


def data(request: str, number: int, red: int = 1) -> dict[str, Any]:
    return {"request": request, "number": number, "red": red, "blue": 1}


def row(place: int, key: str, version: int, request: str, number: int = 0, red: int = 1) -> Row:
    return Row(f"p{place}", f"e{place}", key, PUT, version, data(request, number, red))


def request(name: str, *keys: str, after: str | None = None, red: int = 1, heard: int = 0) -> Request:
    events = tuple(Event(key, PUT, data(name, number, red)) for number, key in enumerate(keys))
    return Request(name, events, (RED,) if after is not None else (), after, heard)


def receipt(*rows: Row) -> dict[str, Any]:
    events = [{"key": each.key, "event_id": each.id, "length": each.version} for each in rows]
    return {"position": rows[-1].position, "events": events}


# One appends to a and b; two hangs on "nothing red behind p2", and is red; three hung on the same, too late.
ROWS = (row(1, "a", 1, "one", 0), row(2, "b", 1, "one", 1), row(3, "a", 2, "two"))
ONE = Told(request("one", "a", "b"), 201, receipt(*ROWS[:2]))
TWO = Told(request("two", "a", after="p2"), 201, receipt(ROWS[2]))
FAILED = {
    "code": "condition_failed", "position": "p3", "matched": [{"position": "p3"}], "matched_next": None,
}  # fmt: skip
THREE = Told(request("three", "b", after="p2"), 409, FAILED)
WHOLE = Page((), None, ("e1", "e2", "e3"), "p3", True, 0)
SOUND = History(ROWS, (ONE, TWO, THREE), ("p2", "p3"), (WHOLE,), (("a", 2, 2),))


def test_a_sound_history_has_no_harm() -> None:
    assert SOUND.check() == []


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        ("lost", replace(SOUND, rows=ROWS[:2])),
        ("half", replace(SOUND, rows=(ROWS[0], ROWS[2]))),
        ("half", replace(SOUND, rows=(ROWS[0], row(2, "a", 2, "two"), row(3, "b", 1, "one", 1)))),
        ("doubled", replace(SOUND, rows=(*ROWS, row(4, "a", 3, "two")))),
        ("phantom", replace(SOUND, rows=(*ROWS, row(4, "c", 1, "four")))),
        ("reordered", replace(SOUND, told=(ONE, replace(TWO, request=replace(TWO.request, heard=2)), THREE))),
        (
            "wrongly accepted",
            replace(SOUND, told=(ONE, replace(TWO, request=request("two", "a", after="p1")), THREE)),
        ),
        (
            "wrongly refused",
            replace(SOUND, told=(ONE, TWO, replace(THREE, request=request("three", "b", after="p3")))),
        ),
        (
            "matched",
            replace(SOUND, told=(ONE, TWO, replace(THREE, body={**FAILED, "matched": [{"position": "p1"}]}))),
        ),
        (
            "stale",
            replace(
                SOUND,
                told=(
                    ONE,
                    TWO,
                    Told(
                        request("three", "b", after="p1", heard=2),
                        409,
                        {**FAILED, "position": "p2", "matched": [{"position": "p2"}]},
                    ),
                ),
            ),
        ),
        ("page", replace(SOUND, pages=(replace(WHOLE, ids=("e1", "e3")),))),
        ("half", replace(SOUND, pages=(Page((), None, ("e1",), "p1", False, 0),))),
        ("half", replace(SOUND, lengths=(("a", 2, 1),))),
    ],
)
def test_the_checker_finds_what_is_wrong(kind: str, broken: History) -> None:
    fresh = History(broken.rows, broken.told, broken.heard, broken.pages, broken.lengths)
    assert any(harm.startswith(f"{kind}:") for harm in fresh.check()), fresh.harms


def test_a_condition_by_type_and_tag_is_judged_by_both() -> None:
    both = Item((f"{TYPE}.{PUT}",), ("red:2",))
    rows = (row(1, "a", 1, "one", red=1), row(2, "a", 2, "two", red=2))
    hung = replace(request("two", "a", red=2), items=(both,))
    told = (Told(request("one", "a"), 201, receipt(rows[0])), Told(hung, 201, receipt(rows[1])))
    assert History(rows, told, ()).check() == []
