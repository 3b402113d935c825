"""Who calls, whether the key reaches far enough, and whether it asks too often."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from gateway.buckets import Buckets
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import CatalogUnavailable, Principal, Scope
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http.addresses import Addresses
from gateway.http.bounds import Bounded, Limited, Received, look_ups_of
from gateway.http.late_bodies import looked_at_late
from gateway.http.request import TICKETED, Head, Receive, Refused
from gateway.http.request import Scope as AsgiScope
from gateway.http.routes import Route
from gateway.http.tickets import as_stream, is_for, take_ticket
from gateway.postgres.connection_errors import UNANSWERED

UNAUTHORIZED = Refusal("unauthorized", "Send a valid key as `Authorization: Bearer <key>`.")

_NO_TICKET = Refusal(
    "unauthorized", "This ticket is used, expired, or for another stream; ask for a new one."
)

SUSPENDED = Refusal("tenant_suspended", "This tenant is suspended. Ask the operator of the gateway.")


HELD_BACK_S = 2.0
"""How long an address that tried too many unknown keys waits for each further answer."""

_T = TypeVar("_T")

_SPEC_UNREAD = "this gateway can't read the spec that is deployed; its log says why."


_MINUTE_S = 60


class RateLimits:
    """How often one may ask: requests of a key, and unknown keys from an address. Each gateway counts for
    itself and forgets when it ends: n gateways allow n times as much. A limit that is not set is None, and
    costs a comparison."""

    def __init__(self, config: Config, limited: Limited, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._limited = limited
        per_s, failures = config.rate_limit_per_s, config.unknown_keys_per_min
        self._per_s = per_s
        self._requests = Buckets(per_s, config.rate_limit_burst or per_s) if per_s else None
        self._failures = Buckets(failures / _MINUTE_S, failures) if failures else None

    def request(self, key_handle: str) -> None:
        """Counts a request of this key. Raises Refused (429) when it has sent too many."""
        if self._requests is None:
            return
        wait_s = self._requests.take(key_handle, self._clock())
        if wait_s:
            self._limited.count("rate", key_handle)
            plural = "" if self._per_s == 1 else "s"
            raise _too_often(f"This key may send {self._per_s} request{plural} per second", wait_s)

    def may_request(self, key_handle: str) -> bool:
        """Counts a request of this key, if it may send one."""
        return self._requests is None or not self._requests.take(key_handle, self._clock())

    def uncount(self, key_handle: str) -> None:
        if self._requests is not None:
            self._requests.give_back(key_handle)

    def unknown_key(self, asker: str, address: str) -> None:
        """Counts a key that has to be looked up as unknown, for one who is at that address; `known` takes it
        back. Raises Refused (429) when too many of the same asker were unknown."""
        if self._failures is None:
            return
        wait_s = self._failures.take(asker, self._clock())
        if wait_s:
            self._limited.count("unknown_keys", address)
            raise _too_often(f"Too many different unknown keys came from {address}", wait_s)

    def known(self, asker: str) -> None:
        if self._failures is not None:
            self._failures.give_back(asker)


class Authenticator:
    def __init__(
        self,
        catalog: Catalog,
        addresses: Addresses,
        limits: RateLimits,
        requests: Bounded,
        bodies: Bounded,
        limited: Limited,
    ) -> None:
        self._catalog = catalog
        self._addresses = addresses
        self._limits = limits
        self._requests = requests
        self._bodies = bodies
        self._look_ups, self._look_ups_of_ours = look_ups_of(limited), look_ups_of(limited)
        self._look_ups_of_console = look_ups_of(limited)

    async def principal(self, head: Head) -> Principal:
        """Raises Refused: 401 for a missing or unknown key, 400 for two different ones, 429 where too many
        keys from there were unknown."""
        if head.ticketed is not None:
            return head.ticketed
        if head.repeated and len(set(head.all(b"authorization"))) > 1:
            raise Refused(Refusal("bad_request", "Two different Authorization headers were sent; send one."))
        token = bearer_of(head)
        if token is None:
            raise Refused(UNAUTHORIZED)
        known = self._catalog.principal(token) or await self._look_up(token, head)
        if known is None:
            raise Refused(UNAUTHORIZED)
        return known

    async def redeem(self, scope: AsgiScope) -> None:
        """Takes the ticket out of the query of a stream that comes without a key, and notes whose it is; any
        other request stays as it is. Raises Refused (401) and CatalogUnavailable."""
        head = Head(scope)
        asked = take_ticket(scope, head)
        if asked is None:
            return
        address = self._addresses.client(head)
        if address is not None:
            self._limits.unknown_key(str(address), address)
        found = await self._found(str(address), partial(self._catalog.redeem, asked.ticket))
        if found is None or not is_for(found[0], asked):
            raise Refused(_NO_TICKET)
        as_stream(scope, asked.query)
        scope[TICKETED] = found[1]

    def known(self, value: bytes | None) -> Principal | None:
        """Whose key this one Authorization header brings, where memory tells; None: ask `principal`."""
        if value is None or not value.startswith(b"Bearer "):
            return None
        return self._catalog.principal(value[7:].decode("latin-1"))

    def last_known(self, token: str) -> Principal | None:
        """Whose key this was when Postgres last confirmed it (`Catalog.last_known`)."""
        return self._catalog.last_known(token)

    def handle(self, value: bytes | None) -> str:
        """Of the key that an Authorization header brings, where memory tells; else ""."""
        scheme, _, token = (value or b"").partition(b" ")
        known = self._catalog.principal(token.strip().decode("latin-1")) if scheme else None
        return "" if known is None else known.handle

    async def _look_up(self, token: str, head: Head) -> Principal | None:
        """A key that Postgres has to be asked for counts with its address. One that names a tenant of ours
        counts apart from the address' others: a flood of made-up keys takes nothing from honest clients,
        who may come through the same proxy."""
        asked = self._catalog.would_ask(token)
        if asked is None:
            return await self._catalog.authenticate(token)
        address = self._addresses.client(head)
        ours = self._catalog.has_tenant(asked.handle)
        asker = f"{address} {asked.handle}" if ours else str(address)
        if address is not None:
            try:
                self._limits.unknown_key(asker, address)
            except Refused:
                # A program that tries keys asks again as soon as it is answered: thousands of connections of
                # one would leave the event loop no time for other requests.
                await asyncio.sleep(HELD_BACK_S)
                raise
        with (self._look_ups_of_ours if ours else self._look_ups).held(asker):
            return await self._found(asker, partial(self._catalog.authenticate, token))

    async def session(self, head: Head, find: Callable[[], Awaitable[_T | None]]) -> _T | None:
        """What Postgres finds of a session of the console. One that it does not find counts with its address,
        as an unknown key does, but apart from keys. Raises Refused (429)."""
        address = self._addresses.client(head)
        asker = f"{address} console"
        if address is not None:
            self._limits.unknown_key(asker, address)
        with self._look_ups_of_console.held(asker):
            return await self._found(asker, find)

    async def _found(self, asker: str, find: Callable[[], Awaitable[_T | None]]) -> _T | None:
        """What Postgres finds. While it does not answer, nothing is unknown either."""
        try:
            found = await find()
        except (*UNANSWERED, CatalogUnavailable):
            self._limits.known(asker)
            raise
        if found is not None:
            self._limits.known(asker)
        return found

    def begin(self, principal: Principal, scope: Scope, *, by_spec: bool = True) -> None:
        """Counts a request of this key as under way, until `end`. Raises Refused: 403 where the key's scope
        does not reach or its tenant is suspended, 429 where it has or sent too many requests, and 503 where
        the request is judged `by_spec` and this gateway could read none of the tenant's."""
        require(principal, scope)
        if scope is not Scope.OPERATOR:
            self.require_active(principal)
        handle = principal.handle
        self._requests.begin(handle)
        try:
            self._limits.request(handle)
            if by_spec and self._catalog.unserved(principal.tenant.id):
                raise Refused(spec_unread(scope))
        except Refused:
            self._requests.end(handle)
            raise

    def require_active(self, principal: Principal) -> None:
        """Raises Refused (403) where the key's tenant is suspended."""
        if self._catalog.resting(principal.tenant.id):
            raise Refused(SUSPENDED)

    def begin_at_once(self, principal: Principal, scope: Scope) -> bool:
        """As `begin`, for a request that passes. False: nothing was counted, not even a refusal; the
        application begins it, and says why."""
        handle = principal.handle
        if (
            principal.scope < scope
            or not self._catalog.serves(principal.tenant.id)
            or self._requests.bound(handle)
        ):
            return False
        if self._limits.may_request(handle):
            return True
        self._requests.end(handle)
        return False

    def end(self, principal: Principal) -> None:
        """A request that was begun is answered."""
        self._requests.end(principal.handle)

    @contextmanager
    def served(
        self, head: Head, principal: Principal, scope: Scope, receive: Receive, *, by_spec: bool = True
    ) -> Iterator[Receive]:
        """From `begin` to `end`. By what it gives, the request's body is received and counted: for those who
        hold it whole. A key that ends, or whose tenant is suspended, before a body that comes slowly opens
        nothing. Raises Refused as `begin` does."""
        self.begin(principal, scope, by_spec=by_spec)
        late = looked_at_late(receive, partial(self._look_again, head, scope))
        received = Received(self._bodies, principal.handle, late)
        try:
            yield received.receive
        finally:
            received.end()
            self.end(principal)

    async def _look_again(self, head: Head, scope: Scope) -> None:
        """Raises Refused as `begin` would by now."""
        principal = await self.principal(head)
        if scope is not Scope.OPERATOR:
            self.require_active(principal)

    def take_back(self, principal: Principal) -> None:
        """Its request ends here, and will be begun once more."""
        self._requests.end(principal.handle)
        self._limits.uncount(principal.handle)


