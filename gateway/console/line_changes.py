"""What changed between two values, as lines of JSON for people. Pure.

The time is bounded, whatever is compared: `difflib` takes seconds for a few thousand numbers, and a page is
made on the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

Line = tuple[str, str]
"""Its mark (`+`, `-`, a blank where nothing changed, `…` for a remark), and its text."""

TEXT_CHARS_MAX: Final = 128 * 1024
"""Of each value that is compared."""
LINES_MAX: Final = 400
"""That are shown."""
STEPS_MAX: Final = 5_000
"""Of the search for the fewest changes: a few milliseconds. Then all lines between the first and the last
that changed are shown as replaced."""
LAID_OUT_MAX: Final = 20_000
"""Lines of one value, each indented by up to 128 blanks: a state of 4 MiB would become 250 MB."""
_TOO_LONG: Final = (("…", "This is too long to be compared here."),)


def text_of(value: object) -> str:
    """JSON for people; in one line where it would have more than LAID_OUT_MAX. By C: `json` indents in
    Python, 100 ms for 256 KiB."""
    return _laid_out(msgspec.json.encode(value))


def _laid_out(text: bytes) -> str:
    lines = text.count(b",") + 2 * (text.count(b"[") + text.count(b"{"))
    return (text if lines > LAID_OUT_MAX else msgspec.json.format(text, indent=2)).decode()


def changes(before: object, after: object) -> Sequence[Line]:
    """The lines of both as JSON, removed, added or near a change; empty where they are equal."""
    old_json, new_json = msgspec.json.encode(before), msgspec.json.encode(after)
    if max(len(old_json), len(new_json)) > TEXT_CHARS_MAX:
        return _TOO_LONG if old_json != new_json else ()
    old_text, new_text = _laid_out(old_json), _laid_out(new_json)
    if max(len(old_text), len(new_text)) > TEXT_CHARS_MAX:
        return _TOO_LONG if old_text != new_text else ()
    old, new = old_text.split("\n"), new_text.split("\n")
    head = _alike(old, new)
    tail = _alike(old[head:][::-1], new[head:][::-1])
    old_part, new_part = old[head : len(old) - tail], new[head : len(new) - tail]
    edits = _fewest(old_part, new_part)
    if edits is None:
        edits = [*(("-", line) for line in old_part), *(("+", line) for line in new_part)]
    if not edits:
        return ()
    around = [(" ", line) for line in old[:head][-1:]], [(" ", line) for line in old[len(old) - tail :][:1]]
    found = _near([*around[0], *edits, *around[1]])
    return found if len(found) <= LINES_MAX else [*found[:LINES_MAX], ("…", "More changed than is shown.")]


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines at the beginning are the same."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _fewest(old: Sequence[str], new: Sequence[str]) -> list[Line] | None:
    """By Myers' algorithm; None where that takes over STEPS_MAX."""
    reached, rounds, steps = {1: 0}, [], 0
    for count in range(len(old) + len(new) + 1):
        rounds.append(dict(reached))
        for k in range(-count, count + 1, 2):
            x = reached[k + 1] if _adds(reached, k, count) else reached[k - 1] + 1
            begun = x
            while x < len(old) and x - k < len(new) and old[x] == new[x - k]:
                x += 1
            reached[k] = x
            if (x, x - k) == (len(old), len(new)):
                return _path(rounds, old, new)
            steps += 1 + x - begun
            if steps > STEPS_MAX:
                return None
    raise AssertionError("all lines can be replaced")


def _adds(reached: dict[int, int], k: int, count: int) -> bool:
    """Whether diagonal `k` is entered by a line that was added."""
    return k == -count or (k != count and reached[k - 1] < reached[k + 1])


def _path(rounds: Sequence[dict[int, int]], old: Sequence[str], new: Sequence[str]) -> list[Line]:
    found: list[Line] = []
    x, y = len(old), len(new)
    for count in range(len(rounds) - 1, 0, -1):
        reached, k = rounds[count], x - y
        adds = _adds(reached, k, count)
        before_x = reached[k + 1 if adds else k - 1]
        before_y = before_x - (k + 1 if adds else k - 1)
        while x > before_x and y > before_y:
            x, y = x - 1, y - 1
            found.append((" ", old[x]))
        found.append(("+", new[before_y]) if adds else ("-", old[before_x]))
        x, y = before_x, before_y
    return [*((" ", line) for line in old[:x]), *found[::-1]]


def _near(edits: Sequence[Line]) -> list[Line]:
    """What changed, and one line around it."""
    marks = [" ", *(mark for mark, _ in edits), " "]
    return [line for n, line in enumerate(edits) if marks[n : n + 3] != [" ", " ", " "]]
