"""`list` of an aggregate type, and `by` of lists and projections: which fields of rows can be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spec.errors import Report, below, proposal, shown
from spec.fields import check_keys
from spec.templates import read_target

BY_MAX: Final = 8
"""Fields of `by`: each is an index, which every change of a row pays for."""

METADATA: Final = ("length", "created_at", "updated_at")
"""What rows have beside their data, and `by` names as `metadata.…`."""

_KEYS = frozenset({"by"})


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of all aggregates of a type. `by`: paths into the state, or `metadata.…`, as declared."""

    by: tuple[str, ...] = ()


def check_list(value: object, pointer: str, report: Report) -> Listed | None:
    """None where it is no object."""
    if not isinstance(value, dict):
        why = '`list` is an object, as in {"by": ["status", "metadata.updated_at"]}.'
        report.add("wrong_type", pointer, why)
        return None
    check_keys(value, pointer, _KEYS, report)
    return Listed(read_by(value, pointer, report))


def read_by(parent: dict[str, object], pointer: str, report: Report) -> tuple[str, ...]:
    """The fields that `by` of the object names; none where it is absent."""
    place = below(pointer, "by")
    fields = parent.get("by", [])
    if not isinstance(fields, list):
        report.add("wrong_type", place, "`by` is a list of fields.")
        return ()
    if len(fields) > BY_MAX:
        report.add("invalid_value", place, f"`by` names at most {BY_MAX} fields.")
    read: list[str] = []
    for index, field in enumerate(fields):
        _add(read, field, below(place, index), report)
    return tuple(read)


def _add(read: list[str], field: object, pointer: str, report: Report) -> None:
    if not isinstance(field, str):
        report.add("wrong_type", pointer, "A field is a string, as in `customer.city`.")
    elif field in read:
        report.add("duplicate_name", pointer, f"{shown(field)} is named above already; remove one.")
    elif read_target(field, pointer, report) == ():
        report.add("invalid_value", pointer, "Name a field of the state, as in `customer.city`.")
    else:
        root, _, rest = field.partition(".")
        if root == "metadata" and rest not in METADATA:
            why = f"Rows have no {shown(field)}. {proposal(rest, METADATA)}"
            report.add("invalid_path", pointer, why)
        read.append(field)
