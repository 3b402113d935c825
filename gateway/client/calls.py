"""Every call as a request, and which reader its answer has. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from gateway.client import answers
from gateway.client.encoding import encode
from gateway.client.errors import Refused
from gateway.client.model import (
    Child,
    Claim,
    Condition,
    Event,
    FeedPage,
    Hashes,
    NewEvent,
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
from gateway.client.options import (
    AppendAllOptions,
    AppendOptions,
    CreateOptions,
    FeedOptions,
    RowOptions,
    check_options,
)
from gateway.client.retry import Answer, Call, Request

_METADATA_OF_ALL = ("target", "causation_id", "extra")
_METADATA = ("target", "previous_length", "event_id", "causation_id", "extra")
PAGE_EVENTS = 1000
PAGE_ROWS = 200
_REPLAY_S = 10.0
"""For which a gateway continues with one call's replays."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_JSON: Mapping[str, str] = MappingProxyType({"content-type": "application/json"})
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
    options: AppendOptions | CreateOptions,
) -> Call[Receipt]:
    """Without a key the gateway mints one."""
    check_options(options, AppendOptions if key is not None else CreateOptions, ("actor",))
    listed = [{"type": event_type, "data": data} for event_type, data in events]
    path = (aggregate_type,) if key is None else (aggregate_type, key)
    parent = {"parent": options.get("parent")} if "parent" in options else {}
    return _append(path, {**parent, "events": listed, "metadata": _metadata(options)}, new_key, options)


def append_all(
    events: Sequence[NewEvent], condition: Condition | None, new_key: str, options: AppendAllOptions
) -> Call[ReceiptOfAll]:
    check_options(options, AppendAllOptions, ("actor",))
    metadata = {"actor": options["actor"]}
    metadata |= {name: options[name] for name in _METADATA_OF_ALL if name in options}  # type: ignore[literal-required]
    body: dict[str, object] = {"events": list(events), "metadata": metadata}
    if condition is not None:
        query = {"items": condition.items}
        body["condition"] = {"fail_if_events_match": query, "after": condition.after}
    own = next((each.event_id for each in events if each.event_id), new_key)
    request, idempotency_key = _request(("_", "append"), body, own, options)
    return Call(request, answers.receipt_of_all, idempotency_key)


def post_append(body: bytes, idempotency_key: str | None, correlation_id: str | None) -> Call[Answer]:
    """POST /_/append with a body as it is."""
    key = idempotency_key or str(uuid4())
    headers = {"content-type": "application/json", "idempotency-key": sendable("Idempotency-Key", key)}
    if correlation_id is not None:
        headers["x-correlation-id"] = _correlation(correlation_id)
    return Call(Request("POST", _path("_", "append"), {}, headers, body), answers.as_it_came, key)


def _append(
    path: tuple[str, ...], body: Mapping[str, object], new_key: str, options: AppendOptions | CreateOptions
) -> Call[Receipt]:
    own = options.get("event_id") or new_key
    request, idempotency_key = _request(path, body, own, options)
    return Call(request, answers.receipt_of, idempotency_key)


def _request(
    path: tuple[str, ...],
    body: Mapping[str, object],
    new_key: str,
    options: AppendOptions | CreateOptions | AppendAllOptions,
) -> tuple[Request, str]:
    """With the Idempotency-Key that it carries. `new_key` is the caller's own event id where there is one:
    beside a random key, the same call by another process would be another request, and refused."""
    idempotency_key = options.get("idempotency_key", new_key)
    headers = {
        "content-type": "application/json",
        "idempotency-key": sendable("Idempotency-Key", idempotency_key),
    }
    if "correlation_id" in options:
        headers["x-correlation-id"] = _correlation(options["correlation_id"])
    if options.get("wait"):
        headers["prefer"] = "wait"
    # Encoded once: a repeat must have the very bytes.
    return Request("POST", _path(*path), {}, headers, encode(body)), idempotency_key


def _metadata(options: AppendOptions | CreateOptions) -> dict[str, Any]:
    found = {name: options[name] for name in _METADATA if name in options}  # type: ignore[literal-required]
    return {"actor": options["actor"], **found}


def state(
    aggregate_type: str,
    key: str,
    at: datetime | float | str | None,
    at_length: int | None,
    min_length: int | None,
    aliases: bool | None,
    keyless: bool,
) -> Call[State]:
    """Raises ValueError for a time without a zone: it would be another one elsewhere."""
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError("`at` has no time zone")
        at = at.isoformat()
    given = {"at": at, "at_length": at_length, "min_length": min_length}
    params = {name: str(value) for name, value in given.items() if value is not None}
    params |= _naming(aliases, keyless)
    return Call(Request("GET", _path(aggregate_type, key), params, {}), answers.state)


def length(aggregate_type: str, key: str) -> Call[int]:
    return Call(Request("GET", _path(aggregate_type, key, "length"), {}, {}), answers.length)


