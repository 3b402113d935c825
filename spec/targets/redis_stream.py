"""The target `redis_stream`: events are added to a stream of the user's own Redis."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spec.errors import Report, below
from spec.targets.addresses import HOST, check_url, url_schema
from spec.targets.form import RETRY_S, RETRY_S_SCHEMA, Form, Sent, is_whole, read_retry_s

MAXLEN_MAX: Final = 10**9

_URL = rf'rediss?://([!-"$-.0->A-~]*@)?{HOST}(/[0-9]{{0,4}})?'
_STREAM = r"[!-~]{1,255}"


@dataclass(frozen=True, slots=True)
class RedisStream(Sent):
    """`url` may hold a password. `maxlen` None: the stream is never trimmed."""

    url: str = field(repr=False)
    stream: str
    maxlen: int | None = None
    retry_s: tuple[float, ...] = RETRY_S


def _read(
    declared: Mapping[str, object], pointer: str, environ: Mapping[str, str], report: Report
) -> RedisStream | None:
    url, stream, maxlen = declared["url"], declared["stream"], declared.get("maxlen")
    retry_s = read_retry_s(declared, pointer, report)
    check_url(url, _URL, "rediss://user:password@host:port/database", pointer, environ, report)
    if not isinstance(stream, str) or not re.fullmatch(_STREAM, stream):
        why = "The key of a stream: 1 to 255 visible ASCII characters."
        report.add("invalid_value", below(pointer, "stream"), why)
    if maxlen is not None and not is_whole(maxlen, 1, MAXLEN_MAX):
        report.add("invalid_value", below(pointer, "maxlen"), f"A whole number from 1 to {MAXLEN_MAX}.")
    if not isinstance(url, str) or not isinstance(stream, str) or not isinstance(maxlen, int | None):
        return None
    return RedisStream(url, stream, maxlen, retry_s)


REDIS_STREAM: Final = Form(
    kind="redis_stream",
    made=RedisStream,
    required={
        "url": url_schema(_URL),
        "stream": {"type": "string", "pattern": f"^{_STREAM}$"},
    },
    optional={
        "maxlen": {
            "description": "Entries kept; absent or null: all.",
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": MAXLEN_MAX,
        },
        "retry_s": RETRY_S_SCHEMA,
    },
    read=_read,
)
