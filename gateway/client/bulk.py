"""Requests of many lines: independent appends, in parts, each line repeated under its own key. Pure.

Lines of one aggregate are appended in their order: behind one that failed for now, its later lines fail for
now as well (docs/http-api.md), so that all of them can be sent again as they were.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import msgspec

from gateway.client.answers import receipt_of
from gateway.client.encoding import encode
from gateway.client.errors import NotCommitted, OutcomeUnknown, Refused
from gateway.client.model import BulkAppend, Receipt
from gateway.client.retry import (
    UNREADABLE,
    Answer,
    Attempts,
    Lost,
    Patience,
    Pause,
    Request,
    T,
    may_repeat,
    refusal,
    retry_after_s,
    why_of,
    written,
)

LINES_MAX = 1000
BYTES_MAX = 1 << 20
Outcome = Receipt | Refused | NotCommitted | OutcomeUnknown

_METADATA = ("target", "previous_length", "event_id", "causation_id", "extra")


@dataclass(frozen=True, slots=True)
class Lines(Generic[T]):
    """What one request is made of: each line with the key that tells it, the request that some of them make,
    and how a line's own answer is read."""

    lines: Sequence[tuple[str, bytes]]
    request: Callable[[bytes], Request]
    read: Callable[[Answer], T]


class _Line(msgspec.Struct):
    status: int
    replayed: bool = False


def parts(appends: Iterable[BulkAppend]) -> Iterator[list[tuple[str, bytes]]]:
    """Idempotency key and JSON of each append, as many as one request takes."""
    part: list[tuple[str, bytes]] = []
    size = 0
    for append in appends:
        line = _line(append)
        if part and (len(part) == LINES_MAX or size + len(line[1]) > BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(line)
        size += len(line[1])
    if part:
        yield part


def _line(append: BulkAppend) -> tuple[str, bytes]:
    key = append.idempotency_key or append.event_id or str(uuid.uuid4())
    metadata: dict[str, Any] = {"actor": append.actor}
    for name in _METADATA:
        if (value := getattr(append, name)) is not None:
            metadata[name] = value
    line = {
        "aggregate_type": append.aggregate_type,
        "key": append.key,
        "type": append.event_type,
        "data": append.data,
        "metadata": metadata,
        "idempotency_key": key,
    }
    return key, encode(line)


def appends_of(part: Sequence[tuple[str, bytes]]) -> Lines[Receipt]:
    return Lines(part, _bulk, receipt_of)


def _bulk(body: bytes) -> Request:
    return Request("POST", "/_/bulk", {}, {"content-type": "application/x-ndjson"}, body)


def attempts_of(
    of: Lines[T],
    patience: Patience,
    clock: Callable[[], float],
    chance: Callable[[], float],
) -> Attempts[list[T | Refused | NotCommitted | OutcomeUnknown]]:
    """What became of each line, in their order. As `retry.attempts`; patience starts again with each line
    that is settled. Raises Refused where the request as a whole is refused."""
    lines = of.lines
    outcomes: list[T | Refused | NotCommitted | OutcomeUnknown | None] = [None] * len(lines)
    unknown = [False] * len(lines)
    left, failures, until = list(range(len(lines))), 0, clock() + patience.give_up_s
    while True:
        body = b"".join([lines[number][1] + b"\n" for number in left])
        got = yield of.request(body)
        assert got is not None
        if isinstance(got, Answer) and got.status != 200 and not may_repeat(got):
            refused = refusal(got)
            if not any(unknown[number] for number in left):
                raise refused
            for number in left:  # that refusal is no word of the attempt before
                lost = OutcomeUnknown(str(refused), lines[number][0])
                outcomes[number] = lost if unknown[number] else refused
            return [outcome for outcome in outcomes if outcome is not None]
        answers = _answers(got)
        for number, answer in zip(left, answers, strict=False):
            if 200 <= answer.status < 300:
                outcomes[number] = of.read(answer)
            elif not may_repeat(answer):
                outcomes[number] = refusal(answer)
        for place, number in enumerate(left):
            answered = answers[place] if place < len(answers) else got
            unknown[number] = unknown[number] or written(answered)
        settled = len(left)
        left = [number for number in left if outcomes[number] is None]
        if len(left) < settled:
            failures, until = 0, clock() + patience.give_up_s
        failures += 1
        pause_s = max(patience.pause_s(failures, chance()), retry_after_s(got))
        if left and clock() + pause_s <= until:
            yield Pause(pause_s, f"{len(left)} lines: {_first_reason(got, answers)}")
            continue
        for number in left:
            why = _first_reason(got, answers)
            outcomes[number] = OutcomeUnknown(why, lines[number][0]) if unknown[number] else NotCommitted(why)
        return [outcome for outcome in outcomes if outcome is not None]


def _answers(got: Answer | Lost) -> list[Answer]:
    """Of the lines, each as if it had been a request of its own."""
    if isinstance(got, Lost) or got.status != 200:
        return []
    found = []
    for text in got.content.split(b"\n")[:-1]:
        try:
            line = msgspec.json.decode(text, type=_Line)
        except UNREADABLE:
            break  # a proxy's page: those lines have no answer
        found.append(Answer(line.status, {"idempotency-replayed": "true"} if line.replayed else {}, text))
    return found


def _first_reason(got: Answer | Lost, answers: Sequence[Answer]) -> str:
    return next((why_of(each) for each in answers if each.status >= 300 and may_repeat(each)), None) or (
        "no answer to some lines" if isinstance(got, Answer) and got.status == 200 else why_of(got)
    )
