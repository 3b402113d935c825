"""Log lines on stderr: one JSON object a line, or one readable line for a person at a terminal.

Owns: the form of a line, what must not be in it, and how many of a kind are written.
"""

from __future__ import annotations

import datetime
import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

from gateway.telemetry.log_events import LIBRARY, LIMIT_WINDOW_S, LOG_EVENTS
from gateway.telemetry.redact import reason, redact, trace

_OURS: Final = "sluice"
_KINDS_MAX: Final = 1_000
"""Kinds of lines that are counted apart: a library may put anything into its messages."""
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

Line = dict[str, Any]


def to_stderr(level: str, *, human: bool) -> None:
    """From now on the whole process logs in this form. Libraries' debug lines are never written."""
    write_to(sys.stderr, level, human=human)


def write_to(stream: TextIO, level: str, *, human: bool) -> None:
    """The same, to any stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(HumanFormatter() if human else JsonFormatter())
    handler.addFilter(Limit())
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(number, logging.INFO), handlers=[handler], force=True)
    logging.getLogger(_OURS).setLevel(number)
    logging.getLogger("uvicorn").setLevel(max(number, logging.WARNING))  # start and stop are told by us


@contextmanager
def counted(count: Callable[[str], None]) -> Iterator[None]:
    """Calls `count` with the event of each line logged meanwhile, whether or not it is then written."""
    handler = _Counting(count)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


class JsonFormatter(logging.Formatter):
    """ASCII only: whatever a field holds, it is one line of JSON, and harmless to a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(line_of(record))


class HumanFormatter(logging.Formatter):
    """`12:34:56.789 WARNING backend_recovered  server="redis" after_s=1.2`, an exception below it."""

    def format(self, record: logging.LogRecord) -> str:
        line = line_of(record)
        when = datetime.datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        told = [
            f"{name}={json.dumps(value)}"
            for name, value in line.items()
            if name not in ("time", "level", "event", "pid", "exception")
        ]
        below = ["    " + _printable(each) for each in line.get("exception", "").splitlines()]
        head = f"{when} {record.levelname:<8} {line['event']}  {' '.join(told)}".rstrip()
        return "\n".join([head, *below])


class Limit(logging.Filter):
    """Lets `lines_max` lines of a kind through in LIMIT_WINDOW_S; the next one after that says how many were
    left out. A kind is an event of ours, or a library's message before its values are put in."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key = (record.name, str(record.msg))
        now = self._clock()
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _KINDS_MAX:
                del self._kinds[next(iter(self._kinds))]
            kind = self._kinds[key] = _Kind(now)
        return kind.admits(record, now)


class _Kind:
    __slots__ = ("lines", "since", "suppressed")

    def __init__(self, now: float) -> None:
        self.since = now
        self.lines = self.suppressed = 0

    def admits(self, record: logging.LogRecord, now: float) -> bool:
        if now - self.since >= LIMIT_WINDOW_S:
            self.since, self.lines = now, 0
        if self.lines >= LOG_EVENTS[event_of(record)].lines_max:
            self.suppressed += 1
            return False
        self.lines += 1
        if self.suppressed:
            record.suppressed = self.suppressed
            self.suppressed = 0
        return True


class _Counting(logging.Handler):
    def __init__(self, count: Callable[[str], None]) -> None:
        super().__init__()
        self._count = count

    def emit(self, record: logging.LogRecord) -> None:
        self._count(event_of(record))


def event_of(record: logging.LogRecord) -> str:
    """The row of the table that a record belongs to."""
    ours = record.name == _OURS or record.name.startswith(_OURS + ".")
    return record.msg if ours and record.msg in LOG_EVENTS else LIBRARY


def line_of(record: logging.LogRecord) -> Line:
    """What is told of a record. Never a body, a key or a password: see gateway/telemetry/redact.py."""
    event = event_of(record)
    when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    line: Line = {
        "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "event": event,
        "pid": record.process,
    }
    if event == LIBRARY:
        line |= {"logger": record.name, "message": redact(_message(record))}
        if hasattr(record, "suppressed"):
            line["suppressed"] = record.suppressed
    else:
        line |= {name: _plain(value) for name, value in vars(record).items() if name not in _STANDARD}
    if record.exc_info and record.exc_info[1] is not None:
        line["exception"] = trace(record.exc_info[1])
    return line


def _printable(text: str) -> str:
    """A terminal obeys control characters."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage().strip()
    except (TypeError, ValueError, KeyError):  # a library's own mistake in its format
        return str(record.msg)


def _plain(value: Any) -> Any:
    """As JSON has it."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return round(value, 3) if math.isfinite(value) else str(value)
        case bytes():
            return value.hex()
        case BaseException():
            return reason(value)
        case list() | tuple() | set() | frozenset():
            return [_plain(each) for each in value]
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case _:
            return redact(str(value))
