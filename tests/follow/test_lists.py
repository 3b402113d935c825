"""GET /{type}: every aggregate of a type, with the state that a read gives."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal
from operator import itemgetter
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.follow.conftest import Shop
from tests.http.lag import holds_up_no_other
from tests.support.calls import JSON, NDJSON, batch, new_id, refused


async def test_a_list_has_each_aggregate_with_its_state(shop: Shop) -> None:
    one, other = sorted((new_id(), new_id()))
    await shop.append(one, "was_placed", {"total": 12.50, "status": "open"})
    await shop.append(other, "was_placed", {"total": 3, "status": "open"})
    await shop.append(other, "was_paid")
    listed = await shop.get("/order")
    assert [each["key"] for each in listed["items"]] == [one, other]
    for each in listed["items"]:
        state = (await shop.client.get(f"/order/{each['key']}")).json()
        assert each == {name: state[name] for name in ("key", "data", "metadata")}
    assert listed["next"] is None


async def test_a_read_waits_for_the_position_of_a_receipt(shop: Shop) -> None:
    for total in range(20):
        key = new_id()
        receipt = await shop.client.post(f"/order/{key}/was_placed", json=_envelope({"total": total}))
        listed = await shop.client.get(
            "/order", params={"after": receipt.json()["position"], "sort": "-total"}
        )
        assert listed.json()["items"][0]["key"] == key


def _envelope(data: dict[str, Any]) -> dict[str, Any]:
    return {"data": data, "metadata": {"actor": {"type": "user", "id": "global"}}}


async def test_what_is_not_of_the_list_is_refused(shop: Shop) -> None:
    told = refused(
        await shop.client.get("/order?filter[colour]=red"), 422, "not_listed", "filter[colour]", ("listed",)
    )
    assert told["listed"] == ["status", "total", "customer_id", "metadata.length", "address.city"]
    for query, path in [
        ("filter[total][above]=1", "filter[total][above]"),
        ("filter[total][exists]=perhaps", "filter[total][exists]"),
        ("filter[total]=1&filter[total]=2", "filter[total]"),
        ("sort=total,status,customer_id,metadata.length", "sort"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("cursor=abc", "cursor"),
        ("wait=31", "wait"),
        ("count=2", "count"),
    ]:
        refused(await shop.client.get(f"/order?{query}"), 422, "invalid_field", path)
    refused(await shop.client.get("/order?sort=-colour"), 422, "not_listed", "sort", ("listed",))
    refused(await shop.client.get("/order?after=x"), 400, "invalid_position", "after")
    refused(await shop.client.get("/nothing"), 404, "unknown_aggregate_type", "type")
    refused(await shop.client.get("/customer"), 405, "method_not_allowed")
    refused(await shop.client.post("/order/_query", json={"where": {"equals": ["@.colour", 1]}}), 422,
            "not_listed", "where", ("listed",))  # fmt: skip
    refused(await shop.client.request("QUERY", "/order", json={"limt": 1}), 422, "unknown_field", "limt")
    refused(await shop.client.post("/order/_query", json={"where": {"equals": ["@.total"]}}), 422,
            "invalid_field", "where.equals")  # fmt: skip
    for where, path in (
        ([], "where"),
        ({"exists": "status"}, "where.exists"),
        ({"and": [{"equals": ["$.status", 1]}]}, "where.and[0].equals[0]"),
    ):
        told = refused(
            await shop.client.post("/order/_query", json={"where": where}), 422, "invalid_field", path
        )
        assert '{"exists": "@.status"}' in told["error"]
        assert "$" not in told["error"]


async def test_a_query_compares_with_numbers_of_any_size(shop: Shop) -> None:
    huge = "1e400", "1" + "0" * 5_000
    for number in huge:
        body = f'{{"data":{{"total":{number}}},"metadata":{{"actor":{{"type":"user","id":"global"}}}}}}'
        made = await shop.client.post(f"/order/{new_id()}/was_placed", content=body, headers=JSON)
        assert made.status_code == 201, made.text
    position = made.json()["position"]
    for number, other in (huge, huge[::-1]):
        for where in (
            f'{{"equals":["@.total",{number}]}}',
            f'{{"total":{number}}}',
            f'{{"in":["@.total",[1,{number}]]}}',
            f'{{"and":[{{"gte":["@.total",{number}]}},{{"lte":["@.total",{number}]}}]}}',
            f'{{"not":{{"equals":["@.total",{{"$literal":{other}}}]}}}}',
        ):
            body = f'{{"where":{where},"count":true,"fields":[],"after":"{position}","wait":10}}'
            asked = await shop.client.post("/order/_query", content=body, headers=JSON)
            assert asked.status_code == 200, asked.text
            assert asked.json()["count"] == 1, where
    for inside in (f"[{huge[0]}]", f'{{"a":{huge[1]}}}'):
        body = f'{{"where":{{"equals":["@.total",{inside}]}},"count":true}}'
        asked = await shop.client.post("/order/_query", content=body, headers=JSON)
        assert (asked.status_code, asked.json().get("count")) == (200, 0), asked.text


async def test_a_query_has_a_hundred_tests_at_most(shop: Shop) -> None:
    one = {"equals": ["@.total", 1]}
    for count, status in ((99, 200), (100, 422)):
        asked = await shop.client.post("/order/_query", json={"where": {"or": [one] * count}})
        assert asked.status_code == status, asked.text
    refused(asked, 422, "invalid_field", "where")


# ---- against a plain list ----

NUMBERS = st.sampled_from(
    ["0", "-1", "1", "1.0", "2", "2.5", "10", "1e2", "-0.001", "9007199254740993", "1e400"]
)
TEXTS = st.sampled_from(["", "a", "ab", "b", "é", "z\U0001f600", "10", "true", "B", "a,b", '"', "null"])
VALUES = st.one_of(
    NUMBERS, TEXTS.map(json.dumps), st.sampled_from(["true", "false", "null", "[1]", '{"a":1}']), st.none()
)
OPERATORS = st.sampled_from(["eq", "ne", "gt", "gte", "lt", "lte", "in", "prefix", "exists"])
QUOTED = TEXTS.map(json.dumps)
MARKS = itertools.count(1)
FIELDS = ["status", "total", "address.city"]
ASKED = st.tuples(st.sampled_from(FIELDS), OPERATORS, NUMBERS | QUOTED)


def stored(text: str | None) -> Any:
    return _ABSENT if text is None else json.loads(text, parse_float=Decimal, parse_int=Decimal)


_ABSENT = object()


def rank(value: Any) -> tuple[Any, ...]:
    match value:
        case True:
            return (4,)
        case False:
            return (3,)
        case Decimal():
            return (5, value)
        case str():
            return (6, [ord(char) for char in value])
        case None:
            return (1,)
    return (0,) if value is _ABSENT else (2, json.dumps(value, default=str))


def passes(value: Any, operator: str, given_text: str) -> bool:
    wanted = _read(given_text)
    match operator:
        case "eq":
            return rank(value) == rank(wanted)
        case "ne":
            return rank(value) != rank(wanted)
        case "in":
            return rank(value) == rank(wanted)
        case "prefix":
            return isinstance(value, str) and value.startswith(_text(given_text))
        case "exists":
            return (value is not _ABSENT) == (given_text == "true")
    same = isinstance(value, bool) == isinstance(wanted, bool) and isinstance(value, type(wanted))
    if not same or not isinstance(value, bool | str | Decimal):
        return False
    one, other = rank(value), rank(wanted)
    return {"gt": one > other, "gte": one >= other, "lt": one < other, "lte": one <= other}[operator]


def _read(text: str) -> Any:
    try:
        value = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    except ValueError:
        return text
    return value if isinstance(value, bool | str | Decimal) else text


def _text(text: str) -> str:
    value = _read(text) if text.startswith('"') else text
    return value if isinstance(value, str) else text


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=12),
    asked=st.lists(ASKED, max_size=2, unique_by=itemgetter(0, 1)),
    sort=st.lists(
        st.tuples(st.sampled_from(FIELDS), st.booleans()), max_size=3, unique_by=lambda each: each[0]
    ),
    limit=st.integers(1, 5),
)
async def test_a_page_is_what_a_plain_list_gives(
    client: httpx.AsyncClient, rows: Any, asked: Any, sort: Any, limit: int
) -> None:
    shop, mark = Shop(client), next(MARKS)
    plain, lines = [], []
    for values in rows:
        key = new_id()
        parts = [
            f'"{name}":{text}'
            for name, text in zip(("status", "total"), values, strict=False)
            if text is not None
        ]
        if values[2] is not None:
            parts.append(f'"address":{{"city":{values[2]}}}')
        data = ",".join([f'"customer_id":{mark}', *parts])
        line = f'{{"aggregate_type":"order","key":"{key}","type":"was_placed","data":{{{data}}},'
        lines.append(line + '"metadata":{"actor":{"type":"user","id":"global"}}}')
        plain.append((key, dict(zip(FIELDS, map(stored, values), strict=True))))
    response = await client.post("/_/bulk", content="\n".join(lines), headers=NDJSON)
    assert all(json.loads(each)["status"] == 201 for each in response.text.splitlines()), response.text
    params: dict[str, str] = {"filter[customer_id]": str(mark), "limit": str(limit), "count": "true"}
    for field, operator, text in asked:
        text = "true" if operator == "exists" else text
        params[f"filter[{field}][{operator}]"] = text
        plain = [each for each in plain if passes(each[1][field], operator, text)]
    expected = sorted(plain, key=lambda each: each[0])
    for field, falling in reversed(sort):
        expected.sort(key=lambda each: rank(each[1][field]), reverse=falling)
    if sort:
        params["sort"] = ",".join(("-" if falling else "") + field for field, falling in sort)
    found: list[str] = []
    params |= {"after": await shop.position(), "wait": "10"}
    while True:
        response = await client.get("/order", params=params)
        assert response.status_code == 200, response.text
        page = response.json()
        found += [each["key"] for each in page["items"]]
        assert page["count"] == len(expected)
        if page["next"] is None:
            break
        params["cursor"] = page["next"]
    assert found == [key for key, _ in expected]


async def test_pages_neither_skip_nor_double_what_does_not_move(shop: Shop) -> None:
    keys = sorted(new_id() for _ in range(30))
    for number, key in enumerate(keys):
        await shop.append(key, "was_placed", {"total": number // 10, "status": "still"})
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await shop.get("/order", sort="-total", limit=4, **cursor)
        seen += [each["key"] for each in page["items"] if each["data"]["status"] == "still"]
        await shop.append(new_id(), "was_placed", {"total": len(seen) % 4, "status": "new"})
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert seen == keys[20:] + keys[10:20] + keys[:10]


@pytest.mark.parametrize(
    ("where", "totals"),
    [
        ({"and": [{"equals": ["@.status", "open"]}, {"gte": ["@.total", 2]}]}, [2]),
        ({"or": [{"lt": ["@.total", 1]}, {"not": {"exists": "@.status"}}]}, [0, 3]),
        ({"in": ["@.total", [1, 3, "x"]]}, [1, 3]),
        ({"not_in": ["@.total", [1, 3]]}, [0, 2]),
        ({"equals": ["@.status", None]}, [3]),
        ({"not_equals": ["@.status?", "open"]}, [1]),
        ({"@.status": "open", "total": 2}, [2]),
        ({"gt": [2, "@.total"]}, [0, 1]),
    ],
)
async def test_a_query_takes_tests_of_the_language(shop: Shop, where: Any, totals: list[int]) -> None:
    statuses: list[dict[str, Any]] = [{"status": "open"}, {"status": "paid"}, {"status": "open"}, {}]
    for total, status in enumerate(statuses):
        await shop.append(new_id(), "was_placed", {"total": total, **status})
    body = {
        "where": where,
        "sort": ["total"],
        "fields": ["total"],
        "after": await shop.position(),
        "wait": 10,
    }
    for method, path in (("QUERY", "/order"), ("POST", "/order/_query")):
        response = await shop.client.request(method, path, json=body)
        assert response.status_code == 200, response.text
        assert [each["data"] for each in response.json()["items"]] == [{"total": each} for each in totals]


async def test_no_list_shows_half_of_an_append(shop: Shop) -> None:
    key, shown = new_id(), set()
    body = batch(*[("had_item", {"item": n}) for n in range(7)])
    body["metadata"]["actor"] = {"type": "user", "id": "global"}
    for _ in range(15):
        assert (await shop.client.post(f"/order/{key}", json=body)).status_code == 201
        listed = (await shop.client.get("/order", params={"wait": 5})).json()["items"]
        shown |= {len(each["data"]["items"]) % 7 for each in listed}
    assert shown <= {0}


async def test_fields_of_many_rows_hold_up_no_other_request(shop: Shop) -> None:
    key = new_id()
    await shop.append(key, "was_placed", {"at": {f"f{n}": n for n in range(5_000)}})
    for _ in range(40):
        await shop.append(new_id(), "was_placed", {"at": {"f1": 1}})
    fields = [f"at.f{n}" for n in range(99)] + [".".join(["at"] * 64)]
    asked = {"fields": fields, "limit": 1000, "after": await shop.position(), "wait": 10}

    async def asking() -> None:
        response = await shop.client.post("/order/_query", json=asked)
        assert response.status_code == 200, response.text
        (item,) = (each for each in response.json()["items"] if each["key"] == key)
        assert item["data"] == {"at": {f"f{n}": n for n in range(99)}}

    await holds_up_no_other(asking)
    deeper = {**asked, "fields": [".".join(["at"] * 65)]}
    refused(await shop.client.post("/order/_query", json=deeper), 422, "invalid_field", "fields")
