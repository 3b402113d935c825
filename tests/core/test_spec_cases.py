"""The conformance cases in spec/cases, held against the parser, the JSON Schema and the tables of codes."""

from __future__ import annotations

import json
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import jsonschema_rs
import pytest

from spec.errors import CODES, FAULTS_MAX, Faults
from spec.model import Spec
from spec.parse import NO_ENVIRONMENT, parse, parse_deployed
from spec.webhooks.sources import RedactedEnviron

SPEC = files("spec")
DOCUMENT_SCHEMA = json.loads((SPEC / "schema.json").read_bytes())

STRUCTURAL = {
    "ambiguous_name",
    "duplicate_name",
    "invalid_name",
    "invalid_operation",
    "invalid_target",
    "invalid_value",
    "missing_key",
    "not_available",
    "reserved_name",
    "unknown_key",
    "unknown_operation",
    "wrong_type",
}
"""What a JSON Schema can say of a spec. It says nothing of the rest, but for parts of `invalid_schema`,
`invalid_path` and `invalid_template`."""

SEMANTIC = {
    "circular_ref",
    "impossible_path",
    "invalid_pattern",
    "invalid_secret",
    "keyed_by_content",
    "missing_secret",
    "remote_ref",
    "schema_too_complex",
    "undeclared",
    "unresolved_ref",
    "unsafe_target",
}


def cases(folder: str) -> list[Any]:
    found = sorted((SPEC / "cases" / folder).iterdir(), key=lambda file: file.name)
    return [pytest.param(json.loads(file.read_bytes()), id=file.name.removesuffix(".json")) for file in found]


def fits_schema(document: object) -> bool:
    return jsonschema_rs.Draft202012Validator(DOCUMENT_SCHEMA, offline=True).is_valid(document)


def examples() -> list[Traversable]:
    return sorted((SPEC / "examples").iterdir(), key=lambda file: file.name)


def test_there_are_cases_for_every_code() -> None:
    met = {fault["code"] for case in cases("fail") for fault in case.values[0]["faults"]}
    elsewhere = {"too_large", "too_many_faults", "refused_example"}  # by size, or by what was deployed before
    assert met == CODES.keys() - elsewhere
    assert len(cases("pass")) + len(cases("fail")) >= 70


@pytest.mark.parametrize("case", cases("pass"))
def test_a_passing_case_parses_bare_and_wrapped_as_text_and_as_value(case: dict[str, Any]) -> None:
    bare = parse(case["spec"])
    assert isinstance(bare, Spec), bare
    read = parse_deployed(case)
    assert isinstance(read, Spec)
    assert not read.outdated
    assert bare == read == parse(case) == parse(json.dumps(case["spec"])) == parse(json.dumps(case).encode())
    assert fits_schema(case)
    assert fits_schema(case["spec"])


@pytest.mark.parametrize("case", cases("fail"))
def test_a_failing_case_has_exactly_its_faults_in_order(case: dict[str, Any]) -> None:
    found = parse(case["text"].encode() if "text" in case else case["spec"])
    assert isinstance(found, Faults)
    assert [{"code": fault.code, "pointer": fault.pointer} for fault in found] == case["faults"]
    for fault in found:
        assert fault.error.endswith((".", "?")), fault
        assert fault.error[0].isupper() or fault.error[0] in '`"', fault
        assert len(fault.error) < 400, fault
        assert "text" in case or leads_somewhere(case["spec"], fault.pointer), fault


def leads_somewhere(document: Any, pointer: str) -> bool:
    for segment in pointer.split("/")[1:]:
        name = segment.replace("~1", "/").replace("~0", "~")
        try:
            document = document[int(name)] if isinstance(document, list) else document[name]
        except (KeyError, IndexError):
            return False
    return True


@pytest.mark.parametrize("case", cases("fail"))
def test_only_faults_that_earlier_releases_accepted_leave_a_deployed_spec_readable(
    case: dict[str, Any],
) -> None:
    document = case["text"].encode() if "text" in case else case["spec"]
    found = parse_deployed(document, NO_ENVIRONMENT)
    assert isinstance(found, Spec) == case.get("accepted_before", False)
    if isinstance(found, Spec):
        assert found.outdated == parse(document)


def test_any_number_of_faults_that_earlier_releases_accepted_leaves_a_deployed_spec_readable() -> None:
    emits = [{"emit": {"aggregate_type": "a", "id": 7, "event_type": "z"}}] * 50
    events: dict[str, Any] = {f"e{n}": {"schema": {}, "implications": emits} for n in range(21)}
    types = {"a": {"events": {**events, "z": {"schema": {}}}}}
    found = parse_deployed({"aggregate_types": types, "agent_types": []})
    assert isinstance(found, Spec)
    assert len(found.outdated) == FAULTS_MAX < 21 * 50


def bare(case: Any) -> bool:
    document = case.values[0].get("spec")
    return isinstance(document, dict) and "spec" not in document


@pytest.mark.parametrize("case", [case for case in cases("fail") if bare(case)])
def test_a_bare_failing_case_has_the_same_faults_wrapped(case: dict[str, Any]) -> None:
    found = parse({"spec": case["spec"]})
    assert isinstance(found, Faults)
    wrapped = [{"code": f["code"], "pointer": "/spec" + f["pointer"]} for f in case["faults"]]
    assert [{"code": fault.code, "pointer": fault.pointer} for fault in found] == wrapped


@pytest.mark.parametrize("case", [case for case in cases("fail") if "spec" in case.values[0]])
def test_the_json_schema_refuses_only_what_is_wrong_in_structure(case: dict[str, Any]) -> None:
    codes = {fault["code"] for fault in case["faults"]}
    if codes & STRUCTURAL:
        assert not fits_schema(case["spec"])
    if codes <= SEMANTIC:
        assert fits_schema(case["spec"])


def pointed_at(document: Any, pointer: str) -> None:
    """Raises LookupError unless `pointer` leads somewhere."""
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        document = document[int(key)] if isinstance(document, list) else document[key]


@pytest.mark.parametrize("case", [case for case in cases("fail") if "spec" in case.values[0]])
def test_every_pointer_leads_to_a_place_in_the_document_as_given(case: dict[str, Any]) -> None:
    for fault in case["faults"]:
        pointed_at(case["spec"], fault["pointer"])


@pytest.mark.parametrize("example", examples(), ids=lambda file: str(file.name))
def test_the_examples_are_specs(example: Traversable) -> None:
    assert isinstance(parse(example.read_bytes(), RedactedEnviron()), Spec)
    assert fits_schema(json.loads(example.read_bytes()))


def test_the_default_example_serves_the_requests_of_the_documentation() -> None:
    spec = parse((SPEC / "examples" / "orders.json").read_bytes())
    assert isinstance(spec, Spec)
    placed = spec.aggregate_types["order"].events["was_placed"]
    assert placed.violation({"total": 12.5, "note": "any other field"}) is None
    assert placed.violation({}) is not None
    assert "was_shipped" in spec.aggregate_types["order"].events
    assert {"user", "webhook"} <= spec.agent_types
    assert {"order"} <= spec.target_types
    assert spec.singletons == {"twilio_webhook", "stripe_webhook"}
    assert {"config", "webhook_log"} <= spec.aggregate_types.keys()
    assert spec.aggregate_types["coupon"].mint == "humane"


def test_the_readme_has_the_table_of_codes() -> None:
    readme = (SPEC / "README.md").read_text()
    for code, meaning in CODES.items():
        assert f"| `{code}` | {meaning} |" in readme
