"""GET of aggregates: state, length, events. A read shows only committed events."""

from __future__ import annotations

import re

import msgspec

from gateway.admit.address import bad_identifier, undeclared_type
from gateway.admit.preconditions import LENGTH_MAX
from gateway.aggregates.prefix_cache import PrefixCache
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Deployed, Principal
from gateway.errors import Refusal
from gateway.events import Page, Recorded, Stream
from gateway.http import render
from gateway.http.api.upcasts import Upcasts
from gateway.http.parameters import Parameters
from gateway.http.request import Refused
from gateway.http.response import ReadAnswer
from gateway.log.log import Log
from gateway.log.read.ranges import PAGE_BYTES, VERSION_MAX, Range
from gateway.postgres.errors import PostgresTrouble
from spec.identifiers import GLOBAL, canonicalize, is_name
from spec.sagas import SAGA_TYPE

PAGE_EVENTS_DEFAULT = 100
PAGE_EVENTS_MAX = 1000
FIRST_PAGES_BYTES_MAX = 32 * 1024 * 1024
"""For aggregates whose events are read again and again; states (states.py) are smaller, and asked for
more."""
_FIRST_PAGE_BYTES = 400  # with its numbers and its key, rounded up
MIN_LENGTH_WAIT_S = 5


class Subject(msgspec.Struct, frozen=True, gc=False):
    """The aggregate that a path names, by the tenant's spec. `aliased`: by one of its aliases. `rewinds`: how
    often its history was cut off before now, `rewound` the mark of that in ETags (log.py). `explained`: its
    state is asked for together with what of its handlers did not fit."""

    stream: Stream
    deployed: Deployed
    singleton: bool
    aliased: bool
    rewinds: int
    rewound: int = 0
    explained: bool = False


class FirstPage(msgspec.Struct, frozen=True, gc=False):
    """The oldest events of a stream of `length`, as many as a page has by default and in bytes, as they are
    sent."""

    length: int
    count: int
    events_json: bytes

    @property
    def size_bytes(self) -> int:
        return _FIRST_PAGE_BYTES + len(self.events_json)


class Reads:
    def __init__(self, log: Log, catalog: Catalog, upcasts: Upcasts) -> None:
        self._log = log
        self._catalog = catalog
        self.upcasts = upcasts
        self._first_pages = PrefixCache(FirstPage(0, 0, b""), FIRST_PAGES_BYTES_MAX)

    def subject(
        self, principal: Principal, aggregate_type: str, key: str | None, *, aliased: bool = False
    ) -> Subject:
        """Raises Refused: unknown type, bad identifier."""
        deployed = self._catalog.deployed(principal.tenant.id)
        known = deployed is not None and (
            aggregate_type in deployed.reading.aggregate_types or aggregate_type == SAGA_TYPE
        )
        if deployed is None or not known:
            raise Refused(undeclared_type(None if deployed is None else deployed.reading, aggregate_type))
        singletons = deployed.reading.singletons
        canonical = None if key is None else canonicalize(key, singletons)
        if canonical is None:
            raise Refused(bad_identifier(key, deployed.reading, "key"))
        tenant = principal.tenant.stream_tenant
        singleton = canonical == GLOBAL or canonical in singletons
        return Subject(
            Stream(tenant, aggregate_type, canonical),
            deployed,
            singleton,
            aliased,
            self._log.rewinds(tenant),
            self._log.rewound(tenant),
        )

    def canonical(self, principal: Principal, key: str) -> str | None:
        """The canonical spelling of a key, by the tenant's spec."""
        deployed = self._catalog.deployed(principal.tenant.id)
        return canonicalize(key, () if deployed is None else deployed.reading.singletons)

    async def stored(
        self, principal: Principal, aggregate_type: str, key: str | None, *, aliased: bool = False
    ) -> Subject:
        """The same, and what is stored stays readable: also where the spec no longer declares its type, or
        the singleton that it is. Raises Refused."""
        try:
            return self.subject(principal, aggregate_type, key, aliased=aliased)
        except Refused:
            deployed = self._catalog.deployed(principal.tenant.id)
            if deployed is None or key is None or not is_name(aggregate_type):
                raise
            canonical = canonicalize(key, deployed.reading.singletons) or (key if is_name(key) else None)
            if canonical is None:
                raise
            stream = Stream(principal.tenant.id.bytes, aggregate_type, canonical)
            rewinds = self._log.rewinds(stream.tenant)
            if not (await self._page(Range(stream, limit=0))).length:
                raise
            rewound = self._log.rewound(stream.tenant)
            return Subject(
                stream, deployed, singleton=False, aliased=aliased, rewinds=rewinds, rewound=rewound
            )

    async def length(self, subject: Subject, query: Parameters) -> ReadAnswer:
        """0 for a well-formed id never written."""
        await wait_for_length(self._log, subject, query)
        return length_answer(subject, await self._page(Range(subject.stream, limit=0), query))

    async def events(self, subject: Subject, query: Parameters) -> ReadAnswer:
        """One page, with the `from` of the next."""
        wanted = read_range(subject, query, PAGE_EVENTS_DEFAULT)
        upcast = query.boolean("upcast")
        await wait_for_length(self._log, subject, query)
        if is_strong(query) or upcast or wanted != Range(subject.stream, limit=PAGE_EVENTS_DEFAULT):
            page = await self._page(wanted, query)
            following = _next(page.events, page.length, wanted.newest_first)
            events = page.events
            if upcast:
                events = await self.upcasts.all(subject.stream.tenant, events)
            events_json = b",".join(map(render.event_json, events))
            return _events_answer(subject, events_json, page.length, following)
        first = self.first_page(subject)
        return self.seen(subject, first, await self._page(rest_of(subject, first), query))

    def first_page(self, subject: Subject) -> FirstPage:
        """As it is kept, else that of an empty stream."""
        return self._first_pages.get((subject.stream, subject.rewinds))

    def seen(self, subject: Subject, first: FirstPage, page: Page) -> ReadAnswer:
        """The answer once `page`, which is what `rest_of` asked for, is read. Raises Refused (404)."""
        length, count = max(page.length, first.length), first.count + len(page.events)
        if length > first.length:
            parts = [first.events_json] if first.count else []
            events_json = b",".join([*parts, *map(render.event_json, page.events)])
            first = FirstPage(length, count, events_json)
            self._first_pages.put((subject.stream, subject.rewinds), first)
        following = count + 1 if 0 < count < length else None
        return _events_answer(subject, first.events_json, length, following)

    async def event(self, subject: Subject, version: str, query: Parameters) -> ReadAnswer:
        """The event at one version."""
        number, upcast = _version(version), query.boolean("upcast")
        await wait_for_length(self._log, subject, query)
        at = min(number, VERSION_MAX)
        page = await self._page(Range(subject.stream, at, at, 1), query)
        if not page.events:
            raise Refused(
                never_written(subject)
                if page.length == 0
                else Refusal(
                    "not_found", f"The stream has {page.length} events; there is no version {number}."
                )
            )
        events = page.events
        if upcast:
            events = await self.upcasts.all(subject.stream.tenant, events)
        return ReadAnswer(b'{"ok":true,"event":%b}' % render.event_json(events[0]))

    async def _page(self, wanted: Range, query: Parameters | None = None) -> Page:
        try:
            return await self._log.page(wanted, strong=query is not None and is_strong(query))
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble


def length_answer(subject: Subject, page: Page) -> ReadAnswer:
    key = b'"key":"%b",' % subject.stream.key.encode() if subject.aliased else b""
    return ReadAnswer(b'{"ok":true,%b"length":%d}' % (key, page.length))


def rest_of(subject: Subject, first: FirstPage) -> Range:
    """What to read where the first page is known as it was."""
    left, left_bytes = PAGE_EVENTS_DEFAULT - first.count, PAGE_BYTES - len(first.events_json)
    if left_bytes <= 0:
        left, left_bytes = 0, PAGE_BYTES
    return Range(subject.stream, first.count + 1, limit=left, known=first.length, bytes_max=left_bytes)


def _events_answer(subject: Subject, events_json: bytes, length: int, following: int | None) -> ReadAnswer:
    """Raises Refused (404)."""
    if length == 0 and not subject.singleton:
        raise Refused(never_written(subject))
    return ReadAnswer(
        b'{"ok":true,"key":"%b","events":[%b],"length":%d,"next":%b}'
        % (
            subject.stream.key.encode(),
            events_json,
            length,
            b"null" if following is None else b"%d" % following,
        )
    )


def read_range(subject: Subject, query: Parameters, limit_default: int) -> Range:
    """The events that `from`, `limit` and `order` ask for. Raises Refused (422)."""
    newest_first = query.choice("order", ("asc", "desc"), "asc") == "desc"
    limit = query.integer("limit", limit_default, 1, PAGE_EVENTS_MAX)
    start = version_in(query, "from", VERSION_MAX if newest_first else 1, 1)
    if newest_first:
        return Range(subject.stream, 1, start, limit, newest_first=True)
    return Range(subject.stream, start, VERSION_MAX, limit)


def version_in(query: Parameters, name: str, default: int, least: int) -> int:
    """A version, or a length, that a parameter names. Beyond VERSION_MAX one is as far beyond the end as
    another. Raises Refused (422)."""
    return min(query.integer(name, default, least, LENGTH_MAX), VERSION_MAX)


def is_strong(query: Parameters) -> bool:
    """`?consistency=strong`: read Postgres, whatever Redis holds. Raises Refused (422)."""
    return query.choice("consistency", ("strong",), "") == "strong"


async def wait_for_length(log: Log, subject: Subject, query: Parameters) -> None:
    """`?min_length=n`: returns once the stream is that long. Raises Refused: 503 when it is not in time; 422
    for a `consistency` that can't be read, before the wait."""
    is_strong(query)
    if not query.given("min_length"):
        return
    wanted = query.integer("min_length", 0, 0, LENGTH_MAX)
    try:
        reached = await log.reached(subject.stream, wanted, MIN_LENGTH_WAIT_S)
    except PostgresTrouble as trouble:
        raise Refused(unavailable()) from trouble
    if not reached:
        raise Refused(
            Refusal("unavailable", f"The stream did not reach length {wanted} within {MIN_LENGTH_WAIT_S} s.")
        )


def _next(events: tuple[Recorded, ...], length: int, newest_first: bool) -> int | None:
    """Where the next page begins."""
    if not events:
        return None
    last = events[-1].version
    if newest_first:
        return last - 1 if last > 1 else None
    return last + 1 if last < length else None


_VERSION = re.compile("[1-9][0-9]{0,18}")


def _version(text: str) -> int:
    if _VERSION.fullmatch(text) and int(text) <= LENGTH_MAX:
        return int(text)
    raise Refused(Refusal("invalid_field", f"A version is a whole number from 1 to {LENGTH_MAX}.", "version"))


def never_written(subject: Subject) -> Refusal:
    return Refusal(
        "not_found", f"No event was ever written to {subject.stream.aggregate_type} {subject.stream.key}."
    )


def unavailable() -> Refusal:
    return Refusal("unavailable", "Postgres does not answer, and this read needs it. Try again shortly.")
