"""GET /{type}/{id}: the state folded from the events.

Owns: the folded states kept in memory, by aggregate and spec revision, so that a long stream is not folded
from its start at each read. A kept state is a prefix of committed history, which never changes: reading on
from it is right at any gateway.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from gateway.admit.preconditions import not_modified
from gateway.catalog.model import Deployed
from gateway.edge import respond
from gateway.edge.parameters import Parameters
from gateway.edge.reads import Subject, is_strong, never_written, unavailable, wait_for_length
from gateway.edge.render import encode
from gateway.edge.request import Head, Refused, Send
from gateway.errors import Refusal
from gateway.events import Stream
from gateway.log.log import Log
from gateway.log.postgres import PostgresTrouble
from gateway.log.reader import VERSION_MAX, Range
from gateway.state import EMPTY, Folded, fold
from spec.handlers import DEFAULT_HANDLER, Handler

# Together with what their streams take in Redis, enough for the aggregates that are read again and again.
KEPT_BYTES_MAX = 64 * 1024 * 1024
_EVENTS_A_PAGE = 1000


class Kept:
    """Folded states, the least recently used given up first."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._states: OrderedDict[tuple[Stream, int], Folded] = OrderedDict()
        self._bytes_max = bytes_max
        self._bytes = 0

    def get(self, stream: Stream, revision: int) -> Folded:
        """What is kept, else the state of an empty stream."""
        found = self._states.get((stream, revision))
        if found is None:
            return EMPTY
        self._states.move_to_end((stream, revision))
        return found

    def put(self, stream: Stream, revision: int, folded: Folded) -> None:
        """Keeps it, unless a longer one is kept already (this one is of the past)."""
        former = self._states.pop((stream, revision), None)
        if former is not None:
            self._bytes -= former.size_bytes
            if former.length > folded.length:
                folded = former
        self._states[stream, revision] = folded
        self._bytes += folded.size_bytes
        while self._bytes > self._bytes_max:
            _, given_up = self._states.popitem(last=False)
            self._bytes -= given_up.size_bytes


@dataclass(frozen=True, slots=True)
class _Handlers:
    """How events of one type are folded, by one revision of the spec. What the spec no longer declares is
    folded as if it had no handler."""

    deployed: Deployed
    aggregate_type: str

    def __call__(self, event_type: str) -> Handler:
        declared = self.deployed.spec.aggregate_types.get(self.aggregate_type)
        found = declared.events.get(event_type) if declared is not None else None
        return DEFAULT_HANDLER if found is None else found.handler


class States:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._kept = Kept()

    async def state(
        self, subject: Subject, query: Parameters, head: Head, send: Send, head_only: bool
    ) -> None:
        """As it is, or as it was at a length or a time."""
        last = await self._last(subject, query)
        strong = is_strong(query)
        fresh = query.boolean("synchronous") or strong
        await wait_for_length(self._log, subject, query)
        folded = await self._fold(subject, last, strong=strong, fresh=fresh)
        if folded.length == 0 and not subject.singleton:
            raise Refused(never_written(subject))
        etag = f'"{folded.length}.r{subject.deployed.revision}"'
        headers = [(b"etag", etag.encode())]
        if not_modified(head.joined(b"if-none-match"), etag):
            await respond.not_modified(send, headers)
            return
        await respond.answer_read(send, _body(subject.stream.key, folded), head_only, headers)

    async def _last(self, subject: Subject, query: Parameters) -> int:
        """The last version to fold in."""
        at_ms = query.instant_ms("at")
        if at_ms is None:
            return query.integer("at_length", VERSION_MAX, 0, VERSION_MAX)
        if query.given("at_length"):
            raise Refused(
                Refusal("invalid_field", "`at` and `at_length` were both given; send one.", "at_length")
            )
        try:
            return await self._log.version_at(subject.stream, at_ms)
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble

    async def _fold(self, subject: Subject, last: int, *, strong: bool, fresh: bool) -> Folded:
        """The state after version `last`, or as it is where the stream is shorter. `fresh` folds from the
        first event, without what is kept."""
        stream, revision = subject.stream, subject.deployed.revision
        folded = EMPTY if fresh else self._kept.get(stream, revision)
        if folded.length > last:
            folded = EMPTY
        handlers = _Handlers(subject.deployed, stream.aggregate_type)
        while folded.length < last:
            wanted = Range(stream, folded.length + 1, last, _EVENTS_A_PAGE)
            try:
                page = await self._log.page(wanted, strong=strong)
            except PostgresTrouble as trouble:
                raise Refused(unavailable()) from trouble
            if page.events:
                folded = fold(folded, page.events, handlers)
                self._kept.put(stream, revision, folded)
            if folded.length >= min(page.length, last):
                break
        return folded


def _body(key: str, folded: Folded) -> bytes:
    return b'{"ok":true,"key":"%b","data":%b,"metadata":{"length":%d,"created_at":%b,"updated_at":%b%b}}' % (
        key.encode(),
        folded.data_json,
        folded.length,
        _unix(folded.created_at_ms),
        _unix(folded.updated_at_ms),
        _errors(folded),
    )


def _unix(ms: int | None) -> bytes:
    return b"null" if ms is None else b"%d" % (ms // 1000)


def _errors(folded: Folded) -> bytes:
    """Only where there are any: what could not be applied, and to which event."""
    if not folded.errors_total:
        return b""
    errors = [
        {"version": each.version, "type": each.event_type, "operation": each.operation, "error": each.error}
        for each in folded.errors
    ]
    return b',"handler_errors":' + encode(errors)
