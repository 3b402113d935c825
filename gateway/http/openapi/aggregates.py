"""The paths of one aggregate type: a POST for each event type, the batch, minting, and the reads. Pure."""

from __future__ import annotations

from typing import Any

from gateway.admit.envelope import EVENTS_MAX
from gateway.http.openapi.embedding import embedded
from gateway.http.openapi.operations import NO_EXAMPLE, answer, operation, shared
from gateway.http.openapi.operations import request as json_request
from gateway.http.openapi.parameters import ALIAS, EXAMPLE_ID
from gateway.http.openapi.samples import NO_SAMPLE, sample
from gateway.http.openapi.schemas import LENGTH, OK, Schema, list_of, object_of, or_null, ref
from gateway.http.openapi.sources import SOURCE
from spec.model import AggregateType, EventType, Spec

_ASKED = ("Idempotency-Key", "If-Match", "If-None-Match-any", "X-Correlation-Id", "Prefer")
_NAMED = ("aliases", "keys")
_KEY: Schema = {"anyOf": [ref("Identifier"), ALIAS]}
_BARE_ALIAS: Schema = {
    "type": "string",
    "pattern": "^[A-Za-z][0-9A-Za-z]{1,9}-[0-9A-Za-z.]{1,90}$",
    "description": "Alias without its `@`, where the type has such names.",
}
_FRESH = ("min_length", "consistency")


def event_schemas(declared: AggregateType) -> dict[str, Any]:
    """By component name: the data of each event type, `order.was_placed`; several, `order-batch`."""
    found: dict[str, Any] = {
        _data_name(declared, event_type): embedded(
            event_type.schema, f"#/components/schemas/{_data_name(declared, event_type)}"
        )
        for event_type in declared.events.values()
    }
    if not found:
        return found
    batch, minting = _batch_schema(declared), _batch_schema(declared, _PARENT)
    return {**found, _batch_name(declared): batch, _minting_name(declared): minting}


def line_schemas(declared: AggregateType) -> list[Schema]:
    """What a line of /_/bulk may be, an alternative for each event type."""
    key = {"type": ["string", "null"], "description": "Same as the header Idempotency-Key."}
    return [
        object_of(
            {
                "aggregate_type": {"const": declared.name},
                "type": {"const": event_type.name},
                "data": ref(_data_name(declared, event_type)),
                "metadata": ref("Metadata"),
            },
            {
                "key": {"anyOf": [*_KEY["anyOf"], _BARE_ALIAS]},
                "source": {**or_null(SOURCE), "description": "A name that is used in place of a key."},
                "idempotency_key": key,
                **_unchanged(declared),
            },
            closed=True,
        )
        | {"anyOf": [{"required": ["key"]}, {"required": ["source"]}]}
        for event_type in declared.events.values()
    ]


def named_events(declared: AggregateType) -> list[Schema]:
    """What an event of /_/append may be, an alternative for each event type."""
    return [
        object_of(
            {
                "aggregate_type": {"const": declared.name},
                "type": {"const": event_type.name},
                "data": ref(_data_name(declared, event_type)),
            },
            {
                "key": {**or_null(_KEY), "description": "Absent for a new aggregate."},
                "source": {**or_null(SOURCE), "description": "A name that is used in place of a key."},
                "previous_length": {
                    **or_null(LENGTH),
                    "description": "The aggregate's length, at the first of its events.",
                },
                "event_id": or_null(ref("EventId")),
                "target": or_null(ref("Target")),
            },
            closed=True,
        )
        for event_type in declared.events.values()
    ]


LINE: Schema = {
    "idempotency_key": {"type": ["string", "null"], "description": "Same as the header Idempotency-Key."}
}
"""What a line of /_/bulk may have beside that."""

_CONDITION: Schema = or_null(
    object_of(
        {"fail_if_events_match": ref("Query")},
        {"after": {"type": ["string", "null"], "description": "A position; events up to it are ignored."}},
        closed=True,
    )
)


