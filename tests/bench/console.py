"""What the console costs appends, and what its pages take beside them.

    python -m tests.bench.console [--seconds 3] [--rounds 1] [--only PATTERN] [--json FILE]

console/off              appends to 1,000 aggregates, as append/streams, by a gateway that serves no console
console/on               the same, where one is served and no browser looks
console/overviews        the same beside ten overviews, each read again every ten seconds, as browsers do
console/feeds            the same beside ten feeds that go live, of all events
console/page/NAME        one page after another, beside as many appends: the overview, the feed, an aggregate
                         of 10 events, one of 10,000 at its end

Names end in the number of connections that append.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import httpx

from tests.bench import orders
from tests.bench.http_load import fill, post
from tests.bench.load import Traffic, drive
from tests.bench.measured import Measured
from tests.bench.stand import Served, Stand
from tests.bench.suite import Options, Scenario, main

ROOT = "/_/console"
CONSOLES = 10
AGAIN_S = 10.0
"""As the page says itself (`hx-trigger`)."""
SHORT, LONG = "a0000000-0000-4000-b000-000000000010", "a0000000-0000-4000-b000-000000010000"
"""Keys of the aggregates of 10 and of 10,000 events."""
BATCH = 1000
PAGES = {
    "overview": "/overview",
    "feed": "/feed",
    "aggregate_10": f"/aggregates/{orders.TYPE}/{SHORT}",
    "aggregate_10000": f"/aggregates/{orders.TYPE}/{LONG}",
}


def scenarios(options: Options) -> list[Scenario]:
    n = options.usual_connections
    against = f"console/off/{n}"
    return [
        Scenario(against, "append", (201,), partial(_append, options, n, False, None)),
        Scenario(f"console/on/{n}", "append", (201,), partial(_append, options, n, True, None), against),
        *(
            Scenario(
                f"console/{name}/{n}", "append", (201,), partial(_append, options, n, True, look), against
            )
            for name, look in (("overviews", _overview), ("feeds", _feed))
        ),
        *(
            Scenario(f"console/page/{name}/{n}", "page", (200,), partial(_page, options, n, path))
            for name, path in PAGES.items()
        ),
    ]


Look = Callable[[httpx.AsyncClient, int], Coroutine[object, object, None]]


async def _append(
    options: Options, connections: int, served_too: bool, look: Look | None, stand: Stand
) -> Measured:
    paths = [orders.append_path(key) for key in orders.keys(options.streams)]
    async with stand.gateway(settings=_settings(served_too)) as served, _looking(stand, served, look):
        return await post(options, connections, stand, served, paths, orders.append_body())


async def _page(options: Options, connections: int, path: str, stand: Stand) -> Measured:
    paths = [orders.append_path(key) for key in orders.keys(options.streams)]
    async with stand.gateway(settings=_settings(True)) as served:
        fill(served, stand.key, [f"/{orders.TYPE}/{SHORT}"], orders.batch_body(10))
        fill(served, stand.key, [f"/{orders.TYPE}/{LONG}"] * (10_000 // BATCH), orders.batch_body(BATCH))
        async with _signed_in(stand, served) as person:
            pages = Traffic(
                host=served.host,
                port=served.port,
                connections=1,
                seconds=options.seconds,
                warm_up_s=options.warm_up_s,
                paths=[ROOT + path],
                expected=(200,),
                headers={"Cookie": f"sluice_console={person.cookies['sluice_console']}"},
            )
            longer = replace(options, seconds=options.seconds + options.warm_up_s)
            appends = post(longer, connections, stand, served, paths, orders.append_body())
            measured, beside = await asyncio.gather(drive(pages, stand.cpu(list(served.pids))), appends)
        return replace(measured, unexpected=measured.unexpected or beside.unexpected)


def _settings(served_too: bool) -> dict[str, str]:
    return {"SLUICE_CONSOLE": "on" if served_too else "off"}


@asynccontextmanager
async def _signed_in(stand: Stand, served: Served) -> AsyncIterator[httpx.AsyncClient]:
    url = f"http://{served.host}:{served.port}"
    async with httpx.AsyncClient(
        base_url=url, headers={"origin": url}, timeout=30, trust_env=False
    ) as person:
        answer = await person.post(f"{ROOT}/sign-in", data={"key": stand.key})
        assert answer.status_code == 303, answer.text
        yield person


@asynccontextmanager
async def _looking(stand: Stand, served: Served, look: Look | None) -> AsyncIterator[None]:
    """Consoles that are open meanwhile. Raises what one of them meets."""
    if look is None:
        yield
        return
    async with contextlib.AsyncExitStack() as people:
        tasks = [
            asyncio.ensure_future(look(await people.enter_async_context(_signed_in(stand, served)), number))
            for number in range(CONSOLES)
        ]
        yield
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


async def _overview(person: httpx.AsyncClient, number: int) -> None:
    """They began at different times."""
    await asyncio.sleep(number * AGAIN_S / CONSOLES)
    while True:
        (await person.get(f"{ROOT}/overview")).raise_for_status()
        await asyncio.sleep(AGAIN_S)


async def _feed(person: httpx.AsyncClient, number: int) -> None:
    async with person.stream("GET", f"{ROOT}/feed/live?after=now") as events:
        events.raise_for_status()
        async for _ in events.aiter_raw():
            pass


if __name__ == "__main__":
    sys.exit(main(["tests.bench.console"], scenarios, sys.argv[1:]))
