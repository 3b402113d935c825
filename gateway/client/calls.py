"""Every call as a request and how its answer is read. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import msgspec

from gateway.client.errors import Refused
from gateway.client.model import Event, FeedPage, Receipt, State
from gateway.client.options import AppendOptions, FeedOptions, check_options
from gateway.client.retry import Answer, Call, Request

_encode = msgspec.json.Encoder().encode
_METADATA = ("target", "previous_length", "event_id", "causation_id", "extra")
decode_event = msgspec.json.Decoder(Event).decode
PAGE_EVENTS = 1000
_NOTHING: Mapping[str, str] = MappingProxyType({})


def append(
    aggregate_type: str, key: str, event_type: str, data: object, new_key: str, options: AppendOptions
) -> Call[Receipt]:
    check_options(options, AppendOptions, ("actor",))
    body = {"data": data, "metadata": _metadata(options)}
    return _append((aggregate_type, key, event_type), body, new_key, options)


def append_many(
    aggregate_type: str,
    key: str | None,
    events: Sequence[tuple[str, object]],
    new_key: str,
    options: AppendOptions,
) -> Call[Receipt]:
    """Without a key the gateway mints one."""
    check_options(options, AppendOptions, ("actor",))
    listed = [{"type": event_type, "data": data} for event_type, data in events]
    path = (aggregate_type,) if key is None else (aggregate_type, key)
    return _append(path, {"events": listed, "metadata": _metadata(options)}, new_key, options)


def _append(
    path: tuple[str, ...], body: Mapping[str, object], new_key: str, options: AppendOptions
) -> Call[Receipt]:
    idempotency_key = options.get("idempotency_key", new_key)
    headers = {
        "content-type": "application/json",
        "idempotency-key": sendable("Idempotency-Key", idempotency_key),
    }
    if "correlation_id" in options:
        headers["x-correlation-id"] = sendable("X-Correlation-Id", options["correlation_id"])
    if options.get("wait"):
        headers["prefer"] = "wait"
    # Encoded once: a repeat must have the very bytes.
    request = Request("POST", _path(*path), {}, headers, _encode(body))
    return Call(request, _receipt, idempotency_key)


def _metadata(options: AppendOptions) -> dict[str, Any]:
    found = {name: options[name] for name in _METADATA if name in options}  # type: ignore[literal-required]
    return {"actor": options["actor"], **found}


def state(aggregate_type: str, key: str, params: Mapping[str, str]) -> Call[State]:
    return Call(Request("GET", _path(aggregate_type, key), params, {}), _state)


def length(aggregate_type: str, key: str) -> Call[int]:
    return Call(Request("GET", _path(aggregate_type, key, "length"), {}, {}), _length)


def events(aggregate_type: str, key: str, start: int) -> Call[tuple[tuple[Event, ...], int | None]]:
    """A page of a stream, and where the next one begins."""
    params = {"from": str(start), "limit": str(PAGE_EVENTS)}
    return Call(Request("GET", _path(aggregate_type, key, "events"), params, {}), _stream_page)


def get(segments: tuple[str, ...], params: Mapping[str, str] = _NOTHING) -> Call[Answer]:
    """Any path, its segments spelled as text; the answer as it came."""
    return Call(Request("GET", _path(*segments), params, {}), _as_it_came)


def event(event_id: str) -> Call[Event]:
    return Call(Request("GET", _path("_", "events", event_id), {}, {}), _event)


def feed(limit: int, wait_s: int, options: FeedOptions) -> Call[FeedPage]:
    params = {**feed_params(options), "limit": str(limit), "wait": str(wait_s)}
    return Call(Request("GET", "/_/feed", params, {}, wait_s=wait_s), _feed_page)


def feed_params(options: FeedOptions) -> dict[str, str]:
    check_options(options, FeedOptions)
    params = {}
    for name in ("types", "event_types", "tags"):
        if names := options.get(name):
            params[name] = ",".join(sorted(names))  # type: ignore[call-overload]
    for name in ("after", "correlation_id", "actor", "from_time"):
        if (value := options.get(name)) is not None:
            params[name] = str(value)
    return params


def sendable(header: str, value: str) -> str:
    """The value, if a header can hold it (RFC 9110 section 5.5). Raises Refused otherwise: the request could
    never leave."""
    if value.isascii() and value.isprintable() and value == value.strip():
        return value
    raise Refused(422, "invalid_field", f"{header} can't be sent: it must be printable ASCII.", header, {})


def _path(*segments: str) -> str:
    return "".join(["/" + quote(segment, safe="@:") for segment in segments])


# -- answers


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
    key: str
    data: dict[str, Any]
    metadata: _Times


class _Length(msgspec.Struct):
    length: int


class _Page(msgspec.Struct):
    events: tuple[Event, ...]
    next: int | None


class _Single(msgspec.Struct):
    event: Event


def _as_it_came(answer: Answer) -> Answer:
    return answer


def _receipt(answer: Answer) -> Receipt:
    body = msgspec.json.decode(answer.content, type=_Appended)
    ids = body.event_ids or (body.event_id or "",)
    replayed = answer.headers.get("idempotency-replayed") == "true"
    return Receipt(body.key, body.length, ids, replayed, body.aliases, body.position)


def _state(answer: Answer) -> State:
    told = msgspec.json.decode(answer.content, type=_State)
    times = told.metadata
    return State(told.key, told.data, times.length, times.created_at, times.updated_at)


def _length(answer: Answer) -> int:
    return msgspec.json.decode(answer.content, type=_Length).length


def _stream_page(answer: Answer) -> tuple[tuple[Event, ...], int | None]:
    page = msgspec.json.decode(answer.content, type=_Page)
    return page.events, page.next


def _event(answer: Answer) -> Event:
    return msgspec.json.decode(answer.content, type=_Single).event


def _feed_page(answer: Answer) -> FeedPage:
    return msgspec.json.decode(answer.content, type=FeedPage)
