"""`"source"` in place of a key, in the body of an append or in a bulk line: which aggregate is meant.

Owns how it is read there. What a foreign id stands for is the catalog's; an id that was never seen gets its
key here, before the append is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from gateway.admit.append import Fault
from gateway.admit.strict_json import Malformed, decode
from gateway.catalog import source_ids
from gateway.catalog.model import CatalogUnavailable
from gateway.errors import Refusal
from gateway.http.api.sources import read_source, taken
from gateway.http.request import Refused
from gateway.names.source_ids import SourceId
from spec.model import Spec

SOURCE: Final = b'"source"'
"""What does not hold these bytes names no foreign id, however it is spelled: a key of an object may be
escaped, and is refused as unknown then."""

Names = tuple[str, str, str]


class NamedLine(NamedTuple):
    """A bulk line with its key, and the foreign id that leads to it."""

    line: bytes
    source: Names


_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_UNAVAILABLE: Final = Refusal(
    "not_committed", "The event will never appear: Postgres does not answer, and the source id needs it."
)


class SourceKeys:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def of_body(
        self, tenant: UUID, aggregate_type: str, body: bytes
    ) -> tuple[str, Names] | Refusal | None:
        """The key that a body means by `source`, beside `events`; None where it names none, or can't be
        read."""
        value = decode(body) if SOURCE in body else None
        if not isinstance(value, dict) or value.get("source") is None:
            return None
        try:
            wanted = read_source(value["source"], "source")
        except Refused as refused:
            return refused.refusal
        found = await self._keys(tenant, aggregate_type, [wanted])
        if isinstance(found, Refusal):
            return found
        key = found[0]
        return key if isinstance(key, Refusal) else (key, _names(wanted))

    async def of_lines(
        self, tenant: UUID, spec: Spec | None, lines: Sequence[bytes]
    ) -> dict[bytes, NamedLine | Fault]:
        """Of those lines that name a foreign id and no key, by their text."""
        found: dict[bytes, NamedLine | Fault] = {}
        by_type: dict[str, list[tuple[bytes, SourceId]]] = {}
        for line in dict.fromkeys(lines):
            value = decode(line)
            if isinstance(value, Malformed) or not isinstance(value, dict):
                continue
            aggregate_type = value.get("aggregate_type")
            if "source" not in value or "key" in value:
                continue
            if (
                spec is None
                or not isinstance(aggregate_type, str)
                or aggregate_type not in spec.aggregate_types
            ):
                found[line] = Fault(Refusal("unknown_aggregate_type", _NO_TYPE, "type"), None)
                continue
            try:
                by_type.setdefault(aggregate_type, []).append((line, read_source(value["source"], "source")))
            except Refused as refused:
                found[line] = Fault(refused.refusal, None)
        for aggregate_type, several in by_type.items():
            keys = await self._keys(tenant, aggregate_type, [source for _, source in several])
            for n, (line, source) in enumerate(several):
                key = keys if isinstance(keys, Refusal) else keys[n]
                found[line] = Fault(key, None) if isinstance(key, Refusal) else _with_key(line, key, source)
        return found

    async def _keys(
        self, tenant: UUID, aggregate_type: str, wanted: Sequence[SourceId]
    ) -> list[str | Refusal] | Refusal:
        try:
            mapped = await source_ids.mappings(
                self._pool, tenant, wanted, mint=True, aggregate_type=aggregate_type
            )
        except CatalogUnavailable:
            return _UNAVAILABLE
        keys: list[str | Refusal] = []
        for source, each in zip(wanted, mapped, strict=True):
            assert each is not None
            keys.append(each.key if each.aggregate_type == aggregate_type else taken(source, each, "source"))
        return keys


_NO_TYPE: Final = "A line that names a source names its `aggregate_type`, one that the spec declares."


def _with_key(line: bytes, key: str, source: SourceId) -> NamedLine:
    members = _decode_members(line)
    del members["source"]
    return NamedLine(_encode({**members, "key": key}), _names(source))


def _names(source: SourceId) -> Names:
    return source.source, source.scope, source.source_id
