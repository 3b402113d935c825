"""`sluice dev` as a whole, its gateways stand-ins: starts, deaths, stops."""

from __future__ import annotations

import functools
import os
import re
import signal
import socket
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import asyncpg
import pytest
import redis.asyncio

from gateway.dev.gateway_process import GatewayProcess
from gateway.dev.process import arguments
from tests.dev.conftest import DEADLINE_S, Dev, StartDev, eventually, gone
from tests.support.servers import Servers

NO_POSTGRES = {"postgres_url": "postgresql://nowhere.invalid/none"}
"""For tests where none is asked anything: the stand-ins don't, and it takes a second to make one."""
CHILDREN = ("gateway", "redis", "postgres")

CONNECTS = """
import asyncio, asyncpg, os, redis.asyncio
async def main():
    connection = await asyncpg.connect(os.environ["SLUICE_POSTGRES_URL"])
    async with redis.asyncio.from_url(os.environ["SLUICE_REDIS_URL"]) as client:
        print(await connection.fetchval("QUERY"), await client.ping())
    await connection.close()
asyncio.run(main())
"""


def connects(dev: Dev, query: str = "SELECT current_database()") -> str:
    """What another process finds that reads `run/env` in a shell; "" when it can't connect."""
    script = '. "$0"; exec "$1" -c "$2"'
    words = [str(dev.data / "run/env"), sys.executable, CONNECTS.replace("QUERY", query)]
    done = subprocess.run(["/bin/sh", "-c", script, *words], capture_output=True, text=True)
    return done.stdout


def restarted(dev: Dev, name: str, old: int) -> bool:
    now = dev.pids(name)
    return len(now) == 1 and now[0] != old and not gone(now[0])


def when(log: Path, text: str) -> datetime:
    """The time of the last line with `text`, by the server's own clock."""
    line = next(line for line in reversed(log.read_text().splitlines()) if text in line)
    iso = re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", line)
    if iso:
        return datetime.strptime(iso[0], "%Y-%m-%d %H:%M:%S.%f")
    found = re.search(r"\d\d \w{3} \d{4} \d\d:\d\d:\d\d\.\d{3}", line)
    assert found, line
    return datetime.strptime(found[0], "%d %b %Y %H:%M:%S.%f")


def test_it_prints_where_it_is_ready_and_a_curl_command_and_nothing_else(start_dev: StartDev) -> None:
    dev = start_dev(**NO_POSTGRES).wait_ready()
    assert re.fullmatch(r"ready http://127\.0\.0\.1:[0-9]+", dev.lines[0])
    assert dev.lines[1].startswith(f"curl -X POST {dev.url}/order/")
    assert f'"Authorization: Bearer $(cat {dev.data}/run/key)"' in dev.lines[1]
    assert dev.stop() == 0
    assert dev.process.stdout is not None
    assert (len(dev.lines), dev.process.stdout.read()) == (2, b"")


def test_the_run_folder_names_the_servers_themselves(start_dev: StartDev) -> None:
    dev = start_dev().wait_ready()
    assert dev.pids("dev") == [dev.process.pid]
    assert dev.pids("gateway") == [dev.get()["pid"]]
    for name, program in (("redis", "server"), ("postgres", "postgres")):
        (pid,) = dev.pids(name)
        assert program in arguments(pid)[0].rsplit("/", 1)[1]
    assert (dev.data / "run/key").read_text() == "the-key\n"


def test_another_process_can_use_run_env_from_a_shell(start_dev: StartDev) -> None:
    dev = start_dev(allow_private_targets=True).wait_ready()
    assert connects(dev) == "sluice True\n"
    assert dev.env()["SLUICE_ALLOW_PRIVATE_TARGETS"] == "1"


def test_run_env_says_where_the_instance_is_and_where_its_key_is(start_dev: StartDev) -> None:
    dev = start_dev(**NO_POSTGRES).wait_ready()
    script = '. "$0"; exec env'
    shown = subprocess.run(
        ["/bin/sh", "-c", script, str(dev.data / "run/env")], capture_output=True, text=True, check=True
    )
    has = dict(line.split("=", 1) for line in shown.stdout.splitlines() if line.startswith("SLUICE_"))
    assert has["SLUICE_URL"] == dev.url
    assert Path(has["SLUICE_KEY_FILE"]).read_text() == "the-key\n"
    for name in ("SLUICE_POSTGRES_URL", "SLUICE_REDIS_URL"):
        assert has[name] == dev.env()[name]


