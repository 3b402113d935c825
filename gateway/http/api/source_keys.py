"""`"source"` in place of a key, in the body of an append or in a bulk line: which aggregate is meant.

Owns how it is read there. What a foreign id stands for is the catalog's; an id that was never seen gets its
key here, before the append is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID, uuid4

import msgspec

from gateway.admit.append import Fault
from gateway.admit.envelope import EVENTS_MAX
from gateway.admit.line import is_several
from gateway.admit.strict_json import Malformed, decode
from gateway.aside import Aside, Busy
from gateway.catalog import source_ids
from gateway.catalog.narrowness import Only
from gateway.errors import Refusal
from gateway.http.api.sources import read_source, taken
from gateway.http.request import Refused
from gateway.names.source_ids import SourceId
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Shares
from spec.identifiers import GLOBAL
from spec.model import Spec
from spec.violations import WEIGHT_MIN, is_light

SOURCE: Final = b'"source"'
"""What does not hold these bytes names no foreign id, however it is spelled: a key of an object may be
escaped, and is refused as unknown then."""

Names = tuple[str, str, str]
_T = TypeVar("_T")


class NamedLine(NamedTuple):
    """A bulk line with its key, and the foreign id that leads to it; None where its events have theirs, by
    their numbers in `sources`. `refusal` is why the foreign id stands for nothing: where nothing else is
    wrong with the line."""

    line: bytes
    source: Names | None
    sources: Mapping[int, Names] = MappingProxyType({})
    refusal: Refusal | None = None


class NamedBody(NamedTuple):
    """A body of /_/append with keys, and the foreign ids that lead to them, by the numbers of their events;
    `refusal` as of a line."""

    body: bytes
    sources: Mapping[int, Names] = MappingProxyType({})
    refusal: Refusal | None = None


_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_events = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_encode = msgspec.json.Encoder().encode
_UNAVAILABLE: Final = Refusal(
    "not_committed", "The event will never appear: Postgres does not answer, and the source id needs it."
)


class SourceKeys:
    def __init__(self, shares: Shares, aside: Aside) -> None:
        self._shares = shares
        self._aside = aside

    async def _read(self, tenant: UUID, text: bytes, work: Callable[[], _T]) -> _T | Refusal:
        """What `work` makes of the text; of a large one beside other requests."""
        if is_light(text, WEIGHT_MIN):
            return work()
        try:
            return await self._aside.run(tenant.bytes, work)
        except Busy as busy:
            return Refusal("not_committed", f"The event will never appear by this request. {busy.why}")

    async def of_body(
        self, tenant: UUID, aggregate_type: str, body: bytes, only: Only | None
    ) -> tuple[str, Names] | Refusal | None:
        """The key that a body means by `source`, beside `events`; None where it names none, or can't be
        read. `only`: what the caller's key is narrowed to."""
        value = await self._read(tenant, body, partial(decode, body)) if SOURCE in body else None
        if isinstance(value, Refusal):
            return value
        if not isinstance(value, dict) or value.get("source") is None:
            return None
        try:
            wanted = read_source(value["source"], "source")
        except Refused as refused:
            return refused.refusal
        found = await self._keys(tenant, aggregate_type, [wanted], only)
        if isinstance(found, Refusal):
            return found
        key = found[0]
        return key if isinstance(key, Refusal) else (key, _names(wanted))

    async def of_events(self, tenant: UUID, spec: Spec | None, body: bytes) -> NamedBody | Refusal:
        """A body of /_/append, in which events that name a foreign id have its key in place of it. What
        can't be read, or names no declared type, stays as it is: it is refused when it is judged."""
        named = await self._read(tenant, body, partial(_events_named, body, spec))
        if isinstance(named, Refusal):
            return named
        if not named:
            return NamedBody(body)
        keys: dict[int, str | None] = {}
        by_type: dict[str, dict[int, SourceId]] = {}
        for n, event in named.items():
            path = f"events[{n}].source"
            if event["source"] is None:
                keys[n] = None
                continue
            if event.get("key") is not None:
                both = Refusal("contradiction", "An event has a `key` or a `source`, not both.", path)
                return await self._unnamed(tenant, body, named, both)
            try:
                wanted = read_source(event["source"], path)
            except Refused as refused:
                return await self._unnamed(tenant, body, named, refused.refusal)
            by_type.setdefault(event["aggregate_type"], {})[n] = wanted
        for aggregate_type, several in sorted(by_type.items()):
            mapped = await self._keys(tenant, aggregate_type, list(several.values()))
            if isinstance(mapped, Refusal):
                return mapped
            for n, key in zip(several, mapped, strict=True):
                if isinstance(key, Refusal):
                    taken_by_another = replace(key, path=f"events[{n}].source")
                    return await self._unnamed(tenant, body, named, taken_by_another)
                keys[n] = key
        wanted_by = {n: source for several in by_type.values() for n, source in several.items()}
        made = await self._read(tenant, body, partial(_with_keys, body, keys))
        if isinstance(made, Refusal):
            return made
        return NamedBody(made, {n: _names(each) for n, each in wanted_by.items()})

    async def _unnamed(
        self, tenant: UUID, body: bytes, named: Mapping[int, dict[str, Any]], refusal: Refusal
    ) -> NamedBody | Refusal:
        """With keys of no aggregate, which is all that the rest of the checks needs."""
        keys = {
            n: None if event["source"] is None or event.get("key") is not None else str(uuid4())
            for n, event in named.items()
        }
        made = await self._read(tenant, body, partial(_with_keys, body, keys))
        return made if isinstance(made, Refusal) else NamedBody(made, refusal=refusal)

    async def of_lines(
        self, tenant: UUID, spec: Spec | None, lines: Sequence[bytes]
    ) -> dict[bytes, NamedLine | Fault]:
        """Of those lines that name a foreign id, by their text."""
        found: dict[bytes, NamedLine | Fault] = {}
        by_type: dict[str, list[tuple[bytes, SourceId]]] = {}
        several_lines = list(dict.fromkeys(lines))
        values = await self._read(
            tenant, b"".join(several_lines), lambda: [decode(each) for each in several_lines]
        )
        if isinstance(values, Refusal):
            return dict.fromkeys(several_lines, Fault(values, None))
        for line, value in zip(several_lines, values, strict=True):
            if isinstance(value, Malformed) or not isinstance(value, dict):
                continue
            if is_several(line):
                body = await self.of_events(tenant, spec, line)
                found[line] = (
                    Fault(body, None)
                    if isinstance(body, Refusal)
                    else NamedLine(body.body, None, body.sources, body.refusal)
                )
                continue
            aggregate_type = value.get("aggregate_type")
            if "source" not in value:
                continue
            if value["source"] is None:  # as if it was left out
                found[line] = NamedLine(_without_source(line), None)
                continue
            if value.get("key") is not None:
                both = Refusal("contradiction", "A line has a `key` or a `source`, not both.", "source")
                found[line] = NamedLine(_without_source(line), None, refusal=both)
                continue
            if (
                spec is None
                or not isinstance(aggregate_type, str)
                or aggregate_type not in spec.aggregate_types
            ):
                found[line] = _unnamed(line, Refusal("unknown_aggregate_type", _NO_TYPE, "type"))
                continue
            try:
                by_type.setdefault(aggregate_type, []).append((line, read_source(value["source"], "source")))
            except Refused as refused:
                found[line] = _unnamed(line, refused.refusal)
        for aggregate_type, several in by_type.items():
            keys = await self._keys(tenant, aggregate_type, [source for _, source in several])
            for n, (line, source) in enumerate(several):
                if isinstance(keys, Refusal):
                    found[line] = Fault(keys, None)
                    continue
                key = keys[n]
                if isinstance(key, Refusal):
                    found[line] = _unnamed(line, key)
                else:
                    found[line] = NamedLine(_with_key(line, key), _names(source))
        return found

    async def _keys(
        self, tenant: UUID, aggregate_type: str, wanted: Sequence[SourceId], only: Only | None = None
    ) -> list[str | Refusal] | Refusal:
        try:
            mapped = await source_ids.mappings(
                self._shares.of(tenant.bytes), tenant, wanted, mint=True, aggregate_type=aggregate_type
            )
        except PostgresTrouble:
            return _UNAVAILABLE
        keys: list[str | Refusal] = []
        for source, each in zip(wanted, mapped, strict=True):
            assert each is not None
            keys.append(
                each.key if each.aggregate_type == aggregate_type else taken(source, each, "source", only)
            )
        return keys


