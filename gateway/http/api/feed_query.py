"""What a request wants of the feed: whose events, from where, in which order, up to which number.

Owns: the query and the headers that say so, and what of them is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from gateway.admit.address import unknown_actor
from gateway.admit.items import read_tag, with_tags
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Principal
from gateway.errors import Refusal
from gateway.http.api.reads import PAGE_EVENTS_MAX, unavailable
from gateway.http.authentication import narrowed
from gateway.http.declared import undeclared_name
from gateway.http.parameters import Parameters, uuid_of
from gateway.http.request import Refused
from gateway.items import Items
from gateway.postgres.errors import PostgresTrouble
from gateway.relay.channel import Known
from gateway.relay.outbox import Filter, Outbox
from gateway.relay.position import START, Position, decode
from spec.errors import shown
from spec.identifiers import RESERVED_ACTOR_PREFIX, SYSTEM_ACTOR_IDS, canonicalize, is_name
from spec.model import Spec

_T = TypeVar("_T")
WAIT_S_MAX = 60
FROM_BEGINNING, FROM_NOW = "beginning", "now"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request wants of the feed; `limit` is None where it names none. `after` is None for the newest
    events, which are `newest_first`, down to the seq `floor`. `holder` is the handle of its key. `live`
    passes what `wanted` does while all that is committed is `known`; None where they are one."""

    holder: str
    wanted: Filter
    after: Position | None
    limit: int | None
    wait_s: int
    live: Filter
    known: Known | None
    upcast: bool = False
    newest_first: bool = False
    floor: int = 1


class FeedQuery:
    def __init__(self, outbox: Outbox, catalog: Catalog) -> None:
        self._outbox = outbox
        self._catalog = catalog

    async def asked(
        self,
        principal: Principal,
        query: Parameters,
        resumed: bytes | None,
        items: Items,
        newest_first: bool,
    ) -> Asked:
        """`resumed` is a `Last-Event-ID`. Raises Refused."""
        limit, wanted, wait_s, upcast = self._read(principal, query, items)
        floor = 1
        if resumed is not None:
            after: Position | None = _position(resumed.decode("latin-1"), "Last-Event-ID")
        else:
            after, floor = await self._between(wanted.tenant, query, newest_first)
        known = self._known(principal)
        live = wanted if known is None else known.canonical(wanted)
        known = None if live == wanted else known
        return Asked(principal.handle, wanted, after, limit, wait_s, live, known, upcast, newest_first, floor)

    def require_readable(
        self, principal: Principal, query: Parameters, resumed: bytes | None, *, live: bool
    ) -> None:
        """Raises Refused as `asked` would, as far as no database is needed for it: before a body is read."""
        is_newest_first(query, live=live)
        self._read(principal, query, ())
        text = query.text("after")
        if resumed is not None:
            _position(resumed.decode("latin-1"), "Last-Event-ID")
        elif text not in (None, FROM_BEGINNING, FROM_NOW):
            _position(text, "after")
        query.instant_ms("from_time")

    def _read(
        self, principal: Principal, query: Parameters, items: Items
    ) -> tuple[int | None, Filter, int, bool]:
        """The limit, the events that are wanted, the seconds to wait, and `upcast`. Raises Refused."""
        limit = query.integer("limit", 0, 1, PAGE_EVENTS_MAX) or None
        wanted = self._wanted(principal, query, self._tagged(principal, query, items))
        return limit, wanted, query.integer("wait", 0, 0, WAIT_S_MAX), query.boolean("upcast")

    async def _between(
        self, tenant: bytes, query: Parameters, newest_first: bool
    ) -> tuple[Position | None, int]:
        """Where reading begins, and newest first the seq where it ends. Raises Refused."""
        text, from_ms = query.text("after"), query.instant_ms("from_time")
        if from_ms is None:
            return None if newest_first and text is None else await self._after(tenant, text), 1
        if text is not None and not newest_first:
            why = "`from_time` and `after` both say where to begin; send only one of them."
            raise Refused(Refusal("invalid_field", why, "from_time"))
        try:
            place = await self._outbox.before_time(tenant, from_ms)
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble
        if newest_first:
            return None if text is None else await self._after(tenant, text), place.seq + 1
        return START.moved(self._outbox.partition(tenant), place), 1

    def _wanted(self, principal: Principal, query: Parameters, items: Items) -> Filter:
        """Raises Refused: among others where the spec declares no such type."""
        types, event_types = query.names("types"), query.names("event_types")
        only = principal.only
        if only is not None and not types <= only.all_types:
            raise Refused(narrowed(principal))
        spec, _ = self.spec(principal, query)
        if spec is not None:
            refusal = undeclared_name(
                spec,
                [(name, "types") for name in sorted(types)],
                [(name, "event_types") for name in sorted(event_types)],
            )
            if refusal is not None:
                raise Refused(refusal)
        return Filter(
            principal.tenant.id.bytes,
            types or (frozenset() if only is None else only.all_types),
            event_types,
            items,
            correlation_of(query),
            actor_of(query, spec),
            only if only is not None and (only.aggregates or only.events) else None,
        )

    def spec(self, principal: Principal, query: Parameters) -> tuple[Spec | None, bytes]:
        """To whose names the request is held, if to any's, and what hashed tags are hashed with."""
        deployed = self._catalog.deployed(principal.tenant.id)
        if deployed is None:
            return None, b""
        return None if query.boolean("include_undeclared") else deployed.reading, deployed.salt

    def _tagged(self, principal: Principal, query: Parameters, items: Items) -> Items:
        """With `tags`, which are one item: where the body has items, each of them has to have these too."""
        text = query.text("tags")
        if text is None:
            return items
        spec, salt = self.spec(principal, query)
        tags = [read(read_tag(tag, spec, salt, "tags")) for tag in text.split(",")]
        return read(with_tags(items, tags, "tags"))

    def _known(self, principal: Principal) -> Known | None:
        deployed = self._catalog.deployed(principal.tenant.id)
        if deployed is None:
            return None
        types = deployed.reading.aggregate_types
        events = frozenset([name for each in types.values() for name in each.events])
        return Known(deployed.revision, frozenset(types), events)

    async def _after(self, tenant: bytes, text: str | None) -> Position:
        if text is None or text == FROM_BEGINNING:
            return START
        if text == FROM_NOW:
            try:
                return await self._outbox.end(tenant)
            except PostgresTrouble as trouble:
                raise Refused(unavailable()) from trouble
        return _position(text, "after")


