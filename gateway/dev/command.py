"""The command `sluice dev`: its options, and its faults in words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.config import Config, ConfigError, told_as_given
from gateway.dev.failure import CannotStart
from gateway.dev.supervisor import Settings, inherited, run
from gateway.setting_rows import WORKERS_MAX


def dev(
    host: Annotated[str, typer.Option(envvar="SLUICE_HOST", help="Address to serve on.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(envvar="SLUICE_PORT", min=0, max=65535, help="Port to serve on; 0 takes a free one."),
    ] = 8017,
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder for data of Redis and Postgres, and for DIR/run/.")
    ] = Path(".sluice"),
    spec: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The spec of tenant main; default: an example, if none is deployed."
        ),
    ] = None,
    redis: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A running Redis; default: start one."),
    ] = None,
    postgres: Annotated[
        str | None, typer.Option(metavar="URL", help="A running Postgres; default: start one.")
    ] = None,
    workers: Annotated[
        int, typer.Option(envvar="SLUICE_WORKERS", min=1, max=WORKERS_MAX, help="Gateway processes.")
    ] = 1,
    allow_private_targets: Annotated[
        bool,
        typer.Option(
            "--allow-private-targets",
            help="Allow subscriptions to http:// and private addresses (development only).",
        ),
    ] = False,
) -> None:
    """Run the gateway with its own Redis and Postgres, data kept between starts."""
    try:
        settings = Settings(
            data=data.absolute().resolve(),
            host=host,
            port=port,
            spec=spec.read_bytes() if spec else None,
            redis_url=redis,
            postgres_url=postgres,
            workers=workers,
            allow_private_targets=allow_private_targets,
            partitions=_gateways(host, redis, postgres).partitions,
        )
        run(settings, _say)
    except (CannotStart, ConfigError) as fault:
        _say(str(fault))
        raise typer.Exit(1) from None
    except OSError as fault:
        where = f"{fault.filename}: " if fault.filename else ""
        _say(f"{where}{fault.strerror or fault}")
        raise typer.Exit(1) from None


def _say(line: str) -> None:
    print(f"sluice dev: {line}", file=sys.stderr, flush=True)


def _gateways(host: str, redis: str | None, postgres: str | None) -> Config:
    """The settings that the gateways will have, as far as they are known before the servers are started.
    Raises ConfigError."""
    told = {"SLUICE_HOST": host, "SLUICE_PORT": "", "SLUICE_DEV": "1"}
    urls = {"SLUICE_REDIS_URL": redis or "redis://", "SLUICE_POSTGRES_URL": postgres or "postgresql://"}
    with told_as_given(postgres=postgres, redis=redis):
        return Config.from_environ({**inherited(), **told, **urls}, _read_file)


def _read_file(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")
