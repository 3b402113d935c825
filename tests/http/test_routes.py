"""Which paths and methods there are; HEAD, OPTIONS and 405 as HTTP says."""

from __future__ import annotations

from uuid import UUID

import httpx
import pytest

from gateway.http.routes import AGGREGATE_ROUTES, SYSTEM_ROUTES, route_named
from spec.check import RESERVED_EVENT_TYPES
from tests.http.raw import ask, request
from tests.support.accounts import Account
from tests.support.calls import append, appended, envelope, new_id, refused
from tests.support.serving import Served

KEY = "a0000000-0000-4000-a000-00000000000a"
READS = {"GET", "HEAD", "OPTIONS"}
ROUTES: list[tuple[str, set[str]]] = [
    ("/order", {"POST", "OPTIONS"}),
    (f"/order/{KEY}", READS | {"POST"}),
    (f"/order/{KEY}/length", READS),
    (f"/order/{KEY}/events", READS),
    (f"/order/{KEY}/events/1", READS),
    (f"/order/{KEY}/was_noted", {"POST", "OPTIONS"}),
    ("/_/bulk", {"POST", "OPTIONS"}),
    ("/_/import", {"POST", "OPTIONS"}),
    ("/_/events/0190a0b0-0000-7000-8000-000000000000", READS),
    ("/_/receipts", READS),
    ("/_/feed/query", {"POST", "OPTIONS"}),
    ("/_/capabilities", READS),
    ("/_/ids/humane", READS),
    ("/_/ids/check", {"POST", "OPTIONS"}),
    ("/_/spec", READS | {"PUT"}),
    ("/_/sources", READS),
    ("/_/sources/resolve", {"POST", "OPTIONS"}),
    ("/_/sources/xliff/export", READS),
    ("/_/sources/xliff/a%2Fb.xlf/tu1", READS | {"PUT"}),
    ("/_/ids/base62", READS),
    ("/_/ids/hash", {"POST", "OPTIONS"}),
    ("/_/tenant", READS),
    ("/_/tenants", READS),
    ("/_/tenants/0190a0b0-0000-7000-8000-000000000000", READS | {"PUT", "DELETE"}),
    ("/_/health/live", READS),
    ("/_/health/ready", READS),
]
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
NOWHERE = [
    "/",
    "/order/",
    f"/order/{KEY}/",
    f"/order/{KEY}/events/",
    f"/order//{KEY}",
    "//order",
    f"/order/{KEY}/events/1/",
    f"/order/{KEY}/events/1/more",
    f"/order/{KEY}/was_noted/1",
    "/_/",
    "/_/nothing",
    "/_/bulk/",
    "/_/spec/1",
    "/_/events",
    "/_/events/",
    "/_/events/a/b",
    "/_/ids",
    "/_/ids/other",
    "/_/Spec",
    "/_//spec",
]


def allowed_by(response: httpx.Response) -> set[str]:
    return set(response.headers["allow"].split(", "))


@pytest.mark.parametrize(("path", "methods"), ROUTES)
async def test_405_names_the_methods_that_a_path_has(
    client: httpx.AsyncClient, path: str, methods: set[str]
) -> None:
    for method in sorted(METHODS - methods):
        response = await client.request(method, path, json={} if method in ("PUT", "PATCH", "POST") else None)
        if method == "HEAD":
            assert (response.status_code, response.content) == (405, b"")
        else:
            refused(response, 405, "method_not_allowed")
        assert allowed_by(response) == methods, method


@pytest.mark.parametrize(("path", "methods"), ROUTES)
async def test_options_names_them_too(client: httpx.AsyncClient, path: str, methods: set[str]) -> None:
    response = await client.options(path)
    assert (response.status_code, response.content) == (204, b"")
    assert allowed_by(response) == methods


async def test_options_of_the_whole_server_is_answered(gateway: Served, tenant: Account) -> None:
    answer = await ask(gateway.port, request("OPTIONS", "*", tenant.read))
    assert answer is not None
    assert (answer.status, answer.headers["sluice-api"]) == (204, "1")
    assert set(answer.headers["allow"].split(", ")) == METHODS - {"PATCH"} | {"QUERY"}


