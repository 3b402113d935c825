from __future__ import annotations

import json
import uuid

from gateway.names import tokens
from tests.cli.command import Ran, Sluice


def test_a_tenant_is_created_and_listed(sluice: Sluice) -> None:
    created = sluice("tenants", "create", "acme", "--json").json
    assert created["name"] == "acme"
    assert uuid.UUID(created["id"]).version == 7
    assert sluice("tenants", "list", "--json").json == [created]
    told = sluice("tenants", "create", "beta")
    assert told.code == 0
    assert told.out.startswith("tenant beta created: id ")
    table = sluice("tenants", "list").out
    assert created["id"] in table
    assert "beta" in table


def test_a_tenant_may_bring_its_id_and_is_suspended_resumed_and_deleted(sluice: Sluice) -> None:
    mine = "0190a0b0-0000-7000-8000-00000000000a"
    assert sluice("tenants", "create", "acme", "--id", mine, "--json").json["id"] == mine
    assert sluice("tenants", "create", "beta", "--id", str(uuid.uuid4())).code == 2
    for command, status in (("suspend", "suspended"), ("resume", "active")):
        assert sluice("tenants", command, "acme").code == 0
        assert [each["status"] for each in sluice("tenants", "list", "--json").json] == [status]
    assert sluice("tenants", "delete", "acme").code == 1
    assert sluice("tenants", "delete", "acme", "--yes", "--no-wait", "--json").json["status"] == "deleting"
    assert sluice("tenants", "suspend", "acme").code == 1


def test_a_key_of_scope_operator_needs_no_tenant(sluice: Sluice) -> None:
    made = sluice("keys", "create", "--scope", "operator", "--json")
    assert (made.code, made.json["scope"]) == (0, "operator")
    assert sluice("tenants", "list", "--json").json == []
    assert sluice("keys", "create", "--scope", "admin").code == 2


def test_the_help_says_what_a_tenant_may_be_called(sluice: Sluice) -> None:
    told = sluice("tenants", "create", "--help").out
    assert "NAME" in told
    assert "a-z, then up to 62 of a-z, 0-9, _ and -. It never changes." in told


def test_a_tenant_that_can_not_be_is_refused_with_1(sluice: Sluice) -> None:
    assert sluice("tenants", "create", "acme").code == 0
    taken = sluice("tenants", "create", "acme")
    assert (taken.code, taken.out, taken.err) == (1, "", "there is a tenant 'acme' already\n")
    assert sluice("tenants", "create", "Acme").code == 1


def test_a_key_is_shown_once_when_it_is_made(sluice: Sluice) -> None:
    sluice("tenants", "create", "acme")
    words = [
        "keys",
        "create",
        "--tenant",
        "acme",
        "--scope",
        "write",
        "--name",
        "importer",
        "--expires-in",
        "30",
    ]
    told = sluice(*words)
    assert told.code == 0
    key = told.out.strip()
    assert tokens.parse(key) is not None
    assert key not in told.err
    made = sluice(*words, "--json").json
    assert tokens.parse(made["key"]) is not None
    assert (made["tenant"], made["scope"], made["name"]) == ("acme", "write", "importer")
    listed = sluice("keys", "list", "--tenant", "acme", "--json")
    assert [row["status"] for row in listed.json] == ["live", "live"]
    assert listed.json[1]["handle"] == made["handle"]
    assert listed.json[1]["expires_at"] == made["expires_at"]
    for secret in (key, made["key"]):
        assert secret not in listed.out
        assert secret not in sluice("keys", "list").out


def test_a_key_is_rotated_and_then_revoked(sluice: Sluice) -> None:
    sluice("tenants", "create", "acme")
    old = sluice("keys", "create", "--tenant", "acme", "--scope", "admin", "--json").json
    new = sluice("keys", "rotate", old["handle"], "--grace", "24", "--json").json
    assert new["scope"] == "admin"
    assert new["key"] != old["key"]
    third = sluice("keys", "rotate", new["handle"])
    assert (third.code, third.out) == (1, "")
    assert f"keys {new['handle']} and {old['handle']} are both valid" in third.err
    revoked = sluice("keys", "revoke", old["handle"])
    assert (revoked.code, revoked.out) == (0, f"key {old['handle']} is revoked\n")
    states = {row["handle"]: row["status"] for row in sluice("keys", "list", "--json").json}
    assert states == {old["handle"]: "revoked", new["handle"]: "live"}
    assert "revoked" in sluice("keys", "list").out