def test_the_gateway_is_told_where_everything_is_and_not_misled(start_dev: StartDev) -> None:
    environ = {"PGPORT": "1", "SLUICE_REDIS_URL_FILE": "/none", "SLUICE_SECRET_X": "kept"}
    dev = start_dev(environ=environ).wait_ready()
    env = dev.get()["env"]
    assert env["SLUICE_POSTGRES_URL"] == dev.env()["SLUICE_POSTGRES_URL"]
    assert (env["SLUICE_HOST"], env["SLUICE_PORT"]) == ("127.0.0.1", dev.url.rsplit(":", 1)[1])
    assert (env["SLUICE_DEV"], env["SLUICE_SECRET_X"]) == ("1", "kept")
    assert not {"PGPORT", "SLUICE_REDIS_URL_FILE", "SLUICE_ALLOW_PRIVATE_TARGETS"} & set(env)


def test_no_secret_is_among_arguments_nor_in_the_environment_of_servers(start_dev: StartDev) -> None:
    dev = start_dev(environ={"SLUICE_SECRET_X": "s3cret"}).wait_ready()
    pids = {name: dev.pids(name) for name in ("dev", *CHILDREN)}
    for name, running in pids.items():
        (pid,) = running
        words = " ".join(arguments(pid))
        assert "the-key" not in words and "s3cret" not in words
        if name in ("redis", "postgres"):
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            assert {each.partition(b"=")[0] for each in environ} <= {b"", b"LC_ALL", b"TZ", b"PATH"}


@pytest.mark.parametrize(
    ("set_already", "token"), [({}, "the-key"), ({"SLUICE_METRICS_TOKEN": "mine"}, "mine")]
)
def test_the_metrics_are_open_to_its_own_key_unless_another_token_is_set(
    start_dev: StartDev, set_already: dict[str, str], token: str
) -> None:
    dev = start_dev(environ=set_already, **NO_POSTGRES).wait_ready()
    assert dev.get()["env"]["SLUICE_METRICS_TOKEN"] == token


@pytest.mark.parametrize("name", CHILDREN)
def test_a_child_that_is_killed_is_started_again_at_once(start_dev: StartDev, name: str) -> None:
    dev = start_dev(**(NO_POSTGRES if name != "postgres" else {})).wait_ready()
    others = {other: dev.pids(other) for other in CHILDREN if other != name}
    (pid,) = dev.pids(name)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: restarted(dev, name, pid))
    assert f"(pid {pid}) was ended by SIGKILL: starting it again.\n" in dev.said, "it waits for nothing"
    assert {other: dev.pids(other) for other in others} == others


def test_servers_that_were_killed_serve_again_with_their_data(start_dev: StartDev) -> None:
    dev = start_dev().wait_ready()
    for name in ("redis", "postgres", "redis", "postgres"):
        (pid,) = dev.pids(name)
        os.kill(pid, signal.SIGKILL)
        eventually(functools.partial(restarted, dev, name, pid))
    eventually(lambda: connects(dev) == "sluice True\n")


def test_when_it_is_killed_itself_everything_ends(start_dev: StartDev) -> None:
    dev = start_dev(workers=2).wait_ready()
    pids = dev.all_pids()
    assert len(pids) == 5
    dev.process.kill()
    eventually(lambda: gone(*pids))


def test_a_start_after_a_kill_takes_over_with_all_data(start_dev: StartDev) -> None:
    first = start_dev().wait_ready()
    assert connects(first, "CREATE TABLE kept AS SELECT 1 AS one")
    first.process.kill()
    second = start_dev().wait_ready()
    assert not set(first.pids("dev")) & {first.process.pid}
    assert connects(second, "SELECT one FROM kept") == "1 True\n"


def test_it_stops_gateways_first_then_redis_then_postgres(start_dev: StartDev, folder: Path) -> None:
    dev = start_dev(environ={"STAND_IN_STOPPED": str(folder / "stopped")}, workers=2).wait_ready()
    pids = dev.all_pids()
    assert dev.stop() == 0
    assert gone(*pids)
    assert (folder / "stopped").read_text() == "redis postgres"
    redis_ended = when(dev.data / "log/redis.log", "bye bye")
    assert redis_ended <= when(dev.data / "log/postgres.log", "received fast shutdown request")
    assert list((dev.data / "run").glob("*.pid")) == []
    assert "does not stop" not in dev.said


def test_ctrl_c_stops_it_and_a_second_one_hurries(start_dev: StartDev) -> None:
    dev = start_dev(**NO_POSTGRES, environ={"STAND_IN_STUBBORN": "1"}).wait_ready()
    pids = dev.all_pids()
    dev.process.send_signal(signal.SIGINT)
    eventually(lambda: "stopping" in dev.said)
    assert not gone(*dev.pids("gateway"))
    assert dev.stop(signal.SIGINT) == 0
    assert gone(*pids)


def test_it_can_be_stopped_while_it_starts(start_dev: StartDev) -> None:
    dev = start_dev(**NO_POSTGRES, environ={"STAND_IN_FAIL": "3"})
    eventually(lambda: dev.pids("dev"))
    pids = dev.all_pids()
    assert dev.stop() == 0
    assert gone(*pids, *dev.all_pids())


