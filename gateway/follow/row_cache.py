"""The rows of one build that its worker holds: a cache of what Postgres has at the build's place.

Owns: the bound on their bytes. A worker puts rows here once they are committed; where a transaction failed,
the cache is given up with its build.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import asyncpg

from gateway.follow.database import fetch
from gateway.follow.model import Row, row_of

ROW_BYTES: Final = 400
"""What a row takes beside its data, with its key, rounded up."""

BYTES_MAX: Final = 2**31 - 1
"""More than any row has."""


class RowCache:
    def __init__(self, pool: asyncpg.Pool, build: int, bytes_max: int, *, empty: bool) -> None:
        """`empty`: the build has no row yet."""
        self._pool = pool
        self._build = build
        self._bytes_max = bytes_max
        self._rows: OrderedDict[str, Row | None] = OrderedDict()
        self._bytes = 0
        self._written: Mapping[str, Row | None] = {}
        self._whole = empty  # what is not here is nowhere

    def here(self, keys: Iterable[str]) -> dict[str, Row | None]:
        """The rows with these keys, as far as they are held, or known not to be."""
        found: dict[str, Row | None] = {}
        for key in keys:
            if key in self._written:
                found[key] = self._written[key]
            elif key in self._rows:
                found[key] = self._rows[key]
                self._rows.move_to_end(key)
            elif self._whole:
                found[key] = None
        return found

    async def load(self, keys: Collection[str], bytes_max: int = BYTES_MAX) -> dict[str, Row | None]:
        """The rows with these keys, None where there never was one: of the first keys, as many as have no
        more than `bytes_max` together. Raises PostgresTrouble."""
        found = self.here(keys)
        missing = [key for key in keys if key not in found] if len(found) < len(keys) else []
        long: dict[str, int] = {}
        if missing:
            read: dict[str, Row | None] = dict.fromkeys(missing)
            each_max = min(bytes_max // len(missing), BYTES_MAX)
            for row in await fetch(self._pool, "rows", self._build, missing, each_max):
                if row["size"] is None:
                    read[row["key"]] = row_of(row)
                else:
                    long[row["key"]] = row["size"]
                    del read[row["key"]]
            found.update(read)
            self.put(read)
        if not long and held_bytes(found.values()) <= bytes_max:
            return found
        return await self._first(keys, found, long, bytes_max)

    async def _first(
        self, keys: Collection[str], found: Mapping[str, Row | None], long: Mapping[str, int], bytes_max: int
    ) -> dict[str, Row | None]:
        """Of rows that are `found`, and of `long` ones that are not read yet."""
        size, first = 0, list[str]()
        for key in keys:
            size += ROW_BYTES + long[key] if key in long else _size(found[key])
            if size > bytes_max and first:
                break
            first.append(key)
        unread = [key for key in first if key in long]
        read = dict(found)
        for row in await fetch(self._pool, "rows", self._build, unread, BYTES_MAX) if unread else ():
            read[row["key"]] = row_of(row)
        return {key: read[key] for key in first}

    def bound(self, bytes_max: int) -> None:
        """From here on it holds no more than this."""
        self._bytes_max = bytes_max
        self.put({})

    def write(self, rows: Mapping[str, Row | None]) -> None:
        """Rows that are being written: until the next ones are, Postgres need not have them yet, so they are
        held however many they are."""
        self._written = rows
        self.put(rows)

    def put(self, rows: Mapping[str, Row | None]) -> None:
        for key, row in rows.items():
            if key in self._rows:
                self._bytes -= _size(self._rows.pop(key))
            self._bytes += _size(row)
            self._rows[key] = row
        while self._bytes > max(self._bytes_max, 0) and self._rows:
            _, gone = self._rows.popitem(last=False)
            self._bytes -= _size(gone)
            self._whole = False


def held_bytes(rows: Iterable[Row | None]) -> int:
    return sum(map(_size, rows))


def _size(row: Row | None) -> int:
    return ROW_BYTES + (0 if row is None or row.data is None else len(row.data))
