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


def lettered(tenant: uuid.UUID, aggregate_type: str) -> str:
    """A new key whose name, abbreviated to 3 characters or more, still reads as a hash id: has a letter."""
    return next(
        key
        for key in (str(uuid.uuid4()) for _ in itertools.count())
        if _begins_with_letter(bodies(tenant.bytes, aggregate_type, key)[0])
    )


def _begins_with_letter(body: str) -> bool:
    """Within the shortest abbreviation that any test takes; only digits are a public id's number."""
    return not body[:3].isdigit()


def alike(tenant: uuid.UUID, aggregate_type: str, *, characters: int, count: int = 2) -> list[str]:
    """Keys whose names begin with the same characters, found by trying: about 2^15 for six."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for key in itertools.islice(new_keys(), 1_000_000):
        body = bodies(tenant.bytes, aggregate_type, key)[0]
        if len(body) > 6 or not _begins_with_letter(body):
            continue
        same = found[body[:characters]]
        same.append(key)
        if (
            len(same) == count
            and len({bodies(tenant.bytes, aggregate_type, each)[1] for each in same}) == count
        ):
            return same
    raise AssertionError("a million keys and no two alike")
