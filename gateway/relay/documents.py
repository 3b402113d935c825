"""The documents of subscriptions: as they are sent, kept and shown. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.server_urls import redacted
from spec.targets.table import FORMS, SECRETS
from spec.webhooks.secrets import without_query

HIDDEN: Final = "***"

_OPTIONAL: Final = ("aliases", "filter", "keys", "start")
_OF_FILTER: Final = ("types", "event_types", "items")
_OF_TARGET: Final[Mapping[str, tuple[str, ...]]] = {form.kind: tuple(form.optional) for form in FORMS}


def kept(document: dict[str, Any]) -> bytes:
    """As it stands in Postgres, secrets included."""
    return json.dumps(document, ensure_ascii=False).encode()


def start_of(stored: bytes) -> str:
    start: str = msgspec.json.decode(stored).get("start", "now")
    return start


def without_nulls(document: dict[str, Any]) -> dict[str, Any]:
    """An optional field that is null counts as absent."""
    left = _without(document, _OPTIONAL)
    filtered, target = left.get("filter"), left.get("target")
    if isinstance(filtered, dict):
        left["filter"] = _without(filtered, _OF_FILTER)
    if isinstance(target, dict):
        left["target"] = _without(target, _OF_TARGET.get(str(target.get("type")), ()))
    return left


def _without(fields: dict[str, Any], optional: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None or name not in optional}


def without_secrets(target: dict[str, Any]) -> dict[str, Any]:
    """A target as it may be shown."""
    shown = {name: HIDDEN if name in SECRETS else value for name, value in target.items()}
    if isinstance(shown.get("url"), str):
        shown["url"] = redacted(shown["url"])
    return shown


def with_secrets_of(document: dict[str, Any], stored: bytes) -> dict[str, Any]:
    """What was shown may be sent back: `***` is what stands there already; so is a query that
    is shown as `?***`."""
    target = document.get("target")
    if not isinstance(target, dict):
        return document
    before = msgspec.json.decode(stored)["target"]
    merged = dict(target)
    merged |= {name: before[name] for name in SECRETS if target.get(name) == HIDDEN and name in before}
    if "url" in before and target.get("url") in (redacted(before["url"]), without_query(before["url"])):
        merged["url"] = before["url"]
    return {**document, "target": merged}
