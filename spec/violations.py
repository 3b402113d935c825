"""What is wrong with an event's data: the first thing that its schema refuses, and where.

jsonschema-rs answers yes or no in well under a microsecond, also for recursive schemas. Its own search for
errors follows every branch of a recursive schema, which takes 2**depth steps: a body of a few hundred bytes
can hold a process for minutes. So a violation is found here, by descending one level at a time and asking
only yes-or-no questions; the library words what is wrong with a single value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import jsonschema_rs

from spec.errors import below, shown
from spec.subschemas import REFERENCES, Places, Schema, are_constants, hashed, own_work, places, weight

REGEX_BYTES_MAX = 1_048_576
"""Compiled size of one regular expression: `^\\S{1,255}$` fits; many larger ones would fill memory."""

MESSAGE_CHARS_MAX = 300
"""A message says what is needed; a long `enum` is cut."""

_LINEAR = jsonschema_rs.RegexOptions(size_limit=REGEX_BYTES_MAX, dfa_size_limit=REGEX_BYTES_MAX)

AT_ONCE_WORK_MAX = 40_000
"""Work, as `CompiledSchema.work` counts it, that takes under 10 ms with the reading of the text: 0.2 µs each
at the worst, mostly a tenth of that."""

WEIGHT_MIN = 5
"""Reading a value, and proving that it is strict JSON, takes as long as checking it by five subschemas."""

_WORDED_WEIGHT_MAX = 2_000
"""Above it finding the words for a violation takes longer than the check: each branch is asked once more."""

_WEIGHT_COUNTED_MAX = 1_000_000

# What can be said of a value without looking into it or at another subschema.
_ASSERTIONS = frozenset(
    {
        "const",
        "dependentRequired",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
        "required",
        "type",
        "uniqueItems",
    }
)

# What needs the answers of subschemas for several parts, and is found by elimination.
_COUNTING = ("contains", "unevaluatedItems", "unevaluatedProperties")

_REQUIRED = "This property is required."
_NO_PROPERTY = "The schema does not allow this property."
_NO_VALUE = "The schema allows no value here."

_PLAIN_NAME = re.compile(r"""[^.\[\]"'\s\x00-\x1f]{1,100}""")

Location = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class SchemaViolation:
    """`path` is within the data: `customer.email`, `items[2].sku`, `["odd.name"]`, "" for the data itself.
    A property that is missing, or should not be there, is named. `message` is a sentence."""

    path: str
    message: str

    def under(self, prefix: str) -> str:
        """The path from where the data stands: `data.email`, `events[1].data`."""
        if self.path == "" or self.path.startswith("["):
            return prefix + self.path
        return f"{prefix}.{self.path}"


def compiled(schema: Schema) -> jsonschema_rs.Draft202012Validator:
    """A validator whose messages do not repeat the value. Raises ValueError if `schema` can't be one."""
    return jsonschema_rs.Draft202012Validator(
        schema, mask="This value", offline=True, validate_formats=False, pattern_options=_LINEAR
    )


def _parts_of(schema: Schema) -> jsonschema_rs.ValidatorMap:
    """By JSON Pointer, as a fragment. Raises ValueError or ReferencingError."""
    return jsonschema_rs.validator_map_for(
        schema, offline=True, validate_formats=False, pattern_options=_LINEAR
    )