@pytest.mark.parametrize("path", NOWHERE)
async def test_there_is_no_other_path(client: httpx.AsyncClient, path: str) -> None:
    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        refused(await client.request(method, path), 404, "not_found")


async def test_a_wrong_route_comes_before_a_missing_scope(reader: httpx.AsyncClient) -> None:
    refused(await reader.post("/order/a/b/c/d", json=envelope()), 404, "not_found")
    refused(await reader.put("/order/global/was_noted", json=envelope()), 405, "method_not_allowed")
    refused(await reader.post("/order/global/events", json=envelope()), 405, "method_not_allowed")
    refused(await reader.delete("/_/spec"), 405, "method_not_allowed")
    refused(await reader.post("/_/bulks", json=envelope()), 404, "not_found")


async def test_system_paths_never_collide_with_aggregates(client: httpx.AsyncClient) -> None:
    refused(await client.post("/_", json=envelope()), 404, "unknown_aggregate_type", "type")
    refused(
        await client.post("/%5F/global/was_noted", json=envelope()), 404, "unknown_aggregate_type", "type"
    )


async def test_head_answers_as_get_does_without_the_body(client: httpx.AsyncClient) -> None:
    client.headers["x-correlation-id"] = new_id()
    key = new_id()
    receipt = await appended(client, "order", key, "was_placed", {"total": 1})
    paths = [
        f"/order/{key}",
        f"/order/{key}?at_length=1",
        f"/order/{key}/length",
        f"/order/{key}/events",
        f"/order/{key}/events/1",
        f"/_/events/{receipt['event_id']}",
        "/_/spec",
        "/_/health/live",
        "/_/health/ready",
    ]
    for path in paths:
        got, headed = await client.get(path), await client.head(path)
        assert (headed.status_code, headed.content) == (200, b""), path
        assert headed.headers == got.headers, path


async def test_head_of_a_stream_is_only_its_header(client: httpx.AsyncClient) -> None:
    client.headers["x-correlation-id"] = new_id()
    key = new_id()
    await appended(client, "order", key, "was_noted")
    for path in (f"/order/{key}/events", "/config/global/events", "/_/feed"):
        for form in ("application/x-ndjson", "text/event-stream"):
            asked = {"accept": form}
            async with client.stream("GET", path, headers=asked) as got:
                headed = await client.head(path, headers=asked)
                assert (headed.status_code, headed.content) == (200, b""), path
                framing = {"transfer-encoding": "chunked"}
                assert {**headed.headers, **framing} == dict(got.headers), path
    for form in ("application/x-ndjson", "text/event-stream"):
        headed = await client.head(f"/order/{new_id()}/events", headers={"accept": form})
        assert (headed.status_code, headed.content) == (404, b"")


async def test_head_is_refused_as_get_is(client: httpx.AsyncClient) -> None:
    for path in (f"/order/{new_id()}", "/nope/global", "/order/nope", "/order/global?at=x", "/_/nothing"):
        got, headed = await client.get(path), await client.head(path)
        assert (headed.status_code, headed.content) == (got.status_code, b"")
        assert headed.status_code in (404, 422)


async def test_an_unknown_method_is_refused(gateway: Served, tenant: Account) -> None:
    for method in ("BREW", "get", "TRACE", "PROPFIND"):
        answer = await ask(gateway.port, request(method, "/order/global", tenant.read))
        assert answer is not None
        assert answer.status in (400, 405)
        assert answer.headers["sluice-api"] == "1"


async def test_a_target_in_absolute_form_is_a_path(gateway: Served, tenant: Account) -> None:
    answer = await ask(gateway.port, request("GET", "http://sluice.test/order/global", tenant.read))
    assert answer is not None
    assert answer.status == 200


