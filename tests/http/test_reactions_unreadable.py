"""Timers of a spec that a process can't read wait for one that can: the place stays before their events."""

from __future__ import annotations

import asyncio
import json
from uuid import UUID

import asyncpg
import pytest

from gateway.config import Config
from gateway.reactions import reactor
from tests.http.test_reactions_begin import deploy
from tests.http.test_schedules import DEADLINE_S, SHOP
from tests.support.accounts import open_account
from tests.support.calls import appended, new_id
from tests.support.serving import serving, without_reactions


async def test_timers_of_a_spec_that_can_not_be_read_here_are_set_by_a_process_that_can(
    own_config: Config,
    own_outbox: asyncpg.Pool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(reactor, "LEFT_S", 0.5)
    shop = await open_account(own_outbox, SHOP)
    async with without_reactions(own_config, shop.admin) as to:
        await appended(to, "order", new_id(), "was_placed", {})
    await deploy(own_outbox, shop, {**SHOP, "target_types": ["order"]})
    rewrite = "UPDATE spec_revision SET document = $1 WHERE revision = 1 AND tenant = $2"
    await own_outbox.execute(rewrite, b'{"of": "a newer release"}', UUID(shop.id))
    async with serving(own_config), asyncio.timeout(DEADLINE_S):
        while "reactions_delayed" not in [record.msg for record in caplog.records]:
            await asyncio.sleep(0.02)
        assert await own_outbox.fetchval("SELECT seq FROM reacting") == 0
        assert not await own_outbox.fetchval("SELECT count(*) FROM schedule")
        await own_outbox.execute(rewrite, json.dumps(SHOP).encode(), UUID(shop.id))
        while not await own_outbox.fetchval("SELECT count(*) FROM schedule"):
            await asyncio.sleep(0.02)
