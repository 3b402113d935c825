"""What `sluice serve` does, behind its options. Imports nothing of the command line."""

from __future__ import annotations

import os

from gateway.cli.setting_files import read_file
from gateway.config import Config


def serve(workers: int | None = None) -> None:
    """Until the gateway ends. `workers` replaces SLUICE_WORKERS. Raises ConfigError."""
    environ = dict(os.environ)
    if workers is not None:
        environ["SLUICE_WORKERS"] = str(workers)
    config = Config.from_environ(environ, read_file)
    if config.workers > 1:
        from gateway import workers as several

        several.serve(config, environ)
        return
    from gateway.serve import serve as run

    run(config)
