"""Sources of webhooks in a spec: what the conformance cases can't say, since they have no environment."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from spec.errors import Faults
from spec.model import Spec
from spec.parse import parse
from spec.webhooks.presets import PRESETS
from spec.webhooks.secrets import masked, masks, restored, strict_base64
from spec.webhooks.sources import Key, Path, RedactedEnviron, Secret

NAMES = (
    "standard_webhooks", "svix", "stripe", "github", "slack", "shopify", "twilio", "square", "paddle",
    "mailgun", "sendgrid", "linear", "gitlab", "bitbucket", "hubspot", "line", "razorpay",
    "coinbase_commerce", "gocardless", "adyen", "messagebird", "braintree", "discord", "adobe_sign", "sns",
    "http_message_signatures", "hmac",
)  # fmt: skip


def document(**source: Any) -> dict[str, Any]:
    to = {"type": "log", "id": "main_webhook", "event": "was_received"}
    return {
        "aggregate_types": {"log": {"events": {"was_received": {"schema": True}}}},
        "agent_types": ["webhook"],
        "singletons": ["main_webhook"],
        "webhooks": {"main": {"provider": "github", "to": to, **source}},
    }


def parsed(environ: Any, **source: Any) -> Any:
    found = parse(document(**source), environ)
    assert isinstance(found, Spec), found
    return found.webhooks["main"]


def test_there_is_a_preset_for_each_provider() -> None:
    assert tuple(PRESETS) == NAMES


def test_secrets_come_from_the_environment_from_files_and_from_the_document() -> None:
    environ = {"SLUICE_SECRET_A": "from the environment", "file:b.txt": "from a file"}
    source = parsed(environ, secrets=["env:SLUICE_SECRET_A", {"secret": "file:b.txt"}, "itself"])
    assert [secret.text for secret in source.secrets] == ["from the environment", "from a file", "itself"]
    assert source.secrets[0].key == Key("hmac", b"from the environment")


def test_an_empty_secret_is_none() -> None:
    found = parse(document(secrets=["env:SLUICE_SECRET_A"]), {"SLUICE_SECRET_A": ""})
    assert isinstance(found, Faults)
    assert [fault.code for fault in found] == ["missing_secret"]


def test_where_secrets_are_not_to_be_seen_a_spec_is_legal_and_verifies_nothing() -> None:
    unseen = RedactedEnviron()
    assert (list(unseen), len(unseen)) == ([], 0)
    source = parsed(unseen, provider="sendgrid", secrets=["env:SLUICE_SECRET_A", "file:b"])
    assert source.secrets == (Secret(Key("none", b""), ""),) * 2


def test_a_secret_never_shows() -> None:
    source = parsed({}, secrets=["hunter2"], verify_token="hunter3")
    assert "hunter" not in repr(source)
    for faulty in ("whsec_hunter2!", "whpk_hunter2"):
        found = parse(document(provider="standard_webhooks", secrets=[faulty]))
        assert isinstance(found, Faults)
        assert all("hunter" not in fault.error for fault in found)


def test_a_secret_is_valid_from_a_moment_until_before_another() -> None:
    (secret,) = parsed({}, secrets=[{"secret": "a", "from": "1970-01-01T00:00:01+00:00", "until": 2}]).secrets
    assert [secret.valid_at(ms) for ms in (999, 1000, 1999, 2000)] == [False, True, True, False]
    assert Secret(Key("none", b""), "").valid_at(0)
    for ends in (5, "1970-01-01T00:00:04Z"):
        found = parse(document(secrets=[{"secret": "a", "from": 5, "until": ends}]))
        assert isinstance(found, Faults)
        assert [fault.pointer for fault in found] == ["/webhooks/main/secrets/0/until"]


MESSAGES = {"provider": "http_message_signatures", "public_base_url": "https://hooks.example.com"}


def pem(public: Any) -> str:
    text: bytes = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return text.decode()


@pytest.mark.parametrize(
    ("private", "kind"),
    [
        (ed25519.Ed25519PrivateKey.generate(), "ed25519"),
        (ec.generate_private_key(ec.SECP256R1()), "ecdsa"),
        (rsa.generate_private_key(65537, 2048), "rsa"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_public_keys_are_known_as_pem_and_as_bare_base64(private: Any, kind: str) -> None:
    text = pem(private.public_key())
    bare = "".join(text.split("\n")[1:-2])
    found = parsed({}, **MESSAGES, secrets=[text, "\r\n" + text.replace("\n", "\r\n"), bare]).secrets
    assert {secret.key for secret in found} == {found[0].key}
    assert found[0].key.kind == kind


def test_a_shared_key_of_message_signatures_is_one_by_only_its_prefix() -> None:
    (shared, public) = parsed({}, **MESSAGES, secrets=["whsec_AAAA", "whpk_" + "A" * 43]).secrets
    assert (shared.key, public.key) == (Key("hmac", b"\0\0\0"), Key("ed25519", bytes(32)))
    private = ed25519.Ed25519PrivateKey.generate()
    for no_key in (
        "AAAA",
        "A" * 43 + "=",
        pem(ec.generate_private_key(ec.SECP384R1()).public_key()),
        pem(rsa.generate_private_key(65537, 1024).public_key()),
        private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        base64.b64encode(bytes.fromhex("300d06092a864886f70d010101")).decode(),
        "whsec_",
    ):
        found = parse(document(**MESSAGES, secrets=[no_key]))
        assert isinstance(found, Faults), no_key
        assert [fault.code for fault in found] == ["invalid_secret"]


def test_a_pair_of_keys_signs_by_the_digest_of_the_private_one() -> None:
    (secret,) = parsed({}, provider="braintree", secrets=["public|private"]).secrets
    assert secret.key == Key("hmac", hashlib.sha1(b"private").digest())
    for no_pair in ("public", "public|", "|private"):
        assert isinstance(parse(document(provider="braintree", secrets=[no_pair])), Faults)


@pytest.mark.parametrize(
    ("text", "octets"),
    [
        ("AAAA", b"\0\0\0"),
        ("AAA=", b"\0\0"),
        ("AAA", None),
        ("AAB=", None),
        ("A", None),
        ("é", None),
        ("", b""),
    ],
)
def test_base64_is_strict(text: str, octets: bytes | None) -> None:
    assert strict_base64(text) == octets


def test_the_headers_that_an_event_keeps_are_the_providers_and_those_named() -> None:
    source = parsed({}, secrets=["a"], headers=["X-Kind", "x-github-event"])
    assert source.headers[0] == "x-github-delivery"
    assert source.headers[-1] == "x-kind"
    assert source.headers.count("x-github-event") == 1
    standard = parsed({}, provider="svix", secrets=["a"])
    assert standard.headers == ("svix-id", "svix-timestamp")
    assert [PRESETS[name].timed for name in ("github", "slack", "stripe", "mailgun")] == [
        False,
        True,
        True,
        True,
    ]


def test_a_base_url_is_one_that_can_be_taken_apart() -> None:
    for url in ("http://localhost:8080", "https://user:pass@a.example/b", "https://[::1]:8443/c/"):
        assert parsed({}, secrets=["a"], public_base_url=url).public_base_url == url.rstrip("/")
    for url in (
        "https://[::::]",
        "https://[1]",
        "https://a:0",
        "https://a:65536",
        "https://a/?b",
        "https://",
    ):
        found = parse(document(secrets=["a"], public_base_url=url))
        assert isinstance(found, Faults), url
        assert [fault.code for fault in found] == ["invalid_value"]


def test_a_tolerance_may_be_as_long_as_recorded_deliveries_are_old() -> None:
    assert parsed({}, secrets=["a"], tolerance_s=10**9).tolerance_s == 10**9
    assert isinstance(parse(document(secrets=["a"], tolerance_s=10**9 + 1)), Faults)


def test_a_path_of_headers_is_in_lower_case() -> None:
    source = parsed({}, secrets=["a"], data="$.headers.X-GitHub-Event")
    assert source.data == Path("headers", ("x-github-event",))


def test_every_secret_is_masked_wherever_it_stands() -> None:
    spec = document(secrets=["a", {"secret": "b", "until": 5}], verify_token="c")
    shown = masked({"spec": spec})
    assert shown == {"spec": document(secrets=["***", {"secret": "***", "until": 5}], verify_token="***")}
    assert spec["webhooks"]["main"]["secrets"][0] == "a", "the document itself is not touched"


@pytest.mark.parametrize(
    "value", [None, [], {}, {"spec": 1}, {"webhooks": 1}, {"webhooks": {"a": 1, "b": {"secrets": 1}}}]
)
def test_what_has_no_secrets_is_as_it_was(value: object) -> None:
    assert masked(value) == value
    assert restored(value, value) == value


def test_what_was_shown_becomes_again_what_it_was() -> None:
    spec = document(secrets=["a", {"secret": "b"}], verify_token="c")
    assert restored(masked(spec), {"spec": spec}) == spec


@pytest.mark.parametrize(
    ("shown", "stands_for"),
    [
        (["new", "***", "***"], ["new", "a", "b"]),  # a rotation
        (["***", "***", "new"], ["a", "b", "new"]),
        (["***", {"secret": "new", "until": 9}, {"secret": "***", "until": 5}], ["a", "new", "b"]),
        (["***", "***"], ["a", "b"]),
        (["new"], ["new"]),
        (["***"], None),
        (["new", "***"], None),
        (["***", "new"], None),
        (["***", "***", "***"], None),
    ],
)
def test_shown_secrets_of_a_list_are_those_deployed_if_they_are_as_many(
    shown: list[Any], stands_for: list[str] | None
) -> None:
    spec = document(secrets=["a", {"secret": "b", "until": 5}])
    found = parse(restored(document(secrets=shown), spec))
    if stands_for is None:
        assert isinstance(found, Faults), "which ones are left is not told"
        assert {fault.code for fault in found} == {"invalid_value"}
    else:
        assert isinstance(found, Spec)
        assert [each.text for each in found.webhooks["main"].secrets] == stands_for


def test_a_source_knows_what_handshakes_sign_by_its_secrets() -> None:
    spec = document(secrets=["a", "b"])
    spec["webhooks"]["x"] = {**spec["webhooks"]["main"], "secrets": ["b"], "handshake": "crc"}
    spec["webhooks"]["other"] = {**spec["webhooks"]["main"], "secrets": ["c"]}
    actor = {"actor": {"type": "webhook", "id": "main_webhook"}}
    spec["webhooks"] = {name: {**source, **actor} for name, source in spec["webhooks"].items()}
    found = parse(spec)
    assert isinstance(found, Spec), found
    sources = found.webhooks
    assert {name: source.reserves(b"event=x") for name, source in sources.items()} == {
        "main": True,
        "x": True,
        "other": False,
    }
    assert [sources["main"].reserves(text) for text in (b"", b"{}", b"a" * 201)] == [False] * 3


def test_masks_are_found_where_secrets_are_and_nowhere_else() -> None:
    shown = document(secrets=["***", "a", {"secret": "***"}], verify_token="***", tolerance_s="***")
    found = {"/webhooks/main/secrets/0", "/webhooks/main/secrets/2/secret", "/webhooks/main/verify_token"}
    assert masks(shown) == found
    assert masks({"spec": shown}) == {f"/spec{each}" for each in found}
    assert masks([]) == masks(5) == masks({"spec": {}}) == frozenset()
