"""A view of the rows of a list or projection, for programs that read Postgres by themselves. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

TYPES = {"number": "numeric", "boolean": "boolean"}
"""Of columns whose values are all of this JSON type; every other column is text. A later value of another
type is NULL there: a cast that fails would fail the query of all rows."""


def create_view(tenant: UUID, kind: str, name: str, by: Sequence[str], types: Mapping[str, str]) -> str:
    """The statement; `types` are the JSON types of the fields' values, where they are all of one."""
    names = _names(by)
    columns = ["r.key", *(_column(field, names[field], types.get(field)) for field in by)]
    metadata = (
        "r.length",
        "to_timestamp(r.created_at_ms / 1000.0) AS created_at",
        "to_timestamp(r.updated_at_ms / 1000.0) AS updated_at",
        "convert_from(r.data, 'UTF8')::jsonb AS data",
    )
    taken = {*names.values()}
    columns += [each for each in metadata if each.split(" AS ")[-1].removeprefix("r.") not in taken]
    listed = ",\n    ".join(columns)
    return (
        f"CREATE VIEW {_quoted(f'{name}_rows')} AS\nSELECT {listed}\n"
        "FROM follower f JOIN follower_row r ON r.follower = f.id AND r.data IS NOT NULL\n"
        f"WHERE f.tenant = {_literal(str(tenant))} AND f.kind = {_literal(kind)}"
        f" AND f.name = {_literal(name)}\n    AND f.state = 'serving';"
    )


def _column(field: str, name: str, json_type: str | None) -> str:
    match field.partition("."):
        case "metadata", _, "length":
            return f"r.length AS {_quoted(name)}"
        case "metadata", _, time:
            return f"to_timestamp(r.{time}_ms / 1000.0) AS {_quoted(name)}"
    path = ", ".join(map(_literal, field.split(".")))
    data = "convert_from(r.data, 'UTF8')::jsonb"
    value = f"{data} #>> ARRAY[{path}]"
    if json_type in TYPES:
        is_it = f"jsonb_typeof({data} #> ARRAY[{path}]) = '{json_type}'"
        value = f"CASE WHEN {is_it} THEN ({value})::{TYPES[json_type]} END"
    return f"{value} AS {_quoted(name)}"


def _names(by: Sequence[str]) -> dict[str, str]:
    """A column's name for each field, no two alike and none `key`."""
    names: dict[str, str] = {}
    for field in by:
        name = plain = field.removeprefix("metadata.").replace(".", "_")[:60]
        number = 2
        while name == "key" or name in names.values():
            name, number = f"{plain}_{number}", number + 1
        names[field] = name
    return names


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _literal(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"
