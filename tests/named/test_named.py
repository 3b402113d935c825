"""The campaign in short, and its checker on what is wrong."""

from __future__ import annotations

import copy
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.named.campaign import Size, run_at
from tests.named.checker import Said, Violation, check_blocks, check_numbers, grades
from tests.support.servers import Servers


async def test_files_and_projects_are_named_once_by_many_at_once(
    start_servers: Callable[..., Awaitable[Servers]], tmp_path: Path
) -> None:
    seed, size = random.randrange(10**6), Size(5, 2, 20, 6, 12, 2)
    result = await run_at(await start_servers(), tmp_path, 0, seed, None, size)
    assert result.violations == [], f"seed {seed}"
    assert (result.units, result.members) == (12, 48)


ONE, OTHER = ("a.xlf", "tu1"), ("b.xlf", "tu1")
HISTORIES = {
    ONE: [Said("x", "n"), Said("y", "n"), Said("y", "m")],
    OTHER: [Said("x", "n"), Said("z", "o")],
}
KEYS = {ONE: "k1", OTHER: "k2"}


def exported() -> list[dict[str, Any]]:
    return [{"scope": scope, "id": unit, "key": key} for (scope, unit), key in KEYS.items()]


def events() -> list[dict[str, Any]]:
    return [
        {"key": KEYS[unit], "data": said._asdict(), "metadata": {"identity": {"grade": grade}}}
        for unit, history in HISTORIES.items()
        for said, grade in zip(history, grades(history), strict=True)
    ]


def _spoiled(kind: str) -> list[Violation]:
    lines, rows = exported(), copy.deepcopy(events())
    match kind:
        case "missing":
            del lines[1]
        case "unknown":
            lines.append({"scope": "c.xlf", "id": "tu1", "key": "k3"})
        case "doubled":
            lines.append(dict(lines[0]))
        case "shared":
            lines[1]["key"] = "k1"
        case "remapped":
            lines[1]["key"] = "k3"
        case "stray":
            rows.append({**rows[0], "key": "k9"})
        case "events":
            rows.append(rows[2])
        case "grades":
            rows[1]["metadata"]["identity"]["grade"] = "new"
    return check_blocks(HISTORIES, lines, rows, KEYS)


@pytest.mark.parametrize(
    "kind", ["missing", "unknown", "doubled", "shared", "remapped", "stray", "events", "grades"]
)
def test_the_checker_of_files_finds_what_is_wrong(kind: str) -> None:
    assert grades(HISTORIES[ONE]) == ["new", "edited", "moved"]
    assert check_blocks(HISTORIES, exported(), events(), KEYS) == []
    assert kind in {each.kind for each in _spoiled(kind)}


def test_the_checker_of_numbers_finds_what_is_wrong() -> None:
    members = {"PA": ["k1", "k2"], "PB": ["k3"]}
    assert check_numbers(members, {"k1": ["PA-2"], "k2": ["PA-1"], "k3": ["PB-1"]}) == []
    for wrong in (
        {"k1": ["PA-3"], "k2": ["PA-1"], "k3": ["PB-1"]},
        {"k1": ["PA-1"], "k2": ["PA-1"], "k3": ["PB-1"]},
        {"k1": ["PA-2"], "k2": ["PA-1"], "k3": []},
        {"k1": ["PA-2"], "k2": ["PA-1"], "k3": ["QB-1"]},
    ):
        assert check_numbers(members, wrong) != []
