"""Judges the specs that are deployed: whether this release reads them, and would accept them now. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gateway.operations.findings import Finding, Verdict
from spec.errors import Fault, Faults
from spec.model import Spec

_SERVER, _NAME = "postgres", "specs"
UNREADABLE: Final = (
    "a newer release deployed them: gateways of this release that start now answer their tenants with 503"
)
OUTDATED: Final = (
    "they are served as before, but what is at fault can only fail, and deployments that keep it are "
    "refused: `sluice spec check` says how to correct it"
)


@dataclass(slots=True)
class Specs:
    """What was found; `whole` is False where there are more. Of each kind the first fault is kept."""

    whole: bool = True
    read: int = 0
    outdated: int = 0
    unreadable: int = 0
    first: dict[str, str] = field(default_factory=dict)

    def add(self, tenant: str, revision: int, spec: Spec | Faults) -> None:
        self.read += 1
        if isinstance(spec, Faults):
            self.unreadable += 1
            self.first.setdefault("unreadable", _told(tenant, revision, spec[0]))
        elif spec.outdated:
            self.outdated += 1
            self.first.setdefault("outdated", _told(tenant, revision, spec.outdated[0]))


def _told(tenant: str, revision: int, fault: Fault) -> str:
    return f"{tenant}, revision {revision}: {fault.pointer or '/'}: {fault.error}"


def judge(specs: Specs) -> Finding:
    found = f"{specs.read} are deployed" if specs.whole else f"of more, {specs.read} were looked at"
    if specs.unreadable:
        found = f"{found}; {specs.unreadable} can't be read, like that of {specs.first['unreadable']}"
        return Finding(_SERVER, _NAME, found, Verdict.WARNING, UNREADABLE)
    if specs.outdated:
        found = (
            f"{found}; {specs.outdated} have faults that earlier releases accepted, like that of "
            f"{specs.first['outdated']}"
        )
        return Finding(_SERVER, _NAME, found, Verdict.WARNING, OUTDATED)
    return Finding(_SERVER, _NAME, found)
