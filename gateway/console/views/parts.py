"""What several pages share: a part of an answer, JSON and differences for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from gateway.console.api import Answer, Query, Read
from gateway.console.line_changes import text_of
from gateway.console.pages import Visit
from gateway.json_values import decode_data
from spec.errors import Report
from spec.tags import TagFault, read_tags, tags_of

PAGE: Final = 50
SHOWN_CHARS_MAX: Final = 64 * 1024
"""Of one value: more is for the API, which the page links to."""


def shown(value: object) -> str:
    """JSON for people, cut."""
    return cut(text_of(value))


def glance(value: object, chars_max: int = 120) -> str:
    """The beginning of its JSON, or of a text, for a row."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def field_of(item: Mapping[str, Any], field: str) -> str:
    """What a row shows of a field that its list or projection names in `by`; nothing where it is absent."""
    value: Any = item if field.startswith("metadata.") else item["data"]
    for name in field.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return ""
        value = value[name]
    return glance(value)


def cut(text: str) -> str:
    return (
        text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "\n… cut: ask the API for the rest"
    )


async def part(
    visit: Visit, path: str, named: str, query: Query | None = None, read: Read = msgspec.json.decode
) -> Any:
    """A member of the answer, or None."""
    answer = await visit.api.get(path, query, read=read)
    return (answer.body or {}).get(named) if answer.done else None


async def types_of(visit: Visit) -> dict[str, Any]:
    """The aggregate types that the key may read of. A narrowed key may not read the spec, and names them
    itself."""
    only = visit.principal.only
    if only is not None:
        return {name: {} for name in sorted(only.all_types)}
    declared: dict[str, Any] = (await part(visit, "/_/spec", "spec")) or {}
    return dict(declared.get("aggregate_types", {}))


def tags_of_event(types: Mapping[str, Any], event: Mapping[str, Any]) -> list[str]:
    """As the spec declares them now, its own first; of one that is stored as a hash, the value: the data has
    it. Of a type of the gateway's own, as `_saga`, none can be looked for."""
    if event["aggregate_type"].startswith("_"):
        return []
    own = f"{event['aggregate_type']}:{event['key']}"
    declared = types.get(event["aggregate_type"], {}).get("events", {}).get(event["type"], {})
    rules = read_tags(declared.get("tags", []), "", {}, Report())
    found = tags_of([replace(rule, hashed=False) for rule in rules], event["data"], b"")
    return [own] if isinstance(found, TagFault) else [own, *found]


def whole(event: Mapping[str, Any]) -> dict[str, Any]:
    """With its data as values, where a page of events has them as JSON."""
    return {**event, "data": decode_data(event["data"])}


def words(answer: Answer) -> str:
    path = (answer.body or {}).get("path")
    return f"{path}: {answer.error}" if path else answer.error


def number(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 12 else otherwise


def filter_of(wanted: Mapping[str, str]) -> str:
    """What follows a page's path, for the same part of its list: acts come back to it."""
    return f"?{urlencode(wanted, quote_via=quote)}" if wanted else ""


def moment(unix_s: float | None) -> str:
    return (
        ""
        if unix_s is None
        else datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    )
