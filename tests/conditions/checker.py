"""Holds what writers and readers were told against the committed feed. Knows no code of the gateway: texts,
dicts, and the order of the feed. A place is an event's number in the feed, from 1; 0 is before the first.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

TYPE, PUT, NAMED, FREED = "box", "was_put", "was_named", "was_freed"
COLOURS = ("red", "blue")
"""Each of them in `data` is a tag of the event."""
MATCHED_MAX = 100


@dataclass(frozen=True, slots=True)
class Item:
    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """As a request asks for it; `data` has the request's id and the event's number in it."""

    key: str
    type: str
    data: dict[str, Any]
    previous_length: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """`heard`: how many positions clients had been told when it was first sent."""

    id: str
    events: tuple[Event, ...]
    items: tuple[Item, ...] = ()
    after: str | None = None
    heard: int = 0
    minimal: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """The last answer to a request; `status` None: there was none. `doubtful`: an earlier attempt was not
    answered, or with a 503 or 504."""

    request: Request
    status: int | None
    body: dict[str, Any] = field(default_factory=dict)
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """An event of the feed."""

    position: str
    id: str
    key: str
    type: str
    version: int
    data: dict[str, Any]

    @property
    def tags(self) -> set[str]:
        return {f"{TYPE}:{self.key}", *(f"{each}:{self.data[each]}" for each in COLOURS)}


@dataclass(frozen=True, slots=True)
class Page:
    """Of a query, or of the whole feed where it has no items. `ids` are of its events."""

    items: tuple[Item, ...]
    after: str | None
    ids: tuple[str, ...]
    position: str
    caught_up: bool
    heard: int


@dataclass(slots=True)
class History:
    rows: Sequence[Row]
    told: Sequence[Told]
    heard: Sequence[str]
    """Positions in the order in which clients were told them."""
    pages: Sequence[Page] = ()
    lengths: Sequence[tuple[str, int, int]] = ()
    """Of an aggregate: at which version a reader had seen an event, the length that it was told then."""
    harms: list[str] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)
    _index: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _of: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _furthest: list[int] = field(default_factory=list)

    def check(self) -> list[str]:
        """What is wrong; empty where every promise was kept."""
        for place, row in enumerate(self.rows, 1):
            self._places[row.position] = place
            self._of[row.data["request"]].append(place)
            for each in (*row.tags, f"{TYPE}.{row.type}"):
                self._index[each].append(place)
        heard = [self._places.get(each, 0) for each in self.heard]
        self._furthest = [0, *itertools.accumulate(heard, max)]
        self._check_feed()
        for told in self.told:
            self._check_told(told)
        for page in self.pages:
            self._check_page(page)
        for key, seen, length in self.lengths:
            if length < seen:
                self._harm("half", f"{key} is {length} long after a reader has seen its version {seen}")
        return self.harms

    def _harm(self, kind: str, what: str) -> None:
        self.harms.append(f"{kind}: {what}")

    def _check_feed(self) -> None:
        lengths: dict[str, int] = defaultdict(int)
        holders: dict[str, str] = {}
        for place, row in enumerate(self.rows, 1):
            lengths[row.key] += 1
            if row.version != lengths[row.key]:
                self._harm("reordered", f"{row.key} has version {row.version} in place of {lengths[row.key]}")
            if row.type != PUT:
                holders = {name: key for name, key in holders.items() if key != row.key}
            name = row.data["name"] if row.type == NAMED else None
            if name is not None and holders.setdefault(name, row.key) != row.key:
                self._harm("doubled", f"{row.key} claims {name} at {place}, which {holders[name]} has")
        if len(self._places) != len(self.rows):
            self._harm("doubled", "two events have one position")
        asked = {told.request.id: told.request for told in self.told}
        for request in self._of:
            if request not in asked:
                self._harm("phantom", f"{request} was never asked for")
        for id, places in self._of.items():
            if id in asked:
                self._check_stored(asked[id], places)

    def _check_stored(self, request: Request, places: list[int]) -> None:
        """Whole, once, in its order; and all that it hung on was true where it is."""
        stored = [(row.key, row.type, row.data) for row in (self.rows[place - 1] for place in places)]
        if stored != [(each.key, each.type, each.data) for each in request.events]:
            kind = "half" if len(places) < len(request.events) else "doubled"
            self._harm(kind, f"{request.id} is stored as {stored}")
            return
        if places[-1] - places[0] != len(places) - 1:
            self._harm("half", f"others lie between the events of {request.id}: {places}")
        for place, event in zip(places, request.events, strict=True):
            row = self.rows[place - 1]
            if event.previous_length is not None and row.version != event.previous_length + 1:
                self._harm("wrongly accepted", f"{request.id} at length {row.version - 1}: {event}")
        after = self._place(request.after)
        if after is None:
            self._harm("wrongly accepted", f"{request.id} after {request.after}, which is no place")
        elif matched := self._matches(request.items, after, places[0] - 1):
            self._harm("wrongly accepted", f"{request.id} at {places[0]}: {matched[:3]} match behind {after}")

    def _place(self, position: str | None) -> int | None:
        return 0 if position is None else self._places.get(position)

    def _matches(self, items: Iterable[Item], after: int, last: int) -> list[int]:
        """Places behind `after`, up to `last`."""
        found: set[int] = set()
        for item in items:
            terms = item.tags or item.types
            fewest = min((self._index[each] for each in terms), key=len) if item.tags else None
            lists = [fewest] if fewest is not None else [self._index[each] for each in terms]
            for places in lists:
                for place in places[bisect.bisect_right(places, after) : bisect.bisect_right(places, last)]:
                    row = self.rows[place - 1]
                    if set(item.tags) <= row.tags and (not item.types or f"{TYPE}.{row.type}" in item.types):
                        found.add(place)
        return sorted(found)

    def _check_told(self, told: Told) -> None:
        places = self._of.get(told.request.id)
        match told.status, told.body.get("code"):
            case 201, _:
                self._check_receipt(told, places)
            case 409, "condition_failed":
                self._check_failed(told, places)
            case 409, "version_conflict":
                self._check_conflict(told, places)
            case 409, "not_unique":
                self._check_taken(told, places)
            case _:
                self._harm("refused", f"{told.status} {told.body} to {told.request}")

    def _check_receipt(self, told: Told, places: list[int] | None) -> None:
        if places is None:
            self._harm("lost", f"{told.request.id} was acknowledged at {told.body['position']}")
            return
        rows = [self.rows[place - 1] for place in places]
        said = told.body.get("events") or [
            {"event_id": told.body["event_id"], "length": told.body["length"], "key": told.body["key"]}
        ]
        receipts = [(each["key"], each["event_id"], each["length"]) for each in said]
        if receipts != [(row.key, row.id, row.version) for row in rows]:
            self._harm("lost", f"{told.request.id} was told {receipts}, is stored as {rows}")
        if told.body["position"] != rows[-1].position:
            self._harm("reordered", f"{told.request.id} was told another position than its last event's")
        if places[0] <= self._furthest[told.request.heard]:
            self._harm("reordered", f"{told.request.id} lies before what was known when it was sent")

    def _check_failed(self, told: Told, places: list[int] | None) -> None:
        request, body = told.request, told.body
        if places is not None:
            self._harm("refused", f"{request.id} was refused, and is stored at {places}")
        after, last = self._place(request.after), self._place(body["position"])
        if after is None or last is None:
            self._harm("wrongly refused", f"{request.id} up to {body['position']}, which is no place")
            return
        if last < self._furthest[request.heard]:
            self._harm("stale", f"{request.id} was judged up to {last}, before what was known")
        matches = self._matches(request.items, after, last)
        if not matches:
            self._harm("wrongly refused", f"{request.id}: nothing matches behind {after} up to {last}")
        if request.minimal:
            return
        shown = [self._places.get(each["position"], -1) for each in body["matched"]]
        whole = body["matched_next"] is None
        # A page that does not end in time shows fewer than MATCHED_MAX, and says where to read on.
        following = last if whole else self._place(body["matched_next"])
        if not shown or following is None or following > last or len(shown) > MATCHED_MAX:
            self._harm("matched", f"{request.id} was shown {len(shown)} up to {following} of {last}")
        elif shown != self._matches(request.items, after, following):
            self._harm("matched", f"{request.id} was shown {shown} behind {after} up to {following}")

    def _check_conflict(self, told: Told, places: list[int] | None) -> None:
        body, events = told.body, told.request.events
        number = int(body["path"].removeprefix("events[").partition("]")[0])
        asked, key = events[number].previous_length, events[number].key
        if places is not None:
            self._harm("refused", f"{told.request.id} was refused, and is stored at {places}")
        of_it = [row for row in self.rows if row.key == key]
        if asked is None or not asked < body["length"] <= len(of_it):
            self._harm("wrongly refused", f"{events[number]} by length {body['length']} of {len(of_it)}")
            return
        missed = [each["id"] for each in body.get("missed", ())]
        if missed != [row.id for row in of_it[asked : asked + len(missed)]]:
            self._harm("matched", f"{told.request.id} is shown what it did not miss")

    def _check_taken(self, told: Told, places: list[int] | None) -> None:
        names = {event.data["name"] for event in told.request.events if event.type == NAMED}
        holder = told.body["holder"]["key"] if "holder" in told.body else None
        if places is not None and not told.doubtful:
            self._harm("refused", f"{told.request.id} was refused, and is stored at {places}")
        had = {row.data["name"] for row in self.rows if row.type == NAMED and row.key == holder}
        sent = {(each.data["name"], each.key) for each in told.request.events if each.type == NAMED}
        had |= {name for name, key in sent if key == holder}
        if holder is None:  # an aggregate that the request would have created
            had = {name for name in names if len([key for of, key in sent if of == name]) > 1}
        if not names & had:
            self._harm("wrongly refused", f"{told.request.id}: {holder} never had one of {names}")

    def _check_page(self, page: Page) -> None:
        after, last = self._place(page.after), self._place(page.position)
        if after is None or last is None or last < after:
            self._harm("page", f"from {page.after} to {page.position}")
            return
        wanted = self._matches(page.items, after, last) if page.items else range(after + 1, last + 1)
        if page.ids != tuple([self.rows[place - 1].id for place in wanted]):
            self._harm("page", f"{page.items} from {after} to {last} had {len(page.ids)} events")
        if page.caught_up and last < self._furthest[page.heard]:
            self._harm("stale", f"a page ended at {last}, before what was known")
        if last < len(self.rows):
            end, following = self.rows[last - 1].data["request"], self.rows[last].data["request"]
            if last and end == following:
                self._harm("half", f"a page ends at {last}, within {end}")
