"""What providers ask before they send, and what they are answered."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from gateway.inbound.handshakes import REFUSED, Answered, handshake
from gateway.inbound.request import FORM, Request
from gateway.inbound.signing import sign
from gateway.inbound.verdicts import Rejected, Verified
from gateway.inbound.verify import jwt
from gateway.inbound.verify.signature import Claim, contents_of, verify
from spec.model import Spec
from spec.parse import parse
from spec.webhooks.presets import PRESETS
from spec.webhooks.sources import HANDSHAKES, SIGNED_BY_HANDSHAKE, Source
from tests.inbound.senders import of_adobe_sign, of_discord
from tests.inbound.vectors import source

NOW_MS = 1_750_000_000_000
ZOOM = {
    "header": "x-zm-signature",
    "prefix": "v0=",
    "signed": ["v0:", "timestamp", ":", "body"],
    "timestamp_header": "x-zm-request-timestamp",
    "handshake": "plain_token",
}
TWITCH = {
    "header": "Twitch-Eventsub-Message-Signature",
    "prefix": "sha256=",
    "signed": ["id", "timestamp", "body"],
    "id_header": "Twitch-Eventsub-Message-Id",
    "timestamp_header": "Twitch-Eventsub-Message-Timestamp",
    "timestamp_unit": "rfc3339",
    "handshake": "callback_verification",
}


def asked(query: bytes = b"", *headers: tuple[bytes, bytes], method: bytes = b"GET") -> Request:
    return Request(method, b"/hook", query, headers, b"")


def posted(made: Source, body: Any, *headers: tuple[bytes, bytes]) -> Request:
    raw = Request(b"POST", b"/hook", b"", headers, json.dumps(body).encode())
    return sign(made, raw, NOW_MS, "m1")


def answered(made: Source, request: Request) -> tuple[int, str]:
    told = handshake(made, request, NOW_MS)
    assert isinstance(told, Answered)
    return told.status, told.body.decode()


def of(kind: str) -> Source:
    return source("hmac", ["k"], header="X-Sig", handshake=kind)


def test_strava_is_answered_in_json_and_others_in_text() -> None:
    question = asked(b"hub.mode=subscribe&hub.verify_token=k&hub.challenge=15f7")
    assert answered(of("hub_challenge_json"), question) == (200, '{"hub.challenge":"15f7"}')
    assert answered(of("hub_challenge"), question) == (200, "15f7")
    assert handshake(of("hub_challenge_json"), altered(question, query=b"hub.mode=subscribe"), 0) == REFUSED


def test_a_challenge_in_the_query_is_sent_back() -> None:
    assert answered(of("challenge"), asked(b"challenge=a%20b%3C")) == (200, "a b<")
    for query in (b"", b"challenge=", b"challenge=a&challenge=b", b"challenge=" + b"a" * 1001):
        assert handshake(of("challenge"), asked(query), NOW_MS) is None


def test_oktas_header_is_sent_back_in_json() -> None:
    name = b"x-okta-verification-challenge"
    assert answered(of("okta"), asked(b"", (name, b'q"1'))) == (200, '{"verification":"q\\"1"}')
    for headers in (
        (),
        ((name, b""),),
        ((name, b"\xff"),),
        ((name, b"a"), (name, b"a")),
        ((name, b"a" * 1001),),
    ):
        assert handshake(of("okta"), asked(b"", *headers), NOW_MS) is None


def test_zooms_token_is_signed_for_senders_that_sign_by_the_secret() -> None:
    made = source("hmac", ["other", "zoom"], **ZOOM)
    own = source("hmac", ["zoom"], **ZOOM)
    body = {"event": "endpoint.url_validation", "payload": {"plainToken": "qgg8vlvZRS6UYooatFL8Aw"}}
    mac = hmac.digest(b"zoom", b"qgg8vlvZRS6UYooatFL8Aw", hashlib.sha256).hex()
    told = f'{{"plainToken":"qgg8vlvZRS6UYooatFL8Aw","encryptedToken":"{mac}"}}'
    question = posted(own, body)
    assert answered(made, question) == (200, told)
    for unsigned in (altered(question, headers=()), altered(question, body=question.body + b" ")):
        assert handshake(made, unsigned, NOW_MS) is None


@pytest.mark.parametrize(
    "body",
    [
        {"event": "meeting.started", "payload": {"plainToken": "a"}},
        {"event": "endpoint.url_validation"},
        {"event": "endpoint.url_validation", "payload": {"plainToken": "v0:1750000000:{}"}},
        {"event": "endpoint.url_validation", "payload": {"plainToken": 1}},
        {"event": "endpoint.url_validation", "payload": {"plainToken": ""}},
    ],
)
def test_nothing_is_signed_for_zoom_that_could_be_a_delivery(body: Any) -> None:
    made = source("hmac", ["zoom"], **ZOOM)
    assert handshake(made, posted(made, body), NOW_MS) is None


def test_nothing_is_signed_by_an_unsigned_source() -> None:
    made = replace(source("hmac", ["zoom"], **ZOOM), unsigned=True, secrets=())
    body = b'{"event": "endpoint.url_validation", "payload": {"plainToken": "a"}}'
    assert handshake(made, Request(b"POST", b"/hook", b"", (), body), NOW_MS) is None


def test_twitchs_challenge_is_sent_back_if_it_is_signed() -> None:
    made = source("hmac", ["twitch"], **TWITCH)
    kind = (b"twitch-eventsub-message-type", b"webhook_callback_verification")
    question = posted(made, {"challenge": "pogchamp-kappa"}, kind)
    assert answered(made, question) == (200, "pogchamp-kappa")
    for other in (
        altered(question, body=question.body + b" "),
        posted(made, {"challenge": ""}, kind),
        posted(made, {"challenge": "c"}),
        posted(made, {"challenge": "c"}, kind, kind),
        posted(made, {"challenge": "c"}, (kind[0], b"notification")),
    ):
        assert handshake(made, other, NOW_MS) is None


def test_adobes_client_id_is_sent_back_to_a_sender_with_the_right_one() -> None:
    sent = of_adobe_sign(b"{}")
    question = altered(sent.request, method=b"GET", body=b"")
    told = handshake(sent.source, question, NOW_MS)
    assert isinstance(told, Answered)
    assert (told.status, list(told.headers)) == (200, [(b"x-adobesign-clientid", b"CBJCHBCAABAA")])
    name = b"x-adobesign-clientid"
    for headers in ((), ((name, b"CBJ"),), ((name, b"CBJCHBCAABAA"), (name, b"CBJCHBCAABAA"))):
        assert handshake(sent.source, altered(question, headers=headers), NOW_MS) == REFUSED
    assert handshake(sent.source, sent.request, NOW_MS) is None, "a notification, answered as one"


def test_discords_ping_is_answered_if_it_is_signed() -> None:
    for body, told in ((b'{"type":1,"id":"7"}', (200, '{"type":1}')), (b'{"type":0}', (204, ""))):
        sent = of_discord(body, NOW_MS)
        assert answered(sent.source, sent.request) == told
        forged = altered(sent.request, body=body + b" ")
        assert handshake(sent.source, forged, NOW_MS) is None, "judged as a delivery: 401"
        unsigned = replace(sent.source, unsigned=True, secrets=())
        assert handshake(unsigned, sent.request, NOW_MS) is None
    for body in (b'{"type":1,"event":{}}', b'{"type":2}', b'{"type":true}', b"[1]", b"x"):
        sent = of_discord(body, NOW_MS)
        assert handshake(sent.source, sent.request, NOW_MS) is None


def test_asanas_secret_is_sent_back_and_events_are_none() -> None:
    made = source("hmac", ["s"], header="X-Hook-Signature", handshake="hook_secret")
    name, secret = b"x-hook-secret", b"b537207f20cbfa02357cf448134da559"
    question = asked(b"", (name, secret), method=b"POST")
    told = handshake(made, question, NOW_MS)
    assert told == Answered(b"", headers=((name, secret),))
    event = posted(made, {"events": []}, (name, secret))
    assert handshake(made, event, NOW_MS) is None
    for headers in (
        (),
        ((name, b""),),
        ((name, b"a\xff"),),
        ((name, b"a"), (name, b"a")),
        ((name, b"a" * 1001),),
    ):
        assert handshake(made, asked(b"", *headers, method=b"POST"), NOW_MS) is None


@pytest.mark.parametrize("kind", HANDSHAKES)
def test_what_asks_nothing_is_no_handshake(kind: str) -> None:
    made = replace(of("crc"), handshake=kind)
    for method in (b"GET", b"POST", b"OPTIONS", b"PUT"):
        told = handshake(made, asked(method=method), NOW_MS)
        assert told is None or (kind, told) == ("client_id", REFUSED), method


# ---- what a handshake signs is no delivery ----

CONTENT_TYPES = (b"application/json", FORM, FORM + b"; charset=utf-8", b"text/plain", b"", b"\xff", None)
TOKENS = {
    "crc": r"[A-Za-z0-9_=+/.-]{1,200}",
    "plain_token": r"[A-Za-z0-9_-]{1,200}",
    "bt_challenge": r"[a-f0-9]{20,32}",
}
BY_HEADER = sorted(
    name
    for name, scheme in PRESETS.items()
    if scheme.form in ("plain", "pairs", "versions") and scheme.algorithm == "hmac" and scheme.header
)
HMACS = (
    {"signed": ["body"]},
    {"signed": ["timestamp", ".", "body"]},
    {"signed": ["timestamp", "body"], "timestamp_unit": "ms"},
    {"signed": ["id", "-", "timestamp", "=", "body"]},
    {"signed": ["v0:", "timestamp", ":", "body"]},
    {"signed": ["body"], "encoding": "base64", "digest": "sha512", "prefix": "sha256="},
)
"""Also what no handshake could sign: it stays a delivery."""


def sources_by_header(handshake: str) -> list[Source]:
    made = []
    for provider in BY_HEADER:
        secret, base = ("6b" * 24 if PRESETS[provider].key == "hex" else "k"), {}
        if "url" in PRESETS[provider].signed:
            base = {"public_base_url": "https://hooks.example.com"}
        made.append(source(provider, [secret], handshake=handshake, **base))
    for more in HMACS:
        timed = {"timestamp_header": "X-At"} if "timestamp" in more["signed"] else {}
        made.append(
            source("hmac", ["k"], header="X-Sig", id_header="X-Id", handshake=handshake, **more, **timed)
        )
    return made


def typed(body: bytes, content_type: bytes | None) -> Request:
    headers = () if content_type is None else ((b"content-type", content_type),)
    return Request(b"POST", b"/hook", b"", headers, body)


def is_refused_and_would_not_be_without_the_rule(made: Source, request: Request) -> None:
    assert verify(made, request, NOW_MS) == Rejected("mismatch"), (made, request.body)
    assert isinstance(verify(replace(made, reserved=()), request, NOW_MS), Verified), (made, request.body)


@pytest.mark.parametrize("kind", ["crc", "plain_token"])
@given(data=st.data())
def test_no_text_that_a_handshake_signs_is_a_delivery(kind: str, data: st.DataObject) -> None:
    made = data.draw(st.sampled_from(sources_by_header(kind)))
    body = data.draw(st.from_regex(TOKENS[kind], fullmatch=True)).encode()
    for content_type in CONTENT_TYPES:
        request = typed(body, content_type)
        try:
            sent = sign(made, request, NOW_MS, "m1")
        except ValueError:  # Twilio, a body that is no form
            continue
        now = NOW_MS if made.scheme.timestamp_unit == "ms" else NOW_MS // 1000
        claim = Claim((), b"%d" % now if made.scheme.timed else b"", b"m1")
        signed = contents_of(made.scheme, request, claim, made.public_base_url)[0]
        if re.fullmatch(TOKENS[kind].encode(), signed):
            is_refused_and_would_not_be_without_the_rule(made, sent)
        else:
            assert verify(made, sent, NOW_MS) == Verified(1), (made, body)


@given(at=st.integers(-300, 300), token=st.from_regex(r"[A-Za-z0-9_-]{1,190}", fullmatch=True))
def test_no_text_that_a_handshake_signs_is_a_token_of_mailgun(at: int, token: str) -> None:
    for kind in ("crc", "plain_token"):
        made = source("mailgun", ["k"], handshake=kind)
        timestamp = str(NOW_MS // 1000 + at)
        mac = hmac.digest(b"k", (timestamp + token).encode(), "sha256").hex()
        signature = {"timestamp": timestamp, "token": token, "signature": mac}
        request = typed(json.dumps({"signature": signature}).encode(), b"application/json")
        is_refused_and_would_not_be_without_the_rule(made, request)


def test_no_text_that_a_handshake_signs_is_a_web_token() -> None:
    made = source("messagebird", ["k"], handshake="crc", public_base_url="https://h.example")
    claims = {"iss": "MessageBird", "exp": NOW_MS // 1000}
    claims["url_hash"] = hashlib.sha256(b"https://h.example/hook").hexdigest()
    told = b".".join(
        base64.urlsafe_b64encode(json.dumps(part, separators=(",", ":")).encode()).rstrip(b"=")
        for part in ({"alg": "HS256"}, claims)
    )
    status, answer = answered(made, asked(b"crc_token=" + told))
    mac = base64.b64decode(json.loads(answer)["response_token"].removeprefix("sha256="))
    token = told + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")
    assert (status, jwt.signed_by(token, b"k")) == (200, True)
    request = Request(b"POST", b"/hook", b"", ((b"messagebird-signature-jwt", token),), b"")
    is_refused_and_would_not_be_without_the_rule(made, request)


@given(text=st.from_regex(TOKENS["bt_challenge"], fullmatch=True))
def test_no_text_that_a_handshake_signs_is_a_payload_of_braintree(text: str) -> None:
    made = source("braintree", ["public|private"], handshake="bt_challenge")
    short = replace(made, scheme=altered(made.scheme, token_chars_min=1))  # else refused before the rule
    _, answer = answered(made, asked(b"bt_challenge=" + text.encode()))
    form = f"bt_signature={quote(answer)}&bt_payload={text}".encode()
    is_refused_and_would_not_be_without_the_rule(short, typed(form, FORM))
    assert isinstance(verify(made, typed(form, FORM), NOW_MS), Rejected)


def test_what_one_source_signs_is_no_delivery_of_another_that_has_its_secret() -> None:
    receives = {"to": {"type": "webhook_log", "id": "x_webhook", "event": "was_received"}}
    signs = {"provider": "hmac", "header": "X-Sig", "encoding": "base64", **receives}
    actor = {"actor": {"type": "webhook", "id": "x_webhook"}}
    found = parse(
        {
            "aggregate_types": {"webhook_log": {"events": {"was_received": {"schema": True}}}},
            "agent_types": ["webhook"],
            "singletons": ["x_webhook"],
            "webhooks": {
                "x": {**signs, "secrets": ["old", "k"], "handshake": "crc", **actor},
                "same": {**signs, "secrets": ["k"], **actor},
                "bytes": {**signs, "secrets": [b"old".hex()], "key": "hex", **actor},
                "other": {**signs, "secrets": ["z"], **actor},
            },
        }
    )
    assert isinstance(found, Spec), found
    for name, reserved in (("x", 1), ("same", 1), ("bytes", 1), ("other", 0)):
        made = found.webhooks[name]
        assert len(made.reserved) == reserved, name
        sent = sign(made, typed(b"event=was_forged", FORM), NOW_MS, "m1")
        if reserved:
            is_refused_and_would_not_be_without_the_rule(made, sent)
        else:
            assert verify(made, sent, NOW_MS) == Verified(1)


def test_a_handshake_that_signs_says_what() -> None:
    assert {name: texts.pattern.decode() for name, texts in SIGNED_BY_HANDSHAKE.items()} == TOKENS
