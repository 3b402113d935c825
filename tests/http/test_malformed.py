"""Thousands of requests that no client should send, among good ones: no 5xx, no hang, no good one is lost."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

from gateway.config import Config
from tests.http.malformed import malformed
from tests.http.raw import Answer, connected, request
from tests.support.accounts import Account
from tests.support.calls import events_of, new_client, new_id
from tests.support.serving import Child, child_serving

COUNT = 2600
WORKERS = 4
GOOD_EVERY = 10
SILENT_S = 0.5
"""What is no whole request is not answered; then its client ends its direction, and is let go."""


async def test_malformed_requests_harm_no_other_requests(
    own_config: Config, own_tenant: Account, tmp_path: Path
) -> None:
    async with child_serving(own_config.postgres_url, own_config.redis_url, tmp_path) as child:
        requests = list(malformed(seed=8, count=COUNT, key=own_tenant.admin))
        shares = [requests[n::WORKERS] for n in range(WORKERS)]
        told = await asyncio.gather(*(one_client(child, own_tenant, share) for share in shares))
        async with new_client(child.served.url, own_tenant.admin) as client:
            for key, accepted, _ in told:
                events = await events_of(client, "order", key)
                assert [event["data"] for event in events] == list(range(accepted))
            assert (await client.get("/_/health/ready")).status_code == 200
            assert (await client.get("/order/global")).status_code == 200
        assert child.alive
        log = child.log
    statuses = sum((each for _, _, each in told), Counter[int | None]())
    assert sum(statuses.values()) == COUNT
    assert not [status for status in statuses if status is not None and status >= 500], statuses
    assert sum(count for status, count in statuses.items() if status is not None and status >= 400) > 2000
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:4000]
    assert "ERROR" not in log, log


async def one_client(
    child: Child, tenant: Account, requests: list[bytes]
) -> tuple[str, int, Counter[int | None]]:
    """Its key, how many good appends were accepted, and how the malformed ones were answered."""
    key, accepted = new_id(), 0
    statuses: Counter[int | None] = Counter()
    for n, data in enumerate(requests):
        if n % GOOD_EVERY == 0:
            body = json.dumps({"data": accepted, "metadata": {"actor": {"type": "user", "id": "global"}}})
            good = request("POST", f"/order/{key}/was_noted", tenant.write, body.encode())
            async with connected(child.served.port) as connection:
                answer = await connection.ask(good)
            assert answer is not None
            assert (answer.status, answer.json["length"]) == (201, accepted + 1)
            accepted += 1
        answer = await one_malformed(child, data)
        statuses[None if answer is None else answer.status] += 1
        check(data, answer)
    return key, accepted, statuses


async def one_malformed(child: Child, data: bytes) -> Answer | None:
    """The answer, or None where the connection ends without one. Fails where neither comes in time."""
    async with connected(child.served.port) as connection:
        asked = asyncio.create_task(connection.ask(data))
        done, _ = await asyncio.wait((asked,), timeout=SILENT_S)
        if not done:
            connection.send_no_more()
        return await asked


def check(data: bytes, answer: Answer | None) -> None:
    if answer is None:
        return
    shown = data[:300]
    assert answer.headers.get("sluice-api") == "1", (shown, answer)
    assert answer.status < 500, (shown, answer)
    if answer.status >= 400 and not data.startswith(b"HEAD"):
        told = answer.json
        assert told["ok"] is False, (shown, answer)
        assert told["code"], (shown, answer)
        assert told["error"], (shown, answer)
