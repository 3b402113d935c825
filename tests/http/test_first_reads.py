"""Aggregates whose first read is not at its end: those of clients that have gone make room for others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.config import Config
from gateway.http.api import states as module
from gateway.http.api.states import States
from tests.support.drive import new_stream

NOTHING: Any = None


def test_of_more_than_are_remembered_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEGUN_MAX", 3)
    folder = cast(Any, SimpleNamespace(kept=NOTHING))
    states = States(NOTHING, folder, Config(redis_url="", postgres_url=""))
    places = [(new_stream(), 1, 0) for _ in range(5)]
    for place in places:
        assert states.begin_first(place)
        states.end_first(place, more=True)
    assert [states.is_begun(each) for each in places] == [False, False, True, True, True]
    assert states.begin_first(places[0])
    states.end_first(places[0], more=False)
    assert not states.is_begun(places[0])
