"""A query parameter that a path does not have, and names in filters that the spec does not declare."""

from __future__ import annotations

import httpx
import pytest

from gateway.catalog.model import Scope
from gateway.http.routes import AGGREGATE_ROUTES, SYSTEM_ROUTES, Route
from tests.support.calls import appended, bulk, envelope, new_id, refused

KEY = "a0000000-0000-4000-a000-00000000000a"
NAMES = {
    "{type}": "order",
    "{id}": KEY,
    "{event_type}": "was_noted",
    "{version}": "1",
    "{event_id}": "0190a0b0-0000-7000-8000-000000000000",
    "{alias}": "@ORD-1",
    "{name}": "billing",
}
KEYED = [
    route
    for route in (*AGGREGATE_ROUTES, *SYSTEM_ROUTES)
    if route.scope is not None
    and route.scope <= Scope.ADMIN
    # lists are for types that declare one
    and not (route.scope == Scope.READ and route.path in ("/{type}", "/{type}/_query"))
]


def path_of(route: Route) -> str:
    path = route.path
    for name, value in NAMES.items():
        path = path.replace(name, value)
    return path


@pytest.mark.parametrize("route", KEYED, ids=lambda route: f"{route.method} {route.path}")
async def test_a_parameter_that_a_path_does_not_have_is_refused(
    client: httpx.AsyncClient, route: Route
) -> None:
    content = b"" if route.method == "GET" else b"{}"
    answer = await client.request(route.method, f"{path_of(route)}?typs=order", content=content)
    refused(answer, 400, "unknown_parameter", "typs")


async def test_the_refusal_proposes_the_nearest_and_lists_all(client: httpx.AsyncClient) -> None:
    told = refused(await client.get("/_/feed?type=order"), 400, "unknown_parameter", "type")
    assert told["error"].startswith(
        'This path has no query parameter "type" (did you mean `types`?). It has `aliases`, `keys`, `after`, '
    )
    told = refused(await client.get("/_/ids/humane?x=1&&y"), 400, "unknown_parameter", "x")
    assert told["error"] == 'This path has no query parameter "x". It has `count`.'
    told = refused(await client.get("/_/openapi.json?a%00=1"), 400, "unknown_parameter", "a%00")
    assert told["error"].endswith(" It has none.")
    refused(await client.get(f"/order/{KEY}/length?from=1"), 400, "unknown_parameter", "from")
    refused(
        await client.post(f"/order/{KEY}/was_noted?force=true", json=envelope()),
        400,
        "unknown_parameter",
        "force",
    )
    assert (await client.get(f"/order/{KEY}/length?&min_length=0&")).status_code == 200
    assert (await client.get("/_/health/ready?probe=1")).status_code == 200


async def test_a_filter_names_what_the_spec_declares(client: httpx.AsyncClient) -> None:
    await appended(client, "order", new_id(), "was_noted")
    told = refused(await client.get("/_/feed?types=oder"), 422, "unknown_aggregate_type", "types")
    assert "(did you mean `order`?)" in told["error"]
    assert "`include_undeclared`" in told["error"]
    told = refused(
        await client.get("/_/feed?types=order&event_types=was_notd"), 422, "unknown_event_type", "event_types"
    )
    assert "(did you mean `was_noted`?)" in told["error"]
    page = await client.get("/_/feed?types=order,oder&event_types=was_sent&include_undeclared=true")
    assert page.json()["events"] == []
    assert len((await client.get("/_/feed?types=order,_names")).json()["events"]) == 1
    refused(await client.get("/_/feed?include_undeclared=1"), 422, "invalid_field", "include_undeclared")


async def test_a_subscription_names_what_the_spec_declares(client: httpx.AsyncClient) -> None:
    one, target = "/_/subscriptions/work", {"type": "pull"}

    async def put(filtered: dict[str, object]) -> httpx.Response:
        return await client.put(one, json={"filter": filtered, "target": target})

    refused(await put({"types": ["order", "oder"]}), 422, "unknown_aggregate_type", "filter.types[1]")
    refused(await put({"event_types": ["was_sent"]}), 422, "unknown_event_type", "filter.event_types[0]")
    assert (await put({"types": ["oder"], "include_undeclared": True})).status_code == 201
    spec = (await client.get("/_/spec")).json()["spec"]
    spec["subscriptions"] = {"more": {"filter": {"types": ["oder"]}, "target": target}}
    told = refused(await client.put("/_/spec", json=spec), 422, "invalid_spec", more=["faults"])
    assert [(each["code"], each["pointer"]) for each in told["faults"]] == [
        ("undeclared", "/subscriptions/more/filter/types/0")
    ]


async def test_a_line_of_bulk_is_told_the_nearest_names(client: httpx.AsyncClient) -> None:
    line = {"aggregate_type": "ordr", "key": KEY, "type": "was_noted", **envelope()}
    first, second = await bulk(client, line, {**line, "aggregate_type": "order", "type": "was_notd"})
    assert "(did you mean `order`?)" in first["error"]
    assert "(did you mean `was_noted`?)" in second["error"]
