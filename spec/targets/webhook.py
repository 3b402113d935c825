"""The target `webhook`: events are POSTed, signed as Standard Webhooks has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spec.errors import Report, below
from spec.targets.addresses import HOST, check_url, url_schema
from spec.targets.form import RETRY_S, RETRY_S_SCHEMA, Form, Sent, read_retry_s
from spec.targets.secrets import SECRET_SCHEMA, check_secret

_URL = rf'https?://{HOST}([/?][!-"$-~]*)?'


@dataclass(frozen=True, slots=True)
class Webhook(Sent):
    """`secret` is as declared: literal, or `env:` or `file:` and where it is."""

    url: str
    secret: str = field(repr=False)
    retry_s: tuple[float, ...] = RETRY_S


def _read(
    declared: Mapping[str, object], pointer: str, environ: Mapping[str, str], report: Report
) -> Webhook | None:
    url, secret = declared["url"], declared["secret"]
    retry_s = read_retry_s(declared, pointer, report)
    check_url(url, _URL, "https://host/path, without user or fragment", pointer, environ, report)
    check_secret(secret, below(pointer, "secret"), environ, report)
    if not isinstance(url, str) or not isinstance(secret, str):
        return None
    return Webhook(url, secret, retry_s)


WEBHOOK: Final = Form(
    kind="webhook",
    made=Webhook,
    required={"url": url_schema(_URL), "secret": SECRET_SCHEMA},
    optional={"retry_s": RETRY_S_SCHEMA},
    read=_read,
    secrets=("secret",),
)
