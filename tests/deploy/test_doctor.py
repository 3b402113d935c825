"""`sluice doctor` and `sluice audit` find nothing wrong with what is shipped, as a gateway."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest

from tests.deploy.shipped import ROOT, Shipped


@pytest.mark.parametrize("command", ["doctor", "audit"])
async def test_the_shipped_servers_are_found_well_with_a_gateways_settings(
    shipped: Shipped, command: str
) -> None:
    environ = {
        "PATH": os.environ.get("PATH", os.defpath),
        "SLUICE_REDIS_URL": shipped.redis_url,
        "SLUICE_POSTGRES_URL": shipped.gateway_url,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gateway",
        command,
        "--json",
        env=environ,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await process.communicate()
    assert process.returncode == 0, told.decode()
    if command == "doctor":
        findings = {each["name"]: each for each in json.loads(told)["findings"]}
        memory = findings.pop("memory")  # of the machine that runs the tests
        assert memory["found"].startswith("up to ")
        assert {each["verdict"] for each in findings.values()} == {"ok"}


async def test_the_doctor_warns_of_limits_that_are_above_all_memory(shipped: Shipped) -> None:
    environ = {
        "PATH": os.environ.get("PATH", os.defpath),
        "SLUICE_REDIS_URL": shipped.redis_url,
        "SLUICE_POSTGRES_URL": shipped.gateway_url,
        "SLUICE_BODIES_BYTES_MAX": str(10**12),
        "SLUICE_WORKERS": "2",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "doctor", "--json",
        env=environ, cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    told, _ = await process.communicate()
    assert process.returncode == 0, "a warning breaks no promise"
    found = {each["name"]: each for each in json.loads(told)["findings"]}["memory"]
    assert found["verdict"] == "warning"
    assert found["found"].startswith("up to 1,91")  # of both workers
