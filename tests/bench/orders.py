"""What all suites append: orders of the bundled example spec, with data of about 300 bytes."""

from __future__ import annotations

import json
import random
from uuid import UUID

TYPE = "order"
EVENT = "was_placed"
SINGLETON = "global"
ACTOR = {"type": "user", "id": "a0000000-0000-4000-a000-000000000001"}
DATA = json.dumps(
    {
        "total": 141.7,
        "currency": "EUR",
        "items": [
            {"sku": "LAMP-1042", "quantity": 2, "price": 49.95},
            {"sku": "BULB-7", "quantity": 4, "price": 10.45},
        ],
        "customer": {"name": "Ada Lovelace", "email": "ada@example.org"},
        "ship_to": {"street": "12 St James's Square", "city": "London", "postcode": "SW1Y 4JH"},
        "note": "Leave it with the neighbour.",
    },
    separators=(",", ":"),
)


def keys(count: int) -> list[str]:
    """The same ones each time: every scenario has a database of its own."""
    numbers = random.Random(count)
    return [str(UUID(int=numbers.getrandbits(128), version=4)) for _ in range(count)]


def append_path(key: str) -> str:
    return f"/{TYPE}/{key}/{EVENT}"


def data_of(size: int) -> str:
    """So many bytes, by a longer note."""
    whole = json.loads(DATA)
    whole["note"] += "." * (size - len(DATA))
    return json.dumps(whole, separators=(",", ":"))


def append_body(previous_length: str | None = None, data: str = DATA) -> str:
    """`previous_length` is a number's text, or what will stand for it."""
    asked = "" if previous_length is None else f',"previous_length":{previous_length}'
    return f'{{"data":{data},"metadata":{{"actor":{json.dumps(ACTOR)}{asked}}}}}'


def batch_body(count: int) -> str:
    """All of them to one order."""
    events = ",".join([f'{{"type":"{EVENT}","data":{DATA}}}'] * count)
    return f'{{"events":[{events}],"metadata":{{"actor":{json.dumps(ACTOR)}}}}}'
