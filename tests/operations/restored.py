"""A Postgres whose data folder can be copied, and put back later: what an old backup does, or a failover to a
standby that was behind."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support import drive
from tests.support.servers import Servers


@dataclass(slots=True)
class Restorable:
    """A pair of servers with the database of one test."""

    servers: Servers
    home: drive.Place

    @property
    def _copy(self) -> Path:
        data = self.servers.postgres_server.data
        return data.with_name("copied")

    async def back_up(self) -> None:
        """Postgres is down meanwhile."""
        self.servers.postgres.kill()
        shutil.rmtree(self._copy, ignore_errors=True)
        subprocess.run(["cp", "-a", self.servers.postgres_server.data, self._copy], check=True)
        await self.servers.postgres.start()

    async def restore(self) -> None:
        """Postgres is down meanwhile, and has lost what was committed since the copy was made."""
        self.servers.postgres.kill()
        shutil.rmtree(self.servers.postgres_server.data)
        subprocess.run(["cp", "-a", self._copy, self.servers.postgres_server.data], check=True)
        await self.servers.postgres.start()
