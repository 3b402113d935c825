"""The optional parts of a spec, each with the function that checks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from spec.errors import Report, below
from spec.model import Spec
from spec.names_check import check_hash_ids, check_public_ids
from spec.projections import check_projections
from spec.sagas import check_modules, check_sagas
from spec.subscriptions import check_declared, check_subscriptions
from spec.webhooks.check import check_webhooks

CheckPart = Callable[[object, str, Mapping[str, str], Spec, Report], object]
"""The part's value, the pointer to it, the environment, what the spec declares beside its parts, and where
faults go. Returns what the field of `Spec` with the part's name becomes."""


def _check_subscriptions(
    value: object, pointer: str, environ: Mapping[str, str], spec: Spec, report: Report
) -> object:
    """Each by its own grammar, then its filter by what the spec declares."""
    found = check_subscriptions(value, pointer, environ, spec, report)
    types = {name: each.events for name, each in spec.aggregate_types.items()}
    for name, each in found.items():
        check_declared(each.filter, below(pointer, name, "filter"), types, spec.tag_prefixes, report)
    return found


PARTS: Mapping[str, CheckPart] = MappingProxyType(
    {
        "hash_ids": check_hash_ids,
        "modules": check_modules,
        "projections": check_projections,
        "public_ids": check_public_ids,
        "sagas": check_sagas,
        "subscriptions": _check_subscriptions,
        "webhooks": check_webhooks,
    }
)
