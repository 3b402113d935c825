"""The commands. Owns options, output and exit codes; what a command does lives below and is imported when it
runs, so that `sluice --help` is quick.

Exit codes: 0 done, 1 refused or a violation found, 2 used or configured wrongly. Results go to stdout,
sentences about what went wrong to stderr, and never a password.
"""

from __future__ import annotations

import sys

from gateway.catalog.model import CatalogError, CatalogUnavailable
from gateway.cli.app import app
from gateway.cli.output import say
from gateway.config import ConfigError


def main() -> None:
    """Runs the command line of this process and exits."""
    try:
        app(prog_name="sluice")
    except (CatalogError, CatalogUnavailable) as refused:
        say(refused, err=True)
        sys.exit(1)
    except ConfigError as refused:
        say(refused, err=True)
        sys.exit(2)
