"""Aggregates claim and release a few values through two gateways while Redis is killed and paused: by the
committed events each value was one aggregate's at a time, and the table says what they say.

    python -m tests.values --seconds 60 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from gateway.appends import ANY_LENGTH, Append, make_append, make_retry
from gateway.catalog.migrate import migrate
from gateway.events import Claim, Stream
from gateway.log.log import Log
from tests.support.databases import empty
from tests.support.drive import Place, event, new_stream, new_tenant, open_gateway, ready, unique_value, until
from tests.support.servers import Servers, open_folder, servers_in

VALUES = ("a", "b", "c", None)
WRITERS, STREAMS = 24, 12
CALM_S = 8.0
"""At the end, for what is under way."""


def claiming(stream: Stream, texts: Sequence[str | None]) -> Append:
    """Each event claims a value or releases, and its data say which."""
    claims = tuple(
        Claim(n, "email", b"", None if text is None else unique_value(text)) for n, text in enumerate(texts)
    )
    events = tuple(event(None, json.dumps(text).encode()) for text in texts)
    retry, paths = make_retry(stream.tenant, None, (), b""), ("data",) * len(texts)
    return make_append(stream, events, ANY_LENGTH, retry, claims=claims, claim_paths=paths)


async def campaign(servers: Servers, place: Place, seconds: float, chance: random.Random) -> Counter[str]:
    """Raises AssertionError where a promise is broken."""
    gateways = [await open_gateway(place, 0.5, direct_after_s=0.5, redis_recovery_s=0.5) for _ in range(2)]
    logs = [each.log for each in gateways]
    tenant, told, ends = new_tenant(), Counter[str](), time.monotonic() + seconds
    streams = [new_stream(tenant) for _ in range(STREAMS)]

    async def write(log: Log, stream: Stream) -> None:
        while time.monotonic() < ends:
            texts = [chance.choice(VALUES) for _ in range(chance.choice((1, 1, 2)))]
            told[type(await log.append(claiming(stream, texts))).__name__] += 1

    async def disturb() -> None:
        while time.monotonic() < ends - CALM_S:
            await asyncio.sleep(chance.uniform(1, 3))
            if chance.random() < 0.5:
                servers.redis.kill()
                await asyncio.sleep(chance.uniform(0, 3))
                await servers.redis.start()
            else:
                servers.redis.pause()
                await asyncio.sleep(chance.uniform(0, 2))
                servers.redis.resume()
            told["faults"] += 1

    writers = [write(logs[n % 2], streams[n % STREAMS]) for n in range(WRITERS)]
    await asyncio.gather(disturb(), *writers)
    for log in logs:
        await until(lambda log=log: ready(log))
    for each in gateways:
        await each.close()
    await check(place, tenant)
    return told


async def check(place: Place, tenant: bytes) -> None:
    """Replays the committed events."""
    query = "SELECT aggregate_id, payload FROM outbox WHERE tenant = $1 ORDER BY seq"
    owner: dict[str, str] = {}
    for row in await place.fetch(query, UUID(bytes=tenant)):
        text, key = json.loads(row["payload"]), row["aggregate_id"]
        assert text is None or owner.get(text, key) == key, f"{key} claims {text}, which {owner[text]} has"
        owner = {each: holder for each, holder in owner.items() if holder != key}
        if text is not None:
            owner[text] = key
    table = {row["value"]: row["aggregate_id"] for row in await place.fetch("SELECT * FROM unique_claim")}
    assert table == {unique_value(text): key for text, key in owner.items()}, (table, owner)


async def run(seconds: float, seed: int) -> Counter[str]:
    with open_folder() as folder:
        servers = servers_in(folder)
        with contextlib.closing(servers):
            await servers.start()
            async with empty(servers) as url:
                await migrate(url, 4)
                return await campaign(servers, Place(url, servers.redis_url), seconds, random.Random(seed))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.values", description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    try:
        told = asyncio.run(run(options.seconds, options.seed))
    except AssertionError as broken:
        print(f"broken: {broken}", file=sys.stderr)
        return 1
    print(", ".join(f"{name} {count:,}" for name, count in sorted(told.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
