"""Requests as the tests make them, and what every answer to them must be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import httpx
from uuid_utils.compat import uuid7

ACTOR = {"type": "user", "id": "a0000000-0000-4000-a000-000000000001"}
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}
DEADLINE_S = 40.0


def new_client(url: str, key: str | None, *, ops: bool = False) -> httpx.AsyncClient:
    """Fails on any answer that isn't the service's own. `ops`: of the operators' port, whose answers belong
    to no correlation."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    hooks = {"response": [_is_ours] if ops else [_is_ours, _is_correlated]}
    return httpx.AsyncClient(
        base_url=url, headers=headers, timeout=DEADLINE_S, event_hooks=hooks, trust_env=False, verify=False
    )


async def _is_ours(response: httpx.Response) -> None:
    assert response.headers.get_list("sluice-api") == ["1"], response
    assert response.status_code < 500 or response.status_code in (503, 504), response


async def _is_correlated(response: httpx.Response) -> None:
    assert len(response.headers.get_list("x-correlation-id")) == 1, response


def new_id() -> str:
    return str(uuid4())


def new_event_id() -> str:
    return str(uuid7())


def envelope(data: object = None, **metadata: object) -> dict[str, Any]:
    return {"data": {} if data is None else data, "metadata": {"actor": ACTOR, **metadata}}


def batch(*events: tuple[str, object] | dict[str, Any], **metadata: object) -> dict[str, Any]:
    listed = [each if isinstance(each, dict) else {"type": each[0], "data": each[1]} for each in events]
    return {"events": listed, "metadata": {"actor": ACTOR, **metadata}}


async def append(
    client: httpx.AsyncClient,
    aggregate_type: str,
    key: str,
    event_type: str,
    data: object = None,
    headers: Mapping[str, str] | None = None,
    **metadata: object,
) -> httpx.Response:
    return await client.post(
        f"/{aggregate_type}/{key}/{event_type}", json=envelope(data, **metadata), headers=headers
    )


async def appended(
    client: httpx.AsyncClient,
    aggregate_type: str,
    key: str,
    event_type: str,
    data: object = None,
    headers: Mapping[str, str] | None = None,
    **metadata: object,
) -> dict[str, Any]:
    """The receipt of an append that is accepted."""
    response = await append(client, aggregate_type, key, event_type, data, headers, **metadata)
    assert response.status_code == 201, response.text
    return dict(response.json())


async def noted(client: httpx.AsyncClient, key: str, count: int, data: object = None) -> dict[str, Any]:
    """The receipt of `count` events of order `key`, in one request."""
    response = await client.post(f"/order/{key}", json=batch(*[("was_noted", data)] * count))
    assert response.status_code == 201, response.text
    return dict(response.json())


async def events_of(client: httpx.AsyncClient, aggregate_type: str, key: str) -> list[dict[str, Any]]:
    response = await client.get(f"/{aggregate_type}/{key}/events?limit=1000")
    assert response.status_code == 200, response.text
    return list(response.json()["events"])


async def length_of(client: httpx.AsyncClient, key: str, aggregate_type: str = "order") -> int:
    response = await client.get(f"/{aggregate_type}/{key}/length")
    assert response.status_code == 200, response.text
    return int(response.json()["length"])


def lines(*values: object) -> bytes:
    """NDJSON: what is no bytes yet is encoded."""
    texts = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    return b"".join([text + b"\n" for text in texts])


def bulk_line(key: str, data: object = None, event_type: str = "was_noted", **more: object) -> dict[str, Any]:
    line = {"aggregate_type": "order", "key": key, "type": event_type, **envelope(data)}
    return {**line, **more}


async def bulk(client: httpx.AsyncClient, *sent: object) -> list[dict[str, Any]]:
    response = await client.post("/_/bulk", content=lines(*sent), headers=NDJSON)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return told_in(response.content)


def told_in(ndjson: bytes) -> list[dict[str, Any]]:
    assert ndjson == b"" or ndjson.endswith(b"\n")
    return [json.loads(line) for line in ndjson.splitlines()]


def refused(
    response: httpx.Response, status: int, code: str, path: str | None = None, more: Sequence[str] = ()
) -> dict[str, Any]:
    """The body of a refusal, which is this one, in the one shape that all have."""
    assert (response.status_code, response.headers["content-type"]) == (status, "application/json"), (
        response.text
    )
    told = response.json()
    is_refusal(told, code, path, more)
    if status in (429, 503, 504):
        assert int(response.headers["retry-after"]) >= 1
    if status == 401:
        assert response.headers["www-authenticate"] == "Bearer"
    return dict(told)


_MORE = {"rule_violated": ("length",), "idempotency_mismatch": ("by", "receipt")}


def is_refusal(told: dict[str, Any], code: str, path: str | None = None, more: Sequence[str] = ()) -> None:
    assert (told["ok"], told["code"], told.get("path")) == (False, code, path), told
    assert isinstance(told["error"], str)
    assert told["error"].endswith((".", "?", "…")) or " " in told["error"]
    places = {"path"} if path is not None else set()
    more = more or _MORE.get(code, ())
    assert set(told) == {"ok", "code", "error", *places, *more}, told


async def until(holds: Callable[[], Awaitable[bool]], deadline_s: float = DEADLINE_S) -> None:
    """Returns once it holds; asks again and again."""
    async with asyncio.timeout(deadline_s):
        while not await holds():
            await asyncio.sleep(0.02)
