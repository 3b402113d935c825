"""What an instance declares, once it is known to be legal. Made by `spec.parse`, never changed after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from spec.claims import ClaimRule
from spec.errors import Fault
from spec.handlers import DEFAULT_HANDLER, Handler, Root, paths_of
from spec.identity import IdentityRule
from spec.implications import Implication, Schedule
from spec.lists import Listed
from spec.names import HashIds, PublicIds
from spec.projections import NONE as NO_PROJECTIONS
from spec.projections import Projection
from spec.rules import Rule
from spec.sagas import NONE as NO_SAGAS
from spec.sagas import Saga
from spec.subschemas import Schema
from spec.subscriptions import NONE, Subscription
from spec.tags import TagRule
from spec.violations import AT_ONCE_WORK_MAX, WEIGHT_MIN, CompiledSchema, SchemaViolation, is_light
from spec.webhooks.sources import Source

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

Mint = Literal["uuid", "humane", "content"]


@dataclass(frozen=True, slots=True)
class EventType:
    """`schema` is the JSON Schema as declared, for documents; `compiled` checks by it."""

    name: str
    schema: Schema
    handler: Handler
    compiled: CompiledSchema = field(repr=False, compare=False)
    tags: tuple[TagRule, ...] = ()
    rules: tuple[Rule, ...] = ()
    revision: int = 1
    upcasts: tuple[Handler, ...] = ()
    """What brings data of revision 1 to 2, of 2 to 3, and so on up to `revision`."""
    claims: tuple[ClaimRule, ...] = ()
    releases: tuple[str, ...] = ()
    implications: tuple[Implication, ...] = ()
    implies: bool = field(init=False, compare=False)
    """Whether an append of it may write other events too."""
    implies_by_state: bool = field(init=False, compare=False)
    """Whether the state after it decides what it implies."""
    schedules: bool = field(init=False, compare=False)
    """Whether it may set timers."""
    marked: bool = field(init=False, compare=False)
    """Whether its events may have tags, or claim or release values."""
    light_bytes: int = field(init=False, compare=False)
    """Data of so many bytes are light, whatever they are."""

    def __post_init__(self) -> None:
        by_state = [each.by_state for each in self.implications if not isinstance(each.what, Schedule)]
        object.__setattr__(self, "implies_by_state", any(by_state))
        timers = [isinstance(each.what, Schedule) for each in self.implications]
        object.__setattr__(self, "implies", not all(timers))
        object.__setattr__(self, "schedules", any(timers))
        object.__setattr__(self, "marked", bool(self.tags or self.claims or self.releases))
        object.__setattr__(self, "light_bytes", AT_ONCE_WORK_MAX // self.compiled.weight)

    @property
    def folds_metadata(self) -> bool:
        """Whether a fold takes more of it than type, time, revision and data."""
        paths = paths_of((self.handler, self.upcasts))
        return any(each.root == Root.METADATA and each.fields[:1] != ("timestamp",) for each in paths)

    def violation(self, instance: object) -> SchemaViolation | None:
        """The first thing that the schema refuses about an event's data, or None.

        `instance` is a value of strict JSON: dicts, lists, strings without lone surrogates, ints, floats,
        Decimals, bools, None. The path is relative to the data. The same bytes give the same answer.
        """
        return self.compiled.violation(instance)

    def is_light(self, text: bytes) -> bool:
        """Whether an event of these data, or a body with one, is judged in under 10 ms."""
        return len(text) <= self.light_bytes or is_light(text, self.compiled.weight)


@dataclass(frozen=True, slots=True)
class AggregateType:
    """`mint` says what kind of key the gateway gives where a client sends none. `idempotent_create`: the
    append that creates an aggregate is known again by its body. `listed`
    is its `list`, `identity` what of its events is a record."""

    name: str
    mint: Mint
    events: Mapping[str, EventType]
    idempotent_create: bool = False
    listed: Listed | None = None
    identity: IdentityRule | None = None
    tells_aliases: bool = False
    closed: frozenset[str] = frozenset()
    """Event types that it lacks while a deployment looks whether they may go: they may stay."""
    weight: int = field(init=False, compare=False)
    """Of the heaviest schema among its events."""
    ruled: bool = field(init=False, compare=False)
    """Whether any of its events has rules."""
    implies: bool = field(init=False, compare=False)
    """Whether any of its events may write others."""
    by_state: bool = field(init=False, compare=False)
    """Whether an event of it is judged on the state that it is appended to."""
    revised: bool = field(init=False, compare=False)
    """Whether events of earlier revisions may be stored."""
    handlers: Mapping[str, Handler] = field(init=False, compare=False, repr=False)
    """By event type."""
    folds_apart: frozenset[str] = field(init=False, compare=False, repr=False)
    """The event types that may do more to a state than merge their data as they are stored."""
    folds_metadata: frozenset[str] = field(init=False, compare=False, repr=False)
    """Those of them of which a state takes more than time, revision and data."""

    def __post_init__(self) -> None:
        weights = (each.compiled.weight for each in self.events.values())
        object.__setattr__(self, "weight", max(weights, default=WEIGHT_MIN))
        object.__setattr__(self, "ruled", any(each.rules for each in self.events.values()))
        object.__setattr__(self, "implies", any(each.implies for each in self.events.values()))
        by_state = any(each.rules or each.implies_by_state for each in self.events.values())
        object.__setattr__(self, "by_state", by_state)
        object.__setattr__(self, "revised", any(each.revision > 1 for each in self.events.values()))
        # One object for all that merge their data: folds know it at a glance.
        handlers = {
            each.name: DEFAULT_HANDLER if each.handler == DEFAULT_HANDLER else each.handler
            for each in self.events.values()
        }
        object.__setattr__(self, "handlers", MappingProxyType(handlers))
        folds_apart = frozenset(
            each.name
            for each in self.events.values()
            if handlers[each.name] is not DEFAULT_HANDLER or each.revision > 1
        )
        object.__setattr__(self, "folds_apart", folds_apart)
        folds_metadata = frozenset(each.name for each in self.events.values() if each.folds_metadata)
        object.__setattr__(self, "folds_metadata", folds_metadata)

    @property
    def at_random(self) -> bool:
        """Whether a key that the gateway gives is a random UUID, which no aggregate has yet."""
        return self.mint == "uuid"

    def is_light(self, body: bytes) -> bool:
        """Whether a batch is judged in under 10 ms, whichever events it holds."""
        return is_light(body, self.weight)


@dataclass(frozen=True, slots=True, weakref_slot=True)
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
    projections: Mapping[str, Projection] = field(default_factory=lambda: NO_PROJECTIONS)
    sagas: Mapping[str, Saga] = field(default_factory=lambda: NO_SAGAS)
    webhooks: Mapping[str, Source] = field(default_factory=lambda: MappingProxyType({}))
    public_ids: PublicIds | None = None
    hash_ids: HashIds | None = None
    closed: frozenset[str] = frozenset()
    """Aggregate types that it lacks, likewise."""
    outdated: tuple[Fault, ...] = field(default=(), compare=False)
    """What this release refuses where it is deployed now, and an earlier one accepted."""
    weight: int = field(init=False, compare=False)
    """Of the heaviest schema among its events."""
    tag_prefixes: frozenset[str] = field(init=False, compare=False)
    """Of all tags that its events may have: those that they declare, and their aggregate types."""
    ruled: bool = field(init=False, compare=False)
    """Whether any of its aggregate types has rules."""
    implies: bool = field(init=False, compare=False)
    """Whether any of its events may write others."""
    reacts: bool = field(init=False, compare=False)
    """Whether any of its events may set timers or begin sagas."""
    recorded: bool = field(init=False, compare=False)
    """Whether an append may be of records, or create a project."""
    telling: frozenset[str] = field(init=False, compare=False)
    """The types whose aliases are told without being asked for."""

    def __post_init__(self) -> None:
        types = self.aggregate_types.values()
        object.__setattr__(self, "telling", frozenset([each.name for each in types if each.tells_aliases]))
        object.__setattr__(self, "weight", max((each.weight for each in types), default=WEIGHT_MIN))
        object.__setattr__(self, "ruled", any(each.ruled for each in types))
        object.__setattr__(self, "implies", any(each.implies for each in types))
        timed = any(event.schedules for each in types for event in each.events.values())
        object.__setattr__(self, "reacts", timed or bool(self.sagas))
        projects = self.public_ids is not None and self.public_ids.projects is not None
        recorded = projects or any(each.identity is not None for each in types)
        object.__setattr__(self, "recorded", recorded)
        declared = {rule.prefix for each in types for event in each.events.values() for rule in event.tags}
        object.__setattr__(self, "tag_prefixes", frozenset({*self.aggregate_types, *declared}))
