"""The benchmark itself: it runs, every answer is the expected one, and its JSON says what was measured."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.dev.binaries import find_redis
from gateway.dev.redis_server import RedisServer
from tests.bench.generator import FRONT_BYTES, generate, status_of
from tests.bench.load import BEGIN, END, LENGTH, SERIAL, Traffic
from tests.bench.measured import Measured, quantiles_ms
from tests.bench.report import HOLDERS, PROCESSES, Row, ratios
from tests.bench.stand import open_stand

ROOT = Path(__file__).parents[2]
CONNECTIONS = 8
SCENARIOS = {
    "append/previous_length": f"append/previous_length/{CONNECTIONS}",
    "batch": f"batch/100/{CONNECTIONS}",
    "mixed": f"mixed/80_20/{CONNECTIONS}",
    "two_workers/hot": f"two_workers/hot/{CONNECTIONS}",
    "floor/http": f"floor/http/{CONNECTIONS}",
    "floor/seq": "floor/sequence",
    "floor/commit": "floor/commit",
    "read/state/": f"read/state/{CONNECTIONS}",
    "bulk": "bulk/1",
    "paced/append_half/hot": f"paced/append_half/hot/{CONNECTIONS}",
    "names/append_plain": f"names/append_plain/{CONNECTIONS}",
    "names/append_public_id": f"names/append_public_id/{CONNECTIONS}",
    "names/read_alias": f"names/read_alias/{CONNECTIONS}",
    "console/feeds": f"console/feeds/{CONNECTIONS}",
    "growth/stored_2000/state": f"growth/stored_2000/state/{CONNECTIONS}",
    "growth/streams_1/": f"growth/streams_1/{CONNECTIONS}",
}
"""What is asked for, and what then is measured."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of a run of some seconds in all, but for what it takes to start the servers."""
    path = tmp_path_factory.mktemp("bench") / "report.json"
    options = f"--seconds 0.3 --streams 20 --stored 2000 --connections {CONNECTIONS} --json {path}".split()
    options += [word for name in SCENARIOS for word in ("--only", name)]
    argv = [sys.executable, "-m", "tests.bench", *options]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(path.read_text()))


@pytest.mark.slow
@pytest.mark.timeout(450)
def test_every_scenario_that_was_asked_for_has_a_row(report: dict[str, Any]) -> None:
    assert [row["name"] for row in report["rows"]] == list(SCENARIOS.values())


@pytest.mark.slow
@pytest.mark.timeout(450)
def test_every_answer_is_the_expected_one(report: dict[str, Any]) -> None:
    for row in report["rows"]:
        assert row["unexpected"] is None
        assert set(row["answers"]) == set(map(str, row["expected"]))


@pytest.mark.slow
@pytest.mark.timeout(450)
def test_every_row_has_its_rate_its_latencies_and_its_cpu_time(report: dict[str, Any]) -> None:
    for row in report["rows"]:
        assert row["count"] > 0
        assert row["per_s"] == pytest.approx(row["count"] / row["seconds"])
        assert 0 < row["latency_ms"]["p50"] <= row["latency_ms"]["p99"] <= row["latency_ms"]["max"]
        assert set(row["cpu_us"]) <= set(PROCESSES)
        assert row["cpu_us"]["generator"] > 0
        assert set(row["memory_mb"]) <= set(HOLDERS)
        if not row["name"].startswith("floor"):
            assert row["memory_mb"]["gateway"] > 10


@pytest.mark.slow
@pytest.mark.timeout(450)
def test_the_report_says_how_when_and_where_it_was_measured(report: dict[str, Any]) -> None:
    assert report["command"].startswith("python -m tests.bench --seconds 0.3 ")
    assert report["date"]
    assert {"cpu", "python", "redis", "postgres"} <= set(report["machine"])


