"""Subscriptions of a suspended tenant pause, also those that a relay delivers already."""

from __future__ import annotations

from tests.relay.conftest import Bench, until
from tests.relay.receivers import SECRET, WebReceiver
from tests.support.calls import new_id

SUSPEND = "UPDATE tenant SET suspended_at = now() WHERE id = $1"
RESUME = "UPDATE tenant SET suspended_at = NULL WHERE id = $1"


async def test_what_is_being_delivered_pauses_until_the_tenant_resumes(
    bench: Bench, receiver: WebReceiver
) -> None:
    async def paused() -> bool:
        lease = "SELECT lease_until FROM subscription WHERE tenant = $1"
        return await bench.pool.fetchval(lease, bench.tenant) is None

    key = new_id()
    await bench.put("ours", {"type": "webhook", "url": receiver.url, "secret": SECRET})
    async with bench.relaying():
        await bench.append([key])
        await until(lambda: len(receiver.accepted) == 1)
        await bench.pool.execute(SUSPEND, bench.tenant)
        await until(paused)
        await bench.append([key])  # by a gateway that does not know it yet
        assert len(receiver.deliveries) == 1
        await bench.pool.execute(RESUME, bench.tenant)
        await until(lambda: len(receiver.accepted) == 2)
    assert [each.event["version"] for each in receiver.deliveries] == [1, 2]
