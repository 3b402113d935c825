"""The form of a kind of target: its fields, with their JSON Schemas, and how it is read.

Owns the rules that kinds share. Must not know of any particular kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spec.errors import Report, below

RETRY_S: Final = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
"""Seconds before each further attempt: those that Standard Webhooks recommends, 75 hours in all."""

RETRIES_MAX: Final = 50
RETRY_S_MAX: Final = 604_800
"""A week: a receiver that is away for longer is not expected back."""

Schema = Mapping[str, Any]

RETRY_S_SCHEMA: Final[Schema] = {
    "description": "Seconds before each further attempt.",
    "type": "array",
    "maxItems": RETRIES_MAX,
    "items": {"type": "number", "minimum": 0, "maximum": RETRY_S_MAX},
}


class Target:
    """A target as it is declared; each kind is a frozen dataclass."""

    __slots__ = ()


class Sent(Target):
    """A target that events are sent to; those of another are claimed by consumers."""

    __slots__ = ()

    retry_s: tuple[float, ...]


Reader = Callable[[Mapping[str, object], str, Mapping[str, str], Report], Target | None]
"""Reads the fields of a target: the document, its JSON Pointer, the environment with secrets, and
where faults go. The required fields are there, and no unknown ones."""


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of target. `secrets` are the fields that are never shown; a field `url` is shown without its
    password and its query."""

    kind: str
    made: type[Target]
    required: Mapping[str, Schema]
    optional: Mapping[str, Schema]
    read: Reader
    secrets: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        """As spec/schema.json has it."""
        return {
            "type": "object",
            "required": ["type", *self.required],
            "additionalProperties": False,
            "properties": {"type": {"const": self.kind}, **self.required, **self.optional},
        }


def read_retry_s(declared: Mapping[str, object], pointer: str, report: Report) -> tuple[float, ...]:
    """The field `retry_s`, or its default."""
    if "retry_s" not in declared:
        return RETRY_S
    value, place = declared["retry_s"], below(pointer, "retry_s")
    if not isinstance(value, list):
        report.add("wrong_type", place, "A list of seconds is needed here, one for each further attempt.")
        return RETRY_S
    if len(value) > RETRIES_MAX:
        report.add("invalid_value", place, f"At most {RETRIES_MAX} further attempts.")
    for index, each in enumerate(value):
        if not is_seconds(each, RETRY_S_MAX):
            report.add("invalid_value", below(place, index), f"Seconds from 0 to {RETRY_S_MAX:g}.")
            return RETRY_S
    return tuple([float(each) for each in value])


def is_seconds(value: object, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most


def is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