def test_a_row_is_told_against_another_by_rounds() -> None:
    def row(name: str, number: int, count: int, us: float, against: str = "") -> Row:
        answers, cpu = {"201": count}, {"gateway": us, "redis": us, "generator": 1000.0}
        measured = Measured(
            count=count, seconds=1, latency_ms={}, answers=answers, unexpected=None, cpu_us=cpu
        )
        return Row(name, "append", number, (201,), measured, against)

    rows = [row("plain", 1, 100, 10), row("plain", 2, 1000, 10), row("plain", 3, 400, 10)]
    rows += [row("named", number, count, 11, "plain") for number, count in ((1, 95), (2, 500), (3, 396))]
    assert list(ratios([*rows, row("other", 1, 5, 5, "what was not measured")])) == [
        "named: rate -5.0%, CPU of all servers +10.0% against plain"
    ]


async def test_another_redis_is_measured_where_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "another-server"
    named.symlink_to(find_redis())
    monkeypatch.setenv("BENCH_REDIS", str(named))
    async with open_stand(1) as stand:
        service = stand.servers.redis.keeper.service
        assert isinstance(service, RedisServer)
        assert service.binary == named


async def test_what_is_measured_next_has_an_unused_redis() -> None:
    async with open_stand(1) as stand:
        before = stand.servers.redis.pid
        for _ in range(2):
            async with stand.database(), Redis.from_url(stand.servers.redis_url) as redis:
                assert await redis.dbsize() == 0
                await redis.set("left behind", 1)
                assert stand.servers.redis.pid not in (None, before)
                before = stand.servers.redis.pid


