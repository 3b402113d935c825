"""A Redis and a Postgres that serve only over TLS, on loopback, where this machine has binaries that can."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.dev.binaries import SYSTEM_FOLDERS, PostgresBinaries
from gateway.dev.place import postgres_place, socket_folder
from gateway.dev.postgres_server import SOCKET_NAME, PostgresServer
from gateway.dev.process import Command
from tests.support.certificates import certificate
from tests.support.ports import free_port

NAME = "localhost"


@dataclass(frozen=True, slots=True)
class RedisByTls:
    """`ca` is what signed its certificate, which is of `localhost`."""

    binary: Path
    home: Path
    port: int
    ca: Path
    name: str = "redis"
    stop_signals = (signal.SIGTERM, 10.0, signal.SIGKILL)

    def command(self) -> Command:
        options = {
            "dir": self.home, "port": "0", "tls-port": str(self.port), "bind": "127.0.0.1",
            "tls-cert-file": self.ca, "tls-key-file": self.ca.with_name("key.pem"), "tls-auth-clients": "no",
            "maxmemory-policy": "noeviction", "save": "",
        }  # fmt: skip
        argv: list[str | Path] = [self.binary]
        for name, value in options.items():
            argv += [f"--{name}", str(value)]
        log = self.home / "redis.log"
        return Command(argv, signal.SIGTERM, cwd=self.home, env={"LC_ALL": "C", "TZ": "UTC"}, log=log)

    def ready(self, pid: int) -> bool:
        context = ssl.create_default_context(cafile=self.ca)
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), 1.0) as plain,
            context.wrap_socket(plain, server_hostname=NAME) as connection,
        ):
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
        return False

    def failed(self) -> None:
        return

    def url(self, ca: Path, host: str = NAME) -> str:
        return f"rediss://{host}:{self.port}/0?ssl_ca_certs={ca}"


@dataclass(frozen=True, slots=True)
class PostgresByTls:
    """On loopback, where pg_hba.conf takes connections only over TLS."""

    server: PostgresServer
    port: int
    ca: Path
    name: str = "postgres"
    stop_signals = PostgresServer.stop_signals

    def command(self) -> Command:
        made = self.server.command()  # makes the data folder too
        data, account = self.server.data, self.server.account
        for file in (self.ca, self.ca.with_name("key.pem")):
            copied = data / file.name
            shutil.copyfile(file, copied)
            copied.chmod(0o600)
            if account is not None:
                os.chown(copied, account.uid, account.gid)
        hba = "local all all trust\nhostssl all all 127.0.0.1/32 trust\n"
        (data / "pg_hba.conf").write_text(hba)
        options = {
            "listen_addresses": "127.0.0.1", "port": str(self.port), "ssl": "on",
            "ssl_cert_file": "certificate.pem", "ssl_key_file": "key.pem",
        }  # fmt: skip
        argv = list(made.argv)
        for name, value in options.items():
            argv += ["-c", f"{name}={value}"]
        return replace(made, argv=argv)

    def ready(self, pid: int) -> bool:
        return self.server.ready(pid)

    def failed(self) -> None:
        return

    def url(self, more: str, host: str = NAME, database: str = "postgres") -> str:
        return f"postgresql://sluice@{host}:{self.port}/{database}?{more}"


def find_redis_with_tls() -> Path | None:
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/bin:/usr/local/bin")
        if found is not None and _links_to_tls(Path(found)):
            return Path(found)
    return None


def find_postgres_with_tls() -> PostgresBinaries | None:
    for folder in _system_folders():
        postgres, initdb = folder / "postgres", folder / "initdb"
        if initdb.is_file() and _links_to_tls(postgres):
            told = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=True).stdout
            version = told.split(") ")[1].split(" ")[0]
            return PostgresBinaries(postgres, initdb, tuple(map(int, version.split("."))))
    return None


def _system_folders() -> Iterator[Path]:
    for pattern in SYSTEM_FOLDERS:
        yield from sorted(Path("/").glob(pattern[1:]), reverse=True)


def _links_to_tls(binary: Path) -> bool:
    return binary.is_file() and b"libssl" in binary.read_bytes()


def redis_by_tls(binary: Path, folder: Path) -> RedisByTls:
    ca, _ = certificate(NAME, folder)
    return RedisByTls(binary, folder, free_port(), ca)


def postgres_by_tls(binaries: PostgresBinaries, folder: Path, certificates: Path) -> PostgresByTls:
    ca, _ = certificate(NAME, certificates)
    place = postgres_place(folder, print)
    sockets = socket_folder(place.home, place.account, SOCKET_NAME)
    server = PostgresServer(
        binaries, place.home, sockets, place.account, folder / "postgres.log", durable=False
    )
    return PostgresByTls(server, free_port(), ca)
