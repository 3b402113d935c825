"""Reads the paths and templates that take values out of a delivery: `$.body…`, `$.headers…`.

As in the handler language: a string that starts with `$` is a path, anything else stands for itself, and
`{"$literal": …}` is a value without paths in it.
"""

from __future__ import annotations

import re

from spec.errors import Report, below, shown
from spec.webhooks.sources import Fixed, Path, Row, Shape, Template

_FIELD = r"""[^.\[\]?*()"'\s\x00-\x1f]+"""
_PATH = re.compile(rf"\$\.(body|headers|delivery_id|source)((?:\.{_FIELD})*)(\?)?")
_PATHS_ARE = "paths are `$.body.field`, `$.headers.x-name`, `$.delivery_id` or `$.source`"


def is_path(value: object) -> bool:
    return isinstance(value, str) and value.startswith("$")


def read_path(value: object, pointer: str, report: Report) -> Path:
    """The path that `value` is; what is at fault becomes `$.body`, with a fault in `report`."""
    found = _PATH.fullmatch(value) if isinstance(value, str) else None
    if found is None or (found[1] in ("delivery_id", "source") and found[2]):
        what = shown(value) if isinstance(value, str) else "This"
        report.add(
            "invalid_path", pointer, f"{what} is not a path here: {_PATHS_ARE}, `?` where it may be absent."
        )
        return Path("body")
    fields = tuple(found[2].split(".")[1:])
    match found[1]:
        case "headers":
            return Path("headers", tuple(name.lower() for name in fields), found[3] is not None)
        case "delivery_id":
            return Path("delivery_id")
        case "source":
            return Path("source")
    return Path("body", fields, found[3] is not None)


def read_body_fields(value: object, pointer: str, report: Report) -> tuple[str, ...]:
    """The fields of a path that must lead into the body."""
    path = read_path(value, pointer, report)
    if path.root != "body":
        report.add("invalid_path", pointer, "This must lead into the body: `$.body.field`.")
    return path.fields


def read_template(value: object, pointer: str, report: Report) -> Template:
    if is_path(value):
        return read_path(value, pointer, report)
    if isinstance(value, list):
        return Row(tuple(read_template(item, below(pointer, i), report) for i, item in enumerate(value)))
    if isinstance(value, dict):
        if "$literal" in value:
            return _only_literal(value, pointer, report)
        made = ((name, read_template(item, below(pointer, name), report)) for name, item in value.items())
        return Shape(tuple(made))
    assert value is None or isinstance(value, str | int | float)  # JSON has no more
    return Fixed(value)


def _only_literal(value: dict[str, object], pointer: str, report: Report) -> Template:
    if len(value) > 1:
        report.add("invalid_template", pointer, "`$literal` must be the only key of its object.")
    return _literal(value["$literal"])


def _literal(value: object) -> Template:
    if isinstance(value, dict):
        return Shape(tuple((name, _literal(item)) for name, item in value.items()))
    if isinstance(value, list):
        return Row(tuple(_literal(item) for item in value))
    assert value is None or isinstance(value, str | int | float)  # JSON has no more
    return Fixed(value)
