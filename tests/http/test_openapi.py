"""/_/openapi.json: a valid document, a true one, and the tenant's own."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import asyncpg
import httpx
import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from openapi_spec_validator import OpenAPIV31SpecValidator
from openapi_spec_validator.validation.keywords import OpenAPIV31SchemaValidator

from gateway.config import Config
from gateway.errors import REFUSALS
from gateway.http.openapi.document import document
from gateway.http.openapi.refusal_groups import GROUPS
from gateway.http.routes import AGGREGATE_ROUTES, SYSTEM_ROUTES
from spec.errors import Faults
from spec.model import Spec
from spec.parse import parse
from spec.webhooks.sources import RedactedEnviron
from tests.support.accounts import open_account
from tests.support.calls import ACTOR, bulk, new_client, new_id, refused
from tests.support.serving import Child, Served

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "spec/examples").glob("*.json"))
CASES = sorted((ROOT / "spec/cases/pass").glob("*.json"))
CONFIG = Config(redis_url="redis://127.0.0.1", postgres_url="postgresql://127.0.0.1/x")
RUN_S = 900.0

# Its schemas refer to themselves in every way there is.
SPEC: dict[str, Any] = {
    "aggregate_types": {
        "order": {
            "events": {
                "was_placed": {
                    "schema": {
                        "$id": "https://example.com/order",
                        "$ref": "#/$defs/order",
                        "$defs": {
                            "order": {
                                "type": "object",
                                "properties": {
                                    "total": {"type": "number"},
                                    "lines": {"type": "array", "items": {"$ref": "#line"}},
                                    "parts of": {"$ref": "#/$defs/order"},
                                    "first": {"$ref": "#/$defs/order/properties/parts%20of"},
                                },
                                "required": ["total"],
                            },
                            "line": {
                                "$anchor": "line",
                                "type": "object",
                                "properties": {"sku": {"type": "string"}},
                                "required": ["sku"],
                                "additionalProperties": False,
                            },
                        },
                    }
                },
                "was_noted": {"schema": True, "handler": []},
            }
        },
        "ticket": {"mint": "humane", "events": {"was_opened": {"schema": {"type": "object"}}}},
    },
    "agent_types": ["user", "webhook"],
    "target_types": ["order"],
    "singletons": ["stripe_webhook"],
}


def made(given_spec: object, revision: int = 1) -> tuple[Spec, dict[str, Any]]:
    """The parsed spec and its document, as a reader of the JSON has it."""
    parsed = parse(given_spec, RedactedEnviron())
    assert isinstance(parsed, Spec), parsed
    return parsed, json.loads(json.dumps(document(parsed, revision, CONFIG)))


class _SchemaValidator(OpenAPIV31SchemaValidator):
    """Documents have nearly all of their schemas in common: one without faults is not examined again."""

    without_faults: ClassVar[set[str]] = set()

    def _validate_schema_meta(self, schema: Any, schema_value: Any) -> Any:
        text = json.dumps([self._get_schema_dialect_id(schema, schema_value), schema_value])
        if text in self.without_faults:
            return None
        fault = super()._validate_schema_meta(schema, schema_value)
        if fault is None:
            self.without_faults.add(text)
        return fault


class _Validator(OpenAPIV31SpecValidator):
    keyword_validators: ClassVar = {**OpenAPIV31SpecValidator.keyword_validators, "schema": _SchemaValidator}


REFERENCE = re.compile(r'"#/components/([^"/]+)/([^"/]+)')
PATHS_WITHOUT_FAULTS: set[bytes] = set()


def whole_paths(described: dict[str, Any]) -> dict[str, bytes]:
    """A digest of the text of each path and of all that it refers to."""
    texts = {
        (group, name): json.dumps(component)
        for group, components in described["components"].items()
        for name, component in components.items()
    }
    references = {place: set(REFERENCE.findall(text)) for place, text in texts.items()}
    found = {}
    for path, item in described["paths"].items():
        own = json.dumps([path, item])
        reached: set[tuple[str, str]] = set()
        ahead = set(REFERENCE.findall(own))
        while ahead:
            reached |= ahead
            ahead = set().union(*(references[place] for place in ahead)) - reached
        whole = own + "".join(texts[place] for place in sorted(reached))
        found[path] = sha256(whole.encode()).digest()
    return found


def faults(described: dict[str, Any]) -> list[str]:
    """What a public validator says against it. Python has no `\\p{L}`, which JSON Schema's patterns do have,
    so those are left to a validator that knows them (`spec.schemas` has asked it). Documents have most paths
    in common: one without faults is not examined again."""
    whole = whole_paths(described)
    paths = {
        path: item for path, item in described["paths"].items() if whole[path] not in PATHS_WITHOUT_FAULTS
    }
    told = [
        str(fault)
        for fault in _Validator({**described, "paths": paths}).iter_errors()
        if (fault.validator, fault.validator_value) != ("format", "regex")
    ]
    ids = Counter(operation["operationId"] for _, _, operation in operations(described))
    told += [f"{name} names {count} operations" for name, count in ids.items() if count > 1]
    if not told:
        PATHS_WITHOUT_FAULTS.update(whole.values())
    return told


def references(value: object) -> Iterator[str]:
    """Every `$ref` of the document, wherever it is none of the data."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "$ref" and isinstance(inner, str):
                yield inner
            elif name not in ("enum", "const", "example", "value"):
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def validator_of(described: dict[str, Any], schema: dict[str, Any]) -> jsonschema_rs.Validator:
    """A validator of one of its schemas, of which all else is within reach."""
    return jsonschema_rs.Draft202012Validator({**schema, "components": described["components"]}, offline=True)


