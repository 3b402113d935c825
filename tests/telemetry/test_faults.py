"""What is told when something of ours fails."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import httpx
import pytest

from gateway.admit.line import judge_line
from gateway.http.api.bulk import Bulk
from gateway.log.log import Log
from gateway.serve import _tell_fault
from gateway.telemetry.logs import JsonFormatter
from tests.support.calls import NDJSON, bulk_line, envelope, length_of, lines, new_id, told_in
from tests.telemetry.scrape import scrape

CORRELATION_ID = "0190a000-0000-7000-8000-000000000000"
SECRET = "the client's data"


def break_method(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise ValueError(SECRET)

    monkeypatch.setattr(owner, method, fails)


def told(caplog: pytest.LogCaptureFixture, event: str) -> dict[str, Any]:
    (record,) = [record for record in caplog.records if record.msg == event]
    line: dict[str, Any] = json.loads(JsonFormatter().format(record))
    assert SECRET not in json.dumps(line)
    return line


@pytest.mark.bug
async def test_a_request_that_fails_is_told_with_its_place_and_the_correlation_id_of_its_answer(
    client: httpx.AsyncClient,
    operator: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    break_method(monkeypatch, Log, "append_each")
    response = await client.post(f"/order/{new_id()}/was_noted", json=envelope())
    assert (response.status_code, response.json()["code"]) == (504, "outcome_unknown")
    line = told(caplog, "request_failed")
    assert (line["level"], line["method"]) == ("error", "POST")
    assert line["correlation_id"] == response.headers["x-correlation-id"]
    assert "http/api/appends.py" in line["exception"] and line["exception"].endswith("ValueError")
    found = await scrape(operator)
    assert found("sluice_log_events_total", event="request_failed") == 1
    assert found("sluice_http_responses_total", method="POST", status="504") == 1


@pytest.mark.bug
async def test_a_request_that_fails_on_the_fast_path_is_logged_and_counted(
    client: httpx.AsyncClient,
    operator: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = new_id()
    assert (await client.post(f"/order/{key}/was_noted", json=envelope())).status_code == 201  # a known key
    break_method(monkeypatch, Log, "append_told")
    response = await client.post(f"/order/{key}/was_noted", json=envelope())
    assert (response.status_code, response.json()["code"]) == (504, "outcome_unknown")
    line = told(caplog, "fast_path_failed")
    assert (line["level"], line["method"]) == ("error", "POST")
    assert line["correlation_id"] == response.headers["x-correlation-id"]
    assert "http/fast_path/appends.py" in line["exception"] and line["exception"].endswith("ValueError")
    found = await scrape(operator)
    assert found("sluice_log_events_total", event="fast_path_failed") == 1
    assert found("sluice_http_responses_total", method="POST", status="504") == 1


@pytest.mark.bug
async def test_the_correlation_id_is_the_callers_where_it_sent_one(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    break_method(monkeypatch, Log, "page")
    sent = {"x-correlation-id": CORRELATION_ID}
    response = await client.get(f"/order/{new_id()}/length", headers=sent)
    assert (response.status_code, response.headers["x-correlation-id"]) == (503, CORRELATION_ID)
    assert told(caplog, "request_failed")["correlation_id"] == CORRELATION_ID


@pytest.mark.bug
async def test_a_bulk_request_that_fails_in_the_middle_is_told(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    break_method(monkeypatch, Bulk, "_judge")
    response = await client.post("/_/bulk", content=lines(bulk_line(new_id())), headers=NDJSON)
    assert json.loads(response.content)["code"] == "not_committed"
    assert told(caplog, "request_failed")["correlation_id"] == response.headers["x-correlation-id"]


@pytest.mark.bug
async def test_a_bulk_line_that_fails_is_told_by_itself_and_stops_only_its_aggregate(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def judged(spec: Any, line: bytes, *more: Any) -> Any:
        if b"a trap" in line:
            raise ValueError(SECRET)
        return judge_line(spec, line, *more)

    monkeypatch.setattr("gateway.http.api.bulk.judge_line", judged)
    key, other = new_id(), new_id()
    sent = (
        bulk_line(key, 1),
        bulk_line(other, 1),
        bulk_line(key.upper(), "a trap"),
        bulk_line(key, 3),
        b'{"a trap": 1}',
        bulk_line(other, "a trap", "was_never_declared"),
        bulk_line("nobody", "a trap"),
        bulk_line(new_id(), 1),
        bulk_line(other, 3),
    )
    response = await client.post("/_/bulk", content=lines(*sent), headers=NDJSON)
    answers = told_in(response.content)
    assert [each["line"] for each in answers] == list(range(1, 10))
    assert [each["status"] for each in answers] == [201, 201, 504, 503, 504, 504, 504, 201, 503]
    assert {each["code"] for each in answers if each["status"] == 504} == {"outcome_unknown"}
    assert {each["code"] for each in answers if each["status"] == 503} == {"not_committed"}
    assert [await length_of(client, each) for each in (key, other)] == [1, 1]
    line = told(caplog, "request_failed")  # once, not four times
    assert line["correlation_id"] == response.headers["x-correlation-id"]
    assert line["exception"].endswith("ValueError")


@pytest.mark.bug
async def test_a_bulk_line_whose_answer_fails_to_be_looked_up_is_told_by_itself(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key, other = new_id(), new_id()
    sent = [bulk_line(key, 1), bulk_line(key, 2), bulk_line(other, 1)]
    sent[1]["metadata"]["previous_length"] = 0
    break_method(monkeypatch, Log, "page")
    response = await client.post("/_/bulk", content=lines(*sent), headers=NDJSON)
    assert [each["status"] for each in told_in(response.content)] == [201, 504, 201]
    assert told(caplog, "request_failed")["correlation_id"] == response.headers["x-correlation-id"]


@pytest.mark.bug
async def test_a_task_that_was_not_awaited_is_told_without_what_it_held(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def failing(secret: str) -> None:
        raise KeyError(secret)

    task = asyncio.create_task(failing(SECRET))
    await asyncio.wait((task,))
    context = {"message": f"Task exception was never retrieved ({task!r})", "exception": task.exception()}
    with caplog.at_level(logging.ERROR):
        _tell_fault(asyncio.get_running_loop(), context)
    line = told(caplog, "task_failed")
    assert line["reason"] == "Task exception was never retrieved"
    assert line["exception"].endswith("KeyError")