def read(found: _T | Refusal) -> _T:
    """Raises Refused."""
    if isinstance(found, Refusal):
        raise Refused(found)
    return found


def _position(text: str, where: str) -> Position:
    position = decode(text)
    if position is None:
        raise Refused(invalid("Send a position exactly as the feed returned it, or none.", where))
    return position


def invalid(why: str, where: str = "after") -> Refusal:
    return Refusal("invalid_position", f"`{where}` is not a position in this feed. {why}", where)


def correlation_of(query: Parameters) -> bytes | None:
    """Raises Refused (422)."""
    text = query.text("correlation_id")
    found: UUID | None = None if text is None else uuid_of(text, "correlation_id")
    return None if found is None else found.bytes


def actor_of(query: Parameters, spec: Spec | None) -> tuple[str, str] | None:
    """`actor=type:id`, the id in its canonical spelling; held to what the spec declares, if there is one.
    Raises Refused (422)."""
    text = query.text("actor")
    if text is None:
        return None
    kind, colon, key = text.partition(":")
    if not colon or not is_name(kind):
        raise Refused(Refusal("invalid_field", "An actor is `type:id`, such as `user:global`.", "actor"))
    of_system = kind.startswith(RESERVED_ACTOR_PREFIX)
    if of_system and key in SYSTEM_ACTOR_IDS:
        return kind, key
    if spec is not None and kind not in spec.agent_types and not of_system:
        raise Refused(unknown_actor(kind, spec, "actor"))
    canonical = canonicalize(key, frozenset() if spec is None else spec.singletons)
    if canonical is None and spec is None and is_name(key):  # a singleton that was withdrawn
        canonical = key
    if canonical is None:
        why = f"{shown(key)} is not an id that an actor can have."
        raise Refused(Refusal("invalid_identifier", why, "actor"))
    return kind, canonical


def is_newest_first(query: Parameters, *, live: bool) -> bool:
    """Raises Refused (422) where events that are yet to come are asked for in that order."""
    if query.choice("order", ("asc", "desc"), "asc") == "asc":
        return False
    if live or query.given("wait"):
        why = "`order=desc` leads to older events: it neither follows nor waits for new ones."
        raise Refused(Refusal("invalid_field", why, "order"))
    return True
