"""What a doctor says: findings about settings, and what follows for the promises. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """Worth a look; no promise is broken."""
    FAULT = "fault"
    """A promise of docs/guarantees.md does not hold."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`name` is what was looked at, `found` what it is, `means` what follows, '' where all is well."""

    server: str
    name: str
    found: str
    verdict: Verdict = Verdict.OK
    means: str = ""


@dataclass(frozen=True, slots=True)
class Promise:
    """`why` says what it rests on, or what is in its way."""

    promise: str
    kept: bool
    why: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Of one instance: each server as it was found, and each promise with whether it holds."""

    findings: Sequence[Finding]
    promises: Sequence[Promise]

    @property
    def ok(self) -> bool:
        return all(each.verdict is not Verdict.FAULT for each in self.findings)

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "findings": [
                {
                    "server": each.server,
                    "name": each.name,
                    "found": each.found,
                    "verdict": each.verdict.value,
                    "means": each.means,
                }
                for each in self.findings
            ],
            "promises": [
                {"promise": each.promise, "kept": each.kept, "why": each.why} for each in self.promises
            ],
        }


def ok_or(
    server: str, name: str, found: str, holds: bool, means: str, otherwise: Verdict = Verdict.FAULT
) -> Finding:
    """A finding that is fine if `holds`, and else `otherwise`, with what that means."""
    return Finding(server, name, found) if holds else Finding(server, name, found, otherwise, means)
