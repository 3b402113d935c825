"""GET /{type}/{id}: the state folded from the events.

Owns: which state a read asks for, and its answer. What is kept of states, the folder has.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from gateway.admit.preconditions import etag, not_modified
from gateway.aggregates.folder import Folder, Handlers, page_limit
from gateway.aggregates.running import Place
from gateway.aside import Busy
from gateway.config import Config
from gateway.errors import Refusal
from gateway.events import Page
from gateway.http.api.reads import Subject, is_strong, never_written, unavailable, version_in, wait_for_length
from gateway.http.parameters import Parameters
from gateway.http.render import encode
from gateway.http.request import Refused
from gateway.http.response import ReadAnswer
from gateway.log.log import Log
from gateway.log.read.ranges import VERSION_MAX, Narrow, Range
from gateway.postgres.errors import PostgresTrouble
from gateway.state import EMPTY, Folded

_DATA: Final = Narrow()
BEGUN_MAX: Final = 10_000
"""Aggregates of which it is remembered that their first read ended before the newest event. Of more, the
oldest are forgotten: their readers go on beside each other."""


class _FirstFold(asyncio.Event):
    """Set when it is over; `more`: another one has to go on."""

    more = False


class States:
    def __init__(self, log: Log, folder: Folder, config: Config) -> None:
        self._log = log
        self._folder = folder
        self._deadline_s = config.fold_deadline_s
        self._kept = folder.kept
        self._first_folds: dict[Place, _FirstFold] = {}
        self._begun: dict[Place, None] = {}  # read for the first time, and not to their ends yet

    async def state(self, subject: Subject, query: Parameters, if_none_match: bytes | None) -> ReadAnswer:
        """As it is, or as it was at a length or a time."""
        last, at_ms = _asked(query)
        if subject.explained:
            if_none_match = None
        strong = is_strong(query)
        fresh = query.boolean("synchronous") or strong
        await wait_for_length(self._log, subject, query)
        if at_ms is not None:
            last = await self._version_at(subject, at_ms)
        if fresh:
            return await self._read_on(subject, EMPTY, last, if_none_match, fresh=True, strong=strong)
        place = place_of(subject)
        more = place in self._begun
        while (first := self._first_folds.get(place)) is not None:
            await first.wait()  # rather than read and fold the same events beside it
            if not (more := first.more):
                break
        folded = self._kept.get(place)
        base = folded if folded.length <= last else EMPTY
        if (folded.length and not more) or place in self._first_folds:
            return await self._read_on(subject, base, last, if_none_match)
        self._first_folds[place] = _FirstFold()
        try:
            return await self._read_on(subject, base, last, if_none_match)
        finally:
            self._begun.pop(place, None)
            self._first_folds.pop(place).set()

    def is_begun(self, place: Place) -> bool:
        """Whether a first read ended before the newest event: the application continues, once for all."""
        return bool(self._begun) and place in self._begun

    def begin_first(self, place: Place) -> bool:
        """Whether no other request reads the aggregate for the first time just now; `end_first` must follow
        then."""
        if place in self._first_folds:
            return False
        self._first_folds[place] = _FirstFold()
        return True

    def end_first(self, place: Place, *, more: bool) -> None:
        """`more`: there is more to read than was."""
        first = self._first_folds.pop(place, None)
        if first is not None:
            first.more = more
            if more:
                self._begun[place] = None
                if len(self._begun) > BEGUN_MAX:  # its clients may have gone
                    del self._begun[next(iter(self._begun))]
            first.set()

    def kept(self, place: Place) -> Folded:
        """What is kept of its states, else the state of an empty stream."""
        return self._kept.get(place)

    async def _version_at(self, subject: Subject, at_ms: int) -> int:
        try:
            return await self._log.version_at(subject.stream, at_ms)
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble

    async def _read_on(
        self,
        subject: Subject,
        folded: Folded,
        last: int,
        if_none_match: bytes | None,
        *,
        fresh: bool = False,
        strong: bool = False,
    ) -> ReadAnswer:
        """The state after version `last`, or as it is where the stream is shorter, from a state that is not
        longer. From a kept one, where this one is far behind and a cache may be asked (`fresh`: none may)."""
        wanted = following(subject, folded, if_none_match, last)
        until, looked = time.monotonic() + self._deadline_s, False
        while folded.length < last:
            try:
                page = await self._log.page(wanted, strong=strong)
            except PostgresTrouble as trouble:
                raise Refused(unavailable()) from trouble
            if page.events and not (fresh or looked):
                looked, before = True, folded
                folded = await self._folder.nearest(
                    place_of(subject), subject.deployed, before, min(page.length, last)
                )
                if folded is not before:
                    wanted = following(subject, folded, None, last)
                    continue
            read = self.seen(subject, folded, page, if_none_match, last)
            if isinstance(read, ReadAnswer):
                return read
            if read is folded and page.events:
                read = await self._folded_aside(subject, folded, page, until)
                if read.length >= min(page.length, last):
                    return _answer(subject, read, if_none_match)
            folded = read
            wanted = following(subject, folded, None, last)
        return _answer(subject, folded, if_none_match)

    async def _folded_aside(self, subject: Subject, folded: Folded, page: Page, until: float) -> Folded:
        """What takes long, in pieces. Raises Refused (503)."""
        handlers = Handlers(subject.deployed, subject.stream.aggregate_type)
        first, last = folded.length, folded.length + len(page.events)
        while folded.length < last:
            try:
                folded = await self._folder.piece(
                    place_of(subject), folded, page.events[folded.length - first :], handlers
                )
            except Busy as busy:
                raise Refused(Refusal("unavailable", busy.why)) from busy
            # Behind a piece, so that each read comes further by one, however late it gets to it.
            if folded.length < last and time.monotonic() > until:
                raise Refused(_too_long(folded.length, page.length))
        return folded

    def seen(
        self,
        subject: Subject,
        folded: Folded,
        page: Page,
        if_none_match: bytes | None,
        last: int = VERSION_MAX,
    ) -> ReadAnswer | Folded:
        """The answer once `page`, which is what `following` asked for, is read; or how far it goes, where
        there is more to read; or `folded` itself, where folding the page takes too long to be done here.
        Raises Refused (404; 422 where the state is too large)."""
        length = max(min(page.length, last), folded.length)
        if if_none_match is not None and length:
            current = _etag(subject, length)
            if not_modified(if_none_match, current):
                return _unmodified(current)
        if page.events:
            handlers = Handlers(subject.deployed, subject.stream.aggregate_type)
            further = self._folder.at_once(place_of(subject), folded, page.events, handlers)
            if further is None:
                return folded
            folded = further
        elif page.joined is not None:
            further = self._folder.merged_at_once(place_of(subject), page.joined)
            if further is None:
                return folded
            folded = further
        return _answer(subject, folded, if_none_match) if folded.length >= length else folded


def _too_long(folded: int, length: int) -> Refusal:
    return Refusal(
        "unavailable",
        f"Folding takes too long: {folded} of {length} events so far. Without `synchronous` and "
        "`consistency` the next read continues there.",
    )


def _asked(query: Parameters) -> tuple[int, int | None]:
    """The last version to fold in, or the time that tells it. Raises Refused."""
    at_ms = query.instant_ms("at")
    if at_ms is None:
        return version_in(query, "at_length", VERSION_MAX, 0), None
    if query.given("at_length"):
        raise Refused(
            Refusal("invalid_field", "`at` and `at_length` were both given; send one.", "at_length")
        )
    return VERSION_MAX, at_ms


def place_of(subject: Subject) -> Place:
    return subject.stream, subject.deployed.revision, subject.rewinds


def following(
    subject: Subject,
    folded: Folded,
    if_none_match: bytes | None,
    last: int = VERSION_MAX,
    *,
    narrow: bool = False,
) -> Range:
    """What to read next for the state after `last`. Where the client may have a newer state than `folded`,
    only the length: it may tell that there is nothing to fold. `narrow`: of events no more than folding
    takes."""
    length = folded.length
    unseen = if_none_match is not None and not (
        length and not_modified(if_none_match, _etag(subject, length))
    )
    limit, stream = 0 if unseen else page_limit(folded), subject.stream
    enough = None
    if narrow:
        declared = subject.deployed.reading.aggregate_types.get(stream.aggregate_type)
        enough = _DATA if declared is None else Narrow(declared.folds_apart, declared.folds_metadata)
    return Range(stream, length + 1, last, limit, known=length, narrow=enough)


def _answer(subject: Subject, folded: Folded, if_none_match: bytes | None) -> ReadAnswer:
    if folded.length == 0 and not subject.singleton:
        raise Refused(never_written(subject))
    if folded.too_large_at is not None:
        raise Refused(_too_large(subject, folded.too_large_at))
    current = _etag(subject, folded.length)
    if not_modified(if_none_match, current):
        return _unmodified(current)
    return ReadAnswer(_body(subject, folded), ((b"etag", current.encode()),))


def _too_large(subject: Subject, version: int) -> Refusal:
    stream = subject.stream
    why = (
        f"The state of {stream.aggregate_type} {stream.key} is too large since version {version}. Appends "
        f"continue; read its events, or the state before it with `at_length={version - 1}`, or deploy a "
        "handler that stores less."
    )
    return Refusal("state_too_large", why, version=version)


def _unmodified(current: str) -> ReadAnswer:
    return ReadAnswer(b"", ((b"etag", current.encode()),), 304)


def _etag(subject: Subject, length: int) -> str:
    return etag(length, subject.rewound, subject.deployed.revision)


def _body(subject: Subject, folded: Folded) -> bytes:
    return b'{"ok":true,"key":"%b","data":%b,"metadata":{"length":%d,"created_at":%b,"updated_at":%b%b}}' % (
        subject.stream.key.encode(),
        folded.data_json,
        folded.length,
        _unix(folded.created_at_ms),
        _unix(folded.updated_at_ms),
        _errors(folded) + (_misfits(folded) if subject.explained else b""),
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


def _misfits(folded: Folded) -> bytes:
    """The same, for `explain`."""
    return b',"misfits":' + encode(folded.errors)
