"""The kinds of targets: one table, of which documents, schemas, metrics and senders are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spec.errors import Report, below, proposal
from spec.fields import read_fields
from spec.targets.form import Form, Sent, Target
from spec.targets.pull import PULL
from spec.targets.redis_stream import REDIS_STREAM
from spec.targets.webhook import WEBHOOK

FORMS: Final[tuple[Form, ...]] = (WEBHOOK, REDIS_STREAM, PULL)

KINDS: Final = tuple([form.kind for form in FORMS])
"""The field `type` of each target."""

SENT: Final = {form.kind: form.made for form in FORMS if issubclass(form.made, Sent)}
"""The targets that events are sent to, by kind."""

SECRETS: Final = frozenset([name for form in FORMS for name in form.secrets])
"""Fields of targets that are never shown."""

_FORMS = {form.kind: form for form in FORMS}
_KINDS = {form.made: form.kind for form in FORMS}


def kind_of(target: Target) -> str:
    return _KINDS[type(target)]


def read_target(value: object, pointer: str, environ: Mapping[str, str], report: Report) -> Target | None:
    """One target; None, with its faults in `report`, where it can't be used."""
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, "A target must be an object.")
        return None
    kind = value.get("type")
    if "type" not in value:
        report.add("missing_key", pointer, f"A target needs `type`: {', '.join(KINDS)}.")
        return None
    if not isinstance(kind, str) or kind not in _FORMS:
        known = proposal(kind, KINDS) if isinstance(kind, str) else f"One of {', '.join(KINDS)}."
        report.add("invalid_value", below(pointer, "type"), f"There is no such target. {known}")
        return None
    form = _FORMS[kind]
    needed = tuple(form.required)
    read_fields(value, pointer, f"A target {kind}", ("type", *needed, *form.optional), needed, report)
    if any(key not in value for key in needed):
        return None
    return form.read(value, pointer, environ, report)
