from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.catalog.documents import ORDERS, document, store
from tests.cli.command import Sluice

FAULTY = b'{"agent_types": "user", "aggregate_types": {"Order": {"events": {}}}}'
KEY = "a0000000-0000-4000-a000-000000000001"
KEYLESS = "a gateway requires a key: set SLUICE_KEY or SLUICE_KEY_FILE, or give --key\n"


@pytest.fixture
def orders(tmp_path: Path) -> str:
    path = tmp_path / "orders.json"
    path.write_bytes(ORDERS)
    return str(path)


@pytest.fixture
def main(sluice: Sluice) -> Sluice:
    sluice("tenants", "create", "main")
    return sluice


def test_a_good_spec_is_checked_without_any_server(unset: Sluice, orders: str) -> None:
    ran = unset("spec", "check", orders)
    assert (ran.code, ran.out, ran.err) == (0, f"{orders}: no faults\n", "")
    assert unset("spec", "check", "-", "--json", stdin=ORDERS).json == {
        "ok": True,
        "faults": [],
        "notices": [],
    }


def test_a_saga_that_begins_itself_again_is_noticed_by_check_deploy_and_diff(main: Sluice) -> None:
    begun = {"aggregate_type": "job", "event_type": "was_begun"}
    steps = [{"name": "again", "emit": {**begun, "id": "$.key"}}]
    endless = {
        "aggregate_types": {"job": {"events": {"was_begun": {"schema": {}}}}},
        "agent_types": ["user"],
        "sagas": {"loop": {"trigger": begun, "steps": steps}},
    }
    text = json.dumps(endless).encode()
    notice = (
        "/sagas/loop/steps/0/emit  The saga begins itself again without end: job.was_begun → saga loop → "
        "job.was_begun. A `condition` of a step or of an implication, or a rule of an event, can end that.\n"
    )
    ran = main("spec", "check", "-", stdin=text)
    assert (ran.code, ran.out, ran.err) == (0, "-: no faults\n", notice)
    (told,) = main("spec", "check", "-", "--json", stdin=text).json["notices"]
    assert f"{told['pointer']}  {told['notice']}\n" == notice
    assert notice.rstrip() in main("spec", "diff", "-", stdin=text).out
    ran = main("spec", "deploy", "-", stdin=text)
    assert (ran.code, ran.err) == (0, notice)
    steps[0]["condition"] = {"exists": "$.data.more"}
    ran = main("spec", "deploy", "-", stdin=json.dumps(endless).encode())
    assert (ran.code, ran.err) == (0, "")
    assert main("spec", "deploy", "-", stdin=text).err == notice
    ran = main("spec", "diff", "-", stdin=json.dumps(endless).encode())
    assert (ran.code, notice.rstrip() in ran.out) == (0, False)


def test_what_was_shown_is_checked_with_its_secrets_as_they_are_shown(unset: Sluice) -> None:
    shown = json.loads(ORDERS)
    shown = shown.get("spec", shown)
    shown["agent_types"] = ["user", "webhook"]
    shown["singletons"] = ["github_webhook"]
    kind, declared = next(iter(shown["aggregate_types"].items()))
    to = {"type": kind, "id": "github_webhook", "event": next(iter(declared["events"]))}
    secrets = ["***", {"secret": "***", "until": 5}]
    shown["webhooks"] = {"github": {"provider": "github", "secrets": secrets, "to": to}}
    target = {"type": "webhook", "url": "https://hooks.example.com/x?***", "secret": "***"}
    stream = {"type": "redis_stream", "url": "***", "stream": "orders"}
    shown["subscriptions"] = {"warehouse": {"target": target}, "orders": {"target": stream}}
    ran = unset("spec", "check", "-", stdin=json.dumps({"spec": shown}).encode())
    assert (ran.code, ran.out) == (0, "-: no faults\n")
    assert [line.split("  ")[0] for line in ran.err.splitlines()] == [
        "/spec/subscriptions/orders/target/url",
        "/spec/subscriptions/warehouse/target/secret",
        "/spec/subscriptions/warehouse/target/url",
        "/spec/webhooks/github/secrets/0",
        "/spec/webhooks/github/secrets/1/secret",
    ]
    shown["webhooks"]["github"]["tolerance_s"] = "***"
    ran = unset("spec", "check", "-", stdin=json.dumps(shown).encode())
    assert (ran.code, ran.out.split("  ")[0]) == (1, "/webhooks/github/tolerance_s")


