"""The part `subscriptions`: which events go out, from where on, and to which target.

Owns the grammar of one subscription; a declared one and one that is PUT are held to it alike. Must not know
what an address resolves to, or what a secret opens.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from spec.errors import Report, below, proposal, shown
from spec.fields import read_fields
from spec.filter_items import FilterItem, check_items_declared, read_filter_items
from spec.targets.addresses import ALLOW_PRIVATE
from spec.targets.form import Target
from spec.targets.table import read_target

NAME_GRAMMAR: Final = "[a-z][a-z0-9_-]{0,63}"
"""A subscription's name; it stands in a path."""

FILTER_NAMES_MAX: Final = 100
Start = Literal["beginning", "now"] | str

_NAME = re.compile(NAME_GRAMMAR)
_FILTERED = re.compile("_?[a-z][a-z0-9_]{0,63}")
_POSITION = re.compile(r"[!-~]{1,1024}")
_FED = re.compile("AQ[A-Za-z0-9_-]*\\Z")
"""All that can be told of a position without its feed: the form of today begins so."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events: of these aggregate types, of these event types; None is any. With `items`, such as
    one of them matches. `include_undeclared`: names of withdrawn types are meant."""

    types: tuple[str, ...] | None = None
    event_types: tuple[str, ...] | None = None
    include_undeclared: bool = False
    items: tuple[FilterItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Subscription:
    """`start` is where a new one begins: `beginning`, `now`, or a position of the feed. `aliases`: whether
    its events carry those of their aggregates, None where their types say; `keyless`: those that have any
    have no key."""

    filter: Filter
    start: Start
    target: Target
    aliases: bool | None = None
    keyless: bool = False


class PermissiveEnviron(Mapping[str, str]):
    """An environment in which every target may be reached, or none that is not public. What is deployed stays
    readable: whether it is reached is decided when it is."""

    def __init__(self, environ: Mapping[str, str], reachable: bool = True) -> None:
        self._environ = environ
        self._reachable = "on" if reachable else "off"

    def __getitem__(self, name: str) -> str:
        return self._reachable if name == ALLOW_PRIVATE else self._environ[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)


NONE: Mapping[str, Subscription] = MappingProxyType({})


def check_subscriptions(
    value: object, pointer: str, environ: Mapping[str, str], _spec: object, report: Report
) -> Mapping[str, Subscription]:
    """The part of a spec: by name, read-only."""
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, "`subscriptions` must be an object: a subscription by each name.")
        return NONE
    found: dict[str, Subscription] = {}
    for name, declared in value.items():
        place = below(pointer, name)
        if not is_subscription_name(name):
            report.add(
                "invalid_name",
                place,
                f"{shown(name)} is not a valid name of a subscription: `{NAME_GRAMMAR}`.",
            )
        read = read_subscription(declared, place, environ, report)
        if read is not None and read.start not in ("beginning", "now") and not _FED.match(read.start):
            why = f'{shown(read.start)} is not a position of the feed: send one that it gave, or "now".'
            report.add("invalid_value", below(place, "start"), why)
        elif read is not None:
            found[name] = read
    return MappingProxyType(found)


def is_subscription_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def is_filtered_name(value: object) -> bool:
    return isinstance(value, str) and _FILTERED.fullmatch(value) is not None


def read_subscription(
    value: object, pointer: str, environ: Mapping[str, str], report: Report
) -> Subscription | None:
    """One subscription; None, with its faults in `report`, where it can't be used."""
    before = len(report)
    known = ("aliases", "filter", "keys", "start", "target")
    declared = read_fields(value, pointer, "A subscription", known, ("target",), report, ("sealed",))
    aliases, keys = declared.get("aliases"), declared.get("keys", "alias")
    if not isinstance(aliases, bool) and "aliases" in declared:
        report.add("wrong_type", below(pointer, "aliases"), "`aliases` is true or false.")
    if keys != "alias":
        report.add("invalid_value", below(pointer, "keys"), '`keys` is "alias", or left out.')
    filtered = _filter(declared.get("filter", {}), below(pointer, "filter"), report)
    start = declared.get("start", "now")
    if not isinstance(start, str) or not _POSITION.fullmatch(start):
        why = '`start` is "beginning", "now", or a position of the feed.'
        report.add("invalid_value", below(pointer, "start"), why)
    target = None
    if "target" in declared:
        target = read_target(declared["target"], below(pointer, "target"), environ, report)
    if len(report) > before or target is None or not isinstance(start, str):
        return None
    told = aliases if isinstance(aliases, bool) else None
    return Subscription(filtered, start, target, told, "keys" in declared)


def _filter(value: object, pointer: str, report: Report) -> Filter:
    known = ("types", "event_types", "include_undeclared", "items")
    declared = read_fields(value, pointer, "A filter", known, (), report)
    if not isinstance(declared.get("include_undeclared", False), bool):
        why = "`include_undeclared` is true or false."
        report.add("wrong_type", below(pointer, "include_undeclared"), why)
    lists = [
        _filtered(declared[key], below(pointer, key), report) if key in declared else None
        for key in ("types", "event_types")
    ]
    items: tuple[FilterItem, ...] = ()
    if "items" in declared:
        items = read_filter_items(declared["items"], below(pointer, "items"), report)
    return Filter(lists[0], lists[1], declared.get("include_undeclared") is True, items)


def check_declared(
    filtered: Filter,
    pointer: str,
    types: Mapping[str, Collection[str]],
    prefixes: Collection[str],
    report: Report,
) -> None:
    """A fault for each name of a filter that the spec does not declare; the gateway's own begin with an
    underscore."""
    if filtered.include_undeclared:
        return
    check_items_declared(filtered.items, pointer, types, prefixes, report)
    events = {event for each in types.values() for event in each}
    own = any(name[:1] == "_" for name in filtered.types or ())
    for key, names, known in (
        ("types", filtered.types, types.keys()),
        ("event_types", () if own else filtered.event_types, events),
    ):
        for index, name in enumerate(names or ()):
            if name[:1] != "_" and name not in known:
                why = f"The spec declares no {shown(name)}. {proposal(name, known)}"
                report.add("undeclared", below(pointer, key, index), why)


def _filtered(value: object, pointer: str, report: Report) -> tuple[str, ...]:
    if not isinstance(value, list):
        report.add("wrong_type", pointer, "A list of names is needed here.")
        return ()
    if not 1 <= len(value) <= FILTER_NAMES_MAX:
        why = f"Name 1 to {FILTER_NAMES_MAX}; leave the key out for any."
        report.add("invalid_value", pointer, why)
        return ()
    for index, name in enumerate(value):
        if not is_filtered_name(name):
            report.add("invalid_name", below(pointer, index), "This is not a valid name of a type.")
    return tuple(value)
