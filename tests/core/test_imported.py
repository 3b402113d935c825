"""Which aggregate a record of an import is: the same file again is no change, whatever came in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import count

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gateway.names.imported import Result, Row, Said, Step, plan

REFS, CONTENTS = ("a", "b", "c", "d"), (b"x", b"y", b"z")


class Store:
    """What is kept of imports, and which events were appended: (key, count of records) once each."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.imports: dict[str, set[int]] = {}
        self.events: Counter[tuple[str, int]] = Counter()
        self._keys = count(1)

    def stand(self, by: int, refs: Sequence[str]) -> None:
        for row in self.rows.values():
            if row.ref in refs:
                self.imports[row.key].add(by)

    def request(self, by: int, said: Sequence[Said], appended: int | None = None) -> list[Step | None]:
        """One request of an import; of a killed one, only so many events are appended and none is noted."""
        self.stand(by, [each.ref for each in said if each.ref is not None])
        rows = [
            msgspec.structs.replace(row, taken=by in self.imports[row.key], bare=-by in self.imports[row.key])
            for row in self.rows.values()
        ]
        steps = plan(said, rows, lambda: f"k{next(self._keys)}")
        kept: dict[str, Row] = {}
        for step in steps:
            if step is not None and (step.owed or step.row.key not in kept):
                kept[step.row.key] = step.row
        for row in kept.values():
            self.rows[row.key] = row
            self.imports.setdefault(row.key, set()).add(by if row.taken else -by)
        owed = [step.row for step in steps if step is not None and step.owed]
        for row in owed[:appended]:
            self.events[row.key, row.times] = 1  # its id follows from these two
        if appended is None:
            for row in owed:
                self.rows[row.key] = msgspec.structs.replace(row, appended=True)
        held = [row.ref for row in self.rows.values() if row.ref is not None]
        assert len(held) == len(set(held))
        return steps


records = st.builds(Said, st.sampled_from((*REFS, None)), st.sampled_from(CONTENTS))


def once(said: list[Said]) -> list[Said]:
    """Without what contradicts an earlier record of its ref."""
    first: dict[str, bytes] = {}
    return [
        each for each in said if each.ref is None or first.setdefault(each.ref, each.content) == each.content
    ]


files = st.lists(records, max_size=7).map(once)
Parts = list[list[Said]]


@st.composite
def cut(draw: st.DrawFn, file: list[Said]) -> Parts:
    parts: Parts = [[]]
    for each in file:
        if draw(st.booleans()):
            parts.append([])
        parts[-1].append(each)
    return parts


def whole(store: Store, by: int, parts: Parts) -> list[str]:
    store.stand(by, refs(parts))
    steps = [step for part in parts for step in store.request(by, part)]
    assert None not in steps
    return [step.result for step in steps if step is not None]


def refs(parts: Iterable[list[Said]]) -> list[str]:
    """What a command that sends several requests tells before them."""
    return [each.ref for part in parts for each in part if each.ref is not None]


@given(st.data(), st.lists(files, max_size=3), files)
def test_the_same_file_again_is_no_change_in_any_order_and_in_any_parts(
    data: st.DataObject, earlier: list[list[Said]], file: list[Said]
) -> None:
    store = Store()
    for by, each in enumerate(earlier, 1):
        whole(store, by, data.draw(cut(each)))
    whole(store, 10, data.draw(cut(file)))
    keys, events = {row.ref: row.key for row in store.rows.values() if row.ref}, dict(store.events)
    for by in (11, 12):
        again = data.draw(st.permutations(file))
        results = whole(store, by, data.draw(cut(again)))
        assert set(results) <= {Result.UNCHANGED}
        assert {row.ref: row.key for row in store.rows.values() if row.ref} == keys
        assert dict(store.events) == events


