"""`sluice find`: what an identifier of any kind names, through a running gateway."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from gateway.cli.gateways import KeyOption, UrlOption, at_gateway, fetched
from gateway.cli.output import JsonOption, print_json, print_table, refuse

if TYPE_CHECKING:
    from gateway.client import Client

_TAG = re.compile(r"[a-z][a-z0-9_]{0,31}:.{1,128}")


@dataclass(frozen=True, slots=True)
class Found:
    """`what` it is, and the aggregate that it leads to; `id` of an event."""

    what: str
    aggregate_type: str
    key: str
    id: str = ""
    detail: str = ""

    def shown(self) -> dict[str, str]:
        named = (("what", self.what), ("aggregate_type", self.aggregate_type), ("key", self.key))
        return {name: value for name, value in (*named, ("id", self.id), ("detail", self.detail)) if value}


def find(
    anything: Annotated[
        str,
        typer.Argument(
            metavar="ANYTHING",
            help="An alias, key, event id, correlation id, idempotency key, tag, or SOURCE/SCOPE/ID.",
        ),
    ],
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print all that an identifier refers to, with the aggregates; exit 1 if nothing is found."""
    text = anything.strip()
    found = at_gateway(url, api_key, lambda client: list(_all(client, text)), as_json=as_json)
    if as_json:
        print_json({"ok": bool(found), "found": [each.shown() for each in found]})
    elif found:
        columns = ["what", "type", "key", "event", ""]
        print_table(
            columns,
            [[each.what, each.aggregate_type, each.key, each.id, each.detail] for each in found],
            fold=(),
        )
    else:
        refuse(f"no alias, key, event id, correlation id, idempotency key or tag is {text!r}")
    if not found:
        raise typer.Exit(1)


def _all(client: Client, text: str) -> Iterator[Found]:
    yield from _alias(client, text)
    if _uuid(text):
        yield from _event(client, text.lower())
        yield from _feed(client, "correlation id", {"correlation_id": text.lower()})
    yield from _keys(client, text)
    yield from _receipt(client, text)
    yield from _source(client, text)
    if _TAG.fullmatch(text) and not _uuid(text.partition(":")[0]):
        yield from _feed(client, "tag", {"tags": text})


def _alias(client: Client, text: str) -> Iterator[Found]:
    name = text.removeprefix("@")
    if answer := _asked(client, ("_", "resolve", f"@{name}")):
        yield Found("alias", answer["aggregate_type"], answer["key"], detail=answer["alias"])


def _event(client: Client, text: str) -> Iterator[Found]:
    if answer := _asked(client, ("_", "events", text)):
        event = answer["event"]
        detail = f"{event['type']}, version {event['version']}"
        yield Found("event", event["aggregate_type"], event["key"], event["id"], detail)


def _keys(client: Client, text: str) -> Iterator[Found]:
    """Aggregates of each type that have this key, and events; a saga is one by its id."""
    if text.startswith("@"):
        return
    from spec.sagas import SAGA_TYPE  # here, since all commands are imported with this one

    spec = _asked(client, ("_", "spec")) or {"spec": {}}
    for aggregate_type in (*spec["spec"].get("aggregate_types", {}), SAGA_TYPE):
        answer = _asked(client, (aggregate_type, text))
        if answer and answer["metadata"]["length"]:
            yield Found("key", aggregate_type, answer["key"], detail=f"length {answer['metadata']['length']}")


def _receipt(client: Client, text: str) -> Iterator[Found]:
    if not (0 < len(text) < 256 and text.isascii() and text.isprintable()):
        return
    if answer := _asked(client, ("_", "receipts"), idempotency_key=text):
        first = answer["events"][0] if "events" in answer else answer  # of several aggregates
        event_id = first.get("event_id") or first["event_ids"][0]
        event = _asked(client, ("_", "events", event_id))
        if event:
            yield Found("idempotency key", event["event"]["aggregate_type"], first["key"], event_id)


def _source(client: Client, text: str) -> Iterator[Found]:
    """A foreign system's id, as SOURCE/SCOPE/ID; a scope may have slashes."""
    source, _, rest = text.partition("/")
    scope, _, identity = rest.rpartition("/")
    if (
        source
        and scope
        and identity
        and (answer := _asked(client, ("_", "sources", source, scope, identity)))
    ):
        yield Found("source id", answer["aggregate_type"] or "", answer["key"])


def _feed(client: Client, what: str, by: dict[str, str]) -> Iterator[Found]:
    """Each aggregate that has such events among the first."""
    answer = _asked(client, ("_", "feed"), limit="100", **by)
    counts: dict[tuple[str, str], int] = {}
    for event in answer["events"] if answer else ():
        if by.get("correlation_id") not in (None, event["metadata"]["correlation_id"]):
            continue
        place = (event["aggregate_type"], event["key"])
        counts[place] = counts.get(place, 0) + 1
    for (aggregate_type, key), count in counts.items():
        yield Found(what, aggregate_type, key, detail=f"{count} event{'s' if count > 1 else ''}")


def _asked(client: Client, segments: tuple[str, ...], **params: str) -> dict[str, Any] | None:
    """The answer; None where there is no such thing, or nothing can be named so."""
    from gateway.client import Refused

    try:
        return fetched(client, segments, params)
    except Refused as refused:
        if refused.status in (400, 403, 404, 422):  # 403: beyond what a narrow key may see
            return None
        raise


def _uuid(text: str) -> bool:
    try:
        return len(text) == 36 and bool(UUID(text))
    except ValueError:
        return False
