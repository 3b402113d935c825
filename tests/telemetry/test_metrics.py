"""What is counted: looked at as an operator does, on a gateway that serves."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import asyncpg
import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.requests import Request
from uuid_utils import uuid7

from gateway.config import Config
from gateway.console.rates import Rates
from gateway.http.metrics import MetricsPage
from gateway.telemetry.metrics import Metrics, Reading
from gateway.telemetry.tallies import OTHERS, SOURCES_OF_TENANT_MAX, WebhookTallies
from tests.support.accounts import SPEC, Account
from tests.support.calls import (
    NDJSON,
    append,
    appended,
    bulk,
    bulk_line,
    envelope,
    new_client,
    new_id,
    noted,
    refused,
    until,
)
from tests.support.serving import Served, serving
from tests.telemetry.scrape import Scrape, scrape, scraped_until


async def test_appends_are_counted_by_what_their_callers_were_told(
    client: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    key, keyed = new_id(), {"idempotency-key": "k"}
    await appended(client, "order", key, "was_noted", headers=keyed)
    await appended(client, "order", key, "was_noted", headers=keyed)
    await noted(client, key, 5)
    await appended(client, "order", key, "was_noted", event_id=str(uuid7()))
    assert (await append(client, "order", key, "was_noted", previous_length=1)).status_code == 409
    assert (await append(client, "order", key, "was_noted", 1, headers=keyed)).status_code == 422
    found = await scrape(operator)
    outcomes = ("committed", "replayed", "conflict", "mismatch", "not_committed", "unknown", "quarantined")
    counted = [found("sluice_appends_total", outcome=outcome) for outcome in outcomes]
    assert counted == [3, 1, 1, 1, 0, 0, 0]
    assert found("sluice_events_committed_total") == 7
    assert found("sluice_identity_lookups_total") >= 1
    assert found("sluice_append_wait_seconds_count") == 3
    assert 0 < found("sluice_append_wait_seconds_sum") < 5


async def test_an_append_that_its_spec_would_refuse_by_now_is_counted_as_a_replay(
    client: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    body = envelope()
    key = new_id()
    assert (
        await client.post(f"/ticket/{key}/was_opened", json=body, headers={"idempotency-key": "k"})
    ).is_success
    spec = (await client.get("/_/spec")).json()["spec"]
    del spec["aggregate_types"]["ticket"]
    assert (await client.put("/_/spec?force=true", json=spec)).status_code == 200
    again = await client.post(f"/ticket/{key}/was_opened", json=body, headers={"idempotency-key": "k"})
    assert again.headers["idempotency-replayed"] == "true"
    assert (await scrape(operator))("sluice_appends_total", outcome="replayed") == 1


@pytest.fixture
def unhelped(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other gateway commits for one what it takes its time for."""
    monkeypatch.setattr("gateway.log.append.sweeper.SWEEP_EVERY_S", 3600)


