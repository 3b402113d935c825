"""The way in: a document to a `Spec`, or to all of its faults."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spec.check import check
from spec.document import UNREADABLE, read
from spec.errors import Faults, Report, TooManyFaults
from spec.model import Spec

NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


def parse(document: object, environ: Mapping[str, str] = NO_ENVIRONMENT) -> Spec | Faults:
    """The spec that `document` declares, or every fault in it, sorted by place. Never raises.

    `document` is JSON text as bytes (UTF-8) or str, or a JSON value; the spec in it is bare or wrapped as
    `{"spec": {…}}`. `environ` is what `env:` secrets are looked up in. The codes are in `spec.errors.CODES`.
    """
    report = Report()
    try:
        value = read(document, report)
        spec = None if value is UNREADABLE else check(value, environ, report)
    except TooManyFaults:
        return report.truncated()
    if spec is None or len(report):
        return report.faults()
    return spec