def test_all_but_the_secrets_is_looked_at_in_what_was_shown(main: Sluice) -> None:
    begun = {"aggregate_type": "job", "event_type": "was_begun"}
    event: dict[str, Any] = {"schema": {"examples": [{"n": 1}]}}
    shown: dict[str, Any] = {
        "aggregate_types": {"job": {"events": {"was_begun": event}}},
        "agent_types": ["webhook"],
        "singletons": ["github_webhook"],
        "sagas": {"loop": {"trigger": begun, "steps": [{"name": "again", "emit": {**begun, "id": "$.key"}}]}},
    }
    assert main("spec", "deploy", "-", stdin=json.dumps(shown).encode()).code == 0
    to = {"type": "job", "id": "github_webhook", "event": "was_begun"}
    shown["webhooks"] = {"github": {"provider": "github", "secrets": ["***"], "to": to}}
    ran = main("spec", "check", "-", stdin=json.dumps({"spec": shown}).encode())
    assert (ran.code, ran.out) == (0, "-: no faults\n")
    assert "/spec/sagas/loop/steps/0/emit  The saga begins itself again" in ran.err
    assert "/spec/webhooks/github/secrets/0  `***` stands for the deployed secret" in ran.err
    ran = main("spec", "graph", "-", stdin=json.dumps(shown).encode())
    assert "saga loop  emits  job.was_begun" in ran.out
    event.update(schema={"required": ["m"]}, revision=2, upcast={"1": []})
    ran = main("spec", "check", "-", stdin=json.dumps(shown).encode())
    assert (ran.code, "refused_example" in ran.out) == (1, True)


def test_every_fault_is_printed_with_its_code_pointer_and_sentence(unset: Sluice, tmp_path: Path) -> None:
    path = tmp_path / "faulty.json"
    path.write_bytes(FAULTY)
    as_json = unset("spec", "check", str(path), "--json")
    assert as_json.code == 1
    told = json.loads(as_json.out)
    assert told["ok"] is False
    places = [(fault["code"], fault["pointer"]) for fault in told["faults"]]
    assert places == [("wrong_type", "/agent_types"), ("invalid_name", "/aggregate_types/Order")]
    ran = unset("spec", "check", str(path))
    assert ran.code == 1
    assert ran.out.splitlines() == [
        f"{fault['pointer']}  {fault['code']}  {fault['error']}" for fault in told["faults"]
    ]
    assert ran.err == f"{path}: 2 faults\n"


def test_what_is_no_json_is_a_fault_and_no_file_is_wrong_usage(unset: Sluice, tmp_path: Path) -> None:
    ran = unset("spec", "check", "-", stdin=b"\xff{")
    assert ran.code == 1
    assert "invalid_json" in ran.out
    assert unset("spec", "check", str(tmp_path / "absent.json")).code == 2


def test_a_spec_is_deployed_and_shown(main: Sluice, orders: str) -> None:
    none = main("spec", "show")
    assert (none.code, none.err) == (1, "tenant main has no spec yet: `sluice spec deploy FILE`\n")
    as_json = main("spec", "show", "--json")
    assert (as_json.code, as_json.err) == (1, "")
    assert json.loads(as_json.out) == {"ok": False, "code": "not_found", "error": none.err.rstrip()}
    assert main("spec", "deploy", orders, "--json").json == {"ok": True, "revision": 1, "changed": True}
    again = main("spec", "deploy", orders)
    assert (again.code, again.out) == (0, "revision 1 is deployed already, unchanged\n")
    shown = main("spec", "show")
    assert json.loads(shown.out) == json.loads(ORDERS)
    assert shown.err == "revision 1\n"
    wrapped = main("spec", "deploy", "-", stdin=b'{"spec": ' + ORDERS + b"}")
    assert wrapped.out == "revision 1 is deployed already, unchanged\n"
    assert main("spec", "show", "--json").json == {"ok": True, "revision": 1, "spec": json.loads(ORDERS)}


def test_a_faulty_spec_is_not_deployed(main: Sluice) -> None:
    ran = main("spec", "deploy", "-", stdin=FAULTY)
    assert (ran.code, ran.out) == (1, "")
    assert "/aggregate_types/Order  invalid_name  " in ran.err
    as_json = main("spec", "deploy", "-", "--json", stdin=FAULTY)
    assert as_json.code == 1
    assert json.loads(as_json.out)["code"] == "invalid_spec"
    assert main("spec", "show").code == 1


