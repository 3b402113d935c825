"""One table of refusals: the code's, the documentation's, and what the gateway can emit are the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gateway.errors import REFUSALS, Known, Refusal

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "gateway/edge/openapi"
"""Shows refusals, and answers none."""

# In the order of the checks.
STATUSES = {
    "bad_request": 400,
    "unauthorized": 401,
    "not_found": 404,
    "method_not_allowed": 405,
    "forbidden": 403,
    "tenant_suspended": 403,
    "rate_limited": 429,
    "unknown_parameter": 400,
    "reserved_event_type": 422,
    "unknown_aggregate_type": 404,
    "unknown_event_type": 404,
    "invalid_identifier": 422,
    "unknown_alias": 404,
    "ambiguous_alias": 422,
    "invalid_field": 422,
    "unknown_tag": 422,
    "not_listed": 422,
    "invalid_position": 400,
    "unsupported_media_type": 415,
    "too_large": 413,
    "invalid_json": 400,
    "missing_field": 422,
    "unknown_field": 422,
    "contradiction": 422,
    "unknown_actor_type": 422,
    "unknown_target_type": 422,
    "schema_violation": 422,
    "invalid_tag": 422,
    "invalid_claim": 422,
    "storage_full": 403,
    "depth_exceeded": 422,
    "idempotency_mismatch": 422,
    "content_differs": 409,
    "version_conflict": 409,
    "condition_failed": 409,
    "rule_violated": 422,
    "not_unique": 409,
    "invalid_spec": 422,
    "spec_conflict": 409,
    "declared_by_spec": 409,
    "schedule_ended": 409,
    "saga_not_stuck": 409,
    "key_taken": 409,
    "source_taken": 409,
    "tenant_conflict": 409,
    "state_too_large": 422,
    "not_committed": 503,
    "behind": 503,
    "unavailable": 503,
    "outcome_unknown": 504,
}


def test_the_table_has_every_code_once_with_its_status_in_the_order_of_the_checks() -> None:
    assert [(code, rule.status) for code, rule in REFUSALS.items()] == list(STATUSES.items())


def test_what_may_be_retried_was_never_written_or_may_have_been() -> None:
    for code, rule in REFUSALS.items():
        assert rule.retryable == (rule.status in (429, 503, 504)), code
        assert (rule.known is Known.UNKNOWN) == (rule.status == 504), code


@dataclass(frozen=True)
class Row:
    statuses: frozenset[int]
    codes: tuple[str, ...]
    text: str


def documented() -> Iterator[Row]:
    """The rows of the table under `## Refusals`."""
    page = (ROOT / "docs/http-api.md").read_text()
    section = page.split("\n## Refusals\n")[1].split("\n## ")[0]
    for line in section.splitlines():
        if re.match(r"\| [0-9]", line):
            statuses, codes, _ = line.strip("| ").split(" | ", 2)
            numbers = frozenset(map(int, re.findall("[0-9]{3}", statuses)))
            yield Row(numbers, tuple(re.findall("`([a-z_]+)`", codes)), line)


def test_the_documentation_has_every_code_in_the_order_of_the_checks() -> None:
    rows = list(documented())
    codes = list(dict.fromkeys(code for row in rows for code in row.codes))
    assert codes == list(REFUSALS)
    for row in rows:
        for code in row.codes:
            assert REFUSALS[code].status in row.statuses, code


@dataclass(frozen=True)
class Made:
    """A `Refusal(…)` in the source: its code, and the status that overrides the table's."""

    place: str
    code: object
    status: object


def made() -> Iterator[Made]:
    for path in sorted((ROOT / "gateway").rglob("*.py")):
        if SAMPLES in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refusal":
                status = next((each.value for each in node.keywords if each.arg == "status"), None)
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield Made(place, literal(node.args[0]), None if status is None else literal(status))


def literal(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else ast.unparse(node)


def test_whatever_is_refused_is_in_the_table_and_all_of_the_table_is_refused() -> None:
    found = list(made())
    assert {each.code for each in found} == set(REFUSALS)


def test_an_overridden_status_is_documented() -> None:
    texts: dict[str, str] = {}
    for row in documented():
        for code in row.codes:
            texts[code] = texts.get(code, "") + row.text
    for each in made():
        if each.status is not None:
            assert str(each.status) in texts[str(each.code)], each


def test_a_refusal_has_the_status_of_its_code_unless_told() -> None:
    for code in REFUSALS:
        assert Refusal(code, "Why.").http_status == STATUSES[code]
        assert Refusal(code, "Why.", status=499).http_status == 499
