"""Examples of a documentation page, to be run: a curl command, and the answer shown beneath it.

An example is a fence of `sh` with a curl command, and right after it one of `http` (status line, some
headers, a blank line, the body) or `json` (the body of a success). In an answer `…` stands for any text, and
as a key for all other keys. Times may be any number; other numbers are compared as they are written.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

ANY = "…"
TIMES = ("timestamp", "created_at", "updated_at")

_FENCE = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```\n", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- while (?P<what>redis|postgres) hangs -->\n\Z")
_VARIABLE = re.compile(r"\$(\w+)")


@dataclass(frozen=True)
class Answer:
    """As the page shows it. `status` is None, `reason` anything, where any success will do."""

    status: int | None
    reason: str
    headers: dict[str, str]
    body: str


@dataclass(frozen=True)
class Example:
    """`hanging` is what does not answer meanwhile, by a comment above the example: redis or postgres."""

    line: int
    command: str
    answer: Answer
    hanging: str | None


@dataclass
class Call:
    method: str
    url: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes | None = None


def examples(page: str) -> Iterator[Example]:
    """Every example, in order. Fails on a command without an answer, and on an answer without a command."""
    command: re.Match[str] | None = None
    for fence in _FENCE.finditer(page):
        text, line = fence["text"].strip("\n"), page.count("\n", 0, fence.start()) + 1
        if fence["kind"] == "sh":
            assert command is None, f"line {line}: the command before has no answer"
            command = fence if "curl" in text else None
        elif fence["kind"] in ("http", "json") and command is not None:
            between = page[command.end() : fence.start()]
            assert between.strip() == "", f"line {line}: something stands between command and answer"
            mark = _MARK.search(page[: command.start()])
            answer = _answer(text) if fence["kind"] == "http" else Answer(None, ANY, {}, text)
            yield Example(line, command["text"], answer, mark["what"] if mark else None)
            command = None
        else:
            assert fence["kind"] != "http", f"line {line}: an answer without a command"
    assert command is None, "the last command has no answer"


def _answer(text: str) -> Answer:
    head, _, body = text.partition("\n\n")
    status, *headers = head.splitlines()
    assert status.startswith("HTTP/1.1 "), status
    pairs = (line.partition(": ") for line in headers)
    _, code, reason = status.split(" ", 2)
    return Answer(int(code), reason, {name: value for name, _, value in pairs}, body)


# ---- commands ----


def call_of(command: str, variables: Mapping[str, str]) -> Call:
    """The one request of the curl commands, as curl would send it. Fails on what it does not know."""
    pieces = re.split(r"\n(?=\w+=|curl )", command)
    calls = [
        _call(shlex.split(_expanded(piece.replace("\\\n", " "), variables))[1:])
        for piece in pieces
        if piece.startswith("curl ")
    ]
    assert len(calls) == 1, f"{len(calls)} calls: {command}"
    return calls[0]


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """The shell's `$NAME` outside single quotes."""
    parts = re.split(r"('[^']*')", text)
    return "".join(
        part if part.startswith("'") else _VARIABLE.sub(lambda name: variables[name[1]], part)
        for part in parts
    )


def _call(words: list[str]) -> Call:
    parser = argparse.ArgumentParser(prog="curl", exit_on_error=False, allow_abbrev=False)
    parser.add_argument("url")
    parser.add_argument("-X", "--request")
    parser.add_argument("-H", "--header", action="append", default=[])
    parser.add_argument("-d", "--data", "--data-binary")
    parser.add_argument("-I", "--head", action="store_true")
    parser.add_argument("-N", "--no-buffer", action="store_true")
    asked = parser.parse_args(words)
    pairs = (header.partition(": ") for header in asked.header)
    body = None if asked.data is None else asked.data.encode()
    method = asked.request or ("HEAD" if asked.head else "GET" if body is None else "POST")
    return Call(method, asked.url, [(name, value) for name, _, value in pairs], body)


# ---- answers ----

_RENAMED = {"Unprocessable Content": "Unprocessable Entity"}
"""Reasons that a later Python gives the names of RFC 9110."""


async def check(client: httpx.AsyncClient, call: Call, shown: Answer) -> None:
    """Sends the request; fails where the answer is not as shown. A live stream is read as far as shown."""
    request = client.build_request(call.method, call.url, headers=call.headers, content=call.body)
    response = await client.send(request, stream=True)
    try:
        status = 200 <= response.status_code < 300 if shown.status is None else shown.status
        assert status in (True, response.status_code), await response.aread()
        reason = _RENAMED.get(response.reason_phrase, response.reason_phrase)
        assert fits(reason, shown.reason), f"{reason}, not {shown.reason}"
        for name, value in shown.headers.items():
            assert name in response.headers, f"no {name} in {response.headers}"
            assert fits(response.headers[name], value), f"{name}: {response.headers[name]}, not {value}"
        kind = response.headers.get("content-type", "")
        if kind == "application/json":
            assert_fits(_decoded(await response.aread()), _decoded(shown.body))
        else:
            await _check_lines(response, shown.body.splitlines(), live=kind == "text/event-stream")
    finally:
        await response.aclose()


async def _check_lines(response: httpx.Response, shown: list[str], *, live: bool) -> None:
    lines = response.aiter_lines()
    for expected in shown:
        line = await anext(lines)
        name, _, value = expected.partition(": ") if not expected.startswith("{") else ("", "", expected)
        assert line.startswith(name), f"{line}, not {expected}"
        if value.startswith("{"):
            assert_fits(_decoded(line[len(name) :].lstrip(": ")), _decoded(value))
        else:
            assert line == expected
    if not live:
        assert [line async for line in lines] == []


class _Number(str):
    """As it is written: 42.50 is not 42.5."""


def _decoded(text: str | bytes) -> Any:
    return json.loads(text or b"null", parse_float=_Number, parse_int=_Number)


def assert_fits(found: Any, shown: Any, at: str = "$") -> None:
    """Fails with the place where `found` is not what is shown."""
    if isinstance(shown, dict) and isinstance(found, dict):
        names = [name for name in shown if name != ANY]
        there = [name for name in found if ANY not in shown or name in shown]
        assert there == names, f"{at} has {there}, not {names}"
        for name in names:
            if name in TIMES and isinstance(shown[name], _Number):
                alike = isinstance(found[name], _Number) and ("." in found[name]) == ("." in shown[name])
                assert alike, f"{at}.{name}: {found[name]!r}"
            else:
                assert_fits(found[name], shown[name], f"{at}.{name}")
    elif isinstance(shown, list) and isinstance(found, list):
        assert len(found) == len(shown), f"{at}: {found}"
        for n, (one, other) in enumerate(zip(found, shown, strict=True)):
            assert_fits(one, other, f"{at}[{n}]")
    else:
        alike = type(found) is type(shown) and (found == shown or (type(shown) is str and fits(found, shown)))
        assert alike, f"{at}: {found!r}, not {shown!r}"


def fits(found: str, shown: str) -> bool:
    """Whether a text is the one shown, with anything in place of `…`."""
    pattern = ".+".join(re.escape(part) for part in shown.split(ANY))
    return re.fullmatch(pattern, found, re.DOTALL) is not None
