"""The audit beside a gateway's work: what it counts, what it finds, and that it keeps to its rate."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from gateway.config import Config
from gateway.log.log import Log
from gateway.operations.audit_loop import AuditLoop
from gateway.operations.place import Place
from gateway.operations.report import Report
from gateway.telemetry.metrics import Metrics
from tests.operations.filled import p_of
from tests.support import drive
from tests.support.calls import new_client
from tests.support.drive import append, appended, new_stream, until
from tests.support.serving import serving
from tests.telemetry.scrape import scraped_until


def loop_at(place: Place, rows_per_s: int) -> tuple[AuditLoop, CollectorRegistry]:
    registry = CollectorRegistry()
    return AuditLoop(place.pool, place.instance, rows_per_s, Metrics(registry)), registry


async def test_it_goes_round_and_counts(log: Log, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.operations.audit_loop._PASS_LEAST_S", 0.0)
    await appended(log, append(new_stream(), 120))
    audit, registry = loop_at(place, 100_000)
    task = asyncio.create_task(audit.run())
    await until(lambda: audit.passes >= 2)
    task.cancel()
    assert audit.rows >= 240
    assert audit.violations == 0
    assert registry.get_sample_value("sluice_audit_rows_total") == audit.rows
    assert registry.get_sample_value("sluice_audit_passes_total") == audit.passes


async def test_it_keeps_to_its_rate(log: Log, place: Place) -> None:
    stream = new_stream()
    await appended(log, append(stream, 60))
    audit, _ = loop_at(place, 100)
    begun = time.monotonic()
    await audit.run_once(p_of(place, stream))
    assert audit.rows == 60
    assert time.monotonic() - begun >= 0.6


async def test_what_it_finds_is_logged_and_counted(
    log: Log, home: drive.Place, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    stream = new_stream()
    await appended(log, append(stream, 3))
    p = p_of(place, stream)
    await home.execute("UPDATE outbox SET type = 'x' WHERE seq = 2 AND p = $1", p)
    audit, registry = loop_at(place, 100_000)
    with caplog.at_level(logging.CRITICAL, "sluice.audit"):
        report = await audit.run_once(p)
    assert not report.ok
    (line,) = caplog.records
    assert (line.message, line.invariant, line.where) == ("audit_violation", "rows", "seq 2")
    assert audit.violations == 1
    assert registry.get_sample_value("sluice_audit_violations_total", {"kind": "rows"}) == 1


async def test_every_kind_that_it_can_find_has_a_counter(log: Log, home: drive.Place, place: Place) -> None:
    stream = new_stream()
    await appended(log, append(stream, 3))
    p = p_of(place, stream)
    await home.execute("UPDATE outbox SET p = $2, actor_id = 'x' WHERE p = $1", p, (p + 1) % 16)
    await home.execute("DELETE FROM partition_log WHERE p = $1", (p + 2) % 16)
    audit, registry = loop_at(place, 100_000)
    await home.execute("UPDATE partition_log SET seq = 3 WHERE p = $1", (p + 1) % 16)
    for each in (p, (p + 1) % 16, (p + 2) % 16):
        await audit.run_once(each)
    for kind in ("rows", "order", "chain", "tenants"):
        assert registry.get_sample_value("sluice_audit_violations_total", {"kind": kind}), kind


async def test_a_gateway_audits_only_when_it_is_told_to(postgres_url: str, redis_url: str) -> None:
    quiet = Config(redis_url=redis_url, postgres_url=postgres_url, metrics_token="m" * 32)
    for config, passes in ((quiet, 0), (replace(quiet, audit_rows_per_s=1000), 1)):
        async with serving(config) as served, new_client(served.url, config.metrics_token) as client:
            found = await scraped_until(client, lambda page: page.all("sluice_partitions"))
            if passes:
                found = await scraped_until(client, lambda page: page("sluice_audit_passes_total"))
            assert found("sluice_audit_passes_total") == passes
            assert found("sluice_audit_violations_total", kind="rows") == 0


@pytest.mark.bug
async def test_the_audit_continues_after_a_bug(
    postgres_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As asyncpg's AttributeError of a connection that ends between a statement and its arguments."""
    bugs, run_once = iter([AttributeError("bind_execute")]), AuditLoop.run_once

    async def failing(audit: AuditLoop, p: int) -> Report:
        for bug in bugs:
            raise bug
        return await run_once(audit, p)

    monkeypatch.setattr(AuditLoop, "run_once", failing)
    config = Config(
        redis_url=redis_url, postgres_url=postgres_url, metrics_token="m" * 32, audit_rows_per_s=1000
    )
    async with serving(config) as served, new_client(served.url, config.metrics_token) as client:
        await scraped_until(client, lambda page: page("sluice_audit_passes_total"))
    assert "task_restarted" in caplog.messages
