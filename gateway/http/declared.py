"""Names of types that a filter gives, held to the tenant's spec: a name with a typo would filter out
everything, without a word. Pure.

What the gateway itself records has types that begin with an underscore, and no spec declares those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.errors import Refusal
from spec.errors import nearest
from spec.model import Spec

_WITHDRAWN = "`include_undeclared` reads the history of withdrawn ones."


def undeclared_name(
    spec: Spec, types: Iterable[tuple[str, str]], event_types: Iterable[tuple[str, str]]
) -> Refusal | None:
    """The refusal of the first name that the spec does not declare, each given with its `path`."""
    return next(_refusals(spec, list(types), event_types), None)


def _refusals(
    spec: Spec, types: list[tuple[str, str]], event_types: Iterable[tuple[str, str]]
) -> Iterator[Refusal]:
    for name, path in types:
        if name[:1] != "_" and name not in spec.aggregate_types:
            why = f"The spec declares no aggregate type {name[:64]!r}{nearest(name, spec.aggregate_types)}."
            yield Refusal("unknown_aggregate_type", f"{why} {_WITHDRAWN}", path, status=422)
    if any(name[:1] == "_" for name, _ in types):
        return
    declared = {event for each in spec.aggregate_types.values() for event in each.events}
    for name, path in event_types:
        if name[:1] != "_" and name not in declared:
            why = f"The spec declares no event {name[:64]!r}{nearest(name, declared)}."
            yield Refusal("unknown_event_type", f"{why} {_WITHDRAWN}", path, status=422)