def events(
    aggregate_type: str, key: str, start: int, aliases: bool | None, keyless: bool
) -> Call[tuple[tuple[Event, ...], int | None]]:
    """A page of a stream, and where the next one begins."""
    params = {"from": str(start), "limit": str(PAGE_EVENTS), **_naming(aliases, keyless)}
    return Call(Request("GET", _path(aggregate_type, key, "events"), params, {}), answers.stream_page)


def resolve(alias: str) -> Call[Resolved]:
    return Call(
        Request("GET", _path("_", "resolve", f"@{alias.removeprefix('@')}"), {}, {}), answers.resolved
    )


def aliases(aggregate_type: str, key: str) -> Call[tuple[str, ...]]:
    return Call(Request("GET", _path(aggregate_type, key, "aliases"), {}, {}), answers.aliases)


def children(aggregate_type: str, key: str, after: int | None) -> Call[tuple[tuple[Child, ...], int | None]]:
    """A page of them, and behind which number the next one begins."""
    params = {} if after is None else {"after": str(after)}
    return Call(Request("GET", _path(aggregate_type, key, "children"), params, {}), answers.children)


def stands_for(source: Source) -> Call[StandsFor]:
    return Call(Request("GET", _source_path(source), {}, {}), answers.stands_for)


def link(source: Source, aggregate_type: str, key: str) -> Call[StandsFor]:
    body = encode({"aggregate_type": aggregate_type, "key": key})
    return Call(Request("PUT", _source_path(source), {}, _JSON, body), answers.stands_for)


def keys_of(
    sources: Sequence[Source], aggregate_type: str | None, mint: bool
) -> Call[tuple[str | None, ...]]:
    body = encode({"sources": list(sources), "aggregate_type": aggregate_type, "mint": mint})
    return Call(Request("POST", _path("_", "sources", "resolve"), {}, _JSON, body), answers.keys)


def sources_of(key: str) -> Call[tuple[Source, ...]]:
    return Call(Request("GET", _path("_", "sources"), {"key": key}, {}), answers.sources)


def hashes(content: Mapping[str, object], context: Mapping[str, object] | None) -> Call[Hashes]:
    body = encode({**content} if context is None else {**content, "context": context})
    return Call(Request("POST", _path("_", "ids", "hash"), {}, _JSON, body), answers.hashes)


def new_ids(kind: str, count: int) -> Call[tuple[str, ...]]:
    return Call(Request("GET", _path("_", "ids", kind), {"count": str(count)}, {}), answers.ids)


def tenant() -> Call[Tenant]:
    return Call(Request("GET", _path("_", "tenant"), {}, {}), answers.tenant)


def tenants(after: str | None) -> Call[tuple[tuple[Provisioned, ...], str | None]]:
    """A page of them, and behind which name the next one begins."""
    params = {} if after is None else {"after": after}
    return Call(Request("GET", _path("_", "tenants"), params, {}), answers.tenants)


def provision(tenant_id: str, name: str) -> Call[Provisioned]:
    body = encode({"name": name})
    return Call(Request("PUT", _path("_", "tenants", tenant_id), {}, _JSON, body), answers.provisioned)


def provisioned(method: str, tenant_id: str, *act: str) -> Call[Provisioned]:
    return Call(Request(method, _path("_", "tenants", tenant_id, *act), {}, {}), answers.provisioned)


def _source_path(source: Source) -> str:
    return _path("_", "sources", source.source, source.scope, str(source.id))


def receipt(idempotency_key: str | None, event_id: str | None) -> Call[Receipt | ReceiptOfAll]:
    """Raises TypeError unless exactly one of them is given."""
    given = {"idempotency_key": idempotency_key, "event_id": event_id}
    params = {name: value for name, value in given.items() if value is not None}
    if len(params) != 1:
        raise TypeError("a receipt is named by idempotency_key or by event_id")
    return Call(Request("GET", "/_/receipts", params, {}), answers.receipt_of_either)


def claim(
    subscription: str,
    limit: int,
    wait_s: float,
    lease_s: float | None,
    aliases: bool | None,
    keyless: bool,
) -> Call[Claim]:
    body: dict[str, object] = {"limit": limit, "wait": wait_s}
    body |= {} if lease_s is None else {"lease_s": lease_s}
    body |= {} if aliases is None else {"aliases": aliases}
    body |= {"keys": "alias"} if keyless else {}
    path = _path("_", "subscriptions", subscription, "claim")
    return Call(Request("POST", path, {}, _JSON, encode(body), wait_s), answers.claim)


def ack(subscription: str, claimed: Claim | str | None, ids: Collection[str]) -> Call[None]:
    """Raises TypeError where nothing is named."""
    claim_id = claimed.id if isinstance(claimed, Claim) else claimed
    body: dict[str, object] = {} if claim_id is None else {"claim": claim_id}
    if ids:
        body["ids"] = list(ids)
    if not body:
        raise TypeError("nothing is acked: name a claim that has events, or ids of events")
    path = _path("_", "subscriptions", subscription, "ack")
    return Call(Request("POST", path, {}, _JSON, encode(body)), answers.nothing)