@given(st.data(), st.lists(files, max_size=2), files)
def test_after_kills_and_beside_other_runs_of_it_a_file_is_imported_and_then_unchanged(
    data: st.DataObject, earlier: list[list[Said]], file: list[Said]
) -> None:
    store = Store()
    for by, each in enumerate(earlier, 1):
        whole(store, by, data.draw(cut(each)))
    runs = {by: data.draw(cut(data.draw(st.permutations(file)))) for by in (10, 11, 12)}
    for by in runs:
        store.stand(by, refs([file]))
    while any(runs.values()):
        by = data.draw(st.sampled_from([by for by, parts in runs.items() if parts]))
        part = runs[by].pop(0)
        if data.draw(st.integers(0, 3)) == 0:
            store.request(by, part, appended=data.draw(st.integers(0, 3)))
            if data.draw(st.booleans()):
                runs[by] = []  # killed for good; else it sends the request again
            else:
                store.request(by, part)
        else:
            store.request(by, part)
    whole(store, 20, [file])
    assert set(whole(store, 21, data.draw(cut(data.draw(st.permutations(file)))))) <= {Result.UNCHANGED}
    last = {row.ref: row.content for row in store.rows.values()}
    assert all(last[each.ref] == each.content for each in file if each.ref is not None)
    for row in store.rows.values():
        if row.appended:
            assert store.events[row.key, row.times] == 1


def row(key: str, ref: str | None, content: bytes, **more: bool) -> Row:
    return Row(key, ref, content, appended=True, taken=more.get("taken", False))


def results(said: list[Said], rows: list[Row]) -> list[tuple[str, str]]:
    keys = (f"new{n}" for n in count(1))
    return [
        ("", "") if step is None else (step.result, step.row.key)
        for step in plan(said, rows, lambda: next(keys))
    ]


def test_a_record_goes_by_its_ref_then_by_its_content_then_it_is_new() -> None:
    rows = [row("k1", "a", b"x"), row("k2", None, b"y"), row("k3", "old", b"z")]
    said = [Said("a", b"x"), Said("b", b"y"), Said("c", b"z"), Said("d", b"x"), Said(None, b"q")]
    assert results(said, rows) == [
        ("unchanged", "k1"),
        ("linked", "k2"),
        ("renamed", "k3"),
        ("new", "new1"),
        ("new", "new2"),
    ]
    assert results([Said("a", b"y")], rows) == [("edited", "k1")]


def test_a_ref_of_the_import_is_never_taken_for_an_earlier_name_wherever_it_stands() -> None:
    rows = [row("k1", "a", b"x")]
    assert results([Said("b", b"x"), Said("a", b"x")], rows) == [("new", "new1"), ("unchanged", "k1")]
    assert results([Said("b", b"x"), Said("a", b"y")], rows) == [("new", "new1"), ("edited", "k1")]
    assert results([Said("b", b"x")], [row("k1", "a", b"x", taken=True)]) == [("new", "new1")]


def test_a_content_without_a_ref_is_one_aggregate_and_none_whose_ref_stands_in_the_import() -> None:
    rows = [row("k1", "a", b"x"), row("k2", None, b"x")]
    twice = [Said(None, b"x"), Said(None, b"x")]
    assert results([*twice, Said("b", b"x")], rows) == [
        ("unchanged", "k2"),
        ("unchanged", "k2"),
        ("renamed", "k1"),
    ]
    assert results([*twice, Said("b", b"x")], rows[:1]) == [
        ("unchanged", "k1"),
        ("unchanged", "k1"),
        ("new", "new1"),
    ]
    assert results([*twice, Said("a", b"x")], rows[:1]) == [
        ("new", "new1"),
        ("unchanged", "new1"),
        ("unchanged", "k1"),
    ]
    matched = msgspec.structs.replace(rows[0], bare=True)
    assert results([Said("b", b"x"), *twice], [matched]) == [
        ("new", "new1"),
        ("unchanged", "k1"),
        ("unchanged", "k1"),
    ]


def test_what_is_not_known_to_be_appended_is_owed_again_and_no_name_leads_to_it() -> None:
    unsure = msgspec.structs.replace(row("k1", "a", b"x"), appended=False)
    assert [(s.result, s.owed) for s in plan([Said("a", b"x")], [unsure], str) if s] == [("new", True)]
    assert results([Said("b", b"x")], [unsure]) == [("new", "new1")]


def test_a_second_word_of_one_ref_is_none() -> None:
    steps = plan([Said("a", b"x"), Said("a", b"x"), Said("a", b"y")], [], lambda: "k")
    assert [None if each is None else each.result for each in steps] == ["new", "unchanged", None]
