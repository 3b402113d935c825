"""The words for an append body, or a bulk line, of the wrong shape: what is missing, unknown, or of the
wrong kind.

Owns: which fields a body has and of which JSON kind each is. Must not know: what their values mean.
It runs only on bodies that the structs of `envelope` have not let through, so it may take its time.

The order: `missing_field`, then `unknown_field`, then `invalid_field`; within each the body itself first,
then its events by index, then `metadata`, `metadata.actor` and `metadata.target`, fields in the order of the
contract's table and unknown keys in the order sent. An optional field that is null counts as absent.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from gateway.errors import Refusal

PREVIOUS_LENGTH_MAX: Final = 2**63 - 1
"""Greatest version: it is a bigint in Postgres."""

KEY_SHOWN_MAX: Final = 64
"""Characters of an unknown key that are repeated to its sender: enough to find it, too few to flood a log."""

GUESSES_MAX: Final = 20
"""Unknown keys that are tried as misspellings of a missing one: comparing is slow, and a body may have
thousands."""


class _Fields(NamedTuple):
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    """What a sender may name too; a shape never has it, since something else was put in its place before."""


class Form(Enum):
    """The bodies an append can have, each with its own fields; a bulk line is one with its names in it."""

    SINGLE = _Fields(("data", "metadata"), ("if_unchanged",))
    BATCH = _Fields(("events", "metadata"), ("if_unchanged",))
    MINTING_BATCH = _Fields(("events", "metadata"), ("parent", "source", "if_unchanged"))
    LINE = _Fields(
        ("aggregate_type", "key", "type", "data", "metadata"),
        ("idempotency_key", "if_unchanged"),
        ("source",),
    )
    SEVERAL = _Fields(("events", "metadata"), ("condition",))
    SEVERAL_LINE = _Fields(("events", "metadata"), ("condition", "idempotency_key"))

    @property
    def of_several(self) -> bool:
        """Whether each event names its aggregate."""
        return self in (Form.SEVERAL, Form.SEVERAL_LINE)


_EVENT = _Fields(("type", "data"), ("event_id",))
_METADATA = _Fields(
    ("actor",), ("target", "previous_length", "skip_occ", "event_id", "causation_id", "extra")
)
_REF = _Fields(("type", "id"))
_EVENT_OF_ANY = _Fields(
    ("aggregate_type", "type", "data"), ("key", "previous_length", "event_id", "target"), ("source",)
)
_METADATA_OF_ALL = _Fields(("actor",), ("target", "causation_id", "extra"))
_CONDITION = _Fields(("fail_if_events_match",), ("after",))


def shape_fault(body: object, form: Form) -> Refusal | None:
    """The first thing wrong with the shape of a decoded body. Never raises."""
    if not isinstance(body, dict):
        what = "line" if form in (Form.LINE, Form.SEVERAL_LINE) else "body"
        *names, last = (f"`{name}`" for name in form.value.required)
        return Refusal("invalid_field", f"The {what} must be an object with {', '.join(names)} and {last}.")
    places = list(_places(body, form))
    return _missing(places) or _unknown(places) or _invalid(body, form)


class _Place(NamedTuple):
    """One object of the body: `prefix` leads to it, `found` is what it holds."""

    prefix: str
    found: dict[str, object]
    fields: _Fields


def _places(body: dict[str, object], form: Form) -> Iterator[_Place]:
    yield _Place("", body, form.value)
    events = body.get("events") if "events" in form.value.required else None
    if isinstance(events, list):
        for index, event in enumerate(events):
            if isinstance(event, dict):
                yield _Place(f"events[{index}].", event, _EVENT_OF_ANY if form.of_several else _EVENT)
                target = event.get("target") if form.of_several else None
                if isinstance(target, dict):
                    yield _Place(f"events[{index}].target.", target, _REF)
    metadata = body.get("metadata")
    if isinstance(metadata, dict):
        yield _Place("metadata.", metadata, _METADATA_OF_ALL if form.of_several else _METADATA)
        for name in ("actor", "target"):
            ref = metadata.get(name)
            if isinstance(ref, dict):
                yield _Place(f"metadata.{name}.", ref, _REF)
    condition = body.get("condition") if form.of_several else None
    if isinstance(condition, dict):
        yield _Place("condition.", condition, _CONDITION)


def _missing(places: list[_Place]) -> Refusal | None:
    for prefix, found, fields in places:
        for name in fields.required:
            if name not in found:
                known = fields.required + fields.optional
                strange = islice((key[:KEY_SHOWN_MAX] for key in found if key not in known), GUESSES_MAX)
                sentence = f"`{prefix}{name}` is missing{_guess(name, list(strange))}."
                return Refusal("missing_field", sentence, prefix + name)
    return None


def _unknown(places: list[_Place]) -> Refusal | None:
    for prefix, found, fields in places:
        known = fields.required + fields.optional
        for key in found:
            if key not in known:
                shown = key if len(key) <= KEY_SHOWN_MAX else key[:KEY_SHOWN_MAX] + "…"
                named = known + fields.replaced
                hint = _guess(key[:KEY_SHOWN_MAX], named) or f" (known are {', '.join(named)})"
                return Refusal("unknown_field", f"`{prefix}{shown}` is not a field{hint}.", prefix + shown)
    return None


def _guess(name: str, candidates: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, candidates, n=1)
    return f" (did you mean `{near[0]}`?)" if near else ""


def _invalid(body: dict[str, object], form: Form) -> Refusal | None:
    """The first fault of kind, where nothing is missing or unknown."""
    fault = None
    if form is Form.LINE:
        fault = _invalid_names(body)
    elif form is not Form.SINGLE:
        fault = _invalid_events(body["events"], form)
    fault = fault or _invalid_metadata(body["metadata"])
    if form.of_several and fault is None:
        return _invalid_condition(body.get("condition"))
    parent = body.get("parent")
    if fault is None and not isinstance(parent, str | None):
        return _must_be("parent", "a string", parent)
    skip = body.get("if_unchanged")
    if fault is None and not isinstance(skip, str | None):
        return _must_be("if_unchanged", '"skip"', skip)
    return fault


def _invalid_names(line: dict[str, object]) -> Refusal | None:
    for name in ("aggregate_type", "key", "type"):
        if not isinstance(line[name], str):
            return _must_be(name, "a string", line[name])
    return None


def _invalid_condition(condition: object) -> Refusal | None:
    """As far as it does not depend on what the spec declares."""
    if condition is None:
        return None
    if not isinstance(condition, dict):
        return _must_be("condition", "an object with `fail_if_events_match`", condition)
    if not isinstance(condition.get("after"), str | None):
        return _must_be("condition.after", "a string, a position of the feed", condition["after"])
    return None


def _invalid_events(events: object, form: Form) -> Refusal | None:
    if not isinstance(events, list):
        return _must_be("events", "an array of events", events)
    for index, event in enumerate(events):
        path = f"events[{index}]"
        if not isinstance(event, dict):
            return _must_be(path, "an object with `type` and `data`", event)
        if form.of_several and (fault := _invalid_place(path, event)) is not None:
            return fault
        if not isinstance(event["type"], str):
            return _must_be(f"{path}.type", "a string", event["type"])
        if not isinstance(event.get("event_id"), str | None):
            return _must_be(f"{path}.event_id", "a string, a UUIDv7 or UUIDv5", event["event_id"])
    return None


def _invalid_place(path: str, event: dict[str, object]) -> Refusal | None:
    """Of what only an event has that names its aggregate."""
    if not isinstance(event["aggregate_type"], str):
        return _must_be(f"{path}.aggregate_type", "a string", event["aggregate_type"])
    if not isinstance(event.get("key"), str | None):
        return _must_be(f"{path}.key", "a string", event["key"])
    length = event.get("previous_length")
    if length is not None and not _is_length(length):
        return _must_be(f"{path}.previous_length", _LENGTH_WORDS, length)
    target = event.get("target")
    return None if target is None else _invalid_ref(f"{path}.target", target)


def _is_length(value: object) -> bool:
    return type(value) is int and 0 <= value <= PREVIOUS_LENGTH_MAX


_LENGTH_WORDS: Final = "an integer from 0 to 2^63 - 1, like 5 (not 5.0)"

_OPTIONAL_METADATA: Final[tuple[tuple[str, type, str], ...]] = (
    ("skip_occ", bool, "true or false"),
    ("event_id", str, "a string, a UUIDv7 or UUIDv5"),
    ("causation_id", str, "a string, a UUID"),
    ("extra", dict, "an object"),
)


def _invalid_metadata(metadata: object) -> Refusal | None:
    if not isinstance(metadata, dict):
        return _must_be("metadata", "an object", metadata)
    fault = _invalid_ref("metadata.actor", metadata["actor"])
    if fault is None and metadata.get("target") is not None:
        fault = _invalid_ref("metadata.target", metadata["target"])
    if fault is not None:
        return fault
    length = metadata.get("previous_length")
    if length is not None and not _is_length(length):
        return _must_be("metadata.previous_length", _LENGTH_WORDS, length)
    for name, kind, words in _OPTIONAL_METADATA:
        value = metadata.get(name)
        if value is not None and not isinstance(value, kind):
            return _must_be(f"metadata.{name}", words, value)
    return None


def _invalid_ref(path: str, ref: object) -> Refusal | None:
    if not isinstance(ref, dict):
        return _must_be(path, "an object with `type` and `id`", ref)
    for name in _REF.required:
        if not isinstance(ref[name], str):
            return _must_be(f"{path}.{name}", "a string", ref[name])
    return None


_KINDS: Final[dict[type, str]] = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}


def _must_be(path: str, expected: str, value: object) -> Refusal:
    kind = "null" if value is None else _KINDS.get(type(value), f"{value!s:.40}")
    return Refusal("invalid_field", f"`{path}` must be {expected}; it is {kind}.", path)
