"""The live feed of the console: what a person is shown of a quiet feed, and of more than a person reads."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import pytest

from gateway.catalog.model import Scope
from gateway.console import live_feed
from gateway.console.live_feed import Gap, following, newest
from gateway.relay.position import Place, encode_one
from tests.console.test_site import person, signed_in, token_of
from tests.support.accounts import Account, revoked
from tests.support.calls import JSON, appended, batch, new_client, new_id
from tests.support.serving import Served

__all__ = ("person", "signed_in")
LIVE = "/_/console/feed/live"
BURST = 5000


def position(seq: int) -> str:
    return encode_one(3, Place(seq, b"mark"))


def page(seqs: Sequence[int], *, at: int = 0, caught_up: bool) -> dict[str, Any]:
    return {
        "events": [{"position": position(seq)} for seq in seqs],
        "position": position(at),
        "caught_up": caught_up,
    }


def shown(look: Any) -> tuple[list[str], Gap | None, bool]:
    return [each["position"] for each in look.events], look.gap, look.ahead


def test_a_page_of_the_newest_shows_only_what_was_not_shown() -> None:
    look = newest(page([9, 8, 7, 6], caught_up=False), position(7))
    assert shown(look) == ([position(8), position(9)], None, False)
    assert look.position == position(9)
    nothing = newest(page([7, 6], caught_up=False), position(7))
    assert (shown(nothing), nothing.position) == (([], None, False), position(7))


def test_a_gap_is_told_with_its_bounds() -> None:
    look = newest(page([109, 108, 107], caught_up=False), position(7))
    gap = Gap(position(7), position(107), 99)
    assert shown(look) == ([position(107), position(108), position(109)], gap, True)


def test_no_gap_is_told_where_nothing_can_lie_between() -> None:
    assert newest(page([9, 8], caught_up=False), position(7)).gap is None, "the next one"
    assert newest(page([109, 108], caught_up=True), position(7)).gap is None, (
        "nothing older passes the filter"
    )


def test_a_search_that_found_nothing_yet_continues_from_where_it_is() -> None:
    look = following(page([], at=20_000, caught_up=False))
    assert (shown(look), look.position) == (([], None, False), position(20_000))


class Stream:
    """The looks that a live feed sends."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()
        self.position = ""

    async def next(self) -> tuple[str, Any]:
        """The kind of the next message and what it says."""
        kind = ""
        async for line in self._lines:
            name, _, text = line.partition(": ")
            if name == "id":
                self.position = text
            elif name == "event":
                kind = text
            elif name == "data":
                return kind, json.loads(text)
        return "end", None

    async def open(self) -> None:
        """Once it stands at the end of what is committed."""
        async for line in self._lines:
            if line.startswith("id: "):
                self.position = line[4:]
                return

    async def rows_until(self, event_id: str) -> tuple[list[Any], list[Any]]:
        """Rows and gaps up to an event."""
        rows: list[Any] = []
        gaps: list[Any] = []
        while not rows or rows[-1]["id"] != event_id:
            kind, look = await self.next()
            assert kind == "look", (kind, look)
            gaps += [look["gap"]] if look["gap"] else []
            rows += look["rows"]
        return rows, gaps


@asynccontextmanager
async def live(person: httpx.AsyncClient, **query: str) -> AsyncIterator[Stream]:
    async with person.stream("GET", LIVE, params={"after": "now", **query}, timeout=30) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert "default-src 'none'" in response.headers["content-security-policy"]
        yield Stream(response)