def spec_unread(scope: Scope) -> Refusal:
    if scope is Scope.WRITE:
        return Refusal("not_committed", f"The event will never appear: {_SPEC_UNREAD}")
    return Refusal("unavailable", _SPEC_UNREAD[0].upper() + _SPEC_UNREAD[1:])


def require_narrow(principal: Principal, route: Route) -> None:
    """Raises Refused (403) where a narrowed key comes to a path that knows no such keys."""
    if principal.only is not None and not route.narrow:
        raise Refused(narrowed(principal))


def narrowed(principal: Principal) -> Refusal:
    """What the key is narrowed to does not have what is asked for."""
    names = ", ".join(principal.only.names) if principal.only else ""
    return Refusal("forbidden", f"This key is narrowed to {names}; the request reaches beyond that.")


def bearer_of(head: Head) -> str | None:
    """The key that a request brings; None without an `Authorization`, or where that is of another scheme."""
    value = head.get(b"authorization")
    if value is None:
        return None
    scheme, _, token = value.decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def require(principal: Principal, scope: Scope) -> None:
    """Raises Refused (403) where the key's scope does not reach."""
    if principal.scope < scope:
        raise Refused(
            Refusal(
                "forbidden",
                f"This key has the scope {principal.scope.text}; the request needs {scope.text}.",
            )
        )


def _too_often(why: str, wait_s: float) -> Refused:
    seconds = math.ceil(wait_s)
    refusal = Refusal("rate_limited", f"{why}; try again in {seconds} s.")
    return Refused(refusal, [(b"retry-after", b"%d" % seconds)])
