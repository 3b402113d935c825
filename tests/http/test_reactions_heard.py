"""A gateway hears of others' commits for its reactions only while it looks after some tenant's."""

from __future__ import annotations

import asyncpg

from gateway.config import Config
from gateway.log.redis.keys import announcement_channel
from gateway.log.redis.servers import connect
from tests.http.test_schedules import SHOP
from tests.support.accounts import open_account
from tests.support.drive import until
from tests.support.serving import serving


async def test_a_gateway_without_a_tenant_to_look_after_does_not_listen(
    own_config: Config, own_outbox: asyncpg.Pool
) -> None:
    await open_account(own_outbox, SHOP)
    channel = announcement_channel(await own_outbox.fetchval("SELECT id FROM instance"))
    redis = connect(own_config.redis_url, 2, 2)

    async def listens() -> bool:
        return bool((await redis.pubsub_numsub(channel))[0][1])

    async def listens_no_more() -> bool:
        return not await listens()

    async with serving(own_config):
        await until(listens)
        await own_outbox.execute("DELETE FROM reacting")
        await until(listens_no_more)
    await redis.aclose()
