"""A supervisor whose gateways are stand-ins: `python start.py SETTINGS`, in JSON. No tables are made."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gateway.dev.failure import CannotStart
from gateway.dev.prepare import Wanted
from gateway.dev.service_process import Say
from gateway.dev.supervisor import Settings, run

STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in.py")))


async def prepared(wanted: Wanted, say: Say) -> str:
    return wanted.key or "the-key"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    try:
        run(Settings(**(given | {"data": Path(given["data"])})), say, STAND_IN, prepared)
    except CannotStart as fault:
        say(str(fault))
        sys.exit(1)
