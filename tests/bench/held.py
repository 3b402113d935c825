"""A stand of this or of an earlier checkout, with a gateway, held until standard input ends.

    cd CHECKOUT; PYTHONPATH=. .venv/bin/python -P …/tests/bench/held.py

prints where it serves, its key, and the processes to meter, as JSON. Uses of its checkout only what all
releases since 23 November 2026 have.
"""

from __future__ import annotations

import asyncio
import json
import sys

from tests.bench.stand import open_stand


async def main() -> None:
    async with open_stand(1) as stand, stand.gateway() as served:
        pids = {
            "gateway": list(served.pids),
            "redis": [stand.servers.redis.pid],
            "postgres": [stand.servers.postgres.pid],
        }
        told = {"host": served.host, "port": served.port, "key": stand.key, "pids": pids}
        print(json.dumps(told), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
