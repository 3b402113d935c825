"""What matching a regular expression takes. Pure.

Matching takes linear time, but each character of a text may have to be compared with as many places of the
expression as are possible at once: of `.{0,500}a.{0,500}b`, with each of a thousand.
"""

from __future__ import annotations

import re
from typing import Final

_PART: Final = re.compile(
    r"\\(?:[pPux]\{[^}]*\}|.)"  # an escape
    r"|\[\^?(?:\\.|[^\]\\])*\]"  # a class
    r"|\((?:\?[^:)>]*[:>)])?"  # the beginning of a group, or flags
    r"|\{[0-9]*(?:,[0-9]*)?\}"  # how often
    r"|.",
    re.DOTALL,
)
_DIGITS_MAX: Final = 6


def breadth(pattern: str) -> int:
    """How many places of an expression a character may be compared with, at most, or somewhat more."""
    before, last = [0], [0]  # of each group that is open: places before its last part, and in that
    looped = loops = 0  # places up to the end of the first repetition of any number; how many there are
    straight = pattern.startswith("^")  # with one way to come to each place
    for part in _PART.findall(pattern):
        if part[0] == "(" and part[-1] != ")":
            before.append(0)
            last.append(0)
        elif part == ")" and len(before) > 1:
            inside = before.pop() + last.pop()
            before[-1] += last[-1]
            last[-1] = inside
        elif part == "|":
            straight = False
        elif part in ("*", "+", "?") or (part[0] == "{" and part[-1] == "}"):
            most, fixed = _times(part)
            straight = straight and last[-1] > 0  # else it is the beginning that may be left out
            last[-1] *= most
            if not fixed:
                loops += 1
                looped = sum(before) + sum(last)
                straight = straight and loops == 1 and len(before) == 1
        elif part not in ("^", "$") and part[:2] != "(?":
            before[-1] += last[-1]
            last[-1] = 1
    places = sum(before) + sum(last)
    if not straight:
        return places
    return 2 + places - looped if loops else 1


def _times(part: str) -> tuple[int, bool]:
    """How often at most, and whether always so often; where there is no end, as often as at least."""
    if part in ("*", "+", "?"):
        return 1, False
    least, comma, most = part[1:-1].partition(",")
    return max(_number(most or least), 1), not comma or least == most


def _number(digits: str) -> int:
    return int(digits[:_DIGITS_MAX] or "0")
