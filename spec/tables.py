"""Tables that have a row for each of a closed set of names. Knows of no particular table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TypeVar

Key = TypeVar("Key")
Row = TypeVar("Row")


def complete(keys: Collection[Key], rows: Mapping[Key, Row]) -> Mapping[Key, Row]:
    """`rows`, read-only. Raises TypeError, so that a module with the table can't be imported, where a key has
    no row or a row has no key."""
    missing, unknown = [key for key in keys if key not in rows], [key for key in rows if key not in keys]
    if missing or unknown:
        raise TypeError(f"a table has no row for {missing}, and rows for {unknown} that are not declared")
    return MappingProxyType(dict(rows))
