"""`sluice webhooks sign`: a source out of a spec, and a signed request as a command to paste."""

from __future__ import annotations

import os
import shlex
import time
from typing import Any
from urllib.parse import SplitResult

import msgspec

from gateway.catalog.model import CatalogError
from gateway.catalog.secrets import Secrets
from gateway.cli.output import escaped
from gateway.inbound.request import Request
from gateway.inbound.signing import JSON, sample, sign
from spec.errors import Faults
from spec.parse import parse
from spec.webhooks.sources import Source

_WITH_SECRETS_OF_THEIR_OWN = ("webhooks", "subscriptions")


def curl_of(
    document: bytes,
    name: str,
    tenant: str,
    url: SplitResult,
    body: bytes | None,
    file: str,
    content_type: str,
    delivery_id: str,
) -> str:
    """The command. `file` is where `body` came from. Raises CatalogError for what can't be signed."""
    source = _source(document, name, tenant)
    delivery_id = delivery_id or f"test_{time.time_ns()}"
    usual_type, sent = sample(source, delivery_id) if body is None else (JSON, body)
    path = f"{url.path.rstrip('/')}/_/webhooks/{tenant}/{name}"
    headers = ((b"content-type", (content_type or usual_type).encode()),)
    request = Request(b"POST", path.encode(), b"", headers, sent)
    try:
        signed = sign(source, request, time.time_ns() // 1_000_000, delivery_id)
    except ValueError as fault:
        raise CatalogError(str(fault)) from None
    given = [f"-H {shlex.quote(f'{k.decode()}: {v.decode()}')}" for k, v in signed.headers]
    there = shlex.quote(f"{url.scheme}://{url.netloc}{path}")
    return " ".join(["curl -sS -X POST", there, *given, _data(signed.body, sent, file)])


def _data(body: bytes, read: bytes, file: str) -> str:
    """As text where it is one: what curl sends as it is."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = "\0"
    if escaped(text) == text:  # what a terminal would not show can't be pasted either
        return f"--data-raw {shlex.quote(text)}"
    if body != read or file in ("", "-"):
        raise CatalogError(
            "a body that is binary or has control characters must come from a file: --body FILE"
        )
    return f"--data-binary {shlex.quote(f'@{file}')}"


def _source(document: bytes, name: str, tenant: str) -> Source:
    """By its own part of the spec, so that the secrets of others need not be here."""
    value: Any = None
    try:
        value = msgspec.json.decode(document)
        bare = value.get("spec", value)
        alone = {key: part for key, part in bare.items() if key not in _WITH_SECRETS_OF_THEIR_OWN}
        declared = bare.get("webhooks", {})
    except (msgspec.MsgspecError, AttributeError):
        raise CatalogError("this is not a spec: `sluice spec check FILE` says why") from None
    if name not in declared:
        raise CatalogError(
            f"the spec declares no source {name!r}; its sources: {', '.join(declared) or 'none'}"
        )
    parsed = parse({**alone, "webhooks": {name: declared[name]}}, Secrets(os.environ).of(tenant))
    if isinstance(parsed, Faults):
        raise CatalogError(f"the spec can't be used here: {parsed[0].pointer}: {parsed[0].error}")
    return parsed.webhooks[name]
