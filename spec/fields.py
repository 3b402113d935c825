"""An object of the document, and the fields that it may and must have."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spec.errors import Report, below, proposal, shown


def check_keys(
    value: Mapping[str, object],
    pointer: str,
    known: Collection[str],
    report: Report,
    planned: Collection[str] = (),
) -> None:
    """`planned`: parts of the language that this release does not have."""
    for key in value:
        if key in planned:
            report.add(
                "not_available", below(pointer, key), f"This release has no `{key}` yet; leave it out."
            )
        elif key not in known:
            why = f"{shown(key)} is not a known key here. {proposal(key, known)}"
            report.add("unknown_key", below(pointer, key), why)


def read_fields(
    value: object,
    pointer: str,
    name: str,
    known: Collection[str],
    needed: Collection[str],
    report: Report,
    planned: Collection[str] = (),
) -> dict[str, object]:
    """Its known fields; none where it is no object. Faults are reported, in sentences about `name`."""
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, f"{name} must be an object with {', '.join(sorted(known))}.")
        return {}
    check_keys(value, pointer, known, report, planned)
    for key in sorted(needed):
        if key not in value:
            report.add("missing_key", pointer, f"{name} needs `{key}`.")
    return {key: each for key, each in value.items() if key in known}


def refuse_null(declared: Mapping[str, object], keys: Collection[str], pointer: str, report: Report) -> None:
    """A fault for each of the keys that is null, which earlier releases read as absent."""
    for key in keys:
        if key in declared and declared[key] is None:
            why = f"`{key}` is null: give it a value, or leave it out."
            report.add("wrong_type", below(pointer, key), why, accepted_before=True)
