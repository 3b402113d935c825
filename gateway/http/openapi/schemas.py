"""The component schemas that are not a spec's own: identifiers, metadata, receipts, events, refusals.

Pure. Request schemas say what is accepted, so that a tool may refuse the rest before it is sent; those of
answers leave room for fields that are added later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from gateway.admit.envelope_shape import PREVIOUS_LENGTH_MAX
from gateway.http.api.ids import IDS_MAX
from spec.filter_items import ITEM_TAGS_MAX, ITEMS_MAX, TYPES_MAX
from spec.identifiers import GLOBAL, NAME_GRAMMAR, Kind
from spec.model import Spec

Schema = dict[str, Any]

_HEX = "[0-9a-fA-F]"
_UUID_4_5 = f"{_HEX}{{8}}-{_HEX}{{4}}-[45]{_HEX}{{3}}-[89abAB]{_HEX}{{3}}-{_HEX}{{12}}"
_EVENT_ID: Schema = {
    "type": "string",
    "pattern": f"^{_HEX}{{8}}-{_HEX}{{4}}-[57]{_HEX}{{3}}-[89abAB]{_HEX}{{3}}-{_HEX}{{12}}$",
    "description": "A UUIDv7, or a UUIDv5 that a client derived.",
}
ANY_UUID: Schema = {"type": "string", "pattern": f"^{_HEX}{{8}}(-{_HEX}{{4}}){{3}}-{_HEX}{{12}}$"}
NAME: Schema = {"type": "string", "pattern": f"^{NAME_GRAMMAR}$"}
LENGTH: Schema = {"type": "integer", "minimum": 0, "maximum": PREVIOUS_LENGTH_MAX}
VERSION: Schema = {"type": "integer", "minimum": 1, "maximum": PREVIOUS_LENGTH_MAX}
OK: Schema = {"const": True}
POSITION: Schema = {"type": "string", "description": "A position of the feed, after the last event."}


_TOLD_ALIASES: Schema = {
    "aliases": {
        "type": "array",
        "items": {"type": "string"},
        "description": "The aliases of a new aggregate, with `Prefer: wait`, if its type has aliases.",
    },
    "parent": {"type": "string", "description": "The alias of a new child."},
}


_IMPLIED: Schema = {
    "implied_count": {**VERSION, "description": "Events that these events imply, appended with them."}
}


NAMED: Schema = {
    "key": {"type": "string", "description": "With `keys=alias`, only if there is no alias."},
    "aliases": {"type": "array", "items": {"type": "string"}, "description": "If `aliases` is requested."},
}
"""Of an aggregate in an answer, beside what is always there."""


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


ANY_RECEIPT: Final[Schema] = {"anyOf": [ref("Receipt"), ref("BatchReceipt"), ref("ReceiptOfSeveral")]}


def object_of(required: Schema, optional: Schema | None = None, *, closed: bool = False) -> Schema:
    """An object with these properties; `closed` where no other is accepted."""
    schema: Schema = {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
    }
    return {**schema, "additionalProperties": False} if closed else schema


def list_of(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def or_null(schema: Schema) -> Schema:
    """For an optional field: null counts as absent."""
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    if "null" in schema.get("type", ()):
        return dict(schema)
    return {"anyOf": [schema, {"type": "null"}]}


def shared_schemas(spec: Spec) -> dict[str, Schema]:
    """By component name. Names of ours start with a capital; those of events with the aggregate's type."""
    return {
        "Identifier": _identifier(spec),
        "EventId": _EVENT_ID,
        "Actor": _reference(spec.agent_types, "The actor: a type of the spec's `agent_types`, and an id."),
        "Target": _reference(
            spec.target_types, "What the actor acted on: a type of the spec's `target_types`, and an id."
        ),
        "Metadata": _metadata(spec),
        "MetadataOfAll": _metadata_of_all(spec),
        "Receipt": _receipt(),
        "BatchReceipt": _batch_receipt(),
        "ReceiptOfSeveral": _receipt_of_several(),
        "State": _state(),
        "Event": _event(),
        "EventsPage": _events_page(),
        "FedEvent": _fed_event(),
        "FeedPage": _feed_page(),
        "Query": _query(spec),
        "Aliases": _aliases(),
        "CheckedId": _checked_id(),
        "Refusal": _refusal(),
    }