def append_schema(events: list[Schema], more: Schema | None = None) -> Schema:
    """The body of /_/append, whose events are any of these; `more` are other members that it may have."""
    items: Schema = {"anyOf": events} if events else {"not": {}}
    listed = list_of(items, minItems=1, maxItems=EVENTS_MAX)
    optional = {"condition": _CONDITION, **(more or {})}
    return object_of({"events": listed, "metadata": ref("MetadataOfAll")}, optional, closed=True)


def aggregate_paths(spec: Spec, declared: AggregateType) -> dict[str, Schema]:
    """By path. A type without events has only reads: whatever is posted to it is refused."""
    name = declared.name
    samples = {event_type.name: sample(event_type) for event_type in declared.events.values()}
    paths = read_paths(name, name)
    if declared.events:
        shown = _batch_example(spec, samples)
        paths[f"/{name}"] = {"post": _mint(declared, shown)}
        paths[f"/{name}/{{id}}"]["post"] = _batch(declared, shown)
    paths[f"/{name}/{{id}}/aliases"] = {"get": _aliases(name)}
    paths[f"/{name}/{{id}}/children"] = {"get": _children(name)}
    for event_type in declared.events.values():
        operation = _append(spec, declared, event_type, samples[event_type.name])
        paths[f"/{name}/{{id}}/{event_type.name}"] = {"post": operation}
    return paths


def read_paths(name: str, tag: str) -> dict[str, Schema]:
    """The reads of one stream of the type `name`, by path."""
    one = f"/{name}/{{id}}"
    return {
        one: {"get": _state(name, tag)},
        f"{one}/length": {"get": _length(name, tag)},
        f"{one}/events": {"get": _events(name, tag)},
        f"{one}/events/{{version}}": {"get": _event(name, tag)},
    }


def _data_name(declared: AggregateType, event_type: EventType) -> str:
    return f"{declared.name}.{event_type.name}"


def _batch_name(declared: AggregateType) -> str:
    return f"{declared.name}-batch"


def _minting_name(declared: AggregateType) -> str:
    return f"{declared.name}-new"


# ---- appends ----

_PARENT: Schema = {
    "parent": or_null(
        {
            "type": "string",
            "description": "An aggregate with a hash id, by `@` and an exact alias or by its key. The new "
            "one is its child and gets the next name below its own.",
        }
    ),
    "source": or_null(SOURCE),
}
_IF_UNCHANGED: Schema = {"if_unchanged": or_null({"const": "skip"})}


def _unchanged(declared: AggregateType) -> Schema:
    """What an append may ask for where its type declares records."""
    return {} if declared.identity is None else _IF_UNCHANGED


def _done(declared: AggregateType, appended: str, unchanged: str) -> Schema:
    """The responses to an append that is granted."""
    skipped = {} if declared.identity is None else shared("200", unchanged)
    return skipped | shared("201", appended)


def _asked(declared: AggregateType, *names: str) -> tuple[str, ...]:
    """The parameters of an append to this type."""
    return names if declared.identity is None else (*names, "Sluice-If-Unchanged")


def _append(spec: Spec, declared: AggregateType, event_type: EventType, data: object) -> Schema:
    schema = object_of(
        {"data": ref(_data_name(declared, event_type)), "metadata": ref("Metadata")},
        _unchanged(declared),
        closed=True,
    )
    actor = _example_actor(spec)
    shown = data is not NO_SAMPLE and actor is not None
    example = {"data": data, "metadata": {"actor": actor}} if shown else NO_EXAMPLE
    return operation(
        f"append.{declared.name}.{event_type.name}",
        f"Append {event_type.name} to one {declared.name}",
        tag=declared.name,
        parameters=_asked(declared, "id", *_ASKED),
        body=json_request(schema, example),
        done=_done(declared, "appended", "unchanged-record"),
        refused="append",
    )


