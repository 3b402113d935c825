"""A spec as a file has it, which may be one that was shown: with `***` in place of its secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # other commands start without the schema compiler
    from spec.errors import Faults
    from spec.model import Spec


def read_spec(document: bytes, environ: Mapping[str, str]) -> tuple[Spec | Faults, frozenset[str]]:
    """And where secrets read `***`. Where nothing else is at fault, the spec is one without the parts that
    have secrets: all else in it can be looked at."""
    import msgspec

    from spec.errors import Faults
    from spec.parse import parse

    parsed = parse(document, environ)
    masked = _masks(document) if isinstance(parsed, Faults) else frozenset()
    if isinstance(parsed, Faults) and masked.issuperset([each.pointer for each in parsed]):
        value = msgspec.json.decode(document)
        for part in ("webhooks", "subscriptions"):
            value.get("spec", value).pop(part, None)
        parsed = parse(value, environ)
    return parsed, masked


def _masks(document: bytes) -> frozenset[str]:
    """Where secrets read `***`; `deploy` puts those in their places that are deployed."""
    import msgspec

    from spec.webhooks.secrets import masks

    try:
        return masks(msgspec.json.decode(document))
    except (ValueError, RecursionError):  # which is a fault by itself
        return frozenset()
