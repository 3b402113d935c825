"""`sluice spec graph`: what leads to what."""

from __future__ import annotations

import json
from pathlib import Path

from spec.graph import Arrow, arrows, drawn
from spec.model import Spec
from spec.parse import parse

CASES = Path(__file__).parents[2] / "spec" / "cases" / "pass"


def spec_of(name: str) -> Spec:
    found = parse(json.dumps(json.loads((CASES / name).read_text())["spec"]).encode(), {})
    assert isinstance(found, Spec)
    return found


def test_each_implication_is_an_arrow() -> None:
    found = list(arrows(spec_of("implications.json")))
    assert Arrow("order.was_placed", "schedules", "order.had_expired") in found
    assert Arrow("order.was_paid", "implies", "stock.was_reserved") in found


def test_a_saga_starts_by_its_trigger_and_emits_its_steps() -> None:
    found = list(arrows(spec_of("sagas.json")))
    assert any(each.how == "compensates" for each in found)
    assert found[:2] == [
        Arrow("cart.checkout_started", "starts", "saga other"),
        Arrow("saga other", "emits", "inventory.reservation_asked"),
    ]


def test_it_is_drawn_as_text_as_dot_and_as_mermaid() -> None:
    spec = spec_of("implications.json")
    assert "order.was_paid  implies  letter.was_ordered" in drawn(spec, "text")
    assert '  "order.was_paid" -> "letter.was_ordered" [label="implies"];' in drawn(spec, "dot")
    mermaid = drawn(spec, "mermaid")
    assert mermaid[0] == "flowchart LR"
    assert any("-- implies -->" in line for line in mermaid)
