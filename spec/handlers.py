"""The handler language as frozen values: what an event does to the state of its aggregate.

A handler is a tuple of operations, applied in order to a state that starts as `{}`. This module is the
language's contract; spec/operations.py reads it from JSON, `gateway.state` folds events by it. The fold is
total: an operation that does not fit what is there (append to a number, merge of a string, increment of null)
changes nothing, and so does one whose value is an absent optional path.

Targets are field names from the state down; () is the whole state. Objects that are missing on the way are
made; something else that is in the way makes the operation not fit. Operations within others (`do`, `then`,
`else`) each stand for themselves too: one that does not fit keeps no other from its work. Within a `do` of
`map` or `update_where`, targets and `@` are the item's.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

Scalar = str | int | float | Decimal | bool | None


class Root(enum.StrEnum):
    """Where a path starts, but for the names that `let` gives: those are their own roots, as in `$total`."""

    DATA = "$.data"
    METADATA = "$.metadata"  # as in an event that is read: timestamp, actor, target, correlation_id, …
    KEY = "$.key"
    TYPE = "$.type"  # the event's
    STATE = "state"  # `@`: what the operations change, as those before this one left it
    ITEM = "item"  # `@` within `where`, and in the `value` of `map` and `update_where`: the item
    AGGREGATE = "^"  # in projections: the state of the event's own aggregate after it


class Each(enum.Enum):
    """`[*]`: every item of a list."""

    EACH = "*"


EACH = Each.EACH

Step = str | int | Each
"""A field's name, the place of an item (from 0; from the end, -1 the last), or every item."""


@dataclass(frozen=True, slots=True)
class Path:
    """`$.data.customer.email?`: the value there. `root` is a `Root`, or a name that is bound, with its `$`.

    What is absent is null, unless the path is `optional`: then what holds the path is left out, be it a field
    of an object, an item of a list, a part of a `$merge`, or the operation itself. A path with `[*]` leads to
    one flat list of the values that are there, if what it is asked of is a list.
    """

    root: str
    fields: tuple[Step, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """A value of the spec itself."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class ObjectTemplate:
    fields: tuple[tuple[str, Template], ...]


@dataclass(frozen=True, slots=True)
class ListTemplate:
    items: tuple[Template, ...]


@dataclass(frozen=True, slots=True)
class MergeTemplate:
    """`{"$merge": [a, b]}`: one object with the fields of all, the later winning; a part that is no object
    adds nothing."""

    parts: tuple[Template, ...]


Template = Path | Constant | ObjectTemplate | ListTemplate | MergeTemplate


class Comparison(enum.StrEnum):
    """Numbers compare by value, other JSON by structure. Order is among numbers or among strings; between
    anything else `gt`, `gte`, `lt` and `lte` are false. `in` looks for the left in the list on the right."""

    EQUALS = "equals"
    NOT_EQUALS = "not_equals"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    IN = "in"
    NOT_IN = "not_in"


@dataclass(frozen=True, slots=True)
class Compare:
    by: Comparison
    left: Template
    right: Template


@dataclass(frozen=True, slots=True)
class Exists:
    """True where the path leads to a value, null included."""

    path: Path


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Any:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Predicate


Predicate = Compare | Exists | All | Any | Not


@dataclass(frozen=True, slots=True)
class Set:
    """Puts `value` at `target`; a whole state is an object."""

    target: tuple[str, ...]
    value: Template


@dataclass(frozen=True, slots=True)
class Merge:
    """Puts each field of the object `value` into the object at `target`, one level deep."""

    target: tuple[str, ...]
    value: Template


@dataclass(frozen=True, slots=True)
class Append:
    """Adds `value` to the list at `target`, which is made if there is none."""

    target: tuple[str, ...]
    value: Template


@dataclass(frozen=True, slots=True)
class AppendUnique:
    """As Append, unless an equal item is there; with `key`, an item whose field of that name equals that of
    `value`, which must have one."""

    target: tuple[str, ...]
    value: Template
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """Without `where`, removes the field `target`, or empties the whole state; with it, removes every item of
    the list at `target` for which `where` is true."""

    target: tuple[str, ...]
    where: Predicate | None = None


@dataclass(frozen=True, slots=True)
class Increment:
    """Adds the number `by` to the number at `target`, which is 0 if there is none."""

    target: tuple[str, ...]
    by: Template


@dataclass(frozen=True, slots=True)
class Decrement:
    """Subtracts, as Increment adds."""

    target: tuple[str, ...]
    by: Template


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the items of the list at `target` for which `where` is true. There must be a list."""

    target: tuple[str, ...]
    where: Predicate


@dataclass(frozen=True, slots=True)
class Map:
    """Changes each item of the list at `target`, which must be there: to `value`, within which `@` is the
    item, and which leaves one unchanged for which it is absent; or else by `do`, operations on an item that
    is an object."""

    target: tuple[str, ...]
    value: Template | None
    do: Handler = ()


@dataclass(frozen=True, slots=True)
class UpdateWhere:
    """As Map, but only the items for which `where` is true, and `value` is merged into the item."""

    target: tuple[str, ...]
    where: Predicate
    value: Template | None
    do: Handler = ()


@dataclass(frozen=True, slots=True)
class Upsert:
    """Merges the object `value` into the first item of the list at `target` whose field `key` equals the
    value's, which must have one; appends it where there is no such item. A list that is missing is made."""

    target: tuple[str, ...]
    key: str
    value: Template


@dataclass(frozen=True, slots=True)
class SetAt:
    """As Set, of the field that `key` names in the object at `target`. A key is a string of up to
    KEY_BYTES_MAX bytes, or a number, which is then the text that JSON writes; dots in it mean nothing."""

    target: tuple[str, ...]
    key: Template
    value: Template


@dataclass(frozen=True, slots=True)
class MergeAt:
    """As Merge, of the field that `key` names."""

    target: tuple[str, ...]
    key: Template
    value: Template


@dataclass(frozen=True, slots=True)
class RemoveAt:
    """As Remove, of the field that `key` names."""

    target: tuple[str, ...]
    key: Template


@dataclass(frozen=True, slots=True)
class IncrementAt:
    """As Increment, of the field that `key` names."""

    target: tuple[str, ...]
    key: Template
    by: Template


@dataclass(frozen=True, slots=True)
class Conditional:
    """Does `then` where `test` is true, else `otherwise`."""

    test: Predicate
    then: Handler
    otherwise: Handler = ()


@dataclass(frozen=True, slots=True)
class Let:
    """Does `do`, where each name, with its `$`, stands for its value. They are bound in order, each seeing
    those before it; the inner of two hides the outer. One whose value is absent is bound to nothing."""

    names: tuple[tuple[str, Template], ...]
    do: Handler


KEY_BYTES_MAX = 256
"""Of a key of `set_at` and its kind, in UTF-8; and of the name of a field by which items are matched."""

ITEMS_CHANGED_MAX = 10_000
"""Items of a list that `map`, `filter` and `update_where` take; to a longer one they do not fit."""

Operation = (
    Set
    | Merge
    | Append
    | AppendUnique
    | Remove
    | Increment
    | Decrement
    | Filter
    | Map
    | UpdateWhere
    | Upsert
    | SetAt
    | MergeAt
    | RemoveAt
    | IncrementAt
    | Conditional
    | Let
)
Handler = tuple[Operation, ...]

DEFAULT_HANDLER: Handler = (Merge((), Path(Root.DATA)),)
"""What an event without a `handler` does."""


def paths_of(value: object) -> Iterator[Path]:
    """Every path within operations, tests and templates."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from paths_of(each)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from paths_of(getattr(value, name))
