"""The command `sluice`, also as `python -m gateway`."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line of this process and exits; without the extra `server`, says what to install."""
    try:
        from gateway.cli import main as run

        run()
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] in ("gateway", "spec"):
            raise
        sys.exit(
            f"sluice: {missing.name} is not installed: the command needs the extra `server`: "
            "pip install 'sluice-gateway[server]'"
        )


if __name__ == "__main__":
    main()
