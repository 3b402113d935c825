"""The optional parts of a spec, each with the function that checks it.

A part that is declared and not built yet is a fault: nothing is accepted and then ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from spec.errors import Report
from spec.model import Spec
from spec.names_check import check_public_ids
from spec.subscriptions import check_subscriptions
from spec.webhook_check import check_webhooks

CheckPart = Callable[[object, str, Mapping[str, str], Spec, Report], object]
"""The part's value, the pointer to it, the environment, what the spec declares beside its parts, and where
faults go. Returns what the field of `Spec` with the part's name becomes."""


def not_available(
    value: object, pointer: str, environ: Mapping[str, str], spec: Spec, report: Report
) -> None:
    """Accepts only what declares nothing: an empty object."""
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, "This part of a spec must be an object.")
    elif value:
        why = "This version of Sluice does not have this part of a spec yet; leave it empty or remove it."
        report.add("not_available", pointer, why)


PARTS: Mapping[str, CheckPart] = MappingProxyType(
    {
        "hash_ids": not_available,
        "public_ids": check_public_ids,
        "subscriptions": check_subscriptions,
        "webhooks": check_webhooks,
    }
)
