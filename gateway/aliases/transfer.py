"""Names out of a tenant and into one, a JSON object a line: `{"alias", "aggregate_type", "key"}`, and
`"retired": true` where it is.

Owns what a file of names must be to be taken over, all of it or nothing. Numbers are never lost on the way:
no name is ever deleted, so all names together show the greatest number of each key too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.admit.strict_json import Malformed as NotJson
from gateway.admit.strict_json import decode
from gateway.aliases.kinds import kinds_of_prefixes
from gateway.aliases.store import Found, Snapshot
from gateway.names.aliases import SIGIL, Alias, Kind, Malformed, numbered_hash, parse_alias
from gateway.names.changes import Change, Give, Given, Named, Retire, named
from spec.errors import proposal, shown
from spec.identifiers import canonicalize
from spec.model import Spec

NAMES_MAX: Final = 100_000
"""Of one file: about 10 MB in one append. A larger one is split, in any way."""
FAULTS_MAX: Final = 100
"""Told at once: more are not corrected in one sitting."""
_FIELDS: Final = ("aggregate_type", "alias", "key", "retired")
_REQUIRED: Final = ("alias", "aggregate_type", "key")
_AT_ONCE: Final = 1000

Tell = Callable[[int], None]
"""Called with how many names more were looked at."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A line of a file: who is to have which name."""

    line: int
    name: Given
    retired: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """`reason` is a sentence for a person."""

    line: int
    reason: str


class CannotImport(Exception):
    """Nothing was changed; `faults` are all that is in the way, at most FAULTS_MAX of them."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults[:FAULTS_MAX])
        super().__init__("\n".join(f"line {each.line}: {each.reason}" for each in self.faults))


def exported(found: Found) -> bytes:
    """A line of a file, with its line break."""
    told = {"alias": found.alias.text, "aggregate_type": found.aggregate_type, "key": found.key}
    line = {**told, "retired": True} if found.retired else told
    return msgspec.json.encode(line) + b"\n"


def read(lines: Iterable[bytes], spec: Spec, tell: Tell = lambda _: None) -> tuple[Wanted, ...]:
    """What a file asks for; blank lines are passed over. Raises CannotImport."""
    wanted: list[Wanted] = []
    faults: list[Fault] = []
    kinds = kinds_of_prefixes(spec)
    seen: dict[Named, Wanted] = {}
    for number, line in enumerate(lines, 1):
        tell(1)
        if not line.strip():
            continue
        found = _read_line(number, line, spec, kinds)
        if isinstance(found, Wanted):
            earlier = seen.setdefault(named(found.name.alias), found)
            if earlier is found:
                wanted.append(found)
                if len(wanted) > NAMES_MAX:
                    why = f"At most {NAMES_MAX} names at a time; split the file."
                    raise CannotImport([*faults, Fault(number, why)])
                continue
            if (earlier.name, earlier.retired) == (found.name, found.retired):
                continue
            found = Fault(number, f"{found.name.alias.text} is in line {earlier.line} for another aggregate.")
        faults.append(found)
    if faults:
        raise CannotImport(faults)
    return tuple(wanted)


def _read_line(number: int, line: bytes, spec: Spec, kinds: Mapping[str, frozenset[Kind]]) -> Wanted | Fault:
    value = decode(line)
    if isinstance(value, NotJson):
        return Fault(number, value.reason.replace("The body", "The line", 1))
    if not isinstance(value, dict):
        return Fault(number, 'A line is {"alias": "VNO-42", "aggregate_type": "character", "key": "a000…"}.')
    for field in _REQUIRED:
        if not isinstance(value.get(field), str):
            return Fault(number, f"`{field}` is missing, or not a string.")
    for field in value:
        if field not in _FIELDS:
            return Fault(number, f"There is no field {shown(field)}. {proposal(field, frozenset(_FIELDS))}")
    retired = value.get("retired", False)
    if not isinstance(retired, bool):
        return Fault(number, "`retired` is true or false.")
    alias = _whole(value["alias"].removeprefix(SIGIL), kinds)
    if isinstance(alias, str):
        return Fault(number, alias)
    if value["aggregate_type"] not in spec.aggregate_types:
        return Fault(number, f"The spec declares no aggregate type {shown(value['aggregate_type'])}.")
    key = canonicalize(value["key"], spec.singletons)
    if key is None:
        return Fault(number, f"{shown(value['key'])} is not an identifier.")
    given = named(alias)
    name = Given(given.kind, given.prefix, given.body, given.path, value["aggregate_type"], key)
    return Wanted(number, name, retired)


def _whole(text: str, kinds: Mapping[str, frozenset[Kind]]) -> Alias | str:
    """An alias with nothing left out and a prefix of its kind, or why it is invalid."""
    alias = parse_alias(text)
    if isinstance(alias, Malformed):
        return alias.reason
    if alias.prefix is None:
        return f"{shown(text)} has no prefix."
    declared = kinds.get(alias.prefix.lower(), frozenset())
    if declared == {Kind.HASH} and (hashed := numbered_hash(alias)) is not None:
        return hashed  # digits only, under a prefix that numbers nothing
    if declared and alias.kind not in declared:
        return f"The prefix {alias.prefix} of the spec is for another kind of alias."
    return alias


async def plan(at: Snapshot, wanted: Sequence[Wanted], tell: Tell = lambda _: None) -> tuple[Change, ...]:
    """What is to change so that all are as wanted; names that are so already stay as they are. Raises
    CannotImport where a name is another's, or an aggregate has another public id of the same key."""
    give: list[Given] = []
    retire: list[Named] = []
    restore: list[Named] = []
    faults: list[Fault] = []
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        holders = await at.holders([each.name for each in some])
        numbered = await at.public_ids_of([(each.name.aggregate_type, each.name.key) for each in some])
        for each in some:
            name = named(each.name.alias)
            holder = holders.get(name)
            if holder is None:
                give.append(each.name)
                fault = _second(each, numbered)
                if each.name.kind is Kind.PUBLIC:
                    numbered[each.name.aggregate_type, each.name.key, each.name.prefix] = each.name.body
            else:
                fault = _held(each, holder)
            if fault is not None:
                faults.append(fault)
            elif each.retired != (holder is not None and holder.retired):
                (retire if each.retired else restore).append(name)
        tell(len(some))
    if faults:
        raise CannotImport(faults)
    return (Give(tuple(give), imported=True), Retire(tuple(retire)), Retire(tuple(restore), restore=True))


def _held(wanted: Wanted, holder: Found) -> Fault | None:
    if (holder.aggregate_type, holder.key) == (wanted.name.aggregate_type, wanted.name.key):
        return None
    why = f"{holder.alias.text} belongs to the {holder.aggregate_type} {holder.key} and is never reassigned."
    return Fault(wanted.line, why)


def _second(wanted: Wanted, numbered: dict[tuple[str, str, str], str]) -> Fault | None:
    name = wanted.name
    other = numbered.get((name.aggregate_type, name.key, name.prefix))
    if name.kind is not Kind.PUBLIC or other is None:
        return None
    return Fault(wanted.line, f"The {name.aggregate_type} {name.key} has {name.prefix}-{other} already.")
