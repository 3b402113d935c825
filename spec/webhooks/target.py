"""Checks `to` of a source of webhooks: which aggregate a delivery goes to, and as which event."""

from __future__ import annotations

from typing import Any

from spec.errors import Report, below, proposal, shown
from spec.fields import refuse_null
from spec.identifiers import canonicalize
from spec.model import AggregateType, Spec
from spec.webhooks.declared import Declared
from spec.webhooks.filters import read_type_at, read_types, read_when
from spec.webhooks.paths import is_path, read_path
from spec.webhooks.presets import Scheme
from spec.webhooks.sources import Path, Target

_TO_KEYS = frozenset(
    {
        "type",
        "id",
        "source_id",
        "scope",
        "event",
        "must_exist",
        "when",
        "types",
        "type_at",
        "if_unchanged",
    }
)


def read_target(declared: dict[str, Any], scheme: Scheme, pointer: str, spec: Spec, report: Report) -> Target:
    """`declared` is the whole source at `pointer`, with or without `to`."""
    return _Target(declared, pointer, spec, report).target(scheme)


class _Target(Declared):
    def target(self, scheme: Scheme) -> Target:
        if "to" not in self._declared:
            self.fault("missing_key", 'A source needs `to`: {"type", "id" or "source_id", "event"}.')
            return Target("", "", None, "")
        to = self.object(self._declared["to"], "to", _TO_KEYS)
        for name, other in (("type", "type"), ("event", "types")):
            if name not in to and other not in to and isinstance(self._declared["to"], dict):
                self.fault("missing_key", f"`to` needs `{name}`.", "to")
        if "event" in to and "types" in to:
            why = "An event's type comes from `event` or from `types`, not from both; remove one."
            self.fault("invalid_value", why, "to", "event")
        declared = self._aggregate_type(to)
        source_id = None
        if "source_id" in to:
            source_id = read_path(to["source_id"], below(self._pointer, "to", "source_id"), self._report)
        event = self._event(to, declared)
        place = below(self._pointer, "to")
        when = read_when(to["when"], below(place, "when"), self._report) if "when" in to else None
        types = None
        if "types" in to:
            events = None if declared is None else declared.events
            types = read_types(to["types"], events, below(place, "types"), self._report)
        return Target(
            aggregate_type=str(to.get("type")),
            key=self._key(to),
            source_id=source_id,
            event=event,
            must_exist=self._must_exist(to),
            when=when,
            types=types,
            type_at=read_type_at(self._declared, to, scheme, self._pointer, self._report),
            scope=self._scope(to),
            skip_unchanged=self._skip_unchanged(to, declared),
        )

    def _skip_unchanged(self, to: dict[str, Any], declared: AggregateType | None) -> bool:
        if "if_unchanged" not in to:
            return False
        if to["if_unchanged"] != "skip":
            self.fault("invalid_value", '`if_unchanged` can only be "skip".', "to", "if_unchanged")
        elif declared is not None and declared.identity is None:
            why = f"`{declared.name}` declares no `identity`, so no record counts as unchanged."
            self.fault("invalid_value", why, "to", "if_unchanged")
        return True

    def _scope(self, to: dict[str, Any]) -> Path | None:
        if "scope" not in to:
            return None
        if "source_id" not in to:
            why = "`scope` qualifies `source_id`, which is missing here."
            self.fault("invalid_value", why, "to", "scope")
        return read_path(to["scope"], below(self._pointer, "to", "scope"), self._report)

    def _must_exist(self, to: dict[str, Any]) -> bool:
        value = to.get("must_exist", False)
        if not isinstance(value, bool):
            self.fault("wrong_type", "`must_exist` is true or false.", "to", "must_exist")
        elif value and "source_id" in to:
            why = "`source_id` creates the aggregate of a new id; `must_exist` is only for `id`."
            self.fault("invalid_value", why, "to", "must_exist")
        return value is True

    def _aggregate_type(self, to: dict[str, Any]) -> AggregateType | None:
        name = to.get("type")
        found = self._spec.aggregate_types.get(name) if isinstance(name, str) else None
        if "type" in to and not isinstance(name, str):
            self.fault("wrong_type", "`type` must be a string.", "to", "type")
        elif found is None and "type" in to:
            name = str(name)
            why = f"`aggregate_types` has no {shown(name)}. {proposal(name, self._spec.aggregate_types)}"
            self.fault("undeclared", why, "to", "type")
        return found

    def _key(self, to: dict[str, Any]) -> str | Path | None:
        if ("id" in to) == ("source_id" in to) and isinstance(self._declared["to"], dict):
            why = (
                "`to` needs one of `id` (whose stream it is) and `source_id` (a foreign id, as `$.body.id`)."
            )
            self.fault("missing_key" if "id" not in to else "invalid_value", why, "to")
        key = to.get("id")
        refuse_null(to, ("id",), below(self._pointer, "to"), self._report)
        if key is None:
            return None
        if is_path(key):
            return read_path(key, below(self._pointer, "to", "id"), self._report)
        if not isinstance(key, str):
            self.fault("wrong_type", "`id` must be a string.", "to", "id")
            return None
        canonical = canonicalize(key, self._spec.singletons)
        if canonical is None:
            why = f"{shown(key)} is not an identifier; declare it in `singletons`, or take it from the body."
            self.fault("undeclared", why, "to", "id")
        return canonical or ""

    def _event(self, to: dict[str, Any], declared: AggregateType | None) -> str | Path | None:
        if "types" in to:
            return None
        event = to.get("event")
        if is_path(event):
            return read_path(event, below(self._pointer, "to", "event"), self._report)
        if "event" in to and not isinstance(event, str):
            self.fault("wrong_type", "`event` must be a string.", "to", "event")
        elif declared is not None and "event" in to and event not in declared.events:
            why = (
                f"`{declared.name}` has no event {shown(str(event))}. {proposal(str(event), declared.events)}"
            )
            self.fault("undeclared", why, "to", "event")
        return str(event)
