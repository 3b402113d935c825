"""How the answer of each call is read. Pure."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from gateway.client.model import (
    Child,
    Claim,
    Event,
    FeedPage,
    Hashes,
    Provisioned,
    Receipt,
    ReceiptOfAll,
    Replayed,
    Resolved,
    Row,
    Source,
    StandsFor,
    State,
    Tenant,
)
from gateway.client.retry import Answer
from gateway.json_values import decode_data

decode_event = msgspec.json.Decoder(Event).decode
RowPage = tuple[tuple[Row, ...], str | None]
"""Rows, and the cursor of the next page."""


class _Appended(msgspec.Struct):
    key: str
    length: int
    event_id: str | None = None
    event_ids: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    position: str | None = None


class _Times(msgspec.Struct):
    length: int
    created_at: int | None
    updated_at: int | None


class _State(msgspec.Struct):
    data: msgspec.Raw
    metadata: _Times
    key: str = ""
    aliases: tuple[str, ...] = ()


class _RowTimes(msgspec.Struct):
    length: int
    created_at: int
    updated_at: int


class _Row(msgspec.Struct):
    key: str
    data: msgspec.Raw
    metadata: _RowTimes


class _Rows(msgspec.Struct):
    items: tuple[_Row, ...]
    next: str | None


class _Length(msgspec.Struct):
    length: int


class _Page(msgspec.Struct):
    events: tuple[Event, ...]
    next: int | None


class _Named(msgspec.Struct):
    aliases: tuple[str, ...]


class _Children(msgspec.Struct):
    children: tuple[Child, ...]
    next: int | None = None


class _Keys(msgspec.Struct):
    keys: tuple[str | None, ...]


class _Sources(msgspec.Struct):
    sources: tuple[Source, ...]


class _Ids(msgspec.Struct):
    ids: tuple[str, ...]


class _Tenants(msgspec.Struct):
    tenants: tuple[Provisioned, ...]
    next: str | None = None


class _Replayed(msgspec.Struct):
    replayed: tuple[Replayed, ...]


class _Single(msgspec.Struct):
    event: Event


def receipt_of_all(answer: Answer) -> ReceiptOfAll:
    body = msgspec.json.decode(answer.content, type=ReceiptOfAll)
    replayed = answer.headers.get("idempotency-replayed") == "true"
    return msgspec.structs.replace(body, replayed=replayed)


def resolved(answer: Answer) -> Resolved:
    return msgspec.json.decode(answer.content, type=Resolved)


def aliases(answer: Answer) -> tuple[str, ...]:
    return msgspec.json.decode(answer.content, type=_Named).aliases


def children(answer: Answer) -> tuple[tuple[Child, ...], int | None]:
    page = msgspec.json.decode(answer.content, type=_Children)
    return page.children, page.next


def stands_for(answer: Answer) -> StandsFor:
    return msgspec.json.decode(answer.content, type=StandsFor)


def keys(answer: Answer) -> tuple[str | None, ...]:
    return msgspec.json.decode(answer.content, type=_Keys).keys


def sources(answer: Answer) -> tuple[Source, ...]:
    return msgspec.json.decode(answer.content, type=_Sources).sources


def hashes(answer: Answer) -> Hashes:
    return msgspec.json.decode(answer.content, type=Hashes)


def ids(answer: Answer) -> tuple[str, ...]:
    return msgspec.json.decode(answer.content, type=_Ids).ids


def tenant(answer: Answer) -> Tenant:
    return msgspec.json.decode(answer.content, type=Tenant)


def tenants(answer: Answer) -> tuple[tuple[Provisioned, ...], str | None]:
    page = msgspec.json.decode(answer.content, type=_Tenants)
    return page.tenants, page.next


def provisioned(answer: Answer) -> Provisioned:
    return msgspec.json.decode(answer.content, type=Provisioned)


def claim(answer: Answer) -> Claim:
    return msgspec.json.decode(answer.content, type=Claim)


def replayed(answer: Answer) -> tuple[Replayed, ...]:
    return msgspec.json.decode(answer.content, type=_Replayed).replayed


def nothing(_: Answer) -> None:
    return


def as_it_came(answer: Answer) -> Answer:
    return answer


def receipt_of(answer: Answer) -> Receipt:
    body = msgspec.json.decode(answer.content, type=_Appended)
    ids = body.event_ids or (body.event_id or "",)
    replayed = answer.headers.get("idempotency-replayed") == "true"
    return Receipt(body.key, body.length, ids, replayed, body.aliases, body.position)


def receipt_of_either(answer: Answer) -> Receipt | ReceiptOfAll:
    several = msgspec.json.decode(answer.content, type=dict[str, msgspec.Raw])
    return receipt_of_all(answer) if "events" in several else receipt_of(answer)


def state(answer: Answer) -> State:
    body = msgspec.json.decode(answer.content, type=_State)
    times = body.metadata
    return State(body.key, _object(body.data), times.length, times.created_at, times.updated_at, body.aliases)


def row(answer: Answer) -> Row:
    return _row_of(msgspec.json.decode(answer.content, type=_Row))


def _object(data: msgspec.Raw) -> dict[str, Any]:
    return cast(dict[str, Any], decode_data(data))


def _row_of(body: _Row) -> Row:
    times = body.metadata
    return Row(body.key, _object(body.data), times.length, times.created_at, times.updated_at)


def row_page(answer: Answer) -> RowPage:
    body = msgspec.json.decode(answer.content, type=_Rows)
    return tuple(map(_row_of, body.items)), body.next


def length(answer: Answer) -> int:
    return msgspec.json.decode(answer.content, type=_Length).length


def stream_page(answer: Answer) -> tuple[tuple[Event, ...], int | None]:
    page = msgspec.json.decode(answer.content, type=_Page)
    return page.events, page.next


def event(answer: Answer) -> Event:
    return msgspec.json.decode(answer.content, type=_Single).event


def feed_page(answer: Answer) -> FeedPage:
    return msgspec.json.decode(answer.content, type=FeedPage)