def _batch(declared: AggregateType, example: object) -> Schema:
    return operation(
        f"append.{declared.name}",
        f"Append several events to one {declared.name}, all or nothing",
        tag=declared.name,
        parameters=_asked(declared, "id", *_ASKED),
        body=json_request(ref(_batch_name(declared)), example),
        done=_done(declared, "appended-several", "unchanged-records"),
        refused="batch",
    )


def _mint(declared: AggregateType, example: object) -> Schema:
    return operation(
        f"create.{declared.name}",
        f"Create a new {declared.name}; the gateway mints its key ({declared.mint})",
        tag=declared.name,
        parameters=_asked(declared, "Idempotency-Key", "X-Correlation-Id", "Prefer"),
        body=json_request(ref(_minting_name(declared)), example),
        done=_done(declared, "appended-several", "unchanged-records"),
        refused="mint",
    )


def _batch_schema(declared: AggregateType, more: Schema | None = None) -> Schema:
    events = [
        object_of(
            {"type": {"const": event_type.name}, "data": ref(_data_name(declared, event_type))},
            {"event_id": or_null(ref("EventId"))},
            closed=True,
        )
        for event_type in declared.events.values()
    ]
    items = events[0] if len(events) == 1 else {"oneOf": events}
    events_schema = list_of(items, minItems=1, maxItems=EVENTS_MAX)
    optional = {**(more or {}), **_unchanged(declared)}
    return object_of({"events": events_schema, "metadata": ref("Metadata")}, optional, closed=True)


def _example_actor(spec: Spec) -> Schema | None:
    return {"type": min(spec.agent_types), "id": EXAMPLE_ID} if spec.agent_types else None


def _batch_example(spec: Spec, samples: dict[str, object]) -> object:
    found = [{"type": name, "data": data} for name, data in samples.items() if data is not NO_SAMPLE]
    actor = _example_actor(spec)
    return {"events": found[:2], "metadata": {"actor": actor}} if found and actor else NO_EXAMPLE


# ---- reads ----


def _state(name: str, tag: str) -> Schema:
    return operation(
        f"state.{name}",
        f"The state of one {name}, folded from its events",
        tag=tag,
        parameters=("id", "at_length", "at", "synchronous", "explain", *_FRESH, *_NAMED, "If-None-Match"),
        done=shared("200", "state") | shared("304", "unchanged"),
        refused="state",
    )


def _length(name: str, tag: str) -> Schema:
    return operation(
        f"length.{name}",
        f"The number of events of one {name}; 0 if it has none",
        tag=tag,
        parameters=("id", *_FRESH),
        done=shared("200", "length"),
        refused="read",
    )


def _aliases(name: str) -> Schema:
    return operation(
        f"aliases.{name}",
        f"The aliases of one {name}",
        tag=name,
        parameters=("id",),
        done=shared("200", "aliases"),
        refused="read",
    )


def _children(name: str) -> Schema:
    text: Schema = {"type": "string"}
    child = object_of({"alias": text, "aggregate_type": text, "key": text})
    whole: Schema = {"type": "integer"}
    told = {"ok": OK, "key": text, "alias": or_null(text), "children": list_of(child), "next": or_null(whole)}
    return operation(
        f"children.{name}",
        f"The children of one {name}, by their numbers",
        tag=name,
        parameters=("id", "after-child", "limit"),
        done={"200": answer("A page.", object_of(told))},
        refused="read",
    )


def _events(name: str, tag: str) -> Schema:
    return operation(
        f"events.{name}",
        f"The events of one {name}",
        tag=tag,
        parameters=("id", "from", "limit", "order", "upcast", *_FRESH, *_NAMED, "ticket", "Last-Event-ID"),
        done=shared("200", "events"),
        refused="read",
    )


def _event(name: str, tag: str) -> Schema:
    return operation(
        f"event.{name}",
        f"One event of one {name}, by its version",
        tag=tag,
        parameters=("id", "version", "upcast", *_FRESH, *_NAMED),
        done=shared("200", "event"),
        refused="read",
    )
