"""The model of the append protocol: every promise holds within its bounds, and without any one of the rules
some promise does not. docs/model.md says what is modelled."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.model.configurations import HELD, LIVE
from tests.model.search import Found, explore, strand
from tests.model.variants import BEYOND, UNSAFE

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def searches(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Found]]]:
    """What the selected tests need, under way at once on all cores."""
    here = [item for item in request.session.items if item.path == Path(__file__)]
    names = [item.callspec.params["name"] for item in here if hasattr(item, "callspec")]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        yield {name: pool.submit(_search, name) for name in names}


def _search(name: str) -> Found:
    variant = UNSAFE.get(name) or BEYOND.get(name)
    if variant is not None:
        return (strand if variant.strands else explore)(variant.scenario)
    return strand(LIVE[name].scenario) if name in LIVE else explore(HELD[name].scenario)


@pytest.mark.parametrize("name", HELD)
def test_every_promise_holds(name: str, searches: dict[str, Future[Found]]) -> None:
    found = searches[name].result()
    assert found.broken is None, found.told()


@pytest.mark.parametrize("name", LIVE)
def test_a_way_leads_to_rest_from_every_state(name: str, searches: dict[str, Future[Found]]) -> None:
    found = searches[name].result()
    assert found.broken is None, found.told()


@pytest.mark.parametrize("name", UNSAFE)
def test_a_protocol_without_one_of_the_rules_is_caught(name: str, searches: dict[str, Future[Found]]) -> None:
    found = searches[name].result()
    assert UNSAFE[name].breaks in (found.broken or ""), found.told()


@pytest.mark.parametrize("name", BEYOND)
def test_a_fault_beyond_the_promises_is_found_to_be_one(
    name: str, searches: dict[str, Future[Found]]
) -> None:
    found = searches[name].result()
    assert BEYOND[name].breaks in (found.broken or ""), found.told()
