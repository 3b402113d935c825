"""Reads that need no second look: from the parser to Redis and back without a task.

The counterpart of appends.py: a GET of a state that is kept, of a length or of events, with a known key and
without parameters, waits for nothing but its part of one call to Redis. What is not of this kind is left
to the application, and so is what Redis does not tell.

Owns: which reads are ordinary. Must not know: how a read is judged or answered (reads, states, respond).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from gateway.admit.path import split
from gateway.aggregates.running import Place
from gateway.catalog.model import Principal, Scope
from gateway.events import Page
from gateway.http.api.aliases import Aliases, location_line
from gateway.http.api.follow import wanted_stream
from gateway.http.api.named_answers import NamedAnswers
from gateway.http.api.reads import Reads, Subject, length_answer, rest_of
from gateway.http.api.states import States, following, place_of
from gateway.http.authentication import Authenticator
from gateway.http.correlation import NAME, line_of
from gateway.http.request import Refused
from gateway.http.response import ReadAnswer
from gateway.http.server.fast_path import Reply
from gateway.http.unread import LARGE_BYTES, Unread
from gateway.log.log import Log
from gateway.log.read.ranges import Range
from gateway.names.aliases import SIGIL
from gateway.state import Folded
from gateway.telemetry.metrics import Metrics

logger = logging.getLogger("sluice.edge")

Judge = Callable[[Page], ReadAnswer | Folded]
"""The answer that a page makes; or else there is more to read."""


class FastReads:
    def __init__(
        self,
        log: Log,
        callers: Authenticator,
        reads: Reads,
        states: States,
        aliases: Aliases,
        named: NamedAnswers,
        unread: Unread,
        metrics: Metrics,
    ) -> None:
        self._log = log
        self._callers = callers
        self._reads = reads
        self._states = states
        self._aliases = aliases
        self._named = named
        self._unread = unread
        self._responses = metrics.responses

    def take(
        self, target: bytes, headers: dict[bytes, bytes], reply: Reply, give_up: Callable[[], None]
    ) -> bool:
        """Takes a GET without a body, of which each header was sent once; later either `reply` is called, or
        `give_up`: the application has to answer. False: it is not ordinary, and nothing was done."""
        principal = self._callers.known(headers.get(b"authorization"))
        if principal is None or principal.only is not None or b"?" in target:
            return False
        if not self._log.in_redis(principal.tenant.stream_tenant):
            return False
        segments = split(target)
        if segments is None or not 2 <= len(segments) <= 3:
            return False
        try:
            subject = self._subject(principal, *segments[:2])
            if subject is None:
                return False
            place = place_of(subject)
            asked = self._asked(subject, place, *segments[2:], headers=headers)
        except Refused:
            return False  # the application finds the same, and has words for it
        if asked is None or not self._callers.begin_at_once(principal, Scope.READ):
            return False
        wanted, judge = asked
        told = partial(self._seen, principal, subject, judge, headers.get(NAME), reply, give_up)
        of_state = len(segments) == 2
        if of_state and self._states.is_begun(place):
            self._callers.take_back(principal)
            return False  # the application continues once for all
        if not of_state or wanted.known:
            self._log.look(wanted, told)
            return True
        if not self._states.begin_first(place):
            self._callers.take_back(principal)
            return False  # another request reads it already: the application waits for that
        try:
            self._log.look(wanted, partial(self._seen_first, place, told))
        except Exception:  # a bug: no request waits for this read
            self._states.end_first(place, more=True)
            raise
        return True

    def _seen_first(self, place: Place, told: Callable[[Page | None], None], page: Page | None) -> None:
        """Of a state of which nothing was kept."""
        try:
            told(page)
        finally:
            more = page is None or self._states.kept(place).length < page.length
            self._states.end_first(place, more=more)

    def _subject(self, principal: Principal, aggregate_type: str | None, key: str | None) -> Subject | None:
        """Raises Refused."""
        if aggregate_type is None or key is None:
            return None
        if key.startswith(SIGIL):
            found = self._aliases.known(principal, aggregate_type, key)
        else:
            found = self._reads.subject(principal, aggregate_type, key)
        return None if found is None or self._names_wanted(found) else found

    def _names_wanted(self, subject: Subject) -> bool:
        """Whether its answers tell aliases, or a parent, or may have to."""
        spec, stream = subject.deployed.reading, subject.stream
        declared = spec.aggregate_types.get(stream.aggregate_type)
        if declared is not None and declared.tells_aliases:
            return True
        return spec.hash_ids is not None and not self._named.is_no_child(stream)

    def _asked(
        self, subject: Subject, place: Place, part: str | None = "", *, headers: dict[bytes, bytes]
    ) -> tuple[Range, Judge] | None:
        """What to read, and what to make of it."""
        if part == "":
            folded, if_none_match = self._states.kept(place), headers.get(b"if-none-match")
            seen = partial(self._states.seen, subject, folded, if_none_match=if_none_match)
            return following(subject, folded, if_none_match, narrow=True), seen
        if part == "length":
            known = self._states.kept(place).length
            return Range(subject.stream, limit=0, known=known), partial(length_answer, subject)
        if part == "events" and wanted_stream(headers.get(b"accept")) is None:
            first = self._reads.first_page(subject)
            return rest_of(subject, first), partial(self._reads.seen, subject, first)
        return None

    def _has_room(self, principal: Principal, size: int) -> bool:
        """Where it has not, the application says so."""
        return size <= LARGE_BYTES or self._unread.has_room(principal.handle, size)

    def _seen(
        self,
        principal: Principal,
        subject: Subject,
        judge: Judge,
        correlation_id: bytes | None,
        reply: Reply,
        give_up: Callable[[], None],
        page: Page | None,
    ) -> None:
        try:
            read = None if page is None else judge(page)
        except Refused:  # the application finds the same
            read = None
        except Exception:  # a bug: the application answers instead
            logger.exception("fast_path_failed", extra={"method": "GET"})
            read = None
        if not isinstance(read, ReadAnswer) or not self._has_room(principal, len(read.body)):
            self._callers.take_back(principal)
            give_up()
            return
        self._callers.end(principal)
        self._responses["GET", read.status] += 1
        head = read.head
        if subject.aliased:
            head += location_line(subject.stream.aggregate_type, subject.stream.key)
        reply(read.status, head + line_of(correlation_id), read.body)