async def store_one(url: str) -> None:
    conn = await asyncpg.connect(url)
    tenant = await conn.fetchval("SELECT id FROM tenant")
    await store(conn, tenant, "invoice", KEY, "was_sent")
    await conn.close()


async def test_what_is_stored_is_in_the_way_unless_forced(main: Sluice, postgres_url: str) -> None:
    await asyncio.to_thread(main, "spec", "deploy", "-", stdin=ORDERS)
    await store_one(postgres_url)
    fewer = document({"order": ["was_placed"]})
    refused = await asyncio.to_thread(main, "spec", "deploy", "-", stdin=fewer)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.splitlines() == [
        "The spec would refuse or reinterpret what is already stored.",
        "/aggregate_types/invoice  Aggregate type invoice has events.",
        "--force deploys it anyway.",
    ]
    as_json = await asyncio.to_thread(main, "spec", "deploy", "-", "--json", stdin=fewer)
    assert json.loads(as_json.out)["conflicts"] == [
        {"pointer": "/aggregate_types/invoice", "error": "Aggregate type invoice has events."}
    ]
    forced = await asyncio.to_thread(main, "spec", "deploy", "-", "--force", stdin=fewer)
    assert forced.out == "revision 2 is deployed\n"


def test_a_tenant_that_is_not_there_is_named(main: Sluice, orders: str) -> None:
    ran = main("spec", "deploy", orders, "--tenant", "nobody")
    assert (ran.code, ran.out) == (1, "")
    assert "no tenant 'nobody'" in ran.err


class Answering(BaseHTTPRequestHandler):
    """Answers as a gateway would, and keeps what it was asked."""

    asked: list[tuple[str, str, str | None, bytes]]
    answer: tuple[int, bytes]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.asked.append((self.command, self.path, self.headers["Authorization"], body))
        status, text = self.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT

    def log_message(self, *_: Any) -> None:
        """Nothing on the test's stderr."""


