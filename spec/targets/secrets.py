"""The secrets of targets: how they are declared, and what they open."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final

from spec.errors import Report, shown
from spec.targets.form import Schema
from spec.webhooks.sources import UNSEEN

SECRET_CHARS_MAX: Final = 512

_FORMS = r"((whsec_)?[A-Za-z0-9+/]+={0,2}|env:SLUICE_SECRET_[A-Z0-9_]+|file:[A-Za-z0-9_][A-Za-z0-9._-]*)"

SECRET_SCHEMA: Final[Schema] = {
    "description": "`whsec_` and base64 (Standard Webhooks), or `env:SLUICE_SECRET_…`, `file:` and a name.",
    "type": "string",
    "maxLength": SECRET_CHARS_MAX,
    "pattern": f"^{_FORMS}$",
}


def check_secret(value: object, pointer: str, environ: Mapping[str, str], report: Report) -> None:
    if not isinstance(value, str) or len(value) > SECRET_CHARS_MAX or not re.fullmatch(_FORMS, value):
        why = "A secret is whsec_ and base64, or env:SLUICE_SECRET_…, or file: and a name."
        report.add("invalid_value", pointer, why)
        return
    text = secret_text(value, environ)
    if not text:
        why = f"{shown(value)} is not set where the gateway runs, or is not this tenant's."
        report.add("missing_secret", pointer, why)
    elif text != UNSEEN and signing_key(text) is None:
        report.add("invalid_secret", pointer, "This secret must be whsec_ and base64.")


def secret_text(declared: str, environ: Mapping[str, str]) -> str:
    """The secret that a target declares, literal or where it is; empty where it is not there. `environ` has
    files under their own name, with the prefix."""
    if declared.startswith("file:"):
        return environ.get(declared, "")
    return environ.get(declared.removeprefix("env:"), "") if declared.startswith("env:") else declared


def signing_key(secret: str) -> bytes | None:
    """The bytes that sign, of a secret as Standard Webhooks writes it; None where it is not written so."""
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True) or None
    except (binascii.Error, ValueError):
        return None
