"""The commands. Owns options, output and exit codes; what a command does lives below and is imported when it
runs, so that `sluice --help` is quick.

Exit codes: 0 done, 1 refused or a violation found, 2 used or configured wrongly. Results go to stdout,
with --json failures too; sentences about what went wrong go to stderr, and never a password.
"""

from __future__ import annotations

import sys

from gateway.cli.serving import serve
from gateway.cli.streams import UNWRITTEN, end_unwritten, open_missing
from gateway.config import ConfigError


def main() -> None:
    """Runs the command line of this process and exits."""
    open_missing()
    try:
        if sys.argv[1:] == ["serve"]:  # no option to read: the command line would add 0.4 s of CPU and 10 MB
            _serve()
            return
        from gateway.cli.app import app

        app(prog_name="sluice")
    except ConfigError as refused:
        from gateway.cli.output import say

        say(refused, err=True)
        sys.exit(2)
    except OSError as fault:
        if fault.errno not in UNWRITTEN:
            raise
        end_unwritten(fault)


def _serve() -> None:
    try:
        serve()
    except KeyboardInterrupt:  # before the gateway listens to signals
        sys.exit(130)