@pytest.fixture
def gateway() -> Iterator[tuple[str, type[Answering]]]:
    handler = type("Handler", (Answering,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()
        thread.join()


def test_a_running_gateway_is_deployed_to_over_http(
    unset: Sluice, orders: str, gateway: tuple[str, type[Answering]]
) -> None:
    url, handler = gateway
    handler.answer = (200, b'{"ok": true, "revision": 7}')
    ran = unset("spec", "deploy", orders, "--url", url, "--key", "k1", "--force")
    assert (ran.code, ran.out) == (0, "revision 7 is deployed\n")
    assert handler.asked == [("PUT", "/_/spec?force=true", "Bearer k1", ORDERS)]
    handler.answer = (200, b'{"ok": true, "revision": 7, "spec": {"agent_types": []}}')
    shown = unset("spec", "show", SLUICE_URL=url + "/", SLUICE_KEY="k2")
    assert json.loads(shown.out) == {"agent_types": []}
    assert handler.asked[1] == ("GET", "/_/spec", "Bearer k2", b"")


def test_what_a_gateway_refuses_is_explained_the_same_way(
    unset: Sluice, orders: str, gateway: tuple[str, type[Answering]]
) -> None:
    url, handler = gateway
    conflict = {"pointer": "/singletons/0", "error": "Singleton x has a stream."}
    answer = {"ok": False, "code": "spec_conflict", "error": "In the way.", "conflicts": [conflict]}
    handler.answer = (409, json.dumps(answer).encode())
    ran = unset("spec", "deploy", orders, "--url", url, SLUICE_KEY="k")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "In the way.\n/singletons/0  Singleton x has a stream.\n--force deploys it anyway.\n"


@pytest.mark.parametrize("text", [b"<html>", b"[]", b"{}", b"\xff", b'{"ok": true}'])
def test_what_is_no_gateway_is_told_apart(
    unset: Sluice, gateway: tuple[str, type[Answering]], text: bytes
) -> None:
    url, handler = gateway
    handler.answer = (200, text)
    ran = unset("spec", "show", "--url", url, "--key", "k")
    assert (ran.code, ran.err) == (1, f"the server at {url} is not a Sluice gateway: status 200\n")


def test_a_gateway_that_is_not_there_or_a_missing_key_is_a_sentence(unset: Sluice, orders: str) -> None:
    absent = unset("spec", "deploy", orders, "--url", "http://127.0.0.1:9", "--key", "k")
    assert absent.code == 1
    assert absent.err.startswith("the gateway at http://127.0.0.1:9 cannot be reached: ")
    keyless = unset("spec", "deploy", orders, "--url", "http://127.0.0.1:9")
    assert (keyless.code, keyless.err) == (2, KEYLESS)
    both = unset("spec", "show", "--url", "http://x", "--postgres", "postgresql://x")
    assert (both.code, both.err) == (2, "--url and --postgres exclude each other\n")


def test_a_key_may_end_in_a_line_break(unset: Sluice, gateway: tuple[str, type[Answering]]) -> None:
    url, handler = gateway
    handler.answer = (200, b'{"ok": true, "revision": 7, "spec": {}}')
    assert unset("spec", "show", "--url", url, SLUICE_KEY="sl_secret\n").code == 0
    assert [key for _, _, key, _ in handler.asked] == ["Bearer sl_secret"]
    blank = unset("spec", "show", "--url", url, SLUICE_KEY=" \n")
    assert (blank.code, blank.err) == (2, KEYLESS)


def test_a_key_is_read_from_the_file_that_the_environment_names(
    unset: Sluice, gateway: tuple[str, type[Answering]], tmp_path: Path
) -> None:
    url, handler = gateway
    handler.answer = (200, b'{"ok": true, "revision": 7, "spec": {}}')
    file = tmp_path / "key"
    file.write_text("sl_in_file\n")
    environ = {"SLUICE_URL": url, "SLUICE_KEY_FILE": str(file)}
    assert unset("spec", "show", **environ).code == 0
    assert unset("spec", "show", **environ, SLUICE_KEY="sl_direct").code == 0
    assert unset("spec", "show", "--key", "sl_given", **environ).code == 0
    keys = [key for _, _, key, _ in handler.asked]
    assert keys == ["Bearer sl_in_file", "Bearer sl_direct", "Bearer sl_given"]
    absent = unset("spec", "show", SLUICE_URL=url, SLUICE_KEY_FILE=str(tmp_path / "absent"))
    assert (absent.code, absent.out) == (2, "")
    assert absent.err == f"SLUICE_KEY_FILE: {tmp_path / 'absent'} can't be read: No such file or directory\n"


def test_a_database_in_the_environment_goes_before_a_gateway_in_it(
    main: Sluice, orders: str, gateway: tuple[str, type[Answering]], tmp_path: Path
) -> None:
    url, handler = gateway
    handler.answer = (200, b'{"ok": true, "revision": 7}')
    file = tmp_path / "key"
    file.write_text("sl_in_file\n")
    environ = {"SLUICE_URL": url, "SLUICE_KEY_FILE": str(file)}
    main("tenants", "create", "acme")
    assert main("spec", "deploy", orders, "--tenant", "acme", **environ).out == "revision 1 is deployed\n"
    assert handler.asked == []
    assert main("spec", "deploy", orders, "--key", "k", **environ).out == "revision 7 is deployed\n"
    assert main("spec", "deploy", orders, "--url", url, **environ).out == "revision 7 is deployed\n"
    assert [key for _, _, key, _ in handler.asked] == ["Bearer k", "Bearer sl_in_file"]


@pytest.mark.parametrize("key", ["sl_secr\net", "sl_secr et", "sl_secrét"])
def test_what_can_be_no_key_is_refused_without_being_shown(unset: Sluice, key: str) -> None:
    ran = unset("spec", "show", "--url", "http://127.0.0.1:9", "--key", key)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("the API key is empty, or has characters other than visible ASCII")
    assert "secr" not in ran.err


def test_the_password_of_a_url_is_not_shown(unset: Sluice, gateway: tuple[str, type[Answering]]) -> None:
    url, handler = gateway
    handler.answer = (200, b"<html>")
    no_gateway = unset("spec", "show", "--url", url.replace("//", "//ada:hunter2@") + "/", "--key", "k")
    absent = unset("spec", "show", "--url", "http://ada:hunter2@127.0.0.1:9/", "--key", "k")
    no_url = unset("spec", "show", "--url", "http://ada:hunter2/@127.0.0.1:9", "--key", "k")
    assert no_gateway.err.startswith("the server at http://ada:***@127.0.0.1:")
    assert absent.err.startswith("the gateway at http://ada:***@127.0.0.1:9/ cannot be reached: ")
    assert no_url.err == "the gateway at http://*** cannot be reached: that is not a URL\n"
    assert "hunter2" not in no_gateway.err + absent.err + no_url.err


def test_a_spec_is_compared_listed_shown_and_gone_back_to(main: Sluice) -> None:
    first, second = document({"order": ["was_placed"]}), document({"order": ["was_placed", "was_paid"]})
    assert main("spec", "diff", "-", stdin=first).err.startswith(
        "compared with no deployed spec: 3 differences"
    )
    assert main("spec", "deploy", "-", "--if-revision", "0", stdin=first).out == "revision 1 is deployed\n"
    same = main("spec", "diff", "-", stdin=first)
    assert (same.code, same.out, same.err) == (0, "", "compared with revision 1: no differences\n")
    ran = main("spec", "diff", "-", stdin=second)
    assert (ran.code, ran.err) == (0, "compared with revision 1: 1 difference\n")
    assert ran.out.startswith("+ /aggregate_types/order/events/was_paid  {")
    stale = main("spec", "deploy", "-", "--if-revision", "7", stdin=second)
    assert (stale.code, stale.err) == (1, "Revision 1 is deployed, not the one expected.\n")
    assert main("spec", "deploy", "-", "--if-revision", "1", stdin=second).out == "revision 2 is deployed\n"
    assert [line.split()[0] for line in main("spec", "history").out.splitlines()] == ["revision", "2", "1"]
    listed = main("spec", "history", "--limit", "1", "--json").json
    assert [each["revision"] for each in listed["revisions"]] == [2]
    assert json.loads(main("spec", "show", "--revision", "1").out) == json.loads(first)
    absent = main("spec", "show", "--revision", "9")
    sentence = "there is no revision 9 of the spec: `sluice spec history` lists them\n"
    assert (absent.code, absent.err) == (1, sentence)
    assert main("spec", "rollback", "9").err == sentence
    assert main("spec", "rollback", "1").out == "revision 3 is deployed\n"
    assert main("spec", "rollback", "1").out == "revision 3 is deployed already, unchanged\n"


async def test_a_diff_ends_with_1_where_the_deployment_would_be_refused(
    main: Sluice, postgres_url: str
) -> None:
    await asyncio.to_thread(main, "spec", "deploy", "-", stdin=ORDERS)
    await store_one(postgres_url)
    fewer = document({"order": ["was_placed"]})
    ran = await asyncio.to_thread(main, "spec", "diff", "-", stdin=fewer)
    assert ran.code == 1
    assert "! /aggregate_types/invoice  Aggregate type invoice has events." in ran.out.splitlines()
    assert ran.err.endswith(" with stored data\n")
    assert (await asyncio.to_thread(main, "spec", "diff", "-", stdin=FAULTY)).code == 1


def test_the_same_is_asked_of_a_gateway(unset: Sluice, gateway: tuple[str, type[Answering]]) -> None:
    url, handler = gateway
    environ = {"SLUICE_URL": url, "SLUICE_KEY": "k"}
    handler.answer = (200, b'{"ok": true, "revisions": []}')
    assert unset("spec", "history", **environ).code == 0
    handler.answer = (200, b'{"ok": true, "revision": 3, "spec": {}}')
    assert unset("spec", "show", "--revision", "3", **environ).code == 0
    handler.answer = (200, b'{"ok": true, "revision": 4, "changed": true}')
    assert unset("spec", "rollback", "3", "--force", "--if-revision", "5", **environ).code == 0
    plan = {"revision": 4, "changed": False, "changes": [], "conflicts": [], "notices": []}
    handler.answer = (200, json.dumps({"ok": True, **plan}).encode())
    assert (
        unset("spec", "diff", "-", stdin=b"{}", **environ).err == "compared with revision 4: no differences\n"
    )
    assert [(method, path, body) for method, path, _, body in handler.asked] == [
        ("GET", "/_/spec/history?limit=100", b""),
        ("GET", "/_/spec?revision=3", b""),
        ("POST", "/_/spec/rollback?force=true", b'{"revision": 3}'),
        ("POST", "/_/spec/diff", b"{}"),
    ]