def replay(ids: Sequence[str]) -> Call[tuple[Replayed, ...]]:
    body = encode({"ids": ids})
    return Call(Request("POST", "/_/deliveries/replay", {}, _JSON, body, _REPLAY_S), answers.replayed)


def get(segments: tuple[str, ...], params: Mapping[str, str] = _NOTHING) -> Call[Answer]:
    """Any path, its segments spelled as text; the answer as it came."""
    return Call(Request("GET", _path(*segments), params, {}), answers.as_it_came)


def post(segments: tuple[str, ...], body: Mapping[str, object]) -> Call[Answer]:
    """Any path, its segments spelled as text, with a JSON object; the answer as it came. Sent once more where
    no answer came: what is asked for must be the same the second time."""
    return Call(Request("POST", _path(*segments), {}, _JSON, encode(body)), answers.as_it_came)


def event(event_id: str, aliases: bool | None, keyless: bool) -> Call[Event]:
    return Call(Request("GET", _path("_", "events", event_id), _naming(aliases, keyless), {}), answers.event)


def _naming(aliases: bool | None, keyless: bool) -> dict[str, str]:
    """What asks for aliases in an answer, and for them in place of keys."""
    params = {} if aliases is None else {"aliases": "true" if aliases else "false"}
    return {**params, "keys": "alias"} if keyless else params


def feed(limit: int, wait_s: int, options: FeedOptions) -> Call[FeedPage]:
    params = {**feed_params(options), "limit": str(limit), "wait": str(wait_s)}
    return Call(Request("GET", "/_/feed", params, {}, wait_s=wait_s), answers.feed_page)


def query(
    items: Sequence[Mapping[str, object]], limit: int, wait_s: int, options: FeedOptions
) -> Call[FeedPage]:
    params = {**feed_params(options), "limit": str(limit), "wait": str(wait_s)}
    body = encode({"items": list(items)})
    return Call(Request("POST", "/_/feed/query", params, _JSON, body, wait_s), answers.feed_page)


def feed_params(options: FeedOptions) -> dict[str, str]:
    check_options(options, FeedOptions)
    params = {}
    for name in ("types", "event_types", "tags"):
        if names := options.get(name):
            params[name] = ",".join(sorted(_several(name, names)))  # type: ignore[arg-type]
    for name in ("after", "correlation_id", "actor", "from_time"):
        if (value := options.get(name)) is not None:
            params[name] = str(value)
    return params | _naming(options.get("aliases"), options.get("keyless", False))


def rows(path: tuple[str, ...], limit: int, cursor: str | None, options: RowOptions) -> Call[answers.RowPage]:
    """A page of a list or projection."""
    check_options(options, RowOptions)
    params = {"limit": str(limit), "wait": str(options.get("wait_s", 2))}
    for field, wanted in options.get("filters", {}).items():
        asked = wanted if isinstance(wanted, Mapping) else {"eq": wanted}
        for operator, value in asked.items():
            params[f"filter[{field}][{operator}]"] = _filtered(operator, value)
    for name in ("sort", "fields"):
        if listed := options.get(name):
            params[name] = ",".join(_several(name, listed))  # type: ignore[arg-type]
    given = {"after": options.get("after"), "cursor": cursor}
    params |= {name: value for name, value in given.items() if value is not None}
    wait_s = float(options.get("wait_s", 2))
    return Call(Request("GET", _path(*path), params, {}, wait_s=wait_s), answers.row_page)


def row(name: str, key: str, after: str | None, wait_s: int) -> Call[Row]:
    params = {"wait": str(wait_s)} | ({} if after is None else {"after": after})
    path = _path("_", "projections", name, key)
    return Call(Request("GET", path, params, {}, wait_s=float(wait_s)), answers.row)


def _several(name: str, names: Collection[str]) -> Collection[str]:
    """Raises TypeError for a string, which would be read as the collection of its letters."""
    if isinstance(names, str):
        raise TypeError(f"`{name}` is a collection of names, not a string: [{names!r}]")
    return names


def _filtered(operator: str, value: object) -> str:
    """As JSON, so that a text that looks like a number stays one; of `in`, with commas between."""
    if operator == "in" and isinstance(value, Collection) and not isinstance(value, str):
        return ",".join([encode(each).decode() for each in value])
    return encode(value).decode()


def _correlation(value: str) -> str:
    """A gateway gives events another id where this is not a UUID in lower case, without a word."""
    sent = sendable("X-Correlation-Id", value)
    if _UUID.fullmatch(sent):
        return sent
    error = f"A correlation id is a UUID in lower case, not {value!r}."
    raise Refused(422, "invalid_field", error, "X-Correlation-Id", {})


def sendable(header: str, value: str) -> str:
    """The value, if a header can hold it (RFC 9110 section 5.5). Raises Refused otherwise: the request could
    never leave."""
    if value.isascii() and value.isprintable() and value == value.strip():
        return value
    raise Refused(422, "invalid_field", f"{header} can't be sent: it must be printable ASCII.", header, {})


def _path(*segments: str) -> str:
    return "".join(["/" + quote(segment, safe="@:") for segment in segments])
