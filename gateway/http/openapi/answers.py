"""The responses of granted requests that aggregates of every type share, by component name. Pure."""

from __future__ import annotations

from gateway.http.openapi.operations import NDJSON, SSE, answer, lines, not_modified
from gateway.http.openapi.parameters import RECEIPT
from gateway.http.openapi.schemas import LENGTH, OK, Schema, object_of, ref

_OF_APPENDS = ("ETag", "Location", "X-Correlation-Id", "Idempotency-Replayed", "Content-Location")
_OF_READS = ("Cache-Control", "Content-Location")


def shared_answers() -> dict[str, Schema]:
    return {
        "appended": answer("Committed.", ref("Receipt"), _OF_APPENDS, RECEIPT),
        "appended-several": answer("Committed.", ref("BatchReceipt"), _OF_APPENDS),
        "unchanged-record": _unchanged("Receipt"),
        "unchanged-records": _unchanged("BatchReceipt"),
        "appended-to-several": answer(
            "Committed, all of it.", ref("ReceiptOfSeveral"), ("X-Correlation-Id", "Idempotency-Replayed")
        ),
        "state": answer(
            "The state, at present or at the requested length or time.", ref("State"), ("ETag", *_OF_READS)
        ),
        "unchanged": not_modified(*_OF_READS),
        "aliases": answer("The aggregate's aliases, oldest first.", ref("Aliases"), _OF_READS),
        "length": answer("The stream's length.", _length(), _OF_READS),
        "events": _events(),
        "event": answer("The event.", object_of({"ok": OK, "event": ref("Event")}), _OF_READS),
    }


def _unchanged(receipt: str) -> Schema:
    why = "Nothing was written: the record equals the one before, whose receipt this is."
    schema: Schema = {"allOf": [ref(receipt), object_of({"unchanged": {"const": True}})]}
    return answer(why, schema, _OF_APPENDS)


def _length() -> Schema:
    key = {"type": "string", "description": "The aggregate's key, if an alias was requested."}
    return object_of({"ok": OK, "length": LENGTH}, {"key": key})


def _events() -> Schema:
    page = answer("A page, or a stream where `Accept` requests one.", ref("EventsPage"), _OF_READS)
    page["content"] |= {
        NDJSON: lines(ref("Event"), "Every event from `from` on, one a line."),
        SSE: lines(ref("Event"), "The same, then live: `id:` is the version, `data:` the event."),
    }
    return page