async def test_answers_are_json_in_utf8_that_are_not_cached(client: httpx.AsyncClient) -> None:
    await appended(client, "order", "global", "was_placed", {"name": "Zoë"})
    response = await client.get("/order/global")
    assert response.headers["content-type"] == "application/json"
    assert "no-cache" in response.headers["cache-control"]
    assert "private" in response.headers["cache-control"]
    assert "Zoë".encode() in response.content


async def test_every_answer_says_that_it_is_only_for_one_tenant(
    client: httpx.AsyncClient, stranger: httpx.AsyncClient
) -> None:
    key = new_id()
    receipt = await appended(client, "order", key, "was_placed", {})
    answers = [
        await client.request(method, path)
        for method, path in (
            ("GET", "/_/spec"),
            ("GET", f"/_/events/{receipt['event_id']}"),
            ("GET", "/_/resolve/@none"),
            ("GET", "/_/subscriptions"),
            ("GET", "/_/ids/humane"),
            ("GET", "/_/feed"),
            ("GET", "/_/openapi.json"),
            ("GET", f"/order/{key}"),
            ("HEAD", f"/order/{key}"),
            ("GET", f"/order/{key}/events"),
            ("GET", f"/order/{new_id()}"),
            ("GET", "/none/at/all/of/it"),
            ("OPTIONS", f"/order/{key}"),
            ("PATCH", f"/order/{key}"),
            ("POST", f"/order/{new_id()}/was_placed"),
            ("GET", "/_/health/live"),
        )
    ]
    answers.append(await append(client, "order", key, "was_placed", {}))
    answers.append(await client.get("/_/spec", headers={"if-none-match": '"1"'}))
    answers.append(await client.get(f"/order/{key}", headers={"if-none-match": '"1"'}))
    answers.append(await stranger.get(f"/order/{key}"))
    answers.append(await stranger.get(f"/order/{key}", headers={"x": "y" * 70_000}))
    assert {response.status_code for response in answers} >= {200, 201, 204, 304, 401, 404, 405, 431}
    for response in answers:
        told = (response.headers.get_list("cache-control"), response.headers.get_list("vary"))
        assert told == (["no-cache, private"], ["authorization"]), (
            response.request.url,
            response.status_code,
        )


def test_no_event_type_may_have_the_name_of_an_aggregate_s_own_path() -> None:
    third = {route.path.split("/")[3] for route in AGGREGATE_ROUTES if route.path.count("/") >= 3}
    assert third - {"{event_type}"} <= RESERVED_EVENT_TYPES


def test_a_literal_segment_comes_before_a_named_one() -> None:
    assert route_named(b"/order/1/events") == "/{type}/{id}/events"
    assert route_named(b"/order/1/event") == "/{type}/{id}/{event_type}"
    assert {route_named(route.path.encode()) for route in (*AGGREGATE_ROUTES, *SYSTEM_ROUTES)} == {
        route.path for route in (*AGGREGATE_ROUTES, *SYSTEM_ROUTES)
    }


async def test_every_answer_names_the_correlation_id_of_its_request(
    client: httpx.AsyncClient, stranger: httpx.AsyncClient, gateway: Served, tenant: Account
) -> None:
    key, mine = new_id(), new_id()
    await appended(client, "order", key, "was_placed")
    paths = [f"/order/{key}", f"/order/{key}/events", "/_/spec", "/_/feed", "/order/nope", "/_/health/live"]
    for asker in (client, stranger):
        for method in ("GET", "HEAD", "OPTIONS", "PATCH"):
            for path in paths:
                told = await asker.request(method, path, headers={"x-correlation-id": mine})
                assert told.headers.get_list("x-correlation-id") == [mine], (method, path)
                other = await asker.request(method, path, headers={"x-correlation-id": mine.upper()})
                assert UUID(other.headers["x-correlation-id"]).version == 7
    brought = [(b"X-Correlation-Id", mine.encode())]
    untrusted = await ask(gateway.port, request("GET", "/order/global#x", tenant.read, headers=brought))
    assert untrusted is not None
    assert (untrusted.status, untrusted.headers["x-correlation-id"]) == (400, mine)
