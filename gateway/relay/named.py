"""Events as they go out: as the feed has them, with aliases where their subscription asks for those."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gateway.event_json import fed_json
from gateway.relay.database import Subscribed
from gateway.relay.outbox import Entry
from gateway.relay.position import encode_alone

Aggregate = tuple[str, str]

AliasesOf = Callable[[bytes, Sequence[Aggregate]], Awaitable[Mapping[Aggregate, tuple[str, ...]]]]
"""Of a tenant's aggregates (type, key), the aliases that are shown; of one without any, nothing. Raises
PostgresTrouble."""

_encode: Final = msgspec.json.Encoder().encode


async def messages(of: Subscribed, entries: Iterable[Entry], aliases_of: AliasesOf) -> list[bytes]:
    """The events in JSON, in their order. The aliases are those of now. Raises PostgresTrouble."""
    listed = list(entries)
    bodies = [fed_json(each.recorded, encode_alone(of.p, each.place)) for each in listed]
    if not of.aliases or not listed:
        return bodies
    aggregates = [(each.recorded.stream.aggregate_type, each.recorded.stream.key) for each in listed]
    found = await aliases_of(of.tenant, list(dict.fromkeys(aggregates)))
    return [
        b'%b,"aliases":%b}' % (body[:-1], _encode(found.get(aggregate, ())))
        for body, aggregate in zip(bodies, aggregates, strict=True)
    ]
