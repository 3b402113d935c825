"""deploy/compose.yaml: in step with the settings and the other files of deploy/; what it starts, starts."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from redis.asyncio import Redis
from typer.testing import CliRunner

from gateway import __version__
from gateway.cli.app import app
from gateway.config import SETTINGS, Config
from gateway.dev.binaries import find_redis
from tests.deploy.nginx_conf import in_seconds, parse
from tests.deploy.shipped import DEPLOY, ROOT, RedisByConf, Shipped, server_of
from tests.support.ports import free_port
from tests.support.servers import open_folder
from tests.support.serving import serving

COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
GATEWAYS = ("gateway-a", "gateway-b")
OURS = (*GATEWAYS, "migrate")


@pytest.fixture(scope="module")
def secrets() -> Iterator[Path]:
    """What deploy/new-secrets makes."""
    with open_folder() as folder:
        subprocess.run(["/bin/sh", DEPLOY / "new-secrets", folder / "secrets"], check=True)
        yield folder / "secrets"


def test_every_image_is_pinned_and_ours_is_this_version() -> None:
    for name, service in SERVICES.items():
        if name in OURS:
            assert service["image"] == f"sluice:{__version__}"
            assert (DEPLOY / service["build"]["context"]).resolve() == ROOT
            assert (ROOT / service["build"]["dockerfile"]).is_file()
        else:
            assert re.fullmatch(r"docker\.io/[a-z/]+:\d+\.\d+(\.\d+)?(-alpine)?", service["image"]), name


def test_nothing_runs_as_root_or_writes_where_it_was_not_told_to() -> None:
    for name, service in SERVICES.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert name in OURS or service["user"] not in ("root", "0"), name


def test_only_nginx_is_published_and_the_servers_have_no_way_out() -> None:
    assert {name for name, service in SERVICES.items() if "ports" in service} == {"nginx"}
    assert COMPOSE["networks"]["back"]["internal"] is True
    assert SERVICES["redis"]["networks"] == SERVICES["postgres"]["networks"] == ["back"]
    assert SERVICES["nginx"]["networks"] == ["front"]


def test_every_name_that_is_used_is_there(secrets: Path) -> None:
    made = {path.name for path in secrets.iterdir() if path.is_file()} - {".gitignore"}
    if shutil.which("openssl") is None:
        made |= {"tls_certificate", "tls_key"}  # it says so, and leaves them to a person
    assert set(COMPOSE["secrets"]) == made
    for name, secret in COMPOSE["secrets"].items():
        assert secret == {"file": f"./secrets/{name}"}
    used = set()
    for service in SERVICES.values():
        used |= set(service.get("secrets", ()))
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        assert set(service.get("depends_on", ())) <= set(SERVICES)
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            folder = secrets / source.removeprefix("./secrets/")
            assert source in COMPOSE["volumes"] or (DEPLOY / source).is_file() or folder.is_dir(), volume
        for named in re.findall(r"/run/secrets/(\w+)", yaml.safe_dump(service)):
            assert named in service["secrets"], named
    assert used == made


def test_the_settings_of_a_gateway_are_settings_and_lead_to_its_servers(secrets: Path) -> None:
    def read_file(path: str) -> str:
        return (secrets / path.removeprefix("/run/secrets/")).read_text()

    for name in GATEWAYS:
        config = Config.from_environ(SERVICES[name]["environment"], read_file)
        redis, postgres = urlsplit(config.redis_url), urlsplit(config.postgres_url)
        assert (redis.hostname, redis.port, redis.username) == ("redis", 6379, "sluice")
        assert (postgres.hostname, postgres.port, postgres.username) == ("postgres", 5432, "sluice_gateway")
        (subnet,) = COMPOSE["networks"]["front"]["ipam"]["config"]
        assert config.trusted_proxies == (ipaddress.ip_network(subnet["subnet"]),)
    known = {row.name for row in SETTINGS} | {f"{row.name}_FILE" for row in SETTINGS if row.secret}
    assert set(SERVICES["migrate"]["environment"]) <= known


def test_tenants_have_folders_of_their_own_where_no_secret_of_a_gateway_lies(secrets: Path) -> None:
    assert (secrets / "tenants").stat().st_mode & 0o777 == 0o755
    for name in GATEWAYS:
        told = SERVICES[name]["environment"]
        assert SERVICES[name]["volumes"] == [f"./secrets/tenants:{told['SLUICE_SECRETS_DIR']}:ro"]
        own = [text for setting, text in told.items() if setting.endswith("_FILE")]
        assert own
        assert not any(text.startswith(told["SLUICE_SECRETS_DIR"]) for text in own)


def test_the_passwords_in_the_urls_are_those_of_the_files(secrets: Path) -> None:
    for url, password in (("redis", "redis"), ("owner", "owner"), ("gateway", "gateway")):
        found = urlsplit((secrets / f"{url}_url").read_text()).password
        assert found == (secrets / f"{password}_password").read_text()
        assert len(str(found)) == 64


def test_new_secrets_are_unique_and_never_overwritten(secrets: Path) -> None:
    assert secrets.stat().st_mode & 0o777 == 0o700
    assert (secrets / ".gitignore").read_text() == "*\n"
    done = subprocess.run(["/bin/sh", DEPLOY / "new-secrets", secrets], capture_output=True, text=True)
    assert (done.returncode, "exists" in done.stderr) == (1, True)


def test_ports_agree_from_the_outside_in() -> None:
    http = parse((DEPLOY / "nginx.conf").read_text()).one("http")
    listening = http.one("server").one("listen").args[0]
    assert SERVICES["nginx"]["ports"] == [f"{listening}:{listening}"]
    upstream = [each.args for each in http.one("upstream").all("server")]
    assert upstream == [(f"{name}:{Config.port}",) for name in GATEWAYS]
    assert f"127.0.0.1:{Config.port}/" in SERVICES["gateway-a"]["healthcheck"]["test"][-1]
    assert f"localhost:{listening}/" in (DEPLOY / "compose.yaml").read_text()


def test_a_gateway_has_the_time_that_it_takes_to_stop() -> None:
    for name in GATEWAYS:
        assert in_seconds(SERVICES[name]["stop_grace_period"]) >= 2 * Config.shutdown_grace_s + 15


async def test_redis_starts_as_it_is_told_to_with_the_password_of_the_file(secrets: Path) -> None:
    shell, option, line = SERVICES["redis"]["command"]
    with open_folder() as folder:
        port = free_port()
        for old, new in {
            "$$": "$",
            "/tmp/redis.conf": f"{folder}/redis.conf",
            "/run/secrets": str(secrets),
            "/etc/sluice": str(DEPLOY),
            "exec valkey-server": f"exec {find_redis()} ",
            "--bind '*'": f"--bind 127.0.0.1 --port {port}",
        }.items():
            assert old in line
            line = line.replace(old, new)
        service = RedisByConf([f"/bin/{shell}", option, line], folder / "data", port)
        server = server_of(service)
        try:
            await server.start()
            url = (secrets / "redis_url").read_text().replace("redis:6379", f"127.0.0.1:{port}")
            async with Redis.from_url(url) as client:
                assert (await client.info("memory"))["maxmemory_policy"] == "noeviction"
        finally:
            server.stop()


async def test_health_of_a_gateway_is_asked_as_it_answers(shipped: Shipped) -> None:
    _, _, option, code = SERVICES["gateway-a"]["healthcheck"]["test"]

    async def status(port: int) -> int | None:
        script = code.replace(":8017", f":{port}")
        process = await asyncio.create_subprocess_exec(
            sys.executable, option, script, stderr=asyncio.subprocess.DEVNULL, env={"PATH": os.defpath}
        )
        return await process.wait()

    async with serving(Config(redis_url=shipped.redis_url, postgres_url=shipped.gateway_url)) as served:
        assert await status(served.port) == 0
    assert await status(free_port()) == 1


@pytest.mark.parametrize("words", ["tenants create", "keys create", "migrate", "serve"])
def test_the_commands_that_it_names_exist(words: str) -> None:
    assert CliRunner().invoke(app, [*words.split(), "--help"]).exit_code == 0
    assert words in (DEPLOY / "compose.yaml").read_text() + (DEPLOY / "Containerfile").read_text()
