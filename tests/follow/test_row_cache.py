"""The rows that a worker holds are those of its place, however few it may hold."""

from __future__ import annotations

from typing import Any

from gateway.follow.model import Row
from gateway.follow.row_cache import RowCache


def row(number: int) -> Row:
    return Row(number, 0, 0, b'{"n":%d}' % number)


class Pool:
    """A Postgres that has not got any row yet."""

    def acquire(self, timeout: float) -> Pool:
        return self

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def fetch(self, *_: object) -> list[Any]:
        return []


async def test_rows_that_are_being_written_are_not_read_from_postgres() -> None:
    cache = RowCache(Pool(), 1, 0, empty=False)  # type: ignore[arg-type]
    cache.write({"a": row(1), "b": row(2)})
    assert await cache.load(["a", "b", "c"]) == {"a": row(1), "b": row(2), "c": None}
    cache.write({"c": row(3)})
    assert await cache.load(["c"]) == {"c": row(3)}


async def test_a_build_without_rows_asks_postgres_only_once_it_has_given_some_up() -> None:
    cache = RowCache(None, 1, 10_000, empty=True)  # type: ignore[arg-type]
    assert await cache.load(["a"]) == {"a": None}
    cache.put({"a": row(1)})
    assert await cache.load(["a", "b"]) == {"a": row(1), "b": None}
