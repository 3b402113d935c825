"""Followers of the feed that come and go, in gzip and without: each stream is whole to a strict decoder.

A gateway in this process, followers that begin at any moment from any place, read at once or with pauses,
accept codings at random; events that shrink well and events that do not, one at a time and many at once. At
the end the gateway stops, which ends every stream: what each was sent is decompressed by zlib, and its events
are those of the feed from where it began, in their order.
"""

from __future__ import annotations

import asyncio
import gzip
import random
import time
import zlib
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import httpx

from gateway.config import Config
from gateway.http.api.content_encoding import accepts_gzip
from tests.http.test_feed_gzip import of_events
from tests.support import drive
from tests.support.accounts import Account
from tests.support.calls import batch, new_client, new_id
from tests.support.serving import serving

FOLLOWERS_MAX = 40
CODINGS = ("gzip", "x-gzip", "*", "identity", "br", "deflate", "GZIP", "")
WEIGHTS = (
    "",
    ";q=0",
    ";q=0.001",
    ";q=0.5",
    ";q=1",
    ";q=1.000",
    "; Q=0.3",
    ";q=x",
    ";q=2",
    ";;",
    ";a=b;q=0.2",
)


def accepted(numbers: random.Random) -> str:
    """An `Accept-Encoding`, mostly of some sense."""
    count = numbers.randint(0, 4)
    members = [numbers.choice(CODINGS) + numbers.choice(WEIGHTS) for _ in range(count)]
    return numbers.choice((", ", ",", " , ")).join(members).strip()  # no client sends blanks around it


@dataclass(slots=True)
class Follower:
    accept: str
    after: str
    """A position, "now", or "" for all."""
    came: bytearray = field(default_factory=bytearray)
    coding: str | None = None
    leaves: bool = False


async def _follow(client: httpx.AsyncClient, follower: Follower, numbers: random.Random) -> None:
    headers = {"accept": "text/event-stream", "accept-encoding": follower.accept}
    query = {"after": follower.after} if follower.after else {}
    async with client.stream("GET", "/_/feed", params=query, headers=headers) as response:
        assert response.status_code == 200, response.status_code
        follower.coding = response.headers.get("content-encoding")
        async for part in response.aiter_raw():
            follower.came += part
            if numbers.random() < 0.05:
                await asyncio.sleep(numbers.random() / 20)
            if follower.leaves and numbers.random() < 0.02:
                return


def _wrong(follower: Follower, positions: list[str]) -> str | None:
    told = f"accept {follower.accept!r}, after {follower.after!r}, coding {follower.coding}"
    expected = "gzip" if accepts_gzip(follower.accept.encode()) else None
    if follower.coding != expected:
        return f"{told}: not {expected}"
    try:
        if follower.leaves:
            plain = _so_far(follower)
        else:
            plain = gzip.decompress(follower.came) if expected else bytes(follower.came)
    except (OSError, EOFError, zlib.error) as fault:
        return f"{told}: {fault!r} of {len(follower.came)} bytes"
    seen = of_events(plain)
    start = _start(follower, seen, positions)
    if start is None or seen != positions[start : start + len(seen)]:
        return f"{told}: {len(seen)} events, not those of the feed from there"
    if not follower.leaves and start + len(seen) != len(positions):
        return f"{told}: ends before the last event"
    return None


def _so_far(follower: Follower) -> bytes:
    """The whole messages of a stream that continues."""
    inflate = zlib.decompressobj(16 + zlib.MAX_WBITS)
    plain = inflate.decompress(bytes(follower.came)) if follower.coding else bytes(follower.came)
    return plain[: plain.rfind(b"\n\n") + 2]


def _came_up_to(follower: Follower, last: str) -> bool:
    """Or it began after that event."""
    seen = of_events(_so_far(follower))
    return last in seen or (follower.after == "now" and not seen)


def _start(follower: Follower, seen: list[str], positions: list[str]) -> int | None:
    """The number of the first event that is due; None where there is no such one."""
    if follower.after == "":
        return 0
    if follower.after != "now":
        return positions.index(follower.after) + 1
    if not seen:
        return len(positions)
    return positions.index(seen[0]) if seen[0] in positions else None


async def fuzzed(config: Config, account: Account, seconds: float, seed: int) -> list[str]:
    """A sentence for each follower whose stream is wrong."""
    numbers = random.Random(seed)
    followers: list[Follower] = []
    async with AsyncExitStack() as leaving:
        following: list[asyncio.Task[None]] = []
        async with serving(config) as served:
            client = await leaving.enter_async_context(new_client(served.url, account.write))
            positions: list[str] = []
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                if len(followers) < FOLLOWERS_MAX and numbers.random() < 0.4:
                    after = numbers.choice(["", "now", *(positions[-50:] or [""])])
                    each = Follower(accepted(numbers), after, leaves=numbers.random() < 0.3)
                    followers.append(each)
                    following.append(asyncio.create_task(_follow(client, each, numbers)))
                positions = await _appended(client, numbers, positions)
            for _ in range(2):  # the last are sent, and seen by the feed
                positions = await _appended(client, numbers, positions)
            # A gateway that stops ends its streams, wherever they are.
            staying = [each for each in followers if not each.leaves]
            await drive.until(lambda: all(_came_up_to(each, positions[-1]) for each in staying))
        await asyncio.gather(*following)
    return [sentence for each in followers if (sentence := _wrong(each, positions)) is not None]


async def _appended(client: httpx.AsyncClient, numbers: random.Random, positions: list[str]) -> list[str]:
    """All positions of the feed after some more events."""
    size = int(numbers.paretovariate(0.5)) % 60_000
    text = numbers.randbytes(size // 2).hex() if numbers.random() < 0.5 else "again " * (size // 6)
    events = [("was_noted", {"text": text})] * numbers.choice((1, 1, 1, 2, 10))
    response = await client.post(f"/order/{new_id()}", json=batch(*events))
    assert response.status_code == 201, response.text
    found = list(positions)
    while True:
        query = {"after": found[-1]} if found else {}
        page = (await client.get("/_/feed", params={**query, "limit": 1000})).json()["events"]
        if not page:
            return found
        found += [each["position"] for each in page]
