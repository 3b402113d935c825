"""Where two documents differ: what the second adds, leaves out and changes, each with its place. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

from spec.errors import below

DIFFERENCES_MAX: Final = 1_000
"""As many as are told: no reader needs more, and two documents of 1 MiB may have 10^5."""


@dataclass(frozen=True, slots=True)
class Difference:
    """`pointer` is RFC 6901 into the second document, or into the first where that has the place and the
    second has not. `was` and `now` are the values there."""

    kind: Literal["added", "removed", "changed"]
    pointer: str
    was: object = None
    now: object = None

    def as_json(self) -> dict[str, object]:
        """Without `was` for what is added, without `now` for what is removed."""
        shown: dict[str, object] = {"change": self.kind, "pointer": self.pointer}
        if self.kind != "added":
            shown["was"] = self.was
        if self.kind != "removed":
            shown["now"] = self.now
        return shown


def differences(old: object, new: object) -> tuple[Difference, ...]:
    """At most DIFFERENCES_MAX, in the order of the first document, what is added behind it."""
    return tuple(islice(_between("", old, new), DIFFERENCES_MAX))


def _between(pointer: str, old: object, new: object) -> Iterator[Difference]:
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _of_objects(pointer, old, new)
    elif isinstance(old, list) and isinstance(new, list):
        named = all(isinstance(each, str) for each in (*old, *new))
        yield from (_of_names if named else _of_items)(pointer, old, new)
    elif type(old) is not type(new) or old != new:  # true is not 1
        yield Difference("changed", pointer, old, new)


def _of_objects(pointer: str, old: dict[str, object], new: dict[str, object]) -> Iterator[Difference]:
    for name, value in old.items():
        if name in new:
            yield from _between(below(pointer, name), value, new[name])
        else:
            yield Difference("removed", below(pointer, name), was=value)
    for name, value in new.items():
        if name not in old:
            yield Difference("added", below(pointer, name), now=value)


def _of_names(pointer: str, old: list[object], new: list[object]) -> Iterator[Difference]:
    """Lists of texts are sets here: another order is no difference."""
    kept = set(old) & set(new)
    for index, name in enumerate(old):
        if name not in kept:
            yield Difference("removed", below(pointer, index), was=name)
    for index, name in enumerate(new):
        if name not in kept:
            yield Difference("added", below(pointer, index), now=name)


def _of_items(pointer: str, old: list[object], new: list[object]) -> Iterator[Difference]:
    for index, (was, now) in enumerate(zip(old, new, strict=False)):
        yield from _between(below(pointer, index), was, now)
    for index, was in enumerate(old[len(new) :], len(new)):
        yield Difference("removed", below(pointer, index), was=was)
    for index, now in enumerate(new[len(old) :], len(old)):
        yield Difference("added", below(pointer, index), now=now)
