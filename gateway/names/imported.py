"""Which aggregate a record of a foreign file is, and what an import of it does. Pure.

Owns the matching: by external ref, else by content, else as new. One import matches each of its statements (a
ref, or a content that comes without one) to an aggregate of its own, so importing the same file again finds
every statement where it was. Must not know where what was imported before is kept.
"""

from __future__ import annotations

import enum
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

import msgspec


class Result(enum.StrEnum):
    """What became of a record."""

    NEW = "new"
    UNCHANGED = "unchanged"
    EDITED = "edited"
    RENAMED = "renamed"
    LINKED = "linked"


class Row(msgspec.Struct, frozen=True, gc=False):
    """An aggregate that was imported. `ref` is None where no record with one was it yet; `content` is the
    hash of what its last record says; `times` counts the records that say something else than the one before;
    `appended` is whether the last one's event is known to be. `taken`: its ref stands in this import;
    `bare`: a content without a ref does, and is this aggregate."""

    key: str
    ref: str | None
    content: bytes
    times: int = 1
    appended: bool = False
    taken: bool = False
    bare: bool = False


class Said(msgspec.Struct, frozen=True, gc=False):
    """A record."""

    ref: str | None
    content: bytes


class Step(msgspec.Struct, frozen=True, gc=False):
    """What is done with a record: its aggregate as it is afterwards. `owed`: an event is to be appended.
    `was` is the ref that a renamed one had."""

    result: Result
    row: Row
    owed: bool = False
    was: str | None = None


def plan(said: Sequence[Said], rows: Sequence[Row], mint: Callable[[], str]) -> list[Step | None]:
    """A step for each record, in order; None for one that contradicts an earlier one of its ref. `rows` are
    those with a ref of these records, and those that have their contents, as many of each as there are
    records with it. Total.

    - A ref that is known keeps its aggregate, and so takes it, wherever in the import the ref stands.
    - A ref that is not known is an aggregate whose last record says the same and that no other statement of
      the import is: `linked` where that has no ref, else `renamed`: it has this ref from now on. Else `new`.
    - A content without a ref is the aggregate without a ref that says it, else one that does and that no ref
      of the import is. Else `new`.
    """
    matching = _Matching(said, rows, mint)
    return [matching.step(each) for each in said]


class _Matching:
    """The rows as the records so far leave them."""

    def __init__(self, said: Sequence[Said], rows: Sequence[Row], mint: Callable[[], str]) -> None:
        self._mint = mint
        named = {each.ref for each in said if each.ref is not None}
        self._by_ref = {row.ref: row for row in rows if row.ref is not None}
        bare = sorted([row for row in rows if row.ref is None or row.bare], key=lambda row: row.ref is None)
        self._bare = {row.content: row for row in bare}
        self._free: defaultdict[bytes, deque[Row]] = defaultdict(deque)
        for row in sorted(rows, key=lambda row: (row.ref is not None, row.ref or "", row.key)):
            if row.appended and not (row.taken or row.bare or row.ref in named):
                self._free[row.content].append(row)
        self._stated: dict[str, bytes] = {}

    def step(self, said: Said) -> Step | None:
        if said.ref is None:
            return self._without_ref(said.content)
        if self._stated.setdefault(said.ref, said.content) != said.content:
            return None
        known = self._by_ref.get(said.ref)
        if known is not None:
            return self._settled(self._known(msgspec.structs.replace(known, taken=True), said.content))
        found = self._take(said.content)
        if found is None:
            return self._settled(self._new(said))
        row = msgspec.structs.replace(found, ref=said.ref, taken=True)
        if found.ref is not None:
            del self._by_ref[found.ref]
            return self._settled(Step(Result.RENAMED, row, was=found.ref))
        del self._bare[found.content]
        return self._settled(Step(Result.LINKED, row))

    def _without_ref(self, content: bytes) -> Step:
        known = self._bare.get(content)
        if known is None:
            known = self._take(content)
        elif self._free[content] and self._free[content][0].ref is None:
            self._take(content)  # it comes first, and is the only one without a ref
        step = self._new(Said(None, content)) if known is None else self._known(known, content)
        step = msgspec.structs.replace(step, row=msgspec.structs.replace(step.row, bare=True))
        self._bare[content] = _done(step.row)
        return step

    def _settled(self, step: Step) -> Step:
        """The ref stands for its row from now on; a record that says it once more owes nothing."""
        assert step.row.ref is not None
        self._by_ref[step.row.ref] = _done(step.row)
        return step

    def _known(self, row: Row, content: bytes) -> Step:
        if row.content != content:
            edited = msgspec.structs.replace(row, content=content, times=row.times + 1, appended=False)
            return Step(Result.EDITED, edited, owed=True)
        if row.appended:
            return Step(Result.UNCHANGED, row)
        return Step(Result.NEW if row.times == 1 else Result.EDITED, row, owed=True)

    def _new(self, said: Said) -> Step:
        row = Row(self._mint(), said.ref, said.content, taken=said.ref is not None)
        return Step(Result.NEW, row, owed=True)

    def _take(self, content: bytes) -> Row | None:
        free = self._free[content]
        return free.popleft() if free else None


def _done(row: Row) -> Row:
    return msgspec.structs.replace(row, appended=True)
