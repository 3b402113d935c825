"""Events of a spec that another gateway knew first: they count once this one knows it, with their data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock
from uuid import UUID

import msgspec
import pytest

from gateway.catalog.model import Deployed
from gateway.follow.events import Page
from gateway.reactions.database import Unreadable
from gateway.reactions.reactor import Reactor
from gateway.reactions.specs import Specs
from gateway.relay.position import Place
from tests.follow.test_reactions_in_turns import TENANT, happened, spec

NEW = spec({})
OLD = replace(NEW, aggregate_types={})
ROW: dict[str, Any] = {"p": 0, "seq": 0, "mark": bytes(4), "caught_up_at": None, "at": None}


class Known:
    """A catalog that knows of another deployment only once it is refreshed."""

    def __init__(self, now: Deployed | None, later: Deployed | None) -> None:
        self._now, self._later = now, later

    def deployed(self, _: UUID) -> Deployed | None:
        return self._now

    async def refresh(self) -> None:
        self._now = self._later


class Pages:
    """One event of revision 2."""

    def __init__(self) -> None:
        self.types: list[Sequence[str]] = []

    async def page(self, _tenant: bytes, _p: int, _after: Place, types: Sequence[str]) -> Page:
        self.types.append(types)
        return Page([revised(happened("was_timed", b"{}"), 2)], Place(1, b"mark"), 1)


def revised(found: Any, revision: int) -> Any:
    event = msgspec.structs.replace(found.recorded.event, spec_rev=revision)
    recorded = msgspec.structs.replace(found.recorded, event=event)
    return msgspec.structs.replace(found, recorded=recorded)


def reacting(known: Known) -> tuple[Reactor, Pages, AsyncMock]:
    reactor, pages, timers = Reactor.__new__(Reactor), Pages(), AsyncMock(return_value=[])
    reactor._specs = Specs(None, known)  # type: ignore[arg-type]
    reactor._events = pages  # type: ignore[assignment]
    reactor._caught_up = {}
    reactor._timers = timers  # type: ignore[method-assign]
    reactor.coordinator = AsyncMock(look=AsyncMock(return_value=[]))
    reactor._move = AsyncMock(return_value=True)  # type: ignore[method-assign]
    return reactor, pages, timers


@pytest.mark.parametrize("before", [None, Deployed(1, OLD, b"")])
async def test_events_of_a_newer_spec_are_read_once_it_is_known(before: Deployed | None) -> None:
    reactor, pages, timers = reacting(Known(before, Deployed(2, NEW, b"")))
    await reactor._follow(TENANT, ROW)
    assert "thing" in pages.types[-1]
    timers.assert_awaited_once()


@pytest.mark.parametrize("known", [None, Deployed(1, OLD, b"")])
async def test_events_of_a_spec_that_can_not_be_known_are_left(known: Deployed | None) -> None:
    reactor, _, timers = reacting(Known(known, known))
    with pytest.raises(Unreadable):
        await reactor._follow(TENANT, ROW)
    timers.assert_not_awaited()
