"""The way in: a document to a `Spec`, or to all of its faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from spec.check import check
from spec.document import UNREADABLE, read
from spec.errors import Faults, Report, TooManyFaults
from spec.model import Spec
from spec.webhooks.sources import RedactedEnviron

NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})
_REDACTED: Final = RedactedEnviron()


def parse(document: object, environ: Mapping[str, str] = NO_ENVIRONMENT) -> Spec | Faults:
    """The spec that `document` declares, or every fault in it, sorted by place. Never raises.

    `document` is JSON text as bytes (UTF-8) or str, or a JSON value; the spec in it is bare or wrapped as
    `{"spec": {…}}`. `environ` is what `env:` secrets are looked up in. The codes are in `spec.errors.CODES`.
    """
    return _parse(document, environ, Report())


def parse_deployed(document: object, environ: Mapping[str, str] = _REDACTED) -> Spec | Faults:
    """Likewise, of a document that is or was deployed: what the release that accepted it did not refuse does
    not keep it from being read. `Spec.outdated` has what `parse` would refuse about it. Without `environ` no
    secret is looked for."""
    report = Report(deployed=True)
    spec = _parse(document, environ, report)
    outdated = report.outdated()
    return replace(spec, outdated=outdated) if outdated and isinstance(spec, Spec) else spec


def _parse(document: object, environ: Mapping[str, str], report: Report) -> Spec | Faults:
    try:
        value = read(document, report)
        spec = None if value is UNREADABLE else check(value, environ, report)
    except TooManyFaults:
        return report.truncated()
    if spec is None or len(report):
        return report.faults()
    return spec
