"""What an instance declares, once it is known to be legal. Made by `spec.parse`, never changed after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from spec.handlers import DEFAULT_HANDLER, Handler
from spec.names import HashIds, PublicIds
from spec.subschemas import Schema
from spec.subscriptions import NONE, Subscription
from spec.violations import CompiledSchema, SchemaViolation
from spec.webhooks import Source

__all__ = [
    "DEFAULT_HANDLER",
    "AggregateType",
    "EventType",
    "HashIds",
    "Mint",
    "PublicIds",
    "SchemaViolation",
    "Spec",
]

Mint = Literal["uuid", "humane"]


@dataclass(frozen=True, slots=True)
class EventType:
    """`schema` is the JSON Schema as declared, for documents; `compiled` checks by it."""

    name: str
    schema: Schema
    handler: Handler
    compiled: CompiledSchema = field(repr=False, compare=False)

    def violation(self, instance: object) -> SchemaViolation | None:
        """The first thing that the schema refuses about an event's data, or None.

        `instance` is a value of strict JSON: dicts, lists, strings without lone surrogates, ints, floats,
        Decimals, bools, None. The path is relative to the data. The same bytes give the same answer.
        """
        return self.compiled.violation(instance)


@dataclass(frozen=True, slots=True)
class AggregateType:
    """`mint` says what kind of key the gateway gives where a client sends none."""

    name: str
    mint: Mint
    events: Mapping[str, EventType]


@dataclass(frozen=True, slots=True)
class Spec:
    """The mappings are by name, in the order of the document, and read-only.

    `singletons` does not hold `global`, which every instance has; `singleton_list` is as declared.
    """

    aggregate_types: Mapping[str, AggregateType]
    agent_types: frozenset[str]
    target_types: frozenset[str]
    singletons: frozenset[str]
    singleton_list: tuple[str, ...] = ()
    subscriptions: Mapping[str, Subscription] = field(default_factory=lambda: NONE)
    webhooks: Mapping[str, Source] = field(default_factory=lambda: MappingProxyType({}))
    public_ids: PublicIds | None = None
    hash_ids: HashIds | None = None
