"""The part of a failure that may be logged or answered: never a client's data, a key or a password.

Owns: which exceptions' texts can be trusted. Text that libraries make of values (`ValueError`, `KeyError`,
Postgres' details, which repeat the row) is withheld; the type and the place in the code remain.
"""

from __future__ import annotations

import re
import traceback
from typing import Final

from gateway.names.tokens import KEY_PATTERN

TEXT_CHARS_MAX: Final = 2_000
"""Of one text in a log line. Ours are sentences; only libraries write longer ones."""
_FRAMES_MAX: Final = 20
_CHAIN_MAX: Final = 5

_SECRETS: Final = (
    (re.compile(KEY_PATTERN), "sl_***"),
    (re.compile(r"(?i)(bearer\s+)\S+"), r"\1***"),
    (re.compile(r"(://[^\s/?#:@]*):[^\s@]*@"), r"\1:***@"),
    (re.compile(r"(?i)([?&\s](?:ssl)?password=)[^&\s]+"), r"\1***"),
)
# Their texts speak of code, files and sockets. UnicodeError and JSON's are ValueErrors: not among them.
_ABOUT_CODE: Final = (
    OSError,
    AssertionError,
    AttributeError,
    ImportError,
    MemoryError,
    NameError,
    RuntimeError,
    TypeError,
)
# Not the edge's: a refusal repeats what was sent.
_TRUSTED_MODULES: Final = (
    "gateway.log.",
    "gateway.catalog.",
    "gateway.postgres.",
    "gateway.app",
    "gateway.edge",
    "gateway.serve",
    "asyncpg.",
    "redis.",
    "asyncio",
)
_DATA_EXCEPTION: Final = "22"  # SQLSTATE class: the message quotes the value


def redact(text: str) -> str:
    """The text without what looks like a key or a password, cut at TEXT_CHARS_MAX characters."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…"


def reason(error: BaseException) -> str:
    """`Type: message`, or only the type where the message might repeat a client's data."""
    name = type(error).__name__
    message = _message(error)
    return f"{name}: {redact(message)}" if message else name


def trace(error: BaseException) -> str:
    """The exception with its innermost frames and its causes, each as `reason` tells it."""
    told: list[str] = []
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen and len(told) < _CHAIN_MAX:
        seen.add(id(cause))
        frames = "".join(traceback.format_tb(cause.__traceback__, limit=-_FRAMES_MAX))
        told.append(frames + reason(cause))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "\ncaused by:\n".join(told)


def _message(error: BaseException) -> str:
    sqlstate = getattr(error, "sqlstate", None)
    if isinstance(sqlstate, str):
        # The first argument is Postgres' message; its str() adds DETAIL, which repeats the row.
        told = str(error.args[0]) if error.args and not sqlstate.startswith(_DATA_EXCEPTION) else ""
        return f"{told} (SQLSTATE {sqlstate})".strip()
    if isinstance(error, _ABOUT_CODE) or type(error).__module__.startswith(_TRUSTED_MODULES):
        return str(error)
    return ""
