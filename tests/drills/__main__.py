"""Restore drills, by the commands of docs/backups.md: writers append, a backup is taken and restored.

    python -m tests.drills [dump] [pitr] [--writers 16] [--seconds 5]

Each checks that all that was acknowledged before the backup (or the moment) is in the restored copy, that
`sluice audit` finds nothing, that its relay stays off until it is adopted, and that it takes appends then.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from tests.drills.drill import DRILLS


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.drills")
    parser.add_argument("drills", nargs="*", metavar="|".join(DRILLS))
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    asked = parser.parse_args(argv)
    for name in asked.drills or DRILLS:
        began = time.monotonic()
        found = asyncio.run(DRILLS[name](asked.writers, asked.seconds))
        print(f"{name}: {found}, in {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