def _identifier(spec: Spec) -> Schema:
    return {
        "description": "One of four kinds, in any accepted spelling. Responses have the canonical one.",
        "anyOf": [
            {"type": "string", "pattern": f"^{_UUID_4_5}$", "description": "UUID, version 4 or 5."},
            {
                "type": "string",
                "pattern": "^[0-9A-Za-z]{9}$",
                "description": "Humane code: Crockford's base32; I and L are read as 1, O as 0, U as V.",
            },
            {"enum": [GLOBAL, *spec.singleton_list], "description": "Singleton."},
            {
                "type": "string",
                "pattern": f"^{_UUID_4_5}:[a-z0-9]{{1,10}}$",
                "description": "Tagged UUID.",
            },
        ],
    }


def _reference(types: Iterable[str], description: str) -> Schema:
    names = sorted(types)
    kind: Schema = {"enum": names} if names else {"not": {}}
    return {**object_of({"type": kind, "id": ref("Identifier")}, closed=True), "description": description}


def _metadata(spec: Spec) -> Schema:
    return object_of(
        {"actor": ref("Actor")},
        {
            "target": or_null(ref("Target")) if spec.target_types else {"type": "null"},
            "previous_length": {
                **or_null(LENGTH),
                "description": "Append only if the stream has exactly this many events.",
            },
            "skip_occ": {
                **or_null({"type": "boolean"}),
                "description": "`true` with `previous_length`: 422.",
            },
            "event_id": {
                **or_null(ref("EventId")),
                "description": "A UUIDv7 or UUIDv5 of your own, unique in a tenant; not for several events.",
            },
            "causation_id": {**or_null(ANY_UUID), "description": "The event or message that caused this."},
            "extra": {**or_null({"type": "object"}), "description": "Free text."},
        },
        closed=True,
    )


def _metadata_of_all(spec: Spec) -> Schema:
    found = _metadata(spec)
    kept = {name: found["properties"][name] for name in ("target", "causation_id", "extra")}
    return object_of({"actor": ref("Actor")}, kept, closed=True)


def _receipt_of_several() -> Schema:
    event = object_of(
        {
            "aggregate_type": NAME,
            "key": {"type": "string"},
            "event_id": ref("EventId"),
            "stream_id": {"type": "string"},
            "length": {**VERSION, "description": "The stream's length after this event."},
        },
        _TOLD_ALIASES,
    )
    return object_of({"ok": OK, "position": POSITION, "count": VERSION, "events": list_of(event)}, _IMPLIED)


def _receipt() -> Schema:
    return object_of(
        {
            "ok": OK,
            "key": {"type": "string", "description": "The canonical id."},
            "event_id": ref("EventId"),
            "stream_id": {"type": "string", "description": "The event's id in the stream: `<version>-0`."},
            "length": {**VERSION, "description": "The stream's length after the append."},
            "position": POSITION,
        },
        {**_IMPLIED, **_TOLD_ALIASES},
    )


def _batch_receipt() -> Schema:
    return object_of(
        {
            "ok": OK,
            "key": {"type": "string"},
            "event_ids": list_of(ref("EventId")),
            "stream_ids": list_of({"type": "string"}),
            "count": VERSION,
            "length": VERSION,
            "position": POSITION,
        },
        {**_IMPLIED, **_TOLD_ALIASES},
    )


def _state() -> Schema:
    seconds = {"type": ["integer", "null"], "description": "Unix seconds; null when empty."}
    handler_error = object_of(
        {
            "version": VERSION,
            "type": {"type": "string"},
            "operation": {},
            "error": {"type": "string"},
        }
    )
    misfit = object_of(
        {
            "version": VERSION,
            "event_type": {"type": "string"},
            "operation": {
                "type": "integer",
                "minimum": 0,
                "description": "The operation's place in the handler.",
            },
            "error": {"type": "string"},
        }
    )
    misfits = {
        **list_of(misfit),
        "description": "With `explain`: the last 20 operations that did not fit, oldest first.",
    }
    metadata = object_of(
        {"length": LENGTH, "created_at": seconds, "updated_at": seconds},
        {"handler_errors": list_of(handler_error), "misfits": misfits},
    )
    return object_of({"ok": OK, "data": {"type": "object"}, "metadata": metadata}, NAMED)