@pytest.mark.usefixtures("unhelped")
async def test_batches_are_measured_one_by_one(
    client: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    await bulk(client, *[bulk_line(new_id()) for _ in range(200)])
    found = await scrape(operator)
    assert found("sluice_commit_batch_rows_sum") == found("sluice_events_committed_total") == 200
    batches = found("sluice_commit_batch_rows_count")
    assert 1 <= batches < 200
    assert (
        found("sluice_commit_swaps_total", result="succeeded")
        == batches
        == found("sluice_commit_seconds_count")
    )
    assert found("sluice_sequence_batch_appends_sum") >= 200
    assert found("sluice_cold_streams_total") == 200
    assert found("sluice_queue_appends") == found("sluice_queue_bytes") == 0


async def test_partitions_are_shown_open_and_level_once_nothing_is_under_way(
    client: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    await noted(client, new_id(), 10)
    found = await scraped_until(
        operator,
        lambda found: (
            found("sluice_log_events_total", event="partitions_opened")
            and found.all("sluice_watermark_lag_events") == [0.0] * 16
        ),
    )
    states = [found("sluice_partitions", state=state) for state in ("open", "closed", "halted")]
    assert states == [16, 0, 0]
    assert found("sluice_epoch_changes_total", kind="sealed") == 16
    assert found("sluice_log_events_total", event="partitions_opened") == 1
    assert found("sluice_log_events_total", event="partitions_sealed") == 0
    assert [found("sluice_backend_up", server=server) for server in ("redis", "postgres")] == [1, 1]


async def test_reads_are_counted_by_what_they_needed(
    client: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    key = new_id()
    await noted(client, key, 3)

    async def read_by_redis() -> bool:
        """On a busy machine a gateway may not know for a moment whether Redis may be believed."""
        before = await scrape(operator)
        assert (await client.get(f"/order/{key}/length")).json()["length"] == 3
        found = await scrape(operator)
        by_redis, by_postgres = (
            found("sluice_reads_total", source=each) - before("sluice_reads_total", source=each)
            for each in ("redis", "postgres")
        )
        assert by_redis + by_postgres == 1
        return by_redis == 1

    await until(read_by_redis)
    before = await scrape(operator)
    assert (await client.get(f"/order/{new_id()}/length")).json()["length"] == 0
    found = await scrape(operator)
    of = "sluice_reads_total"
    assert found(of, source="postgres") == before(of, source="postgres") + 1
    assert found(of, source="redis") == before(of, source="redis")


async def test_answers_are_counted_by_method_and_status_whatever_the_method_is(
    client: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    await noted(client, new_id(), 1)
    await client.get("/order/none/length")
    await client.request("PROPFIND", "/order")
    await client.request("REPORT", "/order")
    await client.post("/_/bulk", content=b"", headers=NDJSON)
    found = await scrape(operator)
    assert found("sluice_http_responses_total", method="POST", status="201") == 1
    assert found("sluice_http_responses_total", method="POST", status="200") == 1
    assert found("sluice_http_responses_total", method="GET", status="422") == 1
    assert found("sluice_http_responses_total", method="other", status="405") == 2


async def test_a_spec_that_this_gateway_cant_read_is_counted_and_logged(
    client: httpx.AsyncClient,
    operator: httpx.AsyncClient,
    account: Account,
    database: asyncpg.Pool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert (await scrape(operator))("sluice_catalog_unreadable_specs") == 0
    async with database.acquire() as connection, connection.transaction():
        changed = await connection.fetchval(
            "UPDATE catalog_clock SET revision = revision + 1 RETURNING revision"
        )
        columns = "tenant, revision, document, digest, changed"
        row = f"INSERT INTO spec_revision ({columns}) VALUES ($1, 2, $2, '', $3)"
        await connection.execute(row, account.id, b'{"holograms": {}}', changed)
    found = await scraped_until(operator, lambda found: found("sluice_catalog_unreadable_specs") == 1)
    assert found("sluice_log_events_total", event="spec_unreadable") == 1
    (told,) = [record for record in caplog.records if record.msg == "spec_unreadable"]
    assert (told.tenant, told.revision) == (account.id, 2)
    assert "/holograms: unknown_key" in told.faults
    assert (await client.put("/_/spec?force=true", json=SPEC)).status_code == 200
    found = await scraped_until(operator, lambda found: found("sluice_catalog_unreadable_specs") == 0)
    assert found("sluice_log_events_total", event="spec_readable") == 1
    assert 0 <= found("sluice_catalog_age_seconds") < 5


async def test_a_deployment_is_on_record_with_the_key_that_did_it(
    client: httpx.AsyncClient, account: Account, database: asyncpg.Pool, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await client.put("/_/spec?force=true", json=SPEC | {"singletons": []})).status_code == 200
    (told,) = [record for record in caplog.records if record.msg == "spec_deployed"]
    handle = "SELECT handle FROM api_key WHERE tenant = $1 AND scope = 'admin'"
    assert (told.tenant, told.revision, told.forced) == (account.id, 2, True)
    assert told.key == await database.fetchval(handle, account.id)


async def test_the_process_and_its_release_are_shown(operator: httpx.AsyncClient) -> None:
    found = await scraped_until(operator, lambda found: found("sluice_loop_lag_seconds_count") > 0)
    assert found("process_resident_memory_bytes") > 10_000_000
    assert found.all("sluice_build_info") == [1.0]


async def test_nothing_that_a_client_chose_is_in_the_metrics(
    client: httpx.AsyncClient, operator: httpx.AsyncClient, account: Account
) -> None:
    key = new_id()
    await noted(client, key, 1)
    await client.get("/nosuchtype/nosuchkey/events")
    page = (await operator.get("/_/metrics")).text
    for chosen in (key, account.name, account.id, account.admin, 'type="order"', "was_noted", "nosuch"):
        assert chosen not in page


# -- who may see it


async def test_the_ops_port_serves_metrics_and_health_and_nothing_else(operator: httpx.AsyncClient) -> None:
    for path in ("/_/metrics", "/_/health/live", "/_/health/ready"):
        assert (await operator.get(path)).status_code == 200
    head = await operator.head("/_/metrics")
    assert (head.status_code, head.content) == (200, b"")
    answer = await operator.post("/_/metrics")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    for path in ("/", "/order/main_webhook", "/_/spec", "/_/metrics/"):
        assert (await operator.get(path)).json()["code"] == "not_found"


async def test_metrics_come_in_the_format_that_is_asked_for(operator: httpx.AsyncClient) -> None:
    plain = await operator.get("/_/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=")
    openmetrics = await operator.get("/_/metrics", headers={"accept": "application/openmetrics-text"})
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")


@pytest.mark.parametrize("version", ["abc", "\xff", "1.0.x", "1" * 5000])
async def test_a_format_that_is_unknown_brings_the_plain_page(
    operator: httpx.AsyncClient, version: str
) -> None:
    for media_type in ("application/openmetrics-text", "text/plain"):
        accept = f"{media_type}; version={version}".encode("latin-1")
        plain = await operator.get("/_/metrics", headers={b"accept": accept})
        assert (plain.status_code, "sluice_appends_total" in plain.text) == (200, True)
        assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_a_filter_that_the_metrics_do_not_have_is_refused(operator: httpx.AsyncClient) -> None:
    refused(await operator.get("/_/metrics?name[]=up"), 400, "unknown_parameter", "name[]")
    assert (await operator.get("/_/health/live?now=1")).status_code == 200


async def test_on_the_main_port_there_are_no_metrics_unless_a_token_is_set(
    client: httpx.AsyncClient, gateway: Served
) -> None:
    assert (await client.get("/_/metrics")).json()["code"] == "not_found"
    async with new_client(gateway.url, None) as stranger:
        assert (await stranger.get("/_/metrics")).status_code == 401


async def test_the_token_opens_the_metrics_and_no_other_key_does(config: Config, account: Account) -> None:
    async with serving(replace(config, metrics_token="t0ken", ops_port=None)) as served:
        async with new_client(served.url, "t0ken") as prometheus:
            assert "sluice_appends_total" in (await prometheus.get("/_/metrics")).text
            assert (await prometheus.post("/_/metrics")).status_code == 405
            assert (await prometheus.get("/_/spec")).status_code == 401
        for key, status in ((account.admin, 404), ("t0ken2", 401), ("t0ke", 401), (None, 401)):
            async with new_client(served.url, key) as other:
                assert (await other.get("/_/metrics")).status_code == status
        async with new_client(served.url, None) as several:
            sent = [("authorization", "Bearer t0ken"), ("authorization", f"Bearer {account.admin}")]
            assert (await several.get("/_/metrics", headers=sent)).status_code == 400
            basic = {"authorization": "Basic t0ken"}
            assert (await several.get("/_/metrics", headers=basic)).status_code == 401


async def test_an_admin_key_of_sluice_devs_tenant_opens_none_either(
    config: Config, account: Account, database: asyncpg.Pool
) -> None:
    await database.execute("UPDATE tenant SET name = 'main' WHERE id = $1", account.id)
    async with serving(replace(config, dev=True, ops_port=None)) as served:
        for key in (account.admin, account.write, account.read):
            async with new_client(served.url, key) as client:
                assert (await client.get("/_/metrics")).status_code == 404


async def test_a_second_gateway_that_cant_have_the_ops_port_continues_without(
    client: httpx.AsyncClient,
    operator: httpx.AsyncClient,
    config: Config,
    account: Account,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(config) as second, new_client(second.url, account.write) as other:
        assert "ops_port_taken" in caplog.messages
        await asyncio.gather(noted(client, new_id(), 1), noted(other, new_id(), 2))
        assert (await scrape(operator))("sluice_appends_total", outcome="committed") == 1
    assert (await scrape(operator))("sluice_log_events_total", event="gateway_stopped") == 1


def test_sources_that_a_tenant_deploys_one_after_the_other_make_no_more_series() -> None:
    metrics = Metrics(CollectorRegistry())
    for n in range(2 * SOURCES_OF_TENANT_MAX):
        metrics.webhooks("one", f"s{n}").refused["mismatch"] += 1
    metrics.webhooks("other", "s").refused["mismatch"] += 1
    found = Scrape(generate_latest(metrics.registry).decode())
    counted = {
        name: found("sluice_webhook_refused_total", tenant=tenant, source=name, reason="mismatch")
        for tenant, name in (("one", "s0"), ("one", OTHERS), ("other", "s"))
    }
    assert counted == {"s0": 1, OTHERS: SOURCES_OF_TENANT_MAX, "s": 1}
    assert len(found.all("sluice_webhook_refused_total")) == SOURCES_OF_TENANT_MAX + 2


def test_what_the_console_shows_makes_no_samples_of_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics(CollectorRegistry())
    rates = Rates(metrics)
    metrics.webhooks("one", "s").deliveries["accepted"] += 1
    metrics.responses["GET", 200] += 1
    monkeypatch.setattr(WebhookTallies, "_counted", _never)
    monkeypatch.setattr(WebhookTallies, "_answered", _never)
    rates.sample()
    rates.look()
    metrics.responses["GET", 200] += 1_000_000
    rates.sample()
    assert (last := rates.look().last) is not None and last.reads > 0
    with pytest.raises(AssertionError, match="samples"):
        generate_latest(metrics.registry)


def _never(*_: object) -> None:
    raise AssertionError("samples of sources are made")


async def test_the_samples_of_sources_are_made_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metrics, made = Metrics(CollectorRegistry()), []
    metrics.webhooks("one", "s").deliveries["accepted"] += 1
    metrics.read_at_scrape(lambda: [Reading("sluice_connections", threading.get_ident())])
    counted = WebhookTallies._counted

    def noted(*args: Any) -> Any:
        made.append(threading.get_ident())
        return counted(*args)

    monkeypatch.setattr(WebhookTallies, "_counted", noted)
    request = Request({"type": "http", "query_string": b"", "headers": []})
    page = await MetricsPage(metrics, None).page(request)
    found = Scrape(bytes(page.body).decode())
    assert found("sluice_webhook_deliveries_total", tenant="one", source="s", outcome="accepted") == 1
    assert found("sluice_connections") == threading.get_ident()
    assert made and threading.get_ident() not in made
