"""Events as the present spec sees them, for requests with `upcast=true`.

Owns: where that is done, so that it holds up nothing else. Must not know: how data are brought to a revision.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from uuid import UUID

from gateway.aside import Aside, Busy
from gateway.catalog.catalog import Catalog
from gateway.config import Config
from gateway.errors import Refusal
from gateway.events import Recorded
from gateway.http.request import Refused
from gateway.state import AT_ONCE_LOOKS, Budget, TakesLong, declared_in, is_old, upcast
from spec.model import Spec

_AT_ONCE_EVENTS = 20
_AT_ONCE_BYTES = 64 * 1024
_PIECE_S = 0.5


class Upcasts:
    def __init__(self, catalog: Catalog, aside: Aside, config: Config) -> None:
        self._catalog = catalog
        self._aside = aside
        self._deadline_s = config.fold_deadline_s

    def one(self, recorded: Recorded) -> Recorded:
        """For what was just committed, which an earlier revision of the spec has only for a few seconds."""
        spec = self._spec(recorded.stream.tenant)
        return recorded if spec is None else upcast(recorded, declared_in(spec, recorded))

    async def all(self, tenant: bytes, events: Sequence[Recorded]) -> tuple[Recorded, ...]:
        """Raises Refused (503)."""
        spec = self._spec(tenant)
        if spec is None:
            return tuple(events)
        old = [each for each in events if is_old(each, declared_in(spec, each))]
        if not old:
            return tuple(events)
        size = sum(len(each.event.payload or b"") for each in old)
        if len(old) <= _AT_ONCE_EVENTS and size <= _AT_ONCE_BYTES:
            try:
                return tuple(_brought(spec, events, Budget(at_once=AT_ONCE_LOOKS), None))
            except TakesLong:
                pass
        return await self._beside(spec, tenant, events)

    async def _beside(self, spec: Spec, tenant: bytes, events: Sequence[Recorded]) -> tuple[Recorded, ...]:
        """In pieces, between which others of the tenant have their turn."""
        made: list[Recorded] = []
        until = time.monotonic() + self._deadline_s
        while len(made) < len(events):
            if time.monotonic() > until:
                why = "Upcasting these events to their present revision takes too long; request fewer."
                raise Refused(Refusal("unavailable", why))
            work = partial(_brought, spec, events[len(made) :], Budget(), _PIECE_S)
            try:
                made += await self._aside.run(tenant, work)
            except Busy as busy:
                raise Refused(Refusal("unavailable", busy.why)) from busy
        return tuple(made)

    def _spec(self, tenant: bytes) -> Spec | None:
        deployed = self._catalog.deployed(UUID(bytes=tenant))
        return None if deployed is None else deployed.reading


def _brought(spec: Spec, events: Sequence[Recorded], budget: Budget, seconds: float | None) -> list[Recorded]:
    """As many of them as the time allows, one at least."""
    ends = None if seconds is None else time.monotonic() + seconds
    made: list[Recorded] = []
    for each in events:
        made.append(upcast(each, declared_in(spec, each), budget=budget))
        if ends is not None and time.monotonic() > ends:
            break
    return made
