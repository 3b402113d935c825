"""A request's query, with refusals raised: what `gateway.admit.query` reads, as endpoints ask for it. Which
parameters a route has stands in the table of routes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

from gateway.admit import query
from gateway.errors import Refusal
from gateway.http.request import Refused
from gateway.http.routes import PARAMETERS

_T = TypeVar("_T")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def require_declared(raw: bytes, names: Sequence[str]) -> None:
    """Raises Refused (400 `unknown_parameter`) where a query has a parameter that is not among a route's."""
    refusal = query.undeclared(raw, names) if raw else None
    if refusal is not None:
        raise Refused(refusal)


class Parameters:
    """Every reader raises Refused (422 `invalid_field`) where its parameter can't be read."""

    __slots__ = ("_found",)

    def __init__(self, raw: bytes) -> None:
        self._found: dict[str, str] = _value(query.parse(raw, PARAMETERS)) if raw else {}

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        if name not in self._found:
            return default
        value = _value(query.integer(self._found, name, least=least, most=most))
        return default if value is None else value

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        return _value(query.choice(self._found, name, choices)) or default

    def boolean(self, name: str) -> bool:
        return _value(query.boolean(self._found, name)) or False

    def instant_ms(self, name: str) -> int | None:
        return _value(query.instant(self._found, name))

    def text(self, name: str) -> str | None:
        return self._found.get(name)

    def names(self, name: str) -> frozenset[str]:
        """Names with commas between them; empty if absent."""
        return _value(query.names(self._found, name)) or frozenset()

    def given(self, name: str) -> bool:
        return name in self._found


def uuid_of(value: object, path: str) -> UUID:
    """Of any version. Raises Refused (422 `invalid_field` at `path`)."""
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        raise Refused(Refusal("invalid_field", "A UUID is needed here.", path))
    return UUID(value)


def _value(read: _T | Refusal) -> _T:
    if isinstance(read, Refusal):
        raise Refused(read)
    return read
