"""Keys that are chosen for the names they get."""

from __future__ import annotations

import itertools
import random
import uuid
from collections import defaultdict
from collections.abc import Iterator

from gateway.names.hash_ids import bodies


def new_keys(seed: int = 7) -> Iterator[str]:
    draw = random.Random(seed)
    while True:
        yield str(uuid.UUID(int=draw.getrandbits(128), version=4))


def alike(tenant: uuid.UUID, aggregate_type: str, *, characters: int, count: int = 2) -> list[str]:
    """Keys whose names begin with the same characters, found by trying: about 2^15 for six."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for key in itertools.islice(new_keys(), 1_000_000):
        body = bodies(tenant.bytes, aggregate_type, key)[0]
        if len(body) > 6:
            continue
        same = found[body[:characters]]
        same.append(key)
        if (
            len(same) == count
            and len({bodies(tenant.bytes, aggregate_type, each)[1] for each in same}) == count
        ):
            return same
    raise AssertionError("a million keys and no two alike")