def values_in(text: bytes) -> int:
    """A bound on the values in a JSON text, counted without reading it; 32 bytes of a long text count as one.
    At most as many as the text has bytes, but for 1."""
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{") + len(text) // 32


def is_light(text: bytes, weight: int) -> bool:
    """Whether reading a string, checking its values by subschemas of this weight and finding the words for a
    violation takes under 10 ms. Of a short text that is known by its length only."""
    if len(text) * weight <= AT_ONCE_WORK_MAX:
        return True
    return weight <= _WORDED_WEIGHT_MAX and values_in(text) * weight <= AT_ONCE_WORK_MAX


@dataclass(frozen=True, slots=True, eq=False)
class CompiledSchema:
    """A schema that is known to be safe (spec/schemas.py), and its validators: of the whole, of each part.
    `weight` is how many comparisons one value of the data may take, at least WEIGHT_MIN."""

    schema: Schema
    places: Places
    whole: jsonschema_rs.Validator
    parts: jsonschema_rs.ValidatorMap
    fast_parts: jsonschema_rs.ValidatorMap
    """Those that are left where lists of constants are looked up, as in `whole`: the library keeps the
    interpreter while it compares each item of a list with each constant."""
    weight: int

    @classmethod
    def of(cls, schema: Schema, found: Places) -> CompiledSchema:
        """Raises ValueError or ReferencingError if `schema` can't be used."""
        checked = hashed(schema, _referred(found))
        counted = weight(places(checked), _WEIGHT_COUNTED_MAX, own_work)
        parts = _parts_of(schema)
        fast = parts if checked == schema else _parts_of(checked)
        return cls(schema, found, compiled(checked), parts, fast, max(counted, WEIGHT_MIN))

    def work(self, text: bytes) -> int:
        """A bound on the comparisons that checking this text takes."""
        return values_in(text) * self.weight

    def violation(self, instance: object) -> SchemaViolation | None:
        """The first violation: of a value before its parts, in the order in which the data has them."""
        return self.explained(instance) if self.is_violated(instance) else None

    def explained(self, instance: object) -> SchemaViolation:
        """The same of an instance that has one."""
        return self._search("", instance, (), frozenset())

    def is_violated(self, instance: object) -> bool:
        """Whether there is a violation, without looking for it."""
        return not self.whole.is_valid(instance)

    def _accepts(self, pointer: str, instance: object) -> bool:
        fast = self.fast_parts.get("#" + pointer)
        return (self.parts["#" + pointer] if fast is None else fast).is_valid(instance)

    def _search(self, pointer: str, instance: object, at: Location, seen: frozenset[str]) -> SchemaViolation:
        """Why the subschema at `pointer` refuses `instance`, which stands `at`.

        `seen` are the subschemas on the way here for this same instance: a circle of references ends.
        """
        schema = self.places.schemas[pointer]
        if isinstance(schema, bool):
            return _violation(at, _NO_PROPERTY if at and isinstance(at[-1], str) else _NO_VALUE)
        if (found := _asserted(schema, instance, at)) is not None:
            return found
        for place, part, name in _parts(pointer, schema, instance):
            if not self._accepts(place, part):
                return self._search(place, part, (*at, name), frozenset())
        seen |= {pointer}
        for place in self._same_instance(pointer, schema, instance):
            if place not in seen and not self._accepts(place, instance):
                return self._search(place, instance, at, seen)
        return self._combined(pointer, schema, instance, at, seen)

    def _same_instance(self, pointer: str, schema: dict[str, object], instance: object) -> Iterator[str]:
        """The subschemas that `instance` must fit as a whole."""
        for keyword in REFERENCES:
            if isinstance(reference := schema.get(keyword), str):
                target = self.places.resolve(reference)
                assert target is not None  # spec/schemas.py refuses others
                yield target
        yield from _branches(pointer, schema, "allOf")
        if "if" in schema:
            branch = "then" if self._accepts(below(pointer, "if"), instance) else "else"
            if branch in schema:
                yield below(pointer, branch)
        if isinstance(instance, dict):
            for name in _object_at(schema, "dependentSchemas"):
                if name in instance:
                    yield below(pointer, "dependentSchemas", name)

    def _combined(
        self, pointer: str, schema: dict[str, object], instance: object, at: Location, seen: frozenset[str]
    ) -> SchemaViolation:
        """What is left when the value itself and its parts are fine: the keywords that weigh subschemas."""
        for keyword in ("anyOf", "oneOf"):
            branches = [*_branches(pointer, schema, keyword)]
            fitting = sum(self._accepts(place, instance) for place in branches)
            if branches and fitting == 0 and are_constants(schema[keyword]):
                return _fits_none(at, branches, keyword)
            if branches and fitting == 0:
                return self._closest(branches, instance, at, seen, keyword)
            if keyword == "oneOf" and fitting > 1:
                return _violation(
                    at, f"This value fits {fitting} of the schemas of `oneOf`, not exactly one."
                )
        if isinstance(instance, dict) and "propertyNames" in schema:
            for name in instance:
                if not self._accepts(below(pointer, "propertyNames"), name):
                    return _violation((*at, name), "The schema does not allow this property's name.")
        if "not" in schema and self._accepts(below(pointer, "not"), instance):
            return _violation(at, "This value is one that the schema excludes by `not`.")
        left = [f"`{keyword}`" for keyword in _COUNTING if keyword in schema]
        return _violation(at, f"This value does not satisfy {' or '.join(left) or 'its schema'}.")

    def _closest(
        self, branches: list[str], instance: object, at: Location, seen: frozenset[str], keyword: str
    ) -> SchemaViolation:
        """Where only one branch is for this type of value, what that branch says; else that none fits."""
        schemas = ((place, self.places.schemas[place]) for place in branches)
        possible = [
            place
            for place, schema in schemas
            if place not in seen and isinstance(schema, dict) and _asserted(schema, instance, at) is None
        ]
        if len(possible) == 1:
            return self._search(possible[0], instance, at, seen.union(branches))
        return _fits_none(at, branches, keyword)


def _fits_none(at: Location, branches: list[str], keyword: str) -> SchemaViolation:
    return _violation(at, f"This value fits none of the {len(branches)} schemas of `{keyword}`.")


def _referred(found: Places) -> set[str]:
    """The pointers that references lead to."""
    references = (
        schema.get(keyword)
        for schema in found.schemas.values()
        if isinstance(schema, dict)
        for keyword in REFERENCES
    )
    pointers = (found.resolve(each) for each in references if isinstance(each, str))
    return {pointer for pointer in pointers if pointer is not None}


def _asserted(schema: dict[str, object], instance: object, at: Location) -> SchemaViolation | None:
    """What `schema` refuses about `instance` without a subschema."""
    assertions = {keyword: value for keyword, value in schema.items() if keyword in _ASSERTIONS}
    try:
        compiled(assertions).validate(instance)
    except jsonschema_rs.ValidationError as error:
        if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
            return _violation((*at, error.kind.property), _REQUIRED)
        return _violation(at, _sentence(error.message))
    except ValueError:
        # What is refused holds an integer of more digits than Python turns into one, and the library has
        # answered no before it fails to show it.
        return _unworded(assertions, instance, at)
    return None


def _unworded(assertions: dict[str, object], instance: object, at: Location) -> SchemaViolation:
    """The first of `assertions` that `instance` fails, by yes-or-no questions only."""
    keyword = next(each for each in assertions if not compiled({each: assertions[each]}).is_valid(instance))
    if keyword == "required":
        required = assertions[keyword]
        assert isinstance(required, list) and isinstance(instance, dict)  # by the meta-schema
        missing = next(name for name in required if name not in instance)
        return _violation((*at, missing), _REQUIRED)
    return _violation(at, f"This value does not satisfy `{keyword}`.")


def _sentence(message: str) -> str:
    if len(message) > MESSAGE_CHARS_MAX:
        message = message[: MESSAGE_CHARS_MAX - 1] + "…"
    return message + "."


def _parts(
    pointer: str, schema: dict[str, object], instance: object
) -> Iterator[tuple[str, object, str | int]]:
    """The parts of `instance` that `schema` has subschemas for: which subschema, the part, its name."""
    if isinstance(instance, dict):
        yield from _properties(pointer, schema, instance)
    elif isinstance(instance, list):
        leading = sum(1 for _ in _branches(pointer, schema, "prefixItems"))
        for index, item in enumerate(instance):
            if index < leading:
                yield below(pointer, "prefixItems", index), item, index
            elif "items" in schema:
                yield below(pointer, "items"), item, index


def _properties(
    pointer: str, schema: dict[str, object], instance: dict[str, object]
) -> Iterator[tuple[str, object, str]]:
    named = _object_at(schema, "properties")
    patterns = [(p, compiled({"pattern": p})) for p in _object_at(schema, "patternProperties")]
    for name, value in instance.items():
        matching = [pattern for pattern, validator in patterns if validator.is_valid(name)]
        if name in named:
            yield below(pointer, "properties", name), value, name
        for pattern in matching:
            yield below(pointer, "patternProperties", pattern), value, name
        if name not in named and not matching and "additionalProperties" in schema:
            yield below(pointer, "additionalProperties"), value, name


def _branches(pointer: str, schema: dict[str, object], keyword: str) -> Iterator[str]:
    found = schema.get(keyword, [])
    assert isinstance(found, list)  # by the meta-schema
    for index in range(len(found)):
        yield below(pointer, keyword, index)


def _object_at(schema: dict[str, object], keyword: str) -> Mapping[str, object]:
    found = schema.get(keyword, {})
    assert isinstance(found, dict)  # by the meta-schema
    return found


def _violation(at: Location, message: str) -> SchemaViolation:
    return SchemaViolation(_path(at), message)


def _path(at: Location) -> str:
    path = ""
    for step in at:
        if isinstance(step, int):
            path += f"[{step}]"
        elif _PLAIN_NAME.fullmatch(step):
            path += f".{step}" if path else step
        else:
            path += f"[{shown(step)}]"
    return path