async def burst(client: httpx.AsyncClient, count: int = BURST, **data: str) -> str:
    """So many events of one aggregate, 1,000 a request; the id of the last one."""
    key, each = new_id(), min(count, 1000)
    for _ in range(count // each):
        body = batch(*[("was_noted", {"text": "x" * 500, **data})] * each)
        answer = await client.post(f"/order/{key}", json=body, headers=JSON)
        assert answer.status_code == 201, answer.text
    return str(answer.json()["event_ids"][-1])


async def test_a_quiet_feed_shows_every_event_in_order_none_twice(
    signed_in: httpx.AsyncClient, gateway: Served, shop: Account
) -> None:
    async with new_client(gateway.url, shop.write) as client, live(signed_in) as stream:
        await stream.open()
        written = [(await appended(client, "order", new_id(), "was_noted"))["event_id"] for _ in range(5)]
        first, gaps = await stream.rows_until(written[-1])
        later = (await appended(client, "order", new_id(), "was_noted", {"n": 1}))["event_id"]
        rows, more_gaps = await stream.rows_until(later)
    assert [each["id"] for each in first + rows] == [*written, later]
    assert gaps + more_gaps == []
    assert rows[-1]["data"] == '{"n":1}' and rows[-1]["actor"] == "user"


async def test_a_burst_is_shown_in_part_with_what_is_left_out_and_its_last_event(
    signed_in: httpx.AsyncClient, gateway: Served, shop: Account, pool: asyncpg.Pool
) -> None:
    async with new_client(gateway.url, shop.write) as client, live(signed_in) as stream:
        await stream.open()
        began = stream.position
        last = await burst(client)
        rows, gaps = await stream.rows_until(last)
        query = {"after": began, "limit": 1000}
        seen: list[str] = []
        while len(seen) < BURST:
            answer = (await client.get("/_/feed", params=query)).json()
            seen += [each["id"] for each in answer["events"]]
            query["after"] = answer["position"]
    assert len(rows) <= BURST // 10, "far fewer than were committed"
    order = {each: number for number, each in enumerate(seen)}
    numbers = [order[each["id"]] for each in rows]
    assert numbers == sorted(set(numbers)), "in order, none twice"
    assert all(len(each["data"]) <= 120 for each in rows)
    assert gaps
    places = {each["position"]: order[each["id"]] for each in rows}
    for gap in gaps:
        first = places[gap["before"]]
        before = max([number for number in numbers if number < first], default=-1)
        assert gap["up_to"] >= first - before - 1 > 0
        assert gap["after"] in {began, *places}
    told = sum(gap["up_to"] for gap in gaps)
    assert told >= BURST - len(rows), "what was left out is told"


async def test_a_filter_that_matches_few_shows_them_all_beside_a_burst(
    signed_in: httpx.AsyncClient, gateway: Served, shop: Account
) -> None:
    async with (
        new_client(gateway.url, shop.write) as client,
        live(signed_in, types="order", event_types="was_placed") as stream,
    ):
        await stream.open()
        written = []
        for _ in range(3):
            await burst(client, 1000)
            written.append(
                (await appended(client, "order", new_id(), "was_placed", {"total": 1}))["event_id"]
            )
        rows, gaps = await stream.rows_until(written[-1])
    assert [each["id"] for each in rows] == written
    assert gaps == []


async def test_a_page_of_the_feed_continues_live_where_it_ends(
    signed_in: httpx.AsyncClient, gateway: Served, shop: Account
) -> None:
    async with new_client(gateway.url, shop.write) as client:
        await appended(client, "order", new_id(), "was_noted")
        shown = (await signed_in.get("/_/console/feed")).text
        found = re.search(r'id="position">([^<]+)<', shown)
        assert found is not None
        between = (await appended(client, "order", new_id(), "was_noted"))["event_id"]
        async with live(signed_in, after=found[1]) as stream:
            rows, _ = await stream.rows_until(between)
        assert [each["id"] for each in rows] == [between]
        headers = {"last-event-id": stream.position}
        later = (await appended(client, "order", new_id(), "was_noted"))["event_id"]
        async with signed_in.stream("GET", LIVE, params={"after": found[1]}, headers=headers) as response:
            rows, _ = await Stream(response).rows_until(later)
        assert [each["id"] for each in rows] == [later], "a browser resumes where it was"
        older = (await signed_in.get("/_/console/feed", params={"after": found[1]})).text
        assert 'id="live"' in shown and 'id="live"' not in older


async def test_a_filter_that_cannot_be_read_is_said_to_the_viewer(signed_in: httpx.AsyncClient) -> None:
    async with live(signed_in, types="Not A Name") as stream:
        kind, told = await stream.next()
        assert (kind, await stream.next()) == ("refused", ("end", None))
        assert "types" in told["error"]


async def test_a_live_feed_ends_with_its_key(
    signed_in: httpx.AsyncClient, gateway: Served, shop: Account, pool: asyncpg.Pool
) -> None:
    async with live(signed_in) as stream, new_client(gateway.url, shop.write) as client:
        await stream.open()
        await revoked(pool, shop, Scope.ADMIN)
        kind = ""
        while kind not in ("refused", "end"):
            await appended(client, "order", new_id(), "was_noted")
            kind, _ = await stream.next()
        assert kind == "refused"


async def test_a_live_feed_ends_with_its_session(
    signed_in: httpx.AsyncClient, gateway: Served, shop: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_feed, "SESSION_S", 0.0)
    csrf = await token_of(signed_in)
    async with live(signed_in) as stream, new_client(gateway.url, shop.write) as client:
        await stream.open()
        event_id = (await appended(client, "order", new_id(), "was_noted"))["event_id"]
        await stream.rows_until(event_id)
        assert (await signed_in.post("/_/console/sign-out", data={"csrf": csrf})).status_code == 303
        kind = ""
        while kind not in ("refused", "end"):
            await appended(client, "order", new_id(), "was_noted")
            kind, told = await stream.next()
        assert (kind, told["error"]) == ("refused", live_feed.SIGNED_OUT)
