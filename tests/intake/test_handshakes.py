"""What providers ask before they send, and what they are answered."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as altered

from gateway.intake.handshakes import REFUSED, Answered, handshake
from gateway.intake.request import Request
from gateway.intake.signing import sign
from spec.webhooks import HANDSHAKES, Source
from tests.intake.senders import of_adobe_sign, of_discord
from tests.intake.vectors import source

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


def test_zooms_token_is_signed_for_whoever_signs_by_the_secret() -> None:
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


def test_adobes_client_id_is_sent_back_to_whoever_has_the_right_one() -> None:
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