def operations(described: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in described["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


# ---- valid ----


@pytest.mark.parametrize("file", [*EXAMPLES, *CASES], ids=lambda file: file.stem)
def test_every_legal_spec_gives_a_valid_document_that_stands_by_itself(file: Path) -> None:
    _, described = made(json.loads(file.read_text()))
    assert faults(described) == []
    assert {each for each in references(described) if not each.startswith("#/components/")} == set()


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
REFERENCES = st.sampled_from(["#", "#/$defs/a", "#/$defs/b/items", "#here", "#/properties/a~1b", "#/nothing"])
LEAVES = st.one_of(
    st.booleans(),
    st.builds(lambda kind: {"type": kind}, st.sampled_from(["string", "integer", "object", "null"])),
    st.builds(lambda reference: {"$ref": reference}, REFERENCES),
    st.builds(lambda values: {"enum": values, "default": {"$ref": "x"}}, st.lists(st.integers(), min_size=1)),
    st.just({"$anchor": "here", "type": ["string", "null"]}),
    st.just({"$dynamicAnchor": "here", "$dynamicRef": "#here", "minimum": 3}),
)


def _around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.dictionaries(st.sampled_from(["a", "b", "a/b", "$ref", "id"]), inner, max_size=3)
    return st.one_of(
        st.fixed_dictionaries({}, optional={"properties": some, "$defs": some, "$ref": REFERENCES}),
        st.fixed_dictionaries({}, optional={"items": inner, "not": inner, "additionalProperties": inner}),
        st.dictionaries(
            st.sampled_from(["allOf", "anyOf", "oneOf"]), st.lists(inner, min_size=1, max_size=3), max_size=1
        ),
    )


SCHEMAS = st.recursive(LEAVES, _around, max_leaves=8)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 9), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "a/b", "id"]), inner)
    ),
    max_leaves=6,
)
SPECS = st.fixed_dictionaries(
    {
        "aggregate_types": st.dictionaries(
            NAMES,
            st.fixed_dictionaries(
                {"events": st.dictionaries(NAMES, st.fixed_dictionaries({"schema": SCHEMAS}), max_size=3)},
                optional={"mint": st.sampled_from(["uuid", "humane"])},
            ),
            max_size=2,
        ),
        "agent_types": st.lists(NAMES, unique=True, max_size=2),
    },
    optional={
        "target_types": st.lists(NAMES, unique=True, max_size=2),
        "singletons": st.lists(NAMES, unique=True, max_size=2),
    },
)


@given(SPECS)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_legal_spec_gives_a_valid_document(declared: dict[str, Any]) -> None:
    assume(not isinstance(parse(declared), Faults))
    _, described = made(declared)
    assert faults(described) == []


@given(SCHEMAS, st.lists(VALUES, max_size=8))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_an_embedded_schema_accepts_what_the_spec_s_own_accepts(schema: Any, values: list[object]) -> None:
    declared = {"aggregate_types": {"x": {"events": {"y": {"schema": schema}}}}, "agent_types": ["user"]}
    assume(not isinstance(parse(declared), Faults))
    spec, described = made(declared)
    its_own = {"x.y": described["components"]["schemas"]["x.y"]}  # it refers to nothing else
    embedded = validator_of({"components": {"schemas": its_own}}, {"$ref": "#/components/schemas/x.y"})
    event_type = spec.aggregate_types["x"].events["y"]
    for value in values:
        assert embedded.is_valid(value) == (event_type.violation(value) is None), (schema, value)


