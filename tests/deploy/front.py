"""nginx in front of gateways, as deploy/nginx.conf has it, where nginx is installed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

from gateway.dev.process import Command
from tests.deploy.shipped import DEPLOY

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
if shutil.which("openssl") is None:  # it makes the certificate
    NGINX = None


def localized(folder: Path, port: int, gateways: tuple[int, ...], **changed: str) -> str:
    """The file with paths in `folder` and on loopback; `changed` are other values of directives.

    The certificate is made by deploy/new-secrets, in `folder`/secrets.
    """
    secrets = folder / "secrets"
    if not secrets.exists():
        done = os.spawnl(os.P_WAIT, "/bin/sh", "sh", str(DEPLOY / "new-secrets"), str(secrets))
        assert done == 0
    text = (DEPLOY / "nginx.conf").read_text()
    servers = "\n".join(f"server 127.0.0.1:{each};" for each in gateways)
    replaced = {
        r"\n +server gateway-a:8017;\n +server gateway-b:8017;": "\n" + servers,
        r"/run/secrets/": f"{secrets}/",
        r"/tmp/nginx": f"{folder}/nginx",
        r"listen 8443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        r"/dev/stdout": f"{folder}/access.log",
        r"worker_processes auto;": "worker_processes 1;",
        **{rf"\b{name} \S+;": f"{name} {value};" for name, value in changed.items()},
    }
    for pattern, replacement in replaced.items():
        text, count = re.subn(pattern, replacement.replace("\\", r"\\"), text)
        assert count, f"{pattern} is not in nginx.conf any more"
    return text


@dataclass(frozen=True, slots=True)
class FloodLimits:
    """Smaller values of those that the file shows."""

    requests: str = "rate=1000r/s"
    burst: int = 2000
    connections: int = 1000


def with_flood_limits(text: str, limits: FloodLimits) -> str:
    """With the lines in force that stop a flood."""
    text, count = re.subn(r"(?m)^( *)#(limit_)", r"\1\2", text)
    assert count == 4, "limit_req, limit_conn and their zones"
    changed = {
        "rate=1000r/s": limits.requests,
        "burst=2000": f"burst={limits.burst}",
        "limit_conn connections 1000;": f"limit_conn connections {limits.connections};",
    }
    for shown, wanted in changed.items():
        assert text.count(shown) == 1, shown
        text = text.replace(shown, wanted)
    return text


@dataclass(frozen=True, slots=True)
class Nginx:
    """One worker, as the account that the tests run as allows."""

    conf: Path
    port: int
    log: Path
    name: str = "nginx"
    stop_signals = (signal.SIGTERM, 5.0, signal.SIGKILL)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def command(self) -> Command:
        assert NGINX is not None
        argv: list[str | Path] = [NGINX, "-c", self.conf, "-g", "daemon off;"]
        return Command(argv, signal.SIGTERM, cwd=self.conf.parent, env={"PATH": os.defpath}, log=self.log)

    def ready(self, pid: int) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.2):
            return True
        return False

    def failed(self) -> None:
        return
