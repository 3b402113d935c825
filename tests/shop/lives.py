"""A program that is killed at a step, started again, and again: what each life was told."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from playwright.async_api import Browser, Error

from tests.shop.checkout import STEPS
from tests.shop.stage import FOLDER, Stage

Moment = Literal["before", "under way", "after"]
MOMENTS: tuple[Moment, ...] = ("before", "under way", "after")
KILLS = [(step, moment) for step in STEPS for moment in MOMENTS]
"""Before a step's request; with it under way; and once it is answered, before anything is kept of it."""
PYTHON = [sys.executable, str(FOLDER / "checkout.py")]
NODE = ["node", str(FOLDER / "checkout.mjs")] if shutil.which("node") else None

UNDER_WAY_S = 0.02
"""About what an append takes: now and then it is committed before the program ends, now and then not."""

Kill = tuple[str, Moment]
Told = dict[str, Any]


@dataclass
class Life:
    """Judges each step of one life: whether the program continues, and whether it is killed."""

    kill: Kill | None
    receipts: dict[str, Told] = field(default_factory=dict)

    def killed(self, step: str, receipt: Told | None) -> bool | Literal["under way"]:
        if receipt is not None:
            self.receipts[step] = receipt
        if self.kill is None or self.kill[0] != step:
            return False
        moment = self.kill[1]
        if receipt is None:
            return "under way" if moment == "under way" else moment == "before"
        return moment == "after"


Alive = Callable[[Stage, str, str, Kill | None], Awaitable[dict[str, Told]]]
"""A life: of a cart and an item, killed there or run to its end; the receipts that it was told."""


def process(command: list[str]) -> Alive:
    async def live(on: Stage, cart: str, item: str, kill: Kill | None) -> dict[str, Told]:
        life, pipe = Life(kill), asyncio.subprocess.PIPE
        running = await asyncio.create_subprocess_exec(
            *command, cart, item, env=on.environ, stdin=pipe, stdout=pipe
        )
        assert running.stdin is not None and running.stdout is not None
        async for line in running.stdout:
            told = json.loads(line)
            killed = life.killed(told["step"], told["receipt"])
            if killed is not True:
                running.stdin.write(b"\n")
            if killed == "under way":
                await asyncio.sleep(random.uniform(0, UNDER_WAY_S))
            if killed:
                running.kill()
        status = await running.wait()
        assert kill is not None or status == 0, f"{command[0]} ended with {status}"
        return life.receipts

    return live


def page(browser: Browser, origin: str, key: str) -> Alive:
    """Each life is a page, which is closed in place of being killed."""

    async def live(on: Stage, cart: str, item: str, kill: Kill | None) -> dict[str, Told]:
        life, over, gone = Life(kill), asyncio.Event(), asyncio.Event()
        async with await browser.new_context() as context:
            opened = await context.new_page()

            async def at(step: str, receipt: Told | None) -> None:
                killed = life.killed(step, receipt)
                if killed:
                    over.set()
                if killed is True:
                    await gone.wait()

            await opened.expose_function("at", at)
            await opened.goto(origin)
            await opened.wait_for_function("window.ready")
            shop = {"url": on.gateway.url, "key": key}
            buying = asyncio.create_task(
                opened.evaluate("([shop, cart, item]) => buy(shop, cart, item)", [shop, cart, item])
            )
            ended = asyncio.create_task(over.wait())
            await asyncio.wait([buying, ended], return_when=asyncio.FIRST_COMPLETED)
            if kill is not None and kill[1] == "under way":
                await asyncio.sleep(random.uniform(0, UNDER_WAY_S))
            await opened.close()
            gone.set()
            ended.cancel()
            try:
                await buying
            except Error:
                assert kill is not None
        return life.receipts

    return live
