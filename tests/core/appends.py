"""Requests to append, for the tests of how they are judged: a spec, what the path names, what is minted."""

from __future__ import annotations

import itertools
import json
import uuid
from typing import Any

from gateway.admit.address import Address, address, minting_address
from gateway.admit.append import EventContext, Fault, compose
from gateway.admit.preconditions import NOTHING_ASKED, Asked, read_asked
from gateway.appends import Append
from spec.model import Spec
from spec.parse import parse

TENANT = uuid.UUID("7e000000-0000-4000-8000-000000000000").bytes
CORRELATION_ID = uuid.UUID("c0000000-0000-4000-8000-000000000000").bytes
NOW_MS = 1_705_312_900_123
SPEC_REV = 3
EVENT_BYTES_MAX = 100

UUID = "a0000000-0000-4000-a000-000000000001"
V7 = "01900000-0000-7000-8000-00000000000a"
OTHER_V7 = "01900000-0000-7000-bfff-00000000000b"
ACTOR = {"type": "user", "id": UUID}


def declared(document: dict[str, Any]) -> Spec:
    spec = parse(document)
    assert isinstance(spec, Spec), spec
    return spec


SPEC = declared(
    {
        "aggregate_types": {
            "order": {
                "events": {
                    "was_placed": {
                        "schema": {
                            "type": "object",
                            "properties": {
                                "email": {"type": "string"},
                                "items": {"type": "array", "items": {"type": "integer"}},
                            },
                        }
                    },
                    "was_noted": {"schema": {}},
                    "had_items": {"schema": {"type": "array", "items": {"type": "integer"}}},
                }
            }
        },
        "agent_types": ["user"],
        "target_types": ["order"],
        "singletons": ["till"],
    }
)


MANY = declared(
    {
        "aggregate_types": {
            "order": {
                "events": {
                    "was_placed": {"schema": {"items": {"enum": [1, "a", *[[n] for n in range(3_000)]]}}},
                    "was_noted": {"schema": True},
                }
            },
            "list": {"events": {}},
        },
        "agent_types": ["user"],
    }
)
"""Of which one type takes long to check."""


def minting(event_bytes_max: int = EVENT_BYTES_MAX) -> EventContext:
    """Ids are minted in the order 1, 2, 3 …"""
    ids = itertools.count(1)
    return EventContext(
        tenant=TENANT,
        spec_rev=SPEC_REV,
        now_ms=NOW_MS,
        correlation_id=CORRELATION_ID,
        mint=lambda: minted_id(next(ids)),
        event_bytes_max=event_bytes_max,
    )


def minted_id(n: int) -> bytes:
    return n.to_bytes(16, "big")


def place(event: str | None = "was_placed", key: str = UUID) -> Address:
    found = address(SPEC, "order", key, event)
    assert isinstance(found, Address), found
    return found


def single(data: Any = None, **metadata: Any) -> bytes:
    value = {"data": {} if data is None else data, "metadata": {"actor": ACTOR, **metadata}}
    return json.dumps(value).encode()


def event(name: str = "was_placed", data: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": name, "data": {} if data is None else data, **more}


def batch(*events: Any, **metadata: Any) -> bytes:
    return json.dumps({"events": events, "metadata": {"actor": ACTOR, **metadata}}).encode()


def asked(*headers: tuple[bytes, bytes]) -> Asked:
    read = read_asked(headers)
    assert isinstance(read, Asked), read
    return read


def one(body: bytes, by: Asked = NOTHING_ASKED, event_type: str = "was_placed") -> Append | Fault:
    return compose(SPEC, place(event_type), by, body, minting())


def several(body: bytes, by: Asked = NOTHING_ASKED) -> Append | Fault:
    return compose(SPEC, place(None), by, body, minting())


def minted(body: bytes, by: Asked = NOTHING_ASKED) -> Append | Fault:
    """Posted to `/order`, where the gateway mints the key."""
    found = minting_address(SPEC, "order", lambda _: UUID)
    assert isinstance(found, Address), found
    return compose(SPEC, found, by, body, minting())


IF_MATCH_5 = asked((b"if-match", b'"5"'))


def admitted(answer: Append | Fault) -> Append:
    assert isinstance(answer, Append), answer
    return answer


def refused(answer: Append | Fault) -> tuple[str, str | None, int]:
    """Code, path and status of what was refused."""
    assert isinstance(answer, Fault), answer
    refusal = answer.refusal
    assert refusal.error.endswith("."), refusal
    return refusal.code, refusal.path, refusal.http_status
