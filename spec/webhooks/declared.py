"""A part of a source of webhooks while it is checked: what it declares, and its faults in a `Report`."""

from __future__ import annotations

from typing import Any

from spec.errors import Report, below
from spec.fields import check_keys
from spec.model import Spec


class Declared:
    """`pointer` is the place of the source; `spec` is what the document declares beside it."""

    def __init__(self, declared: dict[str, Any], pointer: str, spec: Spec, report: Report) -> None:
        self._declared, self._pointer, self._spec, self._report = declared, pointer, spec, report

    def fault(self, code: str, why: str, *segments: str | int) -> None:
        """The segments lead from the source to what is wrong."""
        self._report.add(code, below(self._pointer, *segments), why)

    def object(self, value: object, key: str, known: frozenset[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.fault("wrong_type", f"`{key}` must be an object.", key)
            return {}
        check_keys(value, below(self._pointer, key), known, self._report)
        return value
