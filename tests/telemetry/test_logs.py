"""The form of a log line, and what is never in one."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import asyncpg
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.log.redis.scripts import RedisTrouble
from gateway.names import tokens
from gateway.postgres.errors import PostgresTrouble
from gateway.telemetry.log_events import COMMON_FIELDS, LIMIT_WINDOW_S, LINES_MAX, LOG_EVENTS
from gateway.telemetry.logs import HumanFormatter, JsonFormatter, Limit, counted, write_to
from gateway.telemetry.redact import TEXT_CHARS_MAX, reason, redact, trace

SECRET = "correct horse battery staple"
KEY = tokens.mint("Abcdefgh", lambda count: bytes(range(count)))


class Stream(io.StringIO):
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture
def written() -> Iterator[Stream]:
    """What the process would write to stderr at level info."""
    root, ours, uvicorn = (logging.getLogger(name) for name in ("", "sluice", "uvicorn"))
    before = root.handlers[:], root.level, ours.level, uvicorn.level
    root.handlers.clear()
    stream = Stream()
    write_to(stream, "info", human=False)
    yield stream
    root.handlers[:] = before[0]
    for logger, level in zip((root, ours, uvicorn), before[1:], strict=True):
        logger.setLevel(level)


def log(event: str, **fields: object) -> None:
    level = logging.getLevelNamesMapping()[LOG_EVENTS[event].level.upper()]
    logging.getLogger("sluice.test").log(level, event, extra=fields)


def record(msg: str, name: str = "sluice.test", level: int = logging.ERROR, **more: Any) -> logging.LogRecord:
    return logging.makeLogRecord({"name": name, "msg": msg, "levelname": logging.getLevelName(level), **more})


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_a_line_is_one_json_object_with_time_level_event_and_fields(written: Stream) -> None:
    log(
        "backend_recovered",
        server="redis",
        after_s=1.23456,
        correlation_id="0190a000-0000-7000-8000-000000000000",
    )
    (line,) = written.lines()
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert isinstance(line.pop("pid"), int)
    assert line == {
        "level": "warning",
        "event": "backend_recovered",
        "server": "redis",
        "after_s": 1.235,
        "correlation_id": "0190a000-0000-7000-8000-000000000000",
    }


@given(st.text(), st.binary(), st.floats(), st.lists(st.one_of(st.text(), st.integers(), st.none())))
def test_whatever_a_field_holds_the_line_is_one_line_of_ascii_json(
    text: str, data: bytes, number: float, several: list[Any]
) -> None:
    fields = {"reason": text, "server": data, "after_s": number, "partitions": several}
    line = JsonFormatter().format(record("backend_recovered", **fields))
    assert line.isascii() and line.isprintable()
    assert json.loads(line, parse_constant=pytest.fail)["event"] == "backend_recovered"


@given(st.text())
def test_a_line_for_people_holds_no_control_characters(text: str) -> None:
    told = HumanFormatter().format(
        record("backend_unavailable", reason=text, exc_info=(None, OSError(text), None))
    )
    assert all(line.isprintable() for line in told.split("\n"))


def test_a_line_for_people_begins_with_time_level_and_event() -> None:
    line = HumanFormatter().format(record("backend_unavailable", server="redis", reason="away"))
    assert re.fullmatch(
        r'\d\d:\d\d:\d\d\.\d{3} ERROR    backend_unavailable  server="redis" reason="away"', line
    )


def test_lines_of_libraries_have_the_same_form_and_their_debug_is_left_out(written: Stream) -> None:
    logging.getLogger("asyncpg").debug("chatter")
    logging.getLogger("uvicorn.error").info("Started server process [1]")
    logging.getLogger("uvicorn.error").error("Exception in %s\n", "something", exc_info=raised(OSError("no")))
    (line,) = written.lines()
    assert (line["event"], line["logger"], line["message"]) == (
        "library",
        "uvicorn.error",
        "Exception in something",
    )
    assert line["exception"].endswith("OSError: no")


def test_a_library_with_a_broken_format_still_has_its_line() -> None:
    line = JsonFormatter().format(record("%d of %d", name="other", args=("one",)))
    assert json.loads(line)["message"] == "%d of %d"


def test_a_message_of_ours_that_no_row_names_is_told_as_a_librarys(written: Stream) -> None:
    logging.getLogger("sluice.log").error("something new")
    assert written.lines()[0]["event"] == "library"


def test_keys_tokens_and_passwords_are_struck_out_of_every_field(written: Stream) -> None:
    for why in (f"key {KEY}!", f"Authorization: Bearer {SECRET.split()[0]}", f"postgresql://u:{KEY}@host/db"):
        log("backend_unavailable", reason=why, server="postgres")
    logging.getLogger("other").warning("GET redis://:%s@host?password=%s", "correct", "horse")
    text = written.getvalue()
    assert KEY not in text and "correct" not in text and "horse" not in text
    assert "key sl_***!" in text and "postgresql://u:***@host/db" in text


def test_a_text_is_cut_where_it_is_longer_than_a_sentence_can_be() -> None:
    assert len(redact("a" * 10_000)) == TEXT_CHARS_MAX


@pytest.mark.parametrize(
    "error",
    [
        ValueError(SECRET),
        KeyError(SECRET),
        LookupError(SECRET),
        UnicodeDecodeError("utf-8", SECRET.encode(), 0, 1, SECRET),
        msgspec.ValidationError(SECRET),
        type("Foreign", (Exception,), {"__module__": "elsewhere"})(SECRET),
    ],
)
def test_a_message_that_may_repeat_a_clients_data_is_withheld(error: Exception) -> None:
    assert reason(error) == type(error).__name__
    told = trace(raised(error))
    assert SECRET not in told
    assert "test_logs.py" in told and told.endswith(type(error).__name__)


def test_what_is_said_of_an_unavailable_server_is_told() -> None:
    for trouble in (PostgresTrouble("commit: no answer within 5 s"), RedisTrouble("read: no answer")):
        assert reason(trouble) == f"{type(trouble).__name__}: {trouble}"


async def test_postgres_details_that_repeat_a_row_are_withheld(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute("CREATE TEMP TABLE t (payload text CHECK (payload = ''), n int UNIQUE)")
        told = [
            await refused(connection, "INSERT INTO t VALUES ($1)", SECRET),
            await refused(connection, "SELECT $1::int", SECRET),
            await refused(connection, f"SELECT '{SECRET}'::text::int"),
        ]
    finally:
        await connection.close()
    assert re.fullmatch(r"CheckViolationError: new row for relation .* \(SQLSTATE 23514\)", told[0])
    assert told[1:] == [
        "DataError: (SQLSTATE 22000)",
        "InvalidTextRepresentationError: (SQLSTATE 22P02)",
    ]


async def refused(connection: asyncpg.Connection, statement: str, *args: object) -> str:
    with pytest.raises(asyncpg.PostgresError) as error:
        await connection.execute(statement, *args)
    assert SECRET not in trace(error.value)
    return reason(error.value)


def test_an_exception_tells_its_causes_and_their_places() -> None:
    try:
        try:
            raise OSError("the disk")
        except OSError as cause:
            raise ValueError(SECRET) from cause
    except ValueError as error:
        told = trace(error)
    first, second = told.split("\ncaused by:\n")
    assert first.endswith("ValueError") and second.endswith("OSError: the disk")
    assert SECRET not in told


def test_an_exception_whose_causes_go_in_a_circle_is_told_once() -> None:
    one, other = OSError("one"), OSError("other")
    one.__cause__, other.__cause__ = other, one
    assert trace(one) == "OSError: one\ncaused by:\nOSError: other"


def test_a_repeated_event_is_limited_and_the_next_line_says_how_many_were_left_out() -> None:
    now = 100.0
    limit = Limit(lambda: now)
    through = [limit.filter(record("backend_unavailable")) for _ in range(LINES_MAX + 5)]
    assert through.count(True) == LINES_MAX
    assert limit.filter(record("backend_recovered")), "another event has a count of its own"
    now += LIMIT_WINDOW_S
    following = record("backend_unavailable")
    assert limit.filter(following)
    assert json.loads(JsonFormatter().format(following))["suppressed"] == 5
    another = record("backend_unavailable")
    assert limit.filter(another) and "suppressed" not in vars(another)


def test_some_events_and_each_message_of_a_library_have_lower_limits() -> None:
    limit = Limit(lambda: 0.0)
    assert sum(limit.filter(record("commit_outcome_unknown")) for _ in range(50)) == 1
    library = [limit.filter(record("%s failed", name="other", args=(n,))) for n in range(50)]
    assert sum(library) == LOG_EVENTS["library"].lines_max


def test_every_line_is_counted_by_its_event_even_if_it_is_not_written(written: Stream) -> None:
    counts: dict[str, int] = {}

    def count(event: str) -> None:
        counts[event] = counts.get(event, 0) + 1

    with counted(count):
        for _ in range(3):
            log("commit_outcome_unknown", reason="away", partition=1)
        logging.getLogger("other").error("what")
    log("commit_outcome_unknown", reason="away", partition=1)
    assert counts == {"commit_outcome_unknown": 3, "library": 1}
    assert len(written.lines()) == 2


def test_the_page_names_the_common_fields(request: pytest.FixtureRequest) -> None:
    page = (request.config.rootpath / "docs" / "observability.md").read_text()
    for name in COMMON_FIELDS:
        assert f"| `{name}` |" in page
