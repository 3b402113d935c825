"""The part `subscriptions`: secrets by the environment, targets that may be reached, documents as shown."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from typing import Any

import pytest

from spec.errors import Faults
from spec.model import Spec
from spec.parse import parse, parse_deployed
from spec.subscriptions import Filter, PermissiveEnviron
from spec.targets.addresses import ALLOW_PRIVATE, is_public, unsafe
from spec.targets.form import RETRY_S
from spec.targets.pull import Pull
from spec.targets.redis_stream import RedisStream
from spec.targets.secrets import secret_text, signing_key
from spec.targets.webhook import Webhook
from spec.webhooks.secrets import masked, restored
from spec.webhooks.sources import RedactedEnviron

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
WEBHOOK = {"type": "webhook", "url": "https://hooks.example.com/in", "secret": SECRET}


def declared(target: object, **more: object) -> dict[str, Any]:
    types = {"order": {"events": {"was_placed": {"schema": {}}}}}
    return {"aggregate_types": types, "agent_types": [], "subscriptions": {"all": {"target": target, **more}}}


def codes(target: object, environ: Mapping[str, str]) -> list[str]:
    found = parse(declared(target), environ)
    return [fault.code for fault in found] if isinstance(found, Faults) else []


def test_what_is_declared_becomes_values_with_the_defaults_filled_in() -> None:
    spec = parse(declared(WEBHOOK, filter={"types": ["order"]}))
    assert isinstance(spec, Spec)
    subscription = spec.subscriptions["all"]
    assert subscription.filter == Filter(("order",), None)
    assert (subscription.start, subscription.target) == ("now", Webhook(WEBHOOK["url"], SECRET, RETRY_S))
    assert SECRET not in repr(spec)
    redis = parse(declared({"type": "redis_stream", "url": "rediss://me:hush@example.com", "stream": "x"}))
    assert isinstance(redis, Spec)
    assert redis.subscriptions["all"].target == RedisStream("rediss://me:hush@example.com", "x")
    assert "hush" not in repr(redis)
    pulled = parse(declared({"type": "pull"}))
    assert isinstance(pulled, Spec)
    assert pulled.subscriptions["all"].target == Pull(30.0, 20)


def test_a_subscription_may_say_how_its_events_are_named() -> None:
    pull = {"type": "pull"}
    for said, known in (({}, (None, False)), ({"aliases": False, "keys": "alias"}, (False, True))):
        spec = parse(declared(pull, **said))
        assert isinstance(spec, Spec)
        assert (spec.subscriptions["all"].aliases, spec.subscriptions["all"].keyless) == known
    for said in ({"aliases": None}, {"keys": "uuid"}):
        assert isinstance(parse(declared(pull, **said)), Faults)


@pytest.mark.parametrize("name", ["env:SLUICE_SECRET_HOOK", "file:hook.key"])
def test_a_secret_by_name_is_looked_up_where_the_spec_is_checked(name: str) -> None:
    target, place = {**WEBHOOK, "secret": name}, name.removeprefix("env:")
    assert codes(target, {}) == ["missing_secret"]
    assert codes(target, {place: "no base64!"}) == ["invalid_secret"]
    assert codes(target, {place: SECRET}) == []
    assert codes(target, RedactedEnviron()) == []
    assert secret_text(name, {place: SECRET}) == SECRET
    assert secret_text(SECRET, {}) == SECRET


@pytest.mark.parametrize("url", ["http://hooks.example.com", "https://127.0.0.1:9999", "https://localhost"])
def test_private_targets_are_a_fault_unless_the_setting_allows_them(url: str) -> None:
    target = {**WEBHOOK, "url": url}
    assert codes(target, {}) == ["unsafe_target"]
    assert codes(target, {ALLOW_PRIVATE: "off"}) == ["unsafe_target"]
    assert codes(target, {ALLOW_PRIVATE: "on"}) == []
    assert codes(target, RedactedEnviron()) == []
    assert codes(target, PermissiveEnviron({})) == []
    assert codes(target, PermissiveEnviron({ALLOW_PRIVATE: "on"}, False)) == ["unsafe_target"]


@pytest.mark.parametrize("host", ["127.0.0.1:99999", "a..b.example", "a" * 64 + ".example", "[::::]"])
def test_what_is_no_host_or_no_port_is_a_fault_whatever_the_setting_allows(host: str) -> None:
    assert codes({**WEBHOOK, "url": f"http://{host}/"}, {ALLOW_PRIVATE: "on"}) == ["invalid_value"]
    redis = {"type": "redis_stream", "url": f"redis://{host}/0", "stream": "x"}
    assert codes(redis, {ALLOW_PRIVATE: "on"}) == ["invalid_value"]


def test_an_environment_in_which_all_is_reachable_is_otherwise_as_it_is() -> None:
    environ = PermissiveEnviron({"A": "1"})
    assert (dict(environ), len(environ), environ["A"], environ.get("B")) == ({"A": "1"}, 1, "1", None)


def test_what_signs_is_base64_with_the_prefix_or_without() -> None:
    assert signing_key(SECRET) == signing_key(SECRET.removeprefix("whsec_")) != b""
    for wrong in ("", "whsec_", "whsec_a", "whsec_é", "not base64"):
        assert signing_key(wrong) is None


def test_a_public_target_may_be_written_as_a_name_or_an_address() -> None:
    hosts = (
        "example.com",
        "example.com.",
        "93.184.216.34",
        "[2606:4700:4700::1111]",
        "xn--bcher-kva.example",
    )
    for host in hosts:
        assert unsafe(f"https://{host}/in") is None
        assert unsafe(f"rediss://{host}:6380/0") is None
    assert unsafe("https://./") is not None
    assert unsafe("https://1.2.3.4.5/") is not None
    assert unsafe("https://example.com:99999/") is not None
    assert is_public(ipaddress.ip_address("1.1.1.1"))


def test_a_query_is_hidden_if_asked_and_restored_only_behind_the_same_url() -> None:
    url = "https://example.com/in"

    def at(where: str) -> dict[str, Any]:
        return declared({**WEBHOOK, "secret": "env:SLUICE_SECRET_A", "url": where})

    document = at(f"{url}?token=hush")
    assert "hush" in repr(masked(document))
    shown: Any = masked(document, queries=True)
    assert shown["subscriptions"]["all"]["target"]["url"] == f"{url}?***"
    assert restored(shown, document) == document
    plain: Any = masked(at(url), queries=True)
    assert plain["subscriptions"]["all"]["target"]["url"] == url
    for other in ("https://evil.example/in?***", f"{url}/?***"):
        assert restored(at(other), document) == at(other)
    assert restored(at(f"{url}?***"), at(url)) == at(f"{url}?***")
    assert restored(at(f"{url}?***"), declared({"type": "pull"})) == at(f"{url}?***")


def test_a_query_that_could_not_be_restored_is_a_fault_at_its_place() -> None:
    found = parse(declared({**WEBHOOK, "url": "https://example.com/in?***"}))
    assert isinstance(found, Faults)
    (fault,) = found
    assert (fault.code, fault.pointer) == ("invalid_value", "/subscriptions/all/target/url")
    assert "write the query out" in fault.error


def test_a_document_is_shown_without_secrets_and_can_be_deployed_as_it_was_shown() -> None:
    document = declared(WEBHOOK)
    document["subscriptions"] |= {
        "mirror": {"target": {"type": "redis_stream", "url": "rediss://me:hush@example.com", "stream": "x"}},
        "plain": {"target": {"type": "redis_stream", "url": "rediss://example.com", "stream": "x"}},
        "pulled": {"target": {"type": "pull"}},
        "broken": {"target": None},
        "worse": 5,
    }
    shown = masked(document)
    assert SECRET not in repr(shown) and "hush" not in repr(shown)
    assert isinstance(shown, dict)
    assert shown["subscriptions"]["plain"] == document["subscriptions"]["plain"]
    assert restored(shown, document) == document
    assert restored(masked({"spec": document}), {"spec": document}) == {"spec": document}
    other = declared({**WEBHOOK, "secret": "***"})
    assert restored(other, declared({"type": "pull"})) == other
    assert masked({"subscriptions": []}) == {"subscriptions": []}


def test_a_filter_names_as_many_tags_as_a_query_and_one_of_an_earlier_release_stays_readable() -> None:
    for items in ([{"tags": ["order:a"] * 18}], [{"tags": [f"order:{n}"] * 17} for n in range(12)]):
        document = declared({"type": "pull"}, filter={"items": items})
        found = parse(document)
        assert isinstance(found, Faults)
        assert [fault.code for fault in found] == ["invalid_value"]
        assert isinstance(parse_deployed(json.dumps(document)), Spec)
