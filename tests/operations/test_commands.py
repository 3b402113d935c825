"""The commands themselves, as processes: what they print, and how they exit."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.log.log import Log
from gateway.operations.place import Place
from tests.cli.command import Sluice
from tests.operations.filled import fill, p_of
from tests.support import drive
from tests.support.drive import append, appended, new_stream, until


@pytest.fixture
def sluice(home: drive.Place) -> Sluice:
    return Sluice(SLUICE_POSTGRES_URL=home.postgres_url, SLUICE_REDIS_URL=home.redis_url)


async def test_audit_prints_each_invariant_with_its_figure(sluice: Sluice, log: Log) -> None:
    await fill(log)
    ran = sluice("audit")
    assert (ran.code, ran.err) == (0, "")
    assert "ok  every row is what its digest says" in ran.out
    assert "42 rows" in ran.out
    assert len(ran.out.splitlines()) == 14
    figures = {each["name"]: each for each in sluice("audit", "--deep", "--json").json["invariants"]}
    assert (figures["rows"]["checked"], figures["rows"]["unit"]) == (42, "rows")
    assert figures["streams"]["checked"] >= 6


async def test_audit_exits_1_on_a_violation_and_says_where(
    sluice: Sluice, log: Log, home: drive.Place, place: Place
) -> None:
    stream = new_stream()
    await appended(log, append(stream, 3))
    p = p_of(place, stream)
    await home.execute("UPDATE outbox SET payload = '1' WHERE seq = 2 AND p = $1", p)
    ran = sluice("audit", "--partition", str(p))
    assert ran.code == 1
    assert f"rows: partition {p}, seq 2: the row is not what its digest says" in ran.out
    assert "broken  every row" in ran.out
    report = json.loads(sluice("audit", "--json").out)
    assert report["ok"] is False
    assert report["violations"][0]["where"] == "seq 2"
    other = sluice("audit", "--partition", str((p + 1) % 16))
    assert other.code == 0


async def test_audit_without_redis_says_what_it_could_not_look_at(sluice: Sluice) -> None:
    ran = sluice("audit", SLUICE_REDIS_URL="redis://127.0.0.1:1/0")
    assert ran.code == 1
    assert "partition 0: Redis was not checked" in ran.err
    assert "broken" not in ran.out


async def test_audit_shows_its_progress_on_a_terminal(home: drive.Place, log: Log) -> None:
    await fill(log)
    leader, follower = pty.openpty()
    ran = subprocess.run(
        [sys.executable, "-m", "gateway", "audit"],
        env={
            **os.environ,
            "SLUICE_POSTGRES_URL": home.postgres_url,
            "SLUICE_REDIS_URL": home.redis_url,
            "TERM": "xterm",
        },
        stdout=subprocess.PIPE,
        stderr=follower,
        timeout=30,
        check=False,
    )
    os.close(follower)
    shown = os.read(leader, 65536).decode()
    os.close(leader)
    assert ran.returncode == 0
    assert "/84" in shown
    assert "/84" not in ran.stdout.decode()


async def test_doctor_fits_on_a_screen_and_exits_1_where_a_promise_is_broken(sluice: Sluice) -> None:
    ran = sluice("doctor")
    assert ran.code == 1  # these servers run without fsync
    assert len(ran.out.splitlines()) <= 40
    assert "fault: postgres, fsync: a power cut corrupts what was acknowledged" in ran.out
    assert "NO   an acknowledged event survives a crash of Postgres' machine (off: fsync)" in ran.out
    assert "NO   a failover to a standby loses nothing (no synchronous standby" in ran.out
    assert "yes  Redis may lose anything without the loss of an event" in ran.out
    report = json.loads(sluice("doctor", "--json").out)
    assert report["ok"] is False
    assert {"server": "postgres", "name": "fsync", "found": "off", "verdict": "fault"}.items() <= next(
        each for each in report["findings"] if each["name"] == "fsync"
    ).items()


@pytest.mark.parametrize("words", [["repair"], ["repair", "--dry-run"], ["rewind", "--accept-data-loss"]])
async def test_without_need_repair_and_rewind_refuse(sluice: Sluice, log: Log, words: list[str]) -> None:
    await appended(log, append(new_stream()))
    ran = sluice(*words)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "nothing to do: Postgres has all that Redis and gateways saw committed; no partition is halted\n"
    )


async def lose(home: drive.Place, place: Place, log: Log) -> Any:
    """Takes five of eight events back in Postgres, as a restored copy would."""
    stream = new_stream()
    await appended(log, append(stream, 3))
    p = p_of(place, stream)
    row = await place.postgres.partition(p)
    await appended(log, append(stream, 2), append(stream, 3, key=b"k"))
    partition = drive.lane(log, stream).partition
    await until(lambda: partition.watermark == 8)
    await log.stop(5)
    await home.execute("DELETE FROM outbox WHERE p = $1 AND seq > 3", p)
    await home.execute("DELETE FROM append_identity WHERE p = $1", p)
    await home.execute("UPDATE partition_log SET seq = 3, chain = $2 WHERE p = $1", p, row.chain)
    return p


async def test_repair_says_first_and_does_then(
    sluice: Sluice, log: Log, home: drive.Place, place: Place
) -> None:
    p = await lose(home, place, log)
    planned = sluice("repair", "--dry-run")
    told = f"partition {p}: commits seq 4…8 again (5 events) from the journal\n"
    assert (planned.code, planned.out) == (0, told)
    assert (await place.postgres.partition(p)).seq == 3
    done = sluice("repair", "--partition", str(p))
    assert done.code == 0
    assert done.out.startswith(told)
    assert (await place.postgres.partition(p)).seq == 8
    assert sluice("audit").code == 0
    assert sluice("repair").code == 1


async def test_rewind_says_what_would_be_lost_and_does_it_only_when_told_twice(
    sluice: Sluice, log: Log, home: drive.Place, place: Place, tmp_path: Path
) -> None:
    p = await lose(home, place, log)
    out = tmp_path / "lost"
    asked = sluice("rewind", "--out", str(out))
    assert asked.code == 1
    assert f"partition {p}: gives up seq 4…8; 5 lost events found in Redis, seq 4…8\n" in asked.out
    assert "`sluice repair` could restore seq 4…8" in asked.out
    assert "add --accept-data-loss" in asked.err
    assert (await place.postgres.partition(p)).rewound == 0
    twice = sluice("rewind", "--out", str(out))
    assert (twice.code, "File exists" in twice.err) == (1, True)
    again = tmp_path / "again"
    done = sluice("rewind", "--accept-data-loss", "--out", str(again))
    assert done.code == 0
    row = await place.postgres.partition(p)
    assert (row.seq, row.epoch, row.rewound) == (3, 3, 3)
    assert "given up; it continues in epoch 3" in done.out
    assert len((again / "lost.jsonl").read_text().splitlines()) == 5
    assert sluice("rewind", "--accept-data-loss").code == 1
    assert sluice("audit").code == 0


@pytest.mark.parametrize("command", ["audit", "doctor", "repair", "rewind"])
def test_each_command_explains_itself(sluice: Sluice, command: str) -> None:
    ran = sluice(command, "--help")
    assert ran.code == 0
    assert f"Usage: sluice {command}" in ran.out


@pytest.mark.parametrize("command", ["audit", "doctor", "repair"])
def test_a_server_that_is_not_there_is_a_sentence(sluice: Sluice, command: str) -> None:
    ran = sluice(command, SLUICE_POSTGRES_URL="postgresql://sluice:s3cret@127.0.0.1:9/events")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("Postgres at postgresql://sluice:***@127.0.0.1:9/events can't be used: ")
    assert "s3cret" not in ran.err


def test_a_command_without_redis_is_configured_wrongly(home: drive.Place) -> None:
    ran = Sluice(SLUICE_POSTGRES_URL=home.postgres_url)("audit")
    assert ran.code == 2
    assert ran.err.startswith("SLUICE_REDIS_URL (or SLUICE_REDIS_URL_FILE) is not set")


async def test_repair_without_redis_says_so(sluice: Sluice, home: drive.Place) -> None:
    ran = sluice("repair", SLUICE_REDIS_URL="redis://127.0.0.1:1/0")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("Redis: ")