def test_what_is_not_there_is_refused_with_where_to_look(sluice: Sluice) -> None:
    no_tenant = sluice("keys", "create", "--tenant", "nobody", "--scope", "read")
    assert (no_tenant.code, no_tenant.out) == (1, "")
    assert no_tenant.err == "there is no tenant 'nobody': `sluice tenants list` shows them\n"
    no_key = sluice("keys", "revoke", "nothing")
    assert (no_key.code, no_key.err) == (
        1,
        "there is no key 'nothing': `sluice keys list` shows their handles\n",
    )


def test_a_key_is_narrowed_and_expires_after_minutes_or_years(sluice: Sluice) -> None:
    main = sluice
    main("tenants", "create", "main")
    made = main("keys", "create", "--tenant", "main", "--scope", "read", "--only", "order",
                "--only", "order.was_paid", "--expires-in", "15m", "--json").json  # fmt: skip
    assert made["only"] == ["order", "order.was_paid"]
    assert made["expires_at"].endswith("Z")
    listed = main("keys", "list", "--json").json
    assert [each["only"] for each in listed if each["handle"] == made["handle"]] == [made["only"]]
    assert "order, order.was_paid" in main("keys", "list").out
    told = main("keys", "create", "--tenant", "main", "--scope", "write", "--only", "config/global")
    assert ", scope write, only config/global, never expires;" in told.err
    for bad, option in (("Order", "--only"), ("soon", "--expires-in"), ("0s", "--expires-in")):
        ran = main("keys", "create", "--tenant", "main", "--scope", "read", option, bad)
        assert (ran.code, ran.out) == (2, "")
        assert option in ran.err
    ran = main("keys", "create", "--tenant", "main", "--scope", "admin", "--only", "order")
    assert (ran.code, ran.err) == (1, "a key of scope admin can't be narrowed: take read or write\n")


def test_a_name_that_the_deployed_spec_does_not_have_is_warned_of(sluice: Sluice) -> None:
    def create(*names: str) -> Ran:
        only = [each for name in names for each in ("--only", name)]
        return sluice("keys", "create", "--tenant", "main", "--scope", "read", *only, "--json")

    sluice("tenants", "create", "main")
    assert create("ordre").err == ""  # no spec is deployed yet
    events = {"was_paid": {"schema": {}}}
    spec = {"aggregate_types": {"order": {"events": events}, "cart": {"events": {}}}, "agent_types": []}
    assert sluice("spec", "deploy", "-", stdin=json.dumps({"spec": spec}).encode()).code == 0
    assert create("order", "order/global", "order.was_paid", "cart").err == ""
    ran = create("ordre/global", "order", "order.was_payed", "zebra.was_paid", "ordre", "cart.x")
    assert (ran.code, len(ran.json["only"])) == (0, 6)
    assert ran.err.splitlines() == [
        'warning: The deployed spec has no event "x" of cart. There is none yet.',
        'warning: The deployed spec has no event "was_payed" of order. Did you mean "was_paid"?',
        'warning: The deployed spec has no aggregate type "ordre". Did you mean "order"?',
        'warning: The deployed spec has no aggregate type "zebra". Known here: cart, order.',
    ]


def test_a_failure_of_a_command_with_json_is_json(sluice: Sluice) -> None:
    ran = sluice("keys", "rotate", "nobody", "--json")
    assert (ran.code, ran.err) == (1, "")
    assert json.loads(ran.out) == {"ok": False, "error": sluice("keys", "rotate", "nobody").err.rstrip()}
    away = sluice("keys", "list", "--json", SLUICE_POSTGRES_URL="postgresql://sluice@127.0.0.1:9/events")
    assert away.code == 1
    assert json.loads(away.out)["error"].startswith("Postgres at postgresql://sluice@127.0.0.1:9/events")
    unsure = sluice("tenants", "delete", "acme", "--json")
    assert unsure.code == 1
    assert json.loads(unsure.out)["ok"] is False


def test_the_faults_of_a_document_are_json_with_their_places(sluice: Sluice) -> None:
    sluice("tenants", "create", "main")
    ran = sluice("subscriptions", "put", "out", "-", "--json", stdin=b'{"target": {}}')
    assert (ran.code, ran.err) == (1, "")
    assert [each["pointer"] for each in json.loads(ran.out)["faults"]] == ["/target"]
    ran = sluice("spec", "graph", "-", "--json", stdin=b"{}")
    assert (ran.code, ran.err) == (1, "")
    assert {each["code"] for each in json.loads(ran.out)["faults"]} == {"missing_key"}
    assert sluice("spec", "graph", "-", "--form", "svg", stdin=b"{}").code == 2