def _event() -> Schema:
    who = object_of({"type": {"type": "string"}, "id": {"type": "string"}})
    metadata = object_of(
        {
            "actor": who,
            "target": or_null(who),
            "timestamp": {"type": "number", "description": "Unix seconds with milliseconds."},
            "correlation_id": {"type": "string"},
            "causation_id": {"type": ["string", "null"]},
            "extra": {"type": ["object", "null"]},
            "revision": {
                **VERSION,
                "description": "The revision of the event type when the event was appended.",
            },
        }
    )
    return object_of(
        {
            "id": ref("EventId"),
            "stream_id": {"type": "string"},
            "version": VERSION,
            "aggregate_type": {"type": "string", "pattern": f"^_?{NAME_GRAMMAR}$"},
            "type": {"type": "string"},
            "data": {"description": "The data as sent, byte for byte. An older spec may have accepted it."},
            "metadata": metadata,
        },
        NAMED,
    )


def _events_page() -> Schema:
    following = {**or_null(VERSION), "description": "`from` of the next page; null at the end."}
    return object_of(
        {
            "ok": OK,
            "events": list_of(ref("Event")),
            "length": LENGTH,
            "next": following,
        },
        NAMED,
    )


def _fed_event() -> Schema:
    position = {"type": "string", "description": "The position of the feed after this event."}
    return {"allOf": [ref("Event"), object_of({"position": position})]}


def _feed_page() -> Schema:
    position = {"type": "string", "description": "`after` of the next page."}
    caught_up = {"type": "boolean", "description": "Whether no further event exists."}
    return object_of(
        {"ok": OK, "events": list_of(ref("FedEvent")), "position": position, "caught_up": caught_up}
    )


def _query(spec: Spec) -> Schema:
    """What `POST /_/feed/query` takes."""
    tag: Schema = {"type": "string", "pattern": f"^({'|'.join(sorted(spec.tag_prefixes))}):."}
    hashed = object_of({"hash": tag}, closed=True)
    each = spec.aggregate_types.values()
    named: Schema = {"enum": [f"{declared.name}.{event}" for declared in each for event in declared.events]}
    types = list_of(named, maxItems=TYPES_MAX, description="`<aggregate type>.<event type>`: one of them.")
    tags = list_of({"anyOf": [tag, hashed]}, maxItems=ITEM_TAGS_MAX, description="All of them.")
    item = {
        **object_of({}, {"types": types, "tags": tags}, closed=True),
        "anyOf": [{"properties": {name: {"minItems": 1}}, "required": [name]} for name in ("types", "tags")],
    }
    return object_of({"items": list_of(item, minItems=1, maxItems=ITEMS_MAX)}, closed=True)


def _aliases() -> Schema:
    names = list_of({"type": "string"})
    retired = {**names, "description": "Retired aliases; they still resolve."}
    return object_of({"ok": OK, "key": {"type": "string"}, "aliases": names}, {"retired": retired})


def _checked_id() -> Schema:
    text = {"type": "string"}
    return {
        "anyOf": [
            object_of({"input": text, "canonical": text, "kind": {"enum": [each.value for each in Kind]}}),
            object_of({"input": text, "error": text}),
        ]
    }


def ids_to_check() -> Schema:
    return object_of({"ids": list_of({"type": "string"}, maxItems=IDS_MAX)}, closed=True)


def _refusal() -> Schema:
    return object_of(
        {
            "ok": {"const": False},
            "code": {"type": "string"},
            "error": {"type": "string", "description": "A sentence for people; programs use `code`."},
        },
        {"path": {"type": "string", "description": "The field at fault, such as `data.email`."}},
    )
