"""Redis and Postgres as deploy/ configures them: the embedded binaries, started with the shipped files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from gateway import app, outbound
from gateway.dev.binaries import find_redis
from gateway.dev.place import postgres_place, socket_folder
from gateway.dev.postgres_server import SOCKET_NAME, PostgresServer
from gateway.dev.process import Command
from gateway.dev.service_process import ServiceProcess
from tests.support.ports import free_port
from tests.support.servers import Server

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
REDIS_PASSWORD = "a redis password"
BESIDE_PARTITIONS = 2 + sum(
    (
        app._POOL_MAX,
        app._CATALOG_POOL_MAX,
        app._ADMIN_POOL_MAX,
        app._KEY_POOL_MAX,
        app._OUTBOX_POOL_MAX,
        outbound._POOL_MAX,
        outbound._ROWS_POOL_MAX,
        outbound._FOLLOW_POOL_MAX,
    )
)
"""Connections to Postgres of a gateway at most, beside the one for each partition."""
ADMIN_LINE = "user admin on >admin ~* &* +@all\n"
"""Beside what is shipped: an operator who may look and break things."""


def redis_conf(password: str = REDIS_PASSWORD) -> str:
    """The file as its header says to complete it."""
    digest = hashlib.sha256(password.encode()).hexdigest()
    return (DEPLOY / "redis.conf").read_text().replace("#PASSWORD_SHA256", f"#{digest}")


@dataclass(frozen=True, slots=True)
class RedisByConf:
    """Serves on loopback; `argv` starts it."""

    argv: list[str | Path]
    home: Path
    port: int
    name: str = "redis"
    stop_signals = (signal.SIGTERM, 10.0, signal.SIGKILL)

    def command(self) -> Command:
        self.home.mkdir(exist_ok=True)
        env = {"LC_ALL": "C", "TZ": "UTC", "PATH": os.environ.get("PATH", os.defpath)}
        return Command(self.argv, signal.SIGTERM, cwd=self.home, env=env, log=self.home.with_suffix(".log"))

    def ready(self, pid: int) -> bool:
        """It asks for a name."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), 0.2) as connection,
        ):
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"-NOAUTH")
        return False

    def failed(self) -> None:
        return

    def url(self, user: str, password: str) -> str:
        return f"redis://{user}:{password.replace(' ', '%20')}@127.0.0.1:{self.port}/0"


def redis_by_conf(folder: Path) -> RedisByConf:
    conf, home, port = folder / "redis.conf", folder / "redis", free_port()
    conf.write_text(redis_conf() + ADMIN_LINE)
    return RedisByConf([find_redis(), conf, "--port", str(port), "--dir", home], home, port)


@dataclass(frozen=True, slots=True)
class PostgresByConf:
    """Serves on a socket of its own, all clients: passwords are set and not asked for."""

    server: PostgresServer
    conf: Path
    name: str = "postgres"
    stop_signals = PostgresServer.stop_signals

    def command(self) -> Command:
        made = self.server.command()
        options = {
            "config_file": self.conf,
            "listen_addresses": "",
            "unix_socket_directories": self.server.socket_folder,
            "unix_socket_permissions": "0700",
        }
        argv = [*made.argv[:3]]
        for name, value in options.items():
            argv += ["-c", f"{name}={value}"]
        return replace(made, argv=argv)

    def ready(self, pid: int) -> bool:
        return self.server.ready(pid)

    def failed(self) -> None:
        return

    def url(self, database: str, role: str = "sluice") -> str:
        """As `role`; `sluice` is the superuser."""
        return self.server.url(database).replace("sluice@", f"{role}@", 1)

    def psql(self, file: str, database: str, role: str = "sluice", **environ: str) -> str:
        """What a file of deploy/ prints. Fails where psql does."""
        done = subprocess.run(
            [
                self.server.binaries.postgres.with_name("psql"),
                "-X",
                "-f",
                DEPLOY / file,
                self.url(database, role),
            ],
            env={"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath), **environ},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr


def postgres_by_conf(folder: Path) -> PostgresByConf:
    place = postgres_place(folder, print)
    sockets = socket_folder(place.home, place.account, SOCKET_NAME)
    server = PostgresServer(place.binaries, place.home, sockets, place.account, folder / "postgres.log")
    conf = folder / "postgres.conf"  # where the account that it runs as can read it
    shutil.copyfile(DEPLOY / "postgres.conf", conf)
    conf.chmod(0o644)
    return PostgresByConf(server, conf)


@dataclass(frozen=True, slots=True)
class Shipped:
    """Both, running; Postgres with its roles and a database that is migrated and granted."""

    redis: RedisByConf
    redis_server: Server
    postgres: PostgresByConf

    @property
    def redis_url(self) -> str:
        return self.redis.url("sluice", REDIS_PASSWORD)

    @property
    def admin_url(self) -> str:
        return self.redis.url("admin", "admin")

    @property
    def owner_url(self) -> str:
        return self.postgres.url("sluice", "sluice_owner")

    @property
    def gateway_url(self) -> str:
        return self.postgres.url("sluice", "sluice_gateway")


def server_of(service: RedisByConf | PostgresByConf) -> Server:
    return Server(ServiceProcess(service, print))
