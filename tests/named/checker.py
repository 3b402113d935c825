"""What must be so of units and numbers, beside what was read over HTTP. Knows no code of the gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple


class Violation(NamedTuple):
    kind: str
    told: str


class Said(NamedTuple):
    """What a unit of a file says at a time."""

    text: str
    name: str


Unit = tuple[str, str]
"""A file as it is called now, and the unit's id in it."""


def grades(history: Sequence[Said]) -> list[str]:
    """Of a unit that said these things one after the other, each twice at least: what is graded of each."""
    told = ["new"]
    for before, now in pairwise(history):
        same_text, same_name = before.text == now.text, before.name == now.name
        told.append("moved" if same_text else "edited" if same_name else "new")
    return told


def check_blocks(
    histories: Mapping[Unit, Sequence[Said]],
    exported: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    first_keys: Mapping[Unit, str],
) -> list[Violation]:
    """`exported` are all lines of the source's export, `events` all of the feed, `first_keys` what each unit
    stood for when it was first seen."""
    found = []
    lines = Counter((each["scope"], each["id"]) for each in exported)
    for unit in histories.keys() - lines.keys():
        found.append(Violation("missing", f"{unit} is not exported"))
    for unit in lines.keys() - histories.keys():
        found.append(Violation("unknown", f"{unit} is exported and was never sent"))
    found += [Violation("doubled", f"{unit} is exported {n} times") for unit, n in lines.items() if n > 1]
    keys = {(each["scope"], each["id"]): each["key"] for each in exported}
    for key, count in Counter(keys.values()).items():
        if count > 1:
            found.append(Violation("shared", f"{count} units stand for {key}"))
    found += [
        Violation("remapped", f"{unit} stood for {key} and stands for {keys[unit]}")
        for unit, key in first_keys.items()
        if keys.get(unit, key) != key
    ]
    by_key: dict[str, list[Mapping[str, Any]]] = {}
    for event in events:
        by_key.setdefault(event["key"], []).append(event)
    for key in by_key.keys() - keys.values():
        found.append(Violation("stray", f"events of {key}, for which nothing stands"))
    for unit, history in histories.items():
        own = by_key.get(keys.get(unit, ""), [])
        said = [Said(each["data"]["text"], each["data"]["name"]) for each in own]
        if said != list(history):
            found.append(Violation("events", f"{unit} said {list(history)}, its events {said}"))
            continue
        identities = [each["metadata"]["identity"] for each in own]
        graded = [each and each["grade"] for each in identities]
        if graded != grades(history):
            found.append(Violation("grades", f"{unit}: {graded}, not {grades(history)}"))
    return found


def check_numbers(
    members: Mapping[str, Sequence[str]], aliases: Mapping[str, Sequence[str]]
) -> list[Violation]:
    """`members` are the keys of each project's aggregates, by the project's key; `aliases` each one's."""
    found = []
    for project, keys in members.items():
        numbers = []
        for key in keys:
            prefixes = [alias.rpartition("-")[0] for alias in aliases[key]]
            if prefixes != [project]:
                found.append(Violation("names", f"{key} of {project} has the names {aliases[key]}"))
            numbers += [int(alias.rpartition("-")[2]) for alias in aliases[key]]
        if sorted(numbers) != list(range(1, len(keys) + 1)):
            found.append(Violation("numbers", f"{project}: {sorted(numbers)} of {len(keys)} members"))
    return found
