"""The fields of `by`, of a row as it is written. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from gateway.follow import sort_values
from gateway.follow.model import Row
from gateway.state.values import Fields, decode_fields
from spec.lists import BY_MAX, METADATA

METADATA_ROOT: Final = "metadata."


def fields_of(row: Row, by: Sequence[str], state: Fields | None = None) -> tuple[bytes | None, ...]:
    """A value for each field of `by`, then None up to as many as a row has columns for. `state`: its data,
    where they are at hand."""
    unused = (None,) * (BY_MAX - len(by))
    if row.data is None:
        return (None,) * BY_MAX
    if state is None:
        state = decode_fields(row.data) if any(not is_metadata(each) for each in by) else {}
    found: list[bytes | None] = []
    for each in by:
        if is_metadata(each):
            found.append(sort_values.of_integer(_metadata(row, each)))
        else:
            found.append(sort_values.of_node(sort_values.at(state, _path(each))))
    return (*found, *unused)


@lru_cache(maxsize=1024)
def _path(field: str) -> tuple[str, ...]:
    return tuple(field.split("."))


def is_metadata(field: str) -> bool:
    return field.startswith(METADATA_ROOT)


def _metadata(row: Row, field: str) -> int:
    match field.removeprefix(METADATA_ROOT):
        case "length":
            return row.length
        case "created_at":
            return row.created_at_ms // 1000
        case "updated_at":
            return row.updated_at_ms // 1000
    raise AssertionError(f"{field} is not one of {METADATA}")
