"""What a spec declares of an aggregate type's records: which of an event's data is their content, and which
is what surrounds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spec.errors import Report, below
from spec.fields import read_fields
from spec.handlers import EACH, Path, Root
from spec.templates import Scope, read_path

_ROOTS: Final = (Root.DATA, Root.KEY, Root.TYPE)
_SCOPE: Final = Scope(True, None)
_EXAMPLE: Final = '{"content": {"text": "$.data.text"}}'


@dataclass(frozen=True, slots=True)
class IdentityRule:
    """`text` leads to the content of a record, or each of `json` to one of the values that are. `name`,
    `kind` and `properties` lead to its context, if there is one."""

    text: Path | None
    json: tuple[Path, ...]
    has_context: bool = False
    name: Path | None = None
    kind: Path | None = None
    properties: Path | None = None


def read_identity(value: object, pointer: str, report: Report) -> IdentityRule | None:
    """None where it has a fault."""
    before = len(report)
    declared = read_fields(value, pointer, "`identity`", ("content", "context"), (), report)
    if "content" not in declared:
        if isinstance(value, dict):
            report.add("missing_key", pointer, f"`identity` needs `content`: {_EXAMPLE}.")
        return None
    text, listed = _content(declared["content"], below(pointer, "content"), report)
    context: dict[str, Path] = {}
    if "context" in declared:
        place = below(pointer, "context")
        parts = read_fields(
            declared["context"], place, "`context`", ("name", "type", "properties"), (), report
        )
        context = {name: _path(each, below(place, name), report) for name, each in parts.items()}
    if len(report) > before:
        return None
    names = context.get("name"), context.get("type"), context.get("properties")
    return IdentityRule(text, listed, "context" in declared, *names)


def _content(value: object, pointer: str, report: Report) -> tuple[Path | None, tuple[Path, ...]]:
    declared = read_fields(value, pointer, "`content`", ("text", "json"), (), report)
    if isinstance(value, dict) and len(declared) != 1:
        report.add("invalid_value", pointer, f"`content` has either `text` or `json`, as in {_EXAMPLE}.")
    if "json" not in declared:
        text = _path(declared["text"], below(pointer, "text"), report) if "text" in declared else None
        return text, ()
    listed, place = declared["json"], below(pointer, "json")
    if not isinstance(listed, list) or not listed:
        report.add("wrong_type", place, '`json` is a list of paths: ["$.data.title"].')
        return None, ()
    return None, tuple([_path(each, below(place, n), report) for n, each in enumerate(listed)])


def _path(value: object, pointer: str, report: Report) -> Path:
    path = read_path(value, pointer, _SCOPE, report)
    if path.root not in _ROOTS or EACH in path.fields:
        why = "A record is identified by single values of its event: `$.data.field`, `$.key` or `$.type`."
        report.add("invalid_path", pointer, why)
    return path
