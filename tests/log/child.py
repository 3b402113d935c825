"""A gateway's log in a process of its own, for a test that kills it: appends without end, and prints a line
for each event that was acknowledged: its id and its version."""

from __future__ import annotations

import asyncio
import sys

from gateway.appends import Appended
from tests.support.drive import Place, append, new_stream, new_tenant, open_gateway


async def main(place: Place) -> None:
    gateway = await open_gateway(place)
    tenants = [new_tenant() for _ in range(4)]

    async def write(n: int) -> None:
        stream = new_stream(tenants[n % 4])
        while True:
            outcome = await gateway.log.append(append(stream, 1 + n % 3))
            assert isinstance(outcome, Appended), outcome
            for k, event_id in enumerate(outcome.event_ids):
                sys.stdout.write(f"{event_id.hex()} {outcome.first_version + k}\n")
            sys.stdout.flush()

    await asyncio.gather(*(write(n) for n in range(16)))


if __name__ == "__main__":
    asyncio.run(main(Place(*sys.argv[1:])))