def _events_named(body: bytes, spec: Spec | None) -> dict[int, dict[str, Any]]:
    """The events of a declared type that have a `source`."""
    value = decode(body) if SOURCE in body and spec is not None else None
    events = value.get("events") if isinstance(value, dict) else None
    if not isinstance(events, list) or len(events) > EVENTS_MAX:
        return {}
    if spec is None or not all(isinstance(event, dict) for event in events):
        return {}
    declared = spec.aggregate_types
    return {
        n: event
        for n, event in enumerate(events)
        if "source" in event
        and isinstance(event.get("aggregate_type"), str)
        and event["aggregate_type"] in declared
    }


def _with_keys(body: bytes, keys: Mapping[int, str | None]) -> bytes:
    members = _decode_members(body)
    events = _decode_events(members["events"])
    for n, key in keys.items():
        del events[n]["source"]
        if key is not None:
            events[n]["key"] = msgspec.Raw(_encode(key))
    return _encode({**members, "events": events})


_NO_TYPE: Final = "A line that names a source names its `aggregate_type`, one that the spec declares."


def _without_source(line: bytes) -> bytes:
    members = _decode_members(line)
    del members["source"]
    return _encode(members)


def _with_key(line: bytes, key: str) -> bytes:
    members = _decode_members(line)
    del members["source"]
    return _encode({**members, "key": key})


def _unnamed(line: bytes, refusal: Refusal) -> NamedLine:
    return NamedLine(_with_key(line, GLOBAL), None, refusal=refusal)


def _names(source: SourceId) -> Names:
    return source.source, source.scope, source.source_id
