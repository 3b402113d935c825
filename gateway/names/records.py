"""What identifies an event as a record, by what its type declares. Pure."""

from __future__ import annotations

from uuid import UUID, uuid5

import msgspec

from gateway.names.content import Grade, Identity, content_of_json, content_of_text, context_of_values, grade
from spec.handlers import Path, Root
from spec.identity import IdentityRule

_encode = msgspec.json.Encoder(decimal_format="number").encode
_ABSENT = object()


class Record(msgspec.Struct, frozen=True, gc=False):
    """`context` is None where none is declared."""

    content: str
    context: str | None

    def graded(self, prior: Record | None) -> Grade:
        """Against the record before it."""
        return grade(_identity(self), None if prior is None else _identity(prior))


def record_of(rule: IdentityRule, data: object, key: str, event_type: str) -> Record | None:
    """None for an event that lacks the declared content."""

    def at(path: Path) -> object:
        return _at(path, data, key, event_type)

    if rule.text is not None:
        text = at(rule.text)
        if not isinstance(text, str):
            return None
        content = content_of_text(text)
    else:
        values = [at(path) for path in rule.json]
        if all(value is _ABSENT for value in values):
            return None
        content = content_of_json(
            _encode([None if each is _ABSENT else each for each in values]), strict=True
        )
    if not rule.has_context:
        return Record(content, None)
    name, kind = (_text(at(path)) if path is not None else "" for path in (rule.name, rule.kind))
    properties = at(rule.properties) if rule.properties is not None else {}
    found = properties if isinstance(properties, dict) else {}
    return Record(content, context_of_values(name, kind, found))


def key_of_content(tenant: UUID, content: str) -> str:
    """The key of the aggregate that holds this content: the same from any source, in each tenant another."""
    return str(uuid5(tenant, content))


def _identity(record: Record) -> Identity:
    return Identity(record.content, record.context or "")


def _text(value: object) -> str:
    if value is _ABSENT or value is None:
        return ""
    return value if isinstance(value, str) else _encode(value).decode()


def _at(path: Path, data: object, key: str, event_type: str) -> object:
    if path.root == Root.KEY:
        return key
    if path.root == Root.TYPE:
        return event_type
    value = data
    for step in path.fields:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step, _ABSENT)
        elif isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return _ABSENT
    return value
