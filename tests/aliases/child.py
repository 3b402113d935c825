"""A gateway's registry in a process of its own that kills itself in the middle of giving names, at a moment
that the test names."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from gateway.aliases import store as stores
from tests.aliases.drive import open_registry
from tests.support.drive import Place, Proceed, interpose


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(place: Place, moment: str) -> None:
    async with open_registry(place, assigning=False) as registry:
        applied = 0

        async def around_append(proceed: Proceed, *args: Any) -> Any:
            if moment == "planned":
                die()
            outcome = asyncio.ensure_future(proceed())
            if moment == "sent":
                await asyncio.sleep(0)  # it is in the sequencer's queue, and perhaps further
                die()
            await outcome
            if moment == "committed":
                die()
            return outcome.result()

        async def around_apply(conn: Any, *args: Any) -> None:
            nonlocal applied
            applied += 1
            await real_apply(conn, *args)
            if moment == "applying":  # its transaction is not committed
                die()

        real_apply = stores._apply
        stores._apply = around_apply
        interpose(registry.log, "append", around_append)

        async def around_note(proceed: Proceed, *args: Any) -> Any:
            die()

        if moment == "applied":
            interpose(registry.store, "note_scan", around_note)
        async with registry.assigner.running():
            await asyncio.sleep(30)


if __name__ == "__main__":
    asyncio.run(main(Place(*sys.argv[1:3]), sys.argv[3]))