# ---- true ----


def test_each_event_type_has_a_path_of_its_own() -> None:
    spec, described = made(SPEC)
    for declared in spec.aggregate_types.values():
        for name in declared.events:
            posted = described["paths"][f"/{declared.name}/{{id}}/{name}"]["post"]
            schema = posted["requestBody"]["content"]["application/json"]["schema"]
            assert schema["properties"]["data"] == {"$ref": f"#/components/schemas/{declared.name}.{name}"}
        reads = [f"/{declared.name}/{{id}}{rest}" for rest in ("", "/length", "/events", "/events/{version}")]
        assert [path for path in reads if "get" not in described["paths"][path]] == []
        assert "post" in described["paths"][f"/{declared.name}"]
        assert "post" in described["paths"][f"/{declared.name}/{{id}}"]


def test_a_type_without_events_has_nothing_to_post() -> None:
    _, described = made({"aggregate_types": {"x": {"events": {}}}, "agent_types": []})
    assert [
        path for path, method, _ in operations(described) if method == "post" and "x" in path.split("/")
    ] == []
    assert described["components"]["schemas"]["BulkLine"] == {"not": {}}


def test_the_streams_of_sagas_are_only_read() -> None:
    _, described = made(SPEC)
    found = {(method, path) for path, method, _ in operations(described) if path.startswith("/_saga")}
    assert found == {
        ("get", f"/_saga/{{id}}{rest}") for rest in ("", "/length", "/events", "/events/{version}")
    }


def test_every_path_of_the_service_itself_is_there() -> None:
    _, described = made(SPEC)
    own = {(method, path) for path, method, _ in operations(described) if path.startswith("/_/")}
    routes = {(route.method.lower(), route.path) for route in SYSTEM_ROUTES}
    # OpenAPI has no QUERY before 3.2; POST /_/feed/query is the same.
    assert own == routes - {("get", "/_/webhooks/{tenant}/{source}"), ("query", "/_/feed")}


def test_every_query_parameter_of_a_route_is_described_and_no_other() -> None:
    _, described = made(SPEC)
    declared = described["components"]["parameters"]
    for route in (*AGGREGATE_ROUTES, *SYSTEM_ROUTES):
        path = route.path.replace("{type}", "order").replace("{event_type}", "was_placed")
        operation = described["paths"].get(path, {}).get(route.method.lower())
        if operation is None:
            continue
        given = [declared[each["$ref"].rpartition("/")[2]] for each in operation.get("parameters", [])]
        named = {*route.query, *(["ticket"] if route.streams else [])}
        assert {each["name"] for each in given if each["in"] == "query"} == named, route


def test_every_refusal_there_is_is_documented() -> None:
    assert {refusal.code for group in GROUPS.values() for refusal in group} == set(REFUSALS)
    _, described = made(SPEC)
    shared = described["components"]["responses"]
    for group, members in GROUPS.items():
        for refusal in members:
            content = shared[f"{group}.{refusal.http_status}"]["content"]["application/json"]
            assert refusal.code in content["schema"]["allOf"][1]["properties"]["code"]["enum"]
            assert content["examples"][refusal.code]["value"]["code"] == refusal.code


def test_every_example_fits_its_schema() -> None:
    _, described = made(json.loads((ROOT / "spec/examples/orders.json").read_text()))
    places = [*described["components"]["responses"].values()]
    for _, _, operation in operations(described):
        places += [operation.get("requestBody", {}), *operation["responses"].values()]
    contents = [content for place in places for content in place.get("content", {}).values()]
    validators: dict[str, jsonschema_rs.Validator] = {}
    checked = 0
    for content in contents:
        shown = [each["value"] for each in content.get("examples", {}).values()]
        shown += [content["example"]] if "example" in content else []
        for example in shown:
            text = json.dumps(content["schema"])
            if text not in validators:
                validators[text] = validator_of(described, content["schema"])
            validators[text].validate(example)
            checked += 1
    assert checked > 60
    for parameter in described["components"]["parameters"].values():
        if "example" in parameter:
            validator_of(described, parameter["schema"]).validate(parameter["example"])


@pytest.mark.parametrize(
    ("response", "fields"),
    [
        ("several.409", {"matched", "matched_next", "position"}),
        ("append.422", {"aggregate_type", "key", "length"}),  # whose rule an implied event breaks
    ],
)
def test_a_refusal_is_described_with_what_it_says_beside_its_code(response: str, fields: set[str]) -> None:
    _, described = made(SPEC)
    content = described["components"]["responses"][response]["content"]["application/json"]
    assert fields <= set(content["schema"]["allOf"][1]["properties"])