def test_a_gateway_that_never_starts_ends_it_with_the_reason(start_dev: StartDev) -> None:
    dev = start_dev(**NO_POSTGRES, environ={"STAND_IN_FAIL": "3"})
    assert dev.process.wait(DEADLINE_S) == 1
    assert "the stand-in was told to fail" in dev.said
    assert "ended with status 3: starting it again in 0.25 s" in dev.said
    assert "starting it again in 0.5 s" in dev.said
    assert "the gateway does not start" in dev.said


def test_a_folder_in_use_is_refused_and_left_untouched(start_dev: StartDev) -> None:
    first = start_dev(**NO_POSTGRES).wait_ready()
    before = first.all_pids()
    second = start_dev(**NO_POSTGRES)
    assert second.process.wait(DEADLINE_S) == 1
    assert f"in use by another `sluice dev` (pid {first.process.pid})" in second.said
    assert first.all_pids() == before
    assert not gone(before[1])


def test_stale_pid_files_harm_no_others(start_dev: StartDev, folder: Path) -> None:
    (folder / "data/run").mkdir(parents=True)
    with subprocess.Popen(["/bin/sleep", "600"]) as innocent:
        for name in ("dev", *CHILDREN):
            (folder / f"data/run/{name}.pid").write_text(f"{innocent.pid}\n")
        dev = start_dev(**NO_POSTGRES).wait_ready()
        assert innocent.pid not in dev.all_pids()
        assert innocent.poll() is None
        innocent.kill()


def test_a_port_in_use_is_said_before_anything_is_started(start_dev: StartDev) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        dev = start_dev(port=port)
        assert dev.process.wait(DEADLINE_S) == 1
    assert f"can't listen on 127.0.0.1:{port}" in dev.said
    assert not (dev.data / "postgres").exists()


def test_a_redis_file_that_does_not_load_is_moved_aside_and_said(start_dev: StartDev) -> None:
    first = start_dev(**NO_POSTGRES).wait_ready()
    assert first.stop() == 0
    for file in (first.data / "redis/appendonlydir").glob("*.incr.aof"):
        file.write_bytes(b"no such thing")
    second = start_dev(**NO_POSTGRES).wait_ready()
    (aside,) = second.data.glob("redis.*.unreadable")
    assert f"its data did not load and was moved to {aside}" in second.said


def test_a_folder_with_a_long_path_that_needs_quotes_works(start_dev: StartDev, folder: Path) -> None:
    data = folder / "a folder with blanks & an ü" / ("long" * 40)
    dev = start_dev(data=data).wait_ready()
    assert connects(dev)
    assert dev.stop() == 0
    assert not Path(dev.env()["SLUICE_REDIS_URL"].removeprefix("unix://")).parent.exists()
    assert not Path(dev.env()["SLUICE_POSTGRES_URL"].split("?host=")[1]).exists()


def test_each_worker_serves_and_no_connection_is_refused_while_one_restarts(start_dev: StartDev) -> None:
    dev = start_dev(**NO_POSTGRES, workers=3).wait_ready()
    before = dev.pids("gateway")
    assert len(before) == 3
    seen: set[int] = set()
    while seen != set(before):
        seen.add(dev.get()["pid"])
    os.kill(before[1], signal.SIGKILL)
    answered = {dev.get()["pid"] for _ in range(100)}
    assert before[1] not in answered
    eventually(lambda: len(dev.pids("gateway")) == 3)
    assert [dev.pids("gateway")[0], dev.pids("gateway")[2]] == [before[0], before[2]]


async def test_servers_that_are_there_already_are_used(start_dev: StartDev, servers: Servers) -> None:
    dev = start_dev(redis_url=servers.redis_url, postgres_url=servers.postgres_url).wait_ready()
    assert not (dev.data / "postgres").exists()
    assert not (dev.data / "redis").exists()
    assert (dev.pids("redis"), dev.pids("postgres")) == ([], [])
    assert dev.env()["SLUICE_REDIS_URL"] == servers.redis_url
    assert dev.stop() == 0
    connection = await asyncpg.connect(servers.postgres_url)
    await connection.close()
    async with redis.asyncio.from_url(servers.redis_url) as client:
        assert await client.ping()


@pytest.mark.parametrize(("shutdown_grace_s", "stop_s"), [("", 55), ("60", 135)])
def test_a_gateway_is_given_as_long_to_stop_as_the_operations_page_says(
    folder: Path, shutdown_grace_s: str, stop_s: int
) -> None:
    gateway = GatewayProcess(("gateway",), {"SLUICE_SHUTDOWN_GRACE_S": shutdown_grace_s}, folder, 3, 1)
    assert gateway.stop_signals == (signal.SIGTERM, stop_s, signal.SIGKILL)
