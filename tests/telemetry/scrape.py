"""The metrics page, read as Prometheus reads it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import httpx
from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """Samples by name and labels."""

    def __init__(self, page: str) -> None:
        self.samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        """The value; 0 where it has not been counted yet."""
        return self.samples.get((name, tuple(sorted(labels.items()))), 0.0)

    def all(self, name: str) -> list[float]:
        return [value for (found, _), value in self.samples.items() if found == name]


async def scrape(client: httpx.AsyncClient) -> Scrape:
    response = await client.get("/_/metrics")
    assert response.status_code == 200, response.text
    return Scrape(response.text)


async def scraped_until(
    client: httpx.AsyncClient, holds: Callable[[Scrape], object], within_s: float = 40.0
) -> Scrape:
    """The first scrape that holds; fails when none does in time."""
    deadline = time.monotonic() + within_s
    while not holds(found := await scrape(client)):
        assert time.monotonic() < deadline, found.samples
        await asyncio.sleep(0.02)
    return found