@pytest.mark.parametrize("receipt", ["Receipt", "BatchReceipt", "ReceiptOfSeveral"])
def test_receipts_say_how_many_events_were_implied(receipt: str) -> None:
    _, described = made(SPEC)
    schema = described["components"]["schemas"][receipt]
    assert schema["properties"]["implied_count"]["minimum"] == 1  # left out where none was
    assert "implied_count" not in schema["required"]


@pytest.mark.parametrize("path", ["/_/schedules", "/_/schedules/{id}/move"])
def test_a_timer_is_due_at_a_text_or_at_unix_seconds(path: str) -> None:
    _, described = made(SPEC)
    body = described["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    due = validator_of(described, body["properties"]["due_at"])
    assert [due.is_valid(each) for each in ("2030-01-01T00:00:00Z", 1900000000, 1.9e9, None)] == [
        True, True, True, False
    ]  # fmt: skip


def test_references_of_a_schema_lead_into_its_component() -> None:
    _, described = made(SPEC)
    schema = described["components"]["schemas"]["order.was_placed"]
    home = "#/components/schemas/order.was_placed"
    order = schema["$defs"]["order"]["properties"]
    assert schema["$ref"] == f"{home}/$defs/order"
    assert order["lines"]["items"] == {"$ref": f"{home}/$defs/line"}
    assert order["first"] == {"$ref": f"{home}/$defs/order/properties/parts%20of"}
    assert "$id" not in schema
    assert "$anchor" not in schema["$defs"]["line"]


async def test_every_example_of_an_append_is_accepted(gateway: Served, outbox: asyncpg.Pool) -> None:
    declared = json.loads((ROOT / "spec/examples/orders.json").read_text())
    account = await open_account(outbox, declared)
    async with new_client(gateway.url, account.write) as client:
        described = (await client.get("/_/openapi.json")).json()
        sent = 0
        for path, method, operation in operations(described):
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            if method == "post" and not path.startswith("/_/"):
                key = described["components"]["parameters"]["id"]["example"]
                response = await client.post(path.replace("{id}", key), json=content["example"])
                assert response.status_code == 201, (path, response.text)
                sent += 1
        assert sent == 14 + 2 * 6


RECORDS: dict[str, Any] = {
    "aggregate_types": {
        "unit": {
            "identity": {"content": {"text": "$.data.text"}},
            "events": {"was_seen": {"schema": {}, "tags": ["text:$.data.text"]}},
        },
        "listed": {
            "identity": {"content": {"text": "$.data.text"}},
            "list": {"by": ["text"]},
            "events": {"was_seen": {"schema": {}}},
        },
    },
    "agent_types": ["user"],
}


def require_documented(described: dict[str, Any], path: str, response: httpx.Response) -> None:
    """That the document has a schema for this answer, and that it fits."""
    found = described["paths"][path][response.request.method.lower()]["responses"][str(response.status_code)]
    if "$ref" in found:
        found = described["components"]["responses"][found["$ref"].rpartition("/")[2]]
    validator_of(described, found["content"]["application/json"]["schema"]).validate(response.json())


async def test_what_records_and_sources_are_answered_is_documented(
    gateway: Served, outbox: asyncpg.Pool
) -> None:
    account = await open_account(outbox, RECORDS)
    async with new_client(gateway.url, account.write) as client:
        described = (await client.get("/_/openapi.json")).json()
        key, metadata = new_id(), {"actor": ACTOR}
        event = {"type": "was_seen", "data": {"text": "a"}}
        source = {"source": "shop", "scope": "a", "id": "1"}
        single = {"data": event["data"], "metadata": metadata, "if_unchanged": "skip"}
        batch = {"events": [event], "metadata": metadata, "if_unchanged": "skip"}
        for url, path, body in (
            (f"/unit/{key}/was_seen", "/unit/{id}/was_seen", single),
            (f"/unit/{key}", "/unit/{id}", batch),
            ("/unit", "/unit", {**batch, "source": source}),
        ):
            for _ in range(2):
                response = await client.post(url, json=body)
                require_documented(described, path, response)
            assert (response.status_code, response.json()["unchanged"]) == (200, True)
        content = (await client.post("/_/ids/hash", json={"text": "a"})).json()["content"]
        for name in ("unit", "listed"):
            found = await client.get(f"/{name}?content={content}")
            assert found.status_code == 200
            require_documented(described, f"/{name}", found)
            parameters = described["paths"][f"/{name}"]["get"]["parameters"]
            assert {"content", "context"} <= {each.get("name") for each in parameters}
        line = {"aggregate_type": "unit", "source": source, **event, "metadata": metadata}
        several = {"events": [{"aggregate_type": "unit", "source": source, **event}], "metadata": metadata}
        neither = await client.get("/unit")
        assert neither.status_code == 405
        require_documented(described, "/unit", neither)
        by_alias = {"events": [{"aggregate_type": "unit", "key": "@UN-7", **event}], "metadata": metadata}
        validator_of(described, described["components"]["schemas"]["Append"]).validate(by_alias)
        lines = [{**line, "if_unchanged": "skip"}, {**several, "idempotency_key": new_id()}]
        by_bare_alias = {**line, "key": "UN-7"}
        for each in (*lines, {name: value for name, value in by_bare_alias.items() if name != "source"}):
            validator_of(described, described["components"]["schemas"]["BulkLine"]).validate(each)
        assert [each["status"] for each in await bulk(client, *lines)] == [200, 201]
        items = [{"types": ["unti.was_seen"]}]
        undeclared = {**several, "condition": {"fail_if_events_match": {"items": items}}}
        response = await client.post("/_/append", json=undeclared)
        assert response.json()["code"] == "unknown_aggregate_type"
        require_documented(described, "/_/append", response)
        unlinked = await client.put("/_/sources/shop/a/2", json={"aggregate_type": "unit", "key": "x"})
        assert unlinked.json()["code"] == "invalid_identifier"
        require_documented(described, "/_/sources/{source}/{scope}/{source_id}", unlinked)


def test_an_event_may_be_the_gateway_s_own() -> None:
    _, described = made(SPEC)
    named = described["components"]["schemas"]["Event"]["properties"]["aggregate_type"]
    for name in ("order", "_names", "_saga"):
        validator_of(described, named).validate(name)


# ---- served ----


async def test_the_document_is_of_the_spec_that_is_deployed(
    client: httpx.AsyncClient, neighbour: httpx.AsyncClient
) -> None:
    first = await client.get("/_/openapi.json")
    assert (first.status_code, first.headers["content-type"]) == (200, "application/json")
    assert "/order/{id}/was_noted" in first.json()["paths"]
    deployed = (await client.get("/_/spec")).json()["spec"]
    deployed["aggregate_types"]["parcel"] = {"events": {"was_sent": {"schema": True}}}
    assert (await client.put("/_/spec", json=deployed)).status_code == 200
    second = await client.get("/_/openapi.json", headers={"if-none-match": first.headers["etag"]})
    assert second.status_code == 200
    assert "/parcel/{id}/was_sent" in second.json()["paths"]
    assert second.headers["etag"] != first.headers["etag"]
    assert "/parcel/{id}/was_sent" not in (await neighbour.get("/_/openapi.json")).json()["paths"]


async def test_its_etag_names_the_revision_and_gives_a_304(reader: httpx.AsyncClient) -> None:
    first = await reader.get("/_/openapi.json")
    etag = first.headers["etag"]
    assert etag.startswith('"1.')
    assert (await reader.get("/_/openapi.json")).headers["etag"] == etag
    for asked in (etag, f'"other", {etag}', "*", f"W/{etag}"):
        again = await reader.get("/_/openapi.json", headers={"if-none-match": asked})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)


async def test_it_asks_for_a_key_and_a_spec(
    stranger: httpx.AsyncClient, gateway: Served, outbox: asyncpg.Pool
) -> None:
    refused(await stranger.get("/_/openapi.json"), 401, "unauthorized")
    account = await open_account(outbox, spec=None)
    async with new_client(gateway.url, account.admin) as client:
        refused(await client.get("/_/openapi.json"), 404, "not_found")
        refused(await client.post("/_/openapi.json"), 405, "method_not_allowed")


@pytest.mark.timeout(RUN_S + 60)
async def test_a_running_gateway_does_what_its_document_says(
    child: Child, outbox: asyncpg.Pool, tmp_path: Path
) -> None:
    account = await open_account(outbox, SPEC)  # with `write`: nothing deploys another spec meanwhile
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "schemathesis.cli", "--config-file", "tests/http/schemathesis.toml", "run"),
        *("--phases", "examples,coverage,fuzzing", "--no-color"),
        *("--header", f"Authorization: Bearer {account.write}", f"{child.served.url}/_/openapi.json"),
        cwd=ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), RUN_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, said.decode()
    assert "Tested: 92" in said.decode(), said.decode()
