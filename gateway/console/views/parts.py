"""What several pages share: a part of an answer, JSON and differences for people."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from gateway.console.api import Answer, Query
from gateway.console.site import Visit
from spec.errors import Report
from spec.tags import TagFault, read_tags, tags_of

PAGE: Final = 50
SHOWN_CHARS_MAX: Final = 64 * 1024
"""Of one value: more is for the API, which the page links to."""


def shown(value: object) -> str:
    """JSON for people, cut."""
    return cut(json.dumps(value, indent=2, ensure_ascii=False))


def cut(text: str) -> str:
    return (
        text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "\n… cut: ask the API for the rest"
    )


async def part(visit: Visit, path: str, named: str, query: Query | None = None) -> Any:
    """A member of the answer, or None."""
    answer = await visit.api.get(path, query)
    return (answer.body or {}).get(named) if answer.done else None


async def types_of(visit: Visit) -> dict[str, Any]:
    declared: dict[str, Any] = (await part(visit, "/_/spec", "spec")) or {}
    return dict(declared.get("aggregate_types", {}))


def tags_of_event(types: Mapping[str, Any], event: Mapping[str, Any]) -> list[str]:
    """As the spec declares them now, its own first; of one that is stored as a hash, the value: the data has
    it."""
    own = f"{event['aggregate_type']}:{event['key']}"
    declared = types.get(event["aggregate_type"], {}).get("events", {}).get(event["type"], {})
    rules = read_tags(declared.get("tags", []), "", {}, Report())
    found = tags_of([replace(rule, hashed=False) for rule in rules], event["data"], b"")
    return [own] if isinstance(found, TagFault) else [own, *found]


def words(answer: Answer) -> str:
    path = (answer.body or {}).get("path")
    return f"{path}: {answer.error}" if path else answer.error


def changes(before: object, after: object) -> list[tuple[str, str]]:
    """Lines of a diff, each with its mark: what an event changed."""
    lines = difflib.unified_diff(shown(before).splitlines(), shown(after).splitlines(), n=1, lineterm="")
    kept = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    return [(line[:1], line[1:]) for line in kept[:400]]


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