async def test_an_answer_other_than_the_expected_one_is_counted_and_the_first_is_kept() -> None:
    measured = await measured_against(b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\n", b"full")
    assert set(measured.answers) == {"503"}
    assert measured.unexpected is not None
    assert measured.unexpected.endswith("full")


async def test_an_answer_in_pieces_is_one_answer() -> None:
    measured = await measured_against(b"HTTP/1.1 201 Created\r\nConte", b"nt-Length: 6\r\n\r\nwh", b"ole!")
    assert set(measured.answers) == {"201"}
    assert measured.unexpected is None


@pytest.mark.parametrize("padding", [b"", b"y" * FRONT_BYTES])
def test_an_answer_has_its_own_length_though_others_began_like_it(padding: bytes) -> None:
    for body in (b"", b"ab", b"abc", b"ab"):
        answer = b"HTTP/1.1 200 OK\r\nx: %b\r\ncontent-length: %d\r\n\r\n%b" % (padding, len(body), body)
        assert status_of(answer) == b"200"
        assert status_of(answer[:-1]) is None
        with pytest.raises(ValueError, match="after an answer"):
            status_of(answer + b"d")


async def test_a_connection_that_ends_before_its_answer_is_lost() -> None:
    measured = await measured_against(b"")
    assert measured.answers == {"lost": 2}
    assert measured.count == 0


async def test_what_is_paced_is_sent_at_its_time_and_a_stall_counts_for_all_that_was_due_in_it() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            for number in itertools.count():
                await reader.readuntil(b"\r\n\r\n")
                if number == 5:
                    await asyncio.sleep(0.2)  # the stall; meanwhile 40 more are due
                writer.write(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        traffic = Traffic(
            host=host, port=port, connections=1, seconds=1.5, warm_up_s=0, paths=["/"], expected=(201,),
            per_s=200, first_pass=False,
        )  # fmt: skip
        measured = await generate(traffic, [].append)
    assert 50 < measured.count <= 200 * measured.seconds + 2
    assert measured.unexpected is None
    assert measured.latency_ms["max"] >= 200
    late = measured.latency_ms["p99"]
    assert late > 100, "those that were due in the stall waited too"


async def test_a_stall_longer_than_what_was_to_be_measured_is_measured_to_its_end() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(0.2)  # the stall
                writer.write(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        traffic = Traffic(
            host=host, port=port, connections=1, seconds=0.05, warm_up_s=0, paths=["/"], expected=(201,)
        )
        measured = await generate(traffic, [].append)
    assert measured.count >= 1
    assert measured.seconds >= 0.2
    assert measured.latency_ms["max"] >= 200


def test_each_connection_counts_the_appends_to_its_own_streams() -> None:
    traffic = Traffic(
        host="h", port=1, connections=2, seconds=1, warm_up_s=0, paths=["/a", "/b", "/c"], expected=(201,),
        method="POST", headers={"Idempotency-Key": SERIAL}, body=f'{{"previous_length":{LENGTH}}}',
    )  # fmt: skip
    sent = [request.decode() for request in itertools.islice(traffic.requests(0), 4)]
    assert [request.split()[1] for request in sent] == ["/a", "/c", "/a", "/c"]
    assert [json.loads(request.partition("\r\n\r\n")[2])["previous_length"] for request in sent] == [
        0,
        0,
        1,
        1,
    ]
    other = [request.decode() for request in itertools.islice(traffic.requests(1), 4)]
    keys = re.findall("Idempotency-Key: ([0-9]+)", "".join(sent + other))
    assert len(set(keys)) == 8


def test_reads_follow_each_append_to_their_stream() -> None:
    traffic = Traffic(
        host="h", port=1, connections=2, seconds=1, warm_up_s=0, expected=(200, 201),
        method="POST", paths=["/a/1/e", "/b/1/e"], body="{}", gets=2, get_paths=["/a/1", "/b/1"],
    )  # fmt: skip
    sent = [request.decode().split()[:2] for request in itertools.islice(traffic.requests(1), 4)]
    assert sent == [["POST", "/b/1/e"], ["GET", "/b/1"], ["GET", "/b/1"], ["POST", "/b/1/e"]]


def test_quantiles_are_latencies_that_did_occur() -> None:
    assert quantiles_ms([n / 1000 for n in range(1, 1001)]) == {
        "p50": pytest.approx(501), "p99": pytest.approx(991), "p99.9": pytest.approx(1000), "max": 1000,
    }  # fmt: skip
    assert quantiles_ms([]) == {}


async def measured_against(*pieces: bytes) -> Measured:
    """What two connections measure of a server that answers each request so; by nothing: it hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                for piece in filter(None, pieces):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)  # so that the pieces are sent apart
                if not any(pieces):
                    break
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        traffic = Traffic(
            host=host, port=port, connections=2, seconds=0.05, warm_up_s=0, paths=["/"], expected=(201,)
        )
        said: list[str] = []
        measured = await generate(traffic, said.append)
        assert said == [BEGIN, END]
        return measured


@pytest.mark.slow
def test_the_feeds_benchmark_says_what_it_measured() -> None:
    options = ["--events", "2000", "--followers", "3", "--seconds", "0.3", "--rounds", "1"]
    argv = [sys.executable, "-m", "tests.bench.feed", *options, "--only", "backfill", "--only", "sent"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^backfill: 2,000 events .*/s; gateway at most [0-9]+ MiB", done.stdout, re.MULTILINE)
    assert re.search(
        r"^sent/3: [0-9]+ µs of the server's an append, [0-9]+ µs of theirs", done.stdout, re.MULTILINE
    )


@pytest.mark.slow
def test_the_gateways_benchmark_says_what_it_measured() -> None:
    options = ["--seconds", "0.3", "--rounds", "1", "--only", "even"]
    argv = [sys.executable, "-m", "tests.bench.gateways", *options]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^even +[0-9,]+/s .*; swaps [0-9.]+; ", done.stdout, re.MULTILINE)


@pytest.mark.slow
def test_two_ways_are_compared_slice_by_slice() -> None:
    argv = [sys.executable, "-m", "tests.bench.beside", "webhook", "--slices", "2", "--seconds", "0.2"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^webhook: [0-9,]+/s; CPU in µs: gateway ", done.stdout, re.MULTILINE)
    assert re.search(r"^webhook, of plain: rate [0-9.]+ \(half of the slices", done.stdout, re.MULTILINE)
