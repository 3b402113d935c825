"""Reads value templates and paths of the handler language from JSON.

A string that starts with `$` or `@` is a path, anything else stands for itself. Objects and lists are
templates of their members, except these objects of one key: `{"$": path}`, `{"$merge": [object, …]}`, and
`{"$literal": …}` for a value that is no template, such as a string that starts with `$`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from spec.errors import Report, below, listing, proposal, shown
from spec.handlers import (
    EACH,
    KEY_BYTES_MAX,
    Constant,
    ListTemplate,
    MergeTemplate,
    ObjectTemplate,
    Path,
    Root,
    Step,
    Template,
)
from spec.subschemas import Schema

_FIELD = r"""[^.\[\]?*()"'\s\x00-\x1f]+"""
_FIELDS = re.compile(rf"{_FIELD}(?:\.{_FIELD})*")
_STEP = rf"\.({_FIELD})|\[(-?[0-9]{{1,9}}|\*)\]"
_STEPS = re.compile(_STEP)
_PATH = re.compile(rf"(\$\.(?:data|metadata|key|id|type)|@|\^|\$[a-z_]{{1,32}})((?:{_STEP})*)(\?)?")

_METADATA = frozenset({"timestamp", "actor", "target", "correlation_id", "causation_id", "extra"})
_PARTY = frozenset({"type", "id"})
_TEMPLATES = frozenset({"$", "$merge", "$literal"})
_ROOTS = frozenset({Root.DATA, Root.METADATA, Root.KEY, Root.TYPE, Root.AGGREGATE})
"""As paths write them; `@` is what the scope says."""
_ALSO: Final[Mapping[str, str]] = MappingProxyType({"$.id": Root.KEY})
"""Other names of roots."""

_PATHS_ARE = (
    "paths are `$.data.field`, `$.metadata.timestamp`, `$.metadata.actor.id`, `$.key`, `$.type`, "
    "`@.field`, `@.list[0]`, `@.list[*].field` or a `$name` of `let`, with `?` at the end where it may be "
    "absent"
)


@dataclass(frozen=True, slots=True)
class Scope:
    """What paths may refer to: the event's data, if its schema is known, what `@` stands for (None: nothing
    here), the names that are bound, with their `$`, and whether there is an aggregate, `^`, beside it.
    `empty`: names that earlier releases took as bound here, although they never have a value. `steps`: those
    of a saga that `$steps` has, where it is known. `paths`: what paths are, where not those of an event."""

    schema: Schema
    at: Root | None = Root.STATE
    names: frozenset[str] = frozenset()
    aggregate: bool = False
    empty: frozenset[str] = frozenset()
    steps: frozenset[str] | None = None
    paths: str = ""


def read_template(value: object, pointer: str, scope: Scope, report: Report) -> Template:
    """The template that `value` is; what is at fault in it becomes null, with faults in `report`."""
    if isinstance(value, str) and value.startswith(("$", "@", "^") if scope.aggregate else ("$", "@")):
        return read_path(value, pointer, scope, report)
    if isinstance(value, list):
        items = (read_template(item, below(pointer, i), scope, report) for i, item in enumerate(value))
        return ListTemplate(tuple(items))
    if isinstance(value, dict):
        return _read_object(value, pointer, scope, report)
    assert value is None or isinstance(value, str | int | float | Decimal)  # JSON has no more
    return Constant(value)


def _read_object(value: dict[str, object], pointer: str, scope: Scope, report: Report) -> Template:
    marks = [key for key in value if key.startswith("$")]
    if not marks:
        fields = ((k, read_template(v, below(pointer, k), scope, report)) for k, v in value.items())
        return ObjectTemplate(tuple(fields))
    mark = marks[0]
    inner, place = value[mark], below(pointer, mark)
    if mark not in _TEMPLATES:
        report.add(
            "invalid_template", place, f"{shown(mark)} is not a template. {proposal(mark, _TEMPLATES)}"
        )
    elif len(value) > 1:
        report.add("invalid_template", pointer, f"`{mark}` must be the only key of its object.")
    elif mark == "$literal":
        return _literal(inner)
    elif mark == "$":
        return read_path(inner, place, scope, report)
    else:
        return _read_merge(inner, place, scope, report)
    return Constant(None)


def _literal(value: object) -> Template:
    if isinstance(value, dict):
        return ObjectTemplate(tuple((key, _literal(item)) for key, item in value.items()))
    if isinstance(value, list):
        return ListTemplate(tuple(_literal(item) for item in value))
    assert value is None or isinstance(value, str | int | float | Decimal)  # JSON has no more
    return Constant(value)


def _read_merge(value: object, pointer: str, scope: Scope, report: Report) -> Template:
    if not isinstance(value, list):
        report.add("invalid_template", pointer, "`$merge` takes a list of objects.")
        return Constant(None)
    return MergeTemplate(
        tuple(read_object(part, below(pointer, i), scope, report) for i, part in enumerate(value))
    )


def read_path(value: object, pointer: str, scope: Scope, report: Report) -> Path:
    found = _PATH.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        what = shown(value) if isinstance(value, str) else "This"
        report.add(
            "invalid_path",
            pointer,
            f'{what} is not a path: {scope.paths or _PATHS_ARE}. A string is `{{"$literal": …}}`.',
        )
        return Path(Root.DATA)
    first = _ALSO.get(found[1], found[1])
    root = scope.at if first == "@" else Root(first) if first in _ROOTS else first
    steps = tuple(_step(name, place) for name, place in _STEPS.findall(found[2]))
    path = Path(Root.DATA if root is None else root, steps, found[5] is not None)
    if (why := _unbound(first, scope) or _nowhere(path, scope)) is not None:
        code = "impossible_path" if root is Root.DATA else "invalid_path"
        report.add(code, pointer, why, accepted_before=first in scope.empty)
    elif first == "$steps" and scope.steps is not None and steps and steps[0] not in scope.steps:
        what = shown(steps[0]) if isinstance(steps[0], str) else "items"
        has = listing(scope.steps) or "none"
        why = f"`$steps` has no {what} here. Of the steps that await an event, it has: {has}."
        report.add("invalid_path", pointer, why, accepted_before=True)
    return path


def _step(name: str, place: str) -> Step:
    if name:
        return name
    return EACH if place == "*" else int(place)


def _unbound(root: str, scope: Scope) -> str | None:
    """Why nothing has the name that a path begins with, or None."""
    if root == "@" and scope.at is None:
        return f"There is no `@` here; {scope.paths or 'name a value of the event, as `$.data.total`'}."
    if root == "^" and not scope.aggregate:
        return "Only projections have `^`, the state of the event's own aggregate; a handler's is `@`."
    if root in _ROOTS or root in ("@", "^") or root in scope.names:
        return None
    if root in ("$prev", "$steps"):
        return f"There is no `{root}` here: it has what earlier steps of a saga awaited."
    bound = f"bound here: {listing(scope.names)}" if scope.names else "nothing is bound here"
    return f'{shown(root)} is no name here; {scope.paths or bound}. A string is `{{"$literal": …}}`.'


def _nowhere(path: Path, scope: Scope) -> str | None:
    """Why `path` can never lead anywhere, or None."""
    match path.root, path.fields:
        case Root.DATA, fields:
            return _ruled_out(scope.schema, fields)
        case Root.METADATA, (first, *_) if first not in _METADATA:
            what = shown(first) if isinstance(first, str) else "items"
            near = f" {proposal(first, _METADATA)}" if isinstance(first, str) else ""
            return f"An event's metadata has no {what}.{near}"
        case Root.METADATA, ("actor" | "target", second, *rest) if second not in _PARTY or rest:
            return "An actor or target has a `type` and an `id`, and no other field."
        case (Root.METADATA, ("timestamp" | "correlation_id" | "causation_id", _, *_)) | (
            Root.KEY | Root.TYPE,
            (_, *_),
        ):
            return "This is a single value, without fields; end the path before the last dot."
    return None


def _ruled_out(schema: Schema, steps: tuple[Step, ...]) -> str | None:
    """Why data that fits `schema` never has `steps`: only what it says outright, not what it implies."""
    walked = "$.data"
    for step in steps:
        if isinstance(schema, bool):
            return None
        kind, kinds = ("object", "no object") if isinstance(step, str) else ("array", "no list")
        types = schema.get("type", kind)
        has = shown(step) if isinstance(step, str) else "items"
        if types != kind and not (isinstance(types, list) and kind in types):
            return f"By the event's schema `{walked}` is {kinds}, so it has no {has}."
        inner = _inner(schema, step)
        if inner is False:
            return f"The event's schema allows no {has} in `{walked}`; declare it there."
        schema = inner if isinstance(inner, dict) else True
        walked += f".{step}" if isinstance(step, str) else f"[{'*' if step is EACH else step}]"
    return None


def _inner(schema: dict[str, object], step: Step) -> object:
    """What `schema` says outright of the values there; None where it says nothing."""
    if not isinstance(step, str):
        return None if "prefixItems" in schema else schema.get("items")
    properties = schema.get("properties")
    inner = properties.get(step) if isinstance(properties, dict) else None
    if inner is None and "patternProperties" not in schema:
        inner = schema.get("additionalProperties")
    return inner


def read_target(value: object, pointer: str, report: Report) -> tuple[str, ...] | None:
    """The fields of a target, () for the whole state; None, with a fault in `report`, if it is invalid."""
    if value == "":
        return ()
    if isinstance(value, str) and _FIELDS.fullmatch(value) and not value.startswith(("$", "@")):
        return tuple(value.split("."))
    what = shown(value) if isinstance(value, str) else "This"
    why = f'{what} is not a target: name fields of the state, as in "customer.email"; "" is the whole state.'
    report.add("invalid_target", pointer, why)
    return None


def read_object(value: object, pointer: str, scope: Scope, report: Report) -> Template:
    """As `read_template`, where nothing but an object makes sense."""
    faults_before = len(report)
    template = read_template(value, pointer, scope, report)
    never = isinstance(template, Constant | ListTemplate) or _is_text(template) or _is_list(template)
    if never and len(report) == faults_before:
        report.add("invalid_template", pointer, "This must be an object, or a path to one.")
    return template


def read_number(value: object, pointer: str, scope: Scope, report: Report) -> Template:
    """As `read_template`, where nothing but a number makes sense."""
    faults_before = len(report)
    template = read_template(value, pointer, scope, report)
    if isinstance(template, Constant):
        never = isinstance(template.value, bool) or not isinstance(template.value, int | float)
    else:
        never = not isinstance(template, Path) or _is_text(template) or _is_list(template)
    if never and len(report) == faults_before:
        report.add("invalid_template", pointer, "This must be a number, or a path to one.")
    return template


def read_key(value: object, pointer: str, scope: Scope, report: Report) -> Template:
    """As `read_template`, where nothing but the name of a field makes sense: a string or a number."""
    faults_before = len(report)
    template = read_template(value, pointer, scope, report)
    never = not isinstance(template, Path | Constant) or _is_list(template)
    if isinstance(template, Constant):
        never = template.value is None or isinstance(template.value, bool)
    if never and len(report) == faults_before:
        report.add("invalid_template", pointer, "A key is a string or a number, or a path to one.")
    elif isinstance(template, Constant) and len(str(template.value).encode()) > KEY_BYTES_MAX:
        report.add("invalid_value", pointer, f"A key has at most {KEY_BYTES_MAX} bytes.")
    return template


def _is_list(template: Template) -> bool:
    return isinstance(template, Path) and EACH in template.fields


def _is_text(template: Template) -> bool:
    return isinstance(template, Path) and template.root in (Root.KEY, Root.TYPE)
