"""The handler language as frozen values: what an event does to the state of its aggregate.

A handler is a tuple of operations, applied in order to a state that starts as `{}`. This module is the
language's contract; spec/operations.py reads it from JSON, `gateway.state` folds events by it. The fold is
total: an operation that does not fit what is there (append to a number, merge of a text, increment of null)
changes nothing, and so does one whose value is an absent optional path.

Targets are field names from the state down; () is the whole state. Objects that are missing on the way are
made; something else that is in the way makes the operation not fit.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

Scalar = str | int | float | bool | None


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
    """As Append, unless an equal item is there."""

    target: tuple[str, ...]
    value: Template


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


Operation = Set | Merge | Append | AppendUnique | Remove | Increment | Decrement
Handler = tuple[Operation, ...]

DEFAULT_HANDLER: Handler = (Merge((), Path(Root.DATA)),)
"""What an event without a `handler` does."""
