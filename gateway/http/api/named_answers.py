"""Names in answers: `aliases=true` tells the aliases of the aggregates in an answer, `keys=alias` leaves out
the key wherever an alias stands for it; and of a child, its parent.

Owns what an answer looks like then. It is made of the answer that is there already: nothing is read again.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gateway.aliases.shared_look_ups import AliasLookUps
from gateway.aliases.store import Store
from gateway.event_json import named_json
from gateway.events import Stream
from gateway.http.api.reads import unavailable
from gateway.http.parameters import Parameters
from gateway.http.render import encode, with_member
from gateway.http.request import Refused
from gateway.http.response import ReadAnswer
from gateway.names.aliases import Kind
from gateway.postgres.errors import PostgresTrouble
from spec.model import Spec

PARAMETERS: Final = ("aliases", "keys")
_LISTS: Final = ("events", "items", "waiting")
PARENTS_MAX: Final = 50_000
"""Aggregates of which it is remembered whose children they are, some 300 bytes each."""
_ORPHAN_S: Final = 60.0
"""For which one counts as no child: only an import of names makes it one."""

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_many = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_text = msgspec.json.Decoder(str).decode


class Wanted(NamedTuple):
    """Of which types aliases are told, None for all; and whether keys are left out."""

    types: frozenset[str] | None = frozenset()
    keyless: bool = False

    @property
    def nothing(self) -> bool:
        return self.types is not None and not self.types

    def of(self, aggregate_type: str) -> bool:
        return self.types is None or aggregate_type in self.types


def wanted(query: Parameters, spec: Spec | None) -> Wanted:
    """What a query asks for; types that say `"aliases": true` ask by themselves. Raises Refused."""
    keyless, asked = query.choice("keys", ("alias",), "") == "alias", query.boolean("aliases")
    if keyless or asked:
        return Wanted(None, keyless)
    return Wanted() if spec is None or query.given("aliases") else Wanted(spec.telling)


class NamedAnswers:
    def __init__(self, store: Store) -> None:
        self._store, self._look_ups = store, AliasLookUps(store)
        self._parents: OrderedDict[Stream, tuple[str | None, float]] = OrderedDict()

    async def told(
        self, tenant: bytes, read: ReadAnswer, asked: Wanted, aggregate_type: str | None = None
    ) -> ReadAnswer:
        """`aggregate_type` is that of an answer about one aggregate, or of the items of a list. Raises
        Refused."""
        if asked.nothing or read.status != 200:
            return read
        members = _decode(read.body)
        places = list(_places(members, aggregate_type))
        named = [(place, stream) for place, stream in places if asked.of(stream[0])]
        if not named:
            return read
        aliases = await self._aliases(tenant, {stream for _, stream in named})
        for place, stream in named:
            found = aliases.get(stream, ())
            place["aliases"] = msgspec.Raw(encode(found))
            if asked.keyless and found:
                del place["key"]
        return msgspec.structs.replace(read, body=encode(_put_back(members, places)))

    async def events(self, tenant: bytes, asked: Wanted, made: Sequence[tuple[Stream, bytes]]) -> list[bytes]:
        """The JSON of events on their way in a stream, each with its aggregate: with what is asked for of
        their aliases, which are looked up at once. Raises Refused."""
        named = {(stream.aggregate_type, stream.key) for stream, _ in made if asked.of(stream.aggregate_type)}
        if not named:
            return [event for _, event in made]
        aliases = await self._aliases(tenant, named)
        return [
            named_json(
                event,
                stream.key,
                aliases.get((stream.aggregate_type, stream.key), ()),
                keyless=asked.keyless,
            )
            if asked.of(stream.aggregate_type)
            else event
            for stream, event in made
        ]

    async def _aliases(
        self, tenant: bytes, streams: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], tuple[str, ...]]:
        try:
            return await self._look_ups.of_each(tenant, streams)
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble

    # -- whose child it is

    def is_no_child(self, stream: Stream) -> bool:
        """As far as memory tells."""
        known = self._parents.get(stream)
        return known is not None and known[0] is None and time.monotonic() < known[1]

    async def with_parent(self, stream: Stream, read: ReadAnswer) -> ReadAnswer:
        """Of a child, the alias of its parent. Raises Refused."""
        if read.status != 200:
            return read
        try:
            parent = await self.parent_of(stream)
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble
        if parent is None:
            return read
        return msgspec.structs.replace(read, body=with_member(read.body, b'"parent":%b' % encode(parent)))

    async def parent_of(self, stream: Stream) -> str | None:
        """Raises PostgresTrouble."""
        known = self._parents.get(stream)
        if known is not None and (known[0] is not None or time.monotonic() < known[1]):
            return known[0]
        parent = None
        for each in await self._store.aliases_of(stream):
            if each.alias.kind is Kind.HASH and each.alias.path:
                parent = each.alias.text.rpartition(".")[0]
                break
        self._parents[stream] = parent, time.monotonic() + _ORPHAN_S
        if len(self._parents) > PARENTS_MAX:
            self._parents.popitem(last=False)
        return parent


def _places(
    members: dict[str, msgspec.Raw], aggregate_type: str | None
) -> Iterable[tuple[dict[str, msgspec.Raw], tuple[str, str]]]:
    """Each object of an answer that names an aggregate, and which: the answer itself, its event, or those
    that it lists. Those inside are taken apart, and put back by `_put_back`."""
    if "key" in members and aggregate_type is not None:
        yield members, (aggregate_type, _text(members["key"]))
    inner: list[dict[str, msgspec.Raw]] = []
    if "event" in members:
        inner = [_decode(members["event"])]
    for name in _LISTS:
        if name in members:
            inner = _decode_many(members[name])
    for each in inner:
        named = _text(each["aggregate_type"]) if "aggregate_type" in each else aggregate_type
        if "key" in each and named is not None:
            yield each, (named, _text(each["key"]))


def _put_back(
    members: dict[str, msgspec.Raw], places: list[tuple[dict[str, msgspec.Raw], tuple[str, str]]]
) -> dict[str, msgspec.Raw]:
    inner = [place for place, _ in places if place is not members]
    if "event" in members and inner:
        members["event"] = msgspec.Raw(encode(inner[0]))
    for name in _LISTS:
        if name in members and inner:
            members[name] = msgspec.Raw(encode(inner))
    return members
