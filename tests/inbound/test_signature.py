"""Properties of the engine: what is signed is accepted, and no byte of it can be changed."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlencode

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from gateway.admit.strict_json import decode
from gateway.inbound.handshakes import REFUSED, handshake
from gateway.inbound.request import Request, form_pairs, lookup
from gateway.inbound.signing import sign
from gateway.inbound.verdicts import REASONS, Rejected, Verified
from gateway.inbound.verify import message_signatures
from gateway.inbound.verify.signature import Claim, contents_of, mac_of, verify
from spec.webhooks.presets import DIGESTS, PRESETS
from spec.webhooks.sources import Source
from tests.inbound.senders import (
    BY_HEADER,
    Sent,
    of_adobe_sign,
    of_adyen,
    of_adyen_payload,
    of_braintree,
    of_discord,
    of_mailgun,
    of_message,
    of_messagebird,
    of_provider,
    of_sendgrid,
    of_standard_v1a,
)
from tests.inbound.vectors import source

SECRETS = st.binary(min_size=24, max_size=64)
CLOCKS = st.integers(min_value=1_000_000_000_000, max_value=9_000_000_000_000)
TEXTS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=40)
FORMS = st.dictionaries(
    st.text("abcXYZ019", min_size=1, max_size=6), st.text("abcXYZ019", max_size=8), min_size=1, max_size=5
).map(lambda pairs: "&".join(f"{name}={value}" for name, value in pairs.items()).encode())
NOW_MS = 1_750_000_000_000


def bodies(provider: str) -> st.SearchStrategy[bytes]:
    return FORMS if provider == "twilio" else st.binary(min_size=1, max_size=300)


def flipped(octets: bytes, place: int, bit: int) -> bytes:
    place %= len(octets)
    return octets[:place] + bytes([octets[place] ^ (1 << bit)]) + octets[place + 1 :]


def changes(source: Source, request: Request, place: int, bit: int) -> Iterator[Request]:
    """The request with one bit changed in each thing that its scheme signs."""
    scheme = source.scheme
    by_token = scheme.token_header is not None and request.one(scheme.header) is None
    if not by_token and (scheme.form in ("body", "form") or {"body", "form"} & set(scheme.signed)):
        yield altered(request, body=flipped(request.body, place, bit))
    if "url" in scheme.signed:
        yield altered(request, path=flipped(request.path, place, bit))
        yield altered(request, query=flipped(request.query, place, bit))
    signed = {scheme.header, scheme.timestamp_header, scheme.id_header}
    if by_token:
        signed = {scheme.token_header}
    if scheme.form == "message":
        signed |= {"signature-input", "content-digest"}
    for n, (name, value) in enumerate(request.headers):
        if name.decode() in signed:
            headers = list(request.headers)
            headers[n] = (name, flipped(value, place, bit))
            yield altered(request, headers=tuple(headers))


@pytest.mark.parametrize("provider", BY_HEADER)
@settings(max_examples=40, deadline=None)
@given(data=st.data(), secret=SECRETS, now_ms=CLOCKS, place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_what_a_provider_signs_is_accepted_and_no_bit_of_it_can_be_changed(
    provider: str, data: st.DataObject, secret: bytes, now_ms: int, place: int, bit: int
) -> None:
    sent = of_provider(provider, secret, now_ms, data.draw(bodies(provider)))
    assert verify(sent.source, sent.request, now_ms) == Verified(1)
    for changed in changes(sent.source, sent.request, place, bit):
        if "form" in sent.source.scheme.signed and changed.body != sent.request.body:
            assume(form_pairs(changed.body) != form_pairs(sent.request.body))
        assert isinstance(verify(sent.source, changed, now_ms), Rejected), changed


def samples(provider: str) -> Sent:
    """A request of each preset, and of each way in which a preset signs."""
    body = b'{"id":"1","n":[1,2]}'
    match provider:
        case "sendgrid":
            return of_sendgrid(body, NOW_MS)
        case "standard_webhooks v1a":
            return of_standard_v1a(body, NOW_MS)
        case "messagebird":
            return of_messagebird(body, NOW_MS)
        case "braintree":
            return of_braintree("k", NOW_MS, b"<notification>some payload</notification>")
        case "mailgun":
            return of_mailgun("k", NOW_MS, "0123456789abcdef", {})
        case "adyen":
            return of_adyen_payload(b"k" * 32, ITEM)
        case "gitlab token":
            headers = ((b"x-gitlab-token", b"whsec_" + b"a2tr" * 8),)
            made = source("gitlab", ["whsec_" + "a2tr" * 8])
            return Sent(made, Request(b"POST", b"/hook", b"", headers, body))
        case "http_message_signatures":
            return of_message("ed25519", body, NOW_MS)
        case "discord":
            return of_discord(body, NOW_MS)
        case "adobe_sign":
            return of_adobe_sign(body)
    return of_provider(provider, b"k" * 32, NOW_MS, b"a=1&b=2" if provider == "twilio" else body)


SAMPLES = (*BY_HEADER, "sendgrid", "standard_webhooks v1a", "messagebird", "braintree", "mailgun", "adyen")
SAMPLES += ("gitlab token", "http_message_signatures", "discord", "adobe_sign")


def test_there_is_a_sample_of_every_preset() -> None:
    """But for Amazon SNS, whose certificates want tests of their own (test_sns.py)."""
    assert {name.partition(" ")[0] for name in SAMPLES} == set(PRESETS) - {"sns"}


@pytest.mark.parametrize("provider", SAMPLES)
def test_of_what_is_signed_no_bit_at_any_place_can_be_changed(provider: str) -> None:
    sent = samples(provider)
    assert verify(sent.source, sent.request, NOW_MS) == Verified(1)
    whole = len(sent.request.body) + max(len(value) for _, value in sent.request.headers or [(b"", b"")])
    for place in range(whole):
        for bit in range(8):
            for changed in changes(sent.source, sent.request, place, bit):
                if same_to_its_provider(sent, changed):
                    continue
                assert isinstance(verify(sent.source, changed, NOW_MS), Rejected), changed


def same_to_its_provider(sent: Sent, changed: Request) -> bool:
    """Whether only what its provider does not sign was changed: another spelling of a form, another signer's
    signature beside ours, what is not in Mailgun's token."""
    scheme = sent.source.scheme
    if changed.body == sent.request.body:
        return False
    if "form" in scheme.signed:
        return form_pairs(changed.body) == form_pairs(sent.request.body)
    if scheme.form == "form":
        told, signed = (dict(form_pairs(each.body) or []) for each in (changed, sent.request))
        own = signed["bt_signature"].partition("&")[2]
        return told.get("bt_payload") == signed["bt_payload"] and own in told.get("bt_signature", "").split(
            "&"
        )
    if scheme.form == "body":
        found, given = decode(changed.body), decode(sent.request.body)
        return lookup(found, ("signature",)) == lookup(given, ("signature",))
    return False


@pytest.mark.parametrize("send", [of_sendgrid, of_standard_v1a])
@settings(max_examples=25, deadline=None)
@given(
    body=st.binary(min_size=1, max_size=300),
    now_ms=CLOCKS,
    place=st.integers(0, 10_000),
    bit=st.integers(0, 7),
)
def test_what_is_signed_by_a_private_key_is_accepted_and_no_bit_of_it_can_be_changed(
    send: type, body: bytes, now_ms: int, place: int, bit: int
) -> None:
    sent: Sent = send(body, now_ms)
    assert verify(sent.source, sent.request, now_ms) == Verified(1)
    for changed in changes(sent.source, sent.request, place, bit):
        assert isinstance(verify(sent.source, changed, now_ms), Rejected), changed


@settings(max_examples=40, deadline=None)
@given(
    key=TEXTS,
    body=st.binary(min_size=1, max_size=300),
    now_ms=CLOCKS,
    place=st.integers(0, 10_000),
    bit=st.integers(0, 7),
)
def test_what_a_token_signs_is_accepted_and_no_bit_of_it_can_be_changed(
    key: str, body: bytes, now_ms: int, place: int, bit: int
) -> None:
    assume(not key.startswith(("env:", "file:", "***")))
    sent = of_messagebird(body, now_ms, key.encode())
    assert verify(sent.source, sent.request, now_ms) == Verified(1)
    for changed in changes(sent.source, sent.request, place, bit):
        assert isinstance(verify(sent.source, changed, now_ms), Rejected), changed


@pytest.mark.parametrize(
    "algorithm", [name.decode() for names in message_signatures.ALGORITHMS.values() for name in names]
)
@settings(max_examples=25, deadline=None)
@given(
    body=st.binary(max_size=300),
    secret=SECRETS,
    now_ms=CLOCKS,
    place=st.integers(0, 10_000),
    bit=st.integers(0, 7),
)
def test_what_a_message_signature_covers_is_accepted_and_no_bit_of_it_can_be_changed(
    algorithm: str, body: bytes, secret: bytes, now_ms: int, place: int, bit: int
) -> None:
    sent = of_message(algorithm, body, now_ms, secret, alg=f'"{algorithm}"'.encode())
    assert verify(sent.source, sent.request, now_ms) == Verified(1)
    if not body:
        longer = altered(sent.request, body=b"x")
        assert verify(sent.source, longer, now_ms) == Rejected("mismatch")
        return
    for changed in changes(sent.source, sent.request, place, bit):
        assert isinstance(verify(sent.source, changed, now_ms), Rejected), changed


@given(
    secret=TEXTS,
    now_ms=CLOCKS,
    payload=st.binary(min_size=25, max_size=300),
    place=st.integers(0, 10_000),
    bit=st.integers(0, 7),
)
def test_what_braintree_sends_is_accepted_and_no_bit_of_it_can_be_changed(
    secret: str, now_ms: int, payload: bytes, place: int, bit: int
) -> None:
    sent = of_braintree(secret, now_ms, payload)
    assert verify(sent.source, sent.request, now_ms) == Verified(1)
    changed = altered(sent.request, body=flipped(sent.request.body, place, bit))
    signed = dict(form_pairs(sent.request.body) or [])
    told = dict(form_pairs(changed.body) or [])
    own = signed["bt_signature"].partition("&")[2]
    same = told.get("bt_payload") == signed["bt_payload"] and own in told.get("bt_signature", "").split("&")
    assume(not same)  # another spelling of an escape, or another's signature beside
    assert isinstance(verify(sent.source, changed, now_ms), Rejected), changed


def test_no_answer_to_a_challenge_is_a_delivery_of_braintree_and_nothing_unsigned_is_taken() -> None:
    sent = of_braintree("k", NOW_MS, b"<notification>some payload of XML</notification>")
    body = sent.request.body
    assert verify(sent.source, sent.request, NOW_MS) == Verified(1)
    for changed in (body + b"&more=1", body + b"&bt_payload=x", body.partition(b"&")[0], b"", b"%"):
        verdict = verify(sent.source, altered(sent.request, body=changed), NOW_MS)
        assert verdict == Rejected("no_signature")
    as_json = altered(sent.request, headers=((b"content-type", b"application/json"),))
    assert verify(sent.source, as_json, NOW_MS) == Rejected("no_signature")

    asking = Request(b"GET", b"/hook", b"bt_challenge=" + b"20f9f8ed" * 4, (), b"")
    declared = replace(sent.source, handshake="bt_challenge")
    answered = handshake(declared, asking, NOW_MS)
    assert answered is not None
    assert answered.body.startswith(b"public|")
    form = urlencode({"bt_signature": answered.body, "bt_payload": "20f9f8ed" * 4}).encode()
    forged = altered(sent.request, body=form)
    assert verify(sent.source, forged, NOW_MS) == Rejected("no_signature")

    assert handshake(declared, altered(asking, query=b""), NOW_MS) is None
    for source_, query in (
        (declared, b"bt_challenge=PHhtbD4="),
        (replace(declared, secrets=()), asking.query),
        (replace(source("github", ["secret"]), handshake="bt_challenge"), asking.query),
    ):
        assert handshake(source_, altered(asking, query=query), NOW_MS) == REFUSED


@given(
    secret=TEXTS,
    now_ms=CLOCKS,
    token=st.text("0123456789abcdef", min_size=10, max_size=50),
    place=st.integers(0, 10_000),
)
def test_mailguns_timestamp_token_and_signature_can_not_be_changed(
    secret: str, now_ms: int, token: str, place: int
) -> None:
    sent = of_mailgun(secret, now_ms, token, {"event": "opened"})
    assert verify(sent.source, sent.request, now_ms) == Verified(1)
    begin, end = sent.request.body.index(b"{", 1), sent.request.body.index(b"}")
    for field in (b'"timestamp": "', b'"token": "', b'"signature": "'):
        at = sent.request.body.index(field, begin, end) + len(field)
        until = sent.request.body.index(b'"', at)
        n = at + place % (until - at)
        other = b"1" if sent.request.body[n : n + 1] == b"0" else b"0"
        changed = altered(sent.request, body=sent.request.body[:n] + other + sent.request.body[n + 1 :])
        assert isinstance(verify(sent.source, changed, now_ms), Rejected)


ITEM = {
    "pspReference": "7914073381342284",
    "originalReference": "",
    "merchantAccountCode": "TestMerchant",
    "merchantReference": "TestPayment-1407325143704",
    "amount": {"value": 1130, "currency": "EUR"},
    "eventCode": "AUTHORISATION",
    "success": "true",
}


@pytest.mark.parametrize(
    ("path", "other"),
    [
        (("pspReference",), "x"),
        (("originalReference",), "x"),
        (("merchantAccountCode",), "x"),
        (("merchantReference",), {"a": 1}),
        (("amount", "value"), 1131),
        (("amount", "currency"), "USD"),
        (("eventCode",), "REFUND"),
        (("success",), False),
    ],
)
def test_adyens_items_are_verified_one_by_one(path: tuple[str, ...], other: object) -> None:
    sent = of_adyen(b"k" * 32, ITEM, {**ITEM, "pspReference": "b"})
    assert verify(sent.source, sent.request, NOW_MS) == Verified(1)
    value = json.loads(sent.request.body)
    item = value["notificationItems"][1]["NotificationRequestItem"]
    place = item
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = other
    changed = altered(sent.request, body=json.dumps(value).encode())
    assert isinstance(verify(sent.source, changed, NOW_MS), Rejected)


TEXTS_SIGNED = ("pspReference", "originalReference", "merchantAccountCode", "merchantReference", "eventCode")


@given(
    secret=SECRETS,
    texts=st.lists(st.text("abcXYZ019", min_size=1, max_size=20), min_size=5, max_size=5),
    field=st.integers(0, 4),
    place=st.integers(0, 10_000),
    bit=st.integers(0, 3),
)
def test_no_bit_of_what_adyen_signs_can_be_changed(
    secret: bytes, texts: list[str], field: int, place: int, bit: int
) -> None:
    sent = of_adyen(secret, {**ITEM, **dict(zip(TEXTS_SIGNED, texts, strict=True))})
    assert verify(sent.source, sent.request, NOW_MS) == Verified(1)
    value = json.loads(sent.request.body)
    item = value["notificationItems"][0]["NotificationRequestItem"]
    name = TEXTS_SIGNED[field]
    item[name] = flipped(item[name].encode(), place, bit).decode()
    changed = altered(sent.request, body=json.dumps(value).encode())
    assert isinstance(verify(sent.source, changed, NOW_MS), Rejected)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"notificationItems": []}', b'{"notificationItems": [1]}']
)
def test_a_batch_without_signed_items_is_refused(body: bytes) -> None:
    sent = of_adyen(b"k" * 32, ITEM)
    assert isinstance(verify(sent.source, altered(sent.request, body=body), NOW_MS), Rejected)


TIMED = tuple(name for name in BY_HEADER if PRESETS[name].timed or name == "hmac")


@pytest.mark.parametrize("provider", TIMED)
def test_a_timestamp_is_held_to_the_tolerance_on_both_sides(provider: str) -> None:
    for tolerance_s in (5, 300):
        more = {} if tolerance_s == 300 else {"tolerance_s": tolerance_s}
        sent = of_provider(provider, b"k" * 32, NOW_MS, b"{}", **more)
        for off_ms, verdict in (
            (0, Verified(1)),
            (tolerance_s * 1000, Verified(1)),
            (-tolerance_s * 1000, Verified(1)),
            (tolerance_s * 1000 + 1000, Rejected("outside_tolerance")),
            (-tolerance_s * 1000 - 1000, Rejected("outside_tolerance")),
        ):
            assert verify(sent.source, sent.request, NOW_MS + off_ms) == verdict, (tolerance_s, off_ms)


def test_a_time_within_the_signed_body_is_held_to_it_too() -> None:
    for body, verdict in (
        (b'{"webhookTimestamp": %d}' % NOW_MS, Verified(1)),
        (b'{"webhookTimestamp": %d}' % (NOW_MS - 301_000), Rejected("outside_tolerance")),
        (b'{"webhookTimestamp": %d.5}' % (NOW_MS - 301_000), Rejected("outside_tolerance")),
        (b'{"webhookTimestamp": %d.5}' % NOW_MS, Verified(1)),
        (b'{"webhookTimestamp": "%d"}' % NOW_MS, Rejected("outside_tolerance")),
        (b'{"action": "create"}', Verified(1)),
    ):
        sent = of_provider("linear", b"k" * 32, NOW_MS, body)
        assert verify(sent.source, sent.request, NOW_MS) == verdict


HOSTILE = {
    "absent": None,
    "empty": b"",
    "blank": b" ",
    "non-ASCII": "sécret".encode(),
    "a byte over 127": b"\xff" * 64,
    "NUL": b"v1,\x00",
    "100 KB": b"v1," + b"a" * 100_000,
    "bad base64": b"v1,????",
    "base64 without padding": b"v1,AAA",
    "no version": b"AAAA",
    "many": b" ".join([b"v1,AAAA"] * 1000),
    "commas": b"," * 1000,
    "equal signs": b"t==,v1==",
    "two times": b"t=1,t=2,v1=00",
    "digits of another script": "t=١٢٣,v1=00".encode(),
}
TIMES = {
    "empty": b"",
    "fraction": b"1750000000.9",
    "sign": b"+1750000000",
    "blank": b"1750000000 ",
    "year 9999": b"253402300799",
    "huge": b"9" * 4_000,
    "hex": b"0x684ee180",
    "exponent": b"1e9",
    "negative": b"-1",
    "other digits": "１７５０００００００".encode(),
}


def with_header(request: Request, name: str, value: bytes | None) -> Request:
    kept = [header for header in request.headers if header[0] != name.encode()]
    return altered(request, headers=(*kept, *([] if value is None else [(name.encode(), value)])))


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("provider", [*BY_HEADER, "sendgrid", "http_message_signatures", "discord"])
def test_a_hostile_signature_header_is_refused_and_nothing_breaks(provider: str, hostile: str) -> None:
    if provider == "sendgrid":
        sent = of_sendgrid(b"{}", NOW_MS)
    elif provider == "http_message_signatures":
        sent = of_message("ed25519", b"{}", NOW_MS)
    elif provider == "discord":
        sent = of_discord(b"{}", NOW_MS)
    else:
        sent = of_provider(provider, b"k" * 32, NOW_MS, b"a=1")
    changed = with_header(sent.request, sent.source.scheme.header, HOSTILE[hostile])
    verdict = verify(sent.source, changed, NOW_MS)
    assert isinstance(verdict, Rejected)
    assert verdict.reason in REASONS


@pytest.mark.parametrize("hostile", TIMES)
@pytest.mark.parametrize("provider", TIMED)
def test_a_hostile_timestamp_is_refused_though_it_is_signed(provider: str, hostile: str) -> None:
    made = of_provider(provider, b"k" * 32, NOW_MS, b"{}").source
    for time, verdict in ((b"%d" % NOW_MS, None), (TIMES[hostile], Rejected)):
        scheme = made.scheme
        if time != TIMES[hostile] and scheme.timestamp_unit == "s":
            time = b"%d" % (NOW_MS // 1000)
        request = signed_at(made, time)
        found = verify(made, request, NOW_MS)
        assert isinstance(found, verdict or Verified), found
        assert not isinstance(found, Rejected) or found.reason != "mismatch"


def signed_at(made: Source, time: bytes) -> Request:
    """A request whose signature is right, over whatever `time` is."""
    scheme, key = made.scheme, made.secrets[0].key.octets
    request = Request(b"POST", b"/hook", b"", (), b"{}")
    content = contents_of(scheme, request, Claim((), time, b"dlv_1"), made.public_base_url)[0]
    mac = mac_of(scheme, key, content)
    match scheme.form:
        case "pairs":
            mark = scheme.separator.encode()
            names = scheme.timestamp_name.encode(), scheme.signature_name.encode()
            value = b"%b=%b%b%b=%b" % (names[0], time, mark, names[1], mac)
        case "versions":
            value = b"v1," + mac
        case _:
            value = scheme.prefix.encode() + mac
    headers = {scheme.header: value, scheme.timestamp_header: time, scheme.id_header: b"dlv_1"}
    pairs = ((name.encode(), value) for name, value in headers.items() if name)
    return altered(request, headers=tuple(pairs))


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        (b"2025-06-15T15:06:40Z", None),
        (b"2025-06-15T15:06:40.634234626Z", None),
        (b"2025-06-15T15:11:41Z", "outside_tolerance"),
        (b"9999-12-31T23:59:59Z", "outside_tolerance"),
        (b"2025-06-15T15:06:40", "bad_timestamp"),
        (b"2025-06-15T15:06:40+00:00", "bad_timestamp"),
        (b"2025-06-15 15:06:40Z", "bad_timestamp"),
        (b"2025-02-30T15:06:40Z", "bad_timestamp"),
        (b"0000-06-15T15:06:40Z", "bad_timestamp"),
        (b"2025-06-15T15:06:40.Z", "bad_timestamp"),
        (b"1750000000", "bad_timestamp"),
    ],
)
def test_a_time_may_be_written_out_where_the_spec_says_so(time: bytes, reason: str | None) -> None:
    more = {"header": "X-Sig", "timestamp_header": "X-Time", "timestamp_unit": "rfc3339"}
    made = source("hmac", ["k"], signed=["timestamp", "body"], **more)
    verdict = verify(made, signed_at(made, time), NOW_MS)
    assert verdict == (Verified(1) if reason is None else Rejected(reason))


def test_an_id_header_that_is_not_signed_may_be_absent_and_one_that_is_may_not() -> None:
    for signed, verdict in ((["body"], Verified(1)), (["id", "body"], Rejected("no_signature"))):
        made = source("hmac", ["k"], header="X-Sig", id_header="X-Id", signed=signed)
        request = Request(b"POST", b"/hook", b"", (), b"{}")
        sent = sign(made, request, NOW_MS, "dlv_1")
        assert verify(made, sent, NOW_MS) == Verified(1)
        assert verify(made, with_header(sent, "x-id", None), NOW_MS) == verdict


@pytest.mark.parametrize("provider", BY_HEADER)
def test_a_header_that_is_there_twice_is_refused(provider: str) -> None:
    sent = of_provider(provider, b"k" * 32, NOW_MS, b"a=1")
    scheme = sent.source.scheme
    read = (scheme.header, scheme.timestamp_header, scheme.id_header if "id" in scheme.signed else None)
    for name in filter(None, read):
        twice = [header for header in sent.request.headers if header[0] == name.encode()]
        changed = altered(sent.request, headers=(*sent.request.headers, *twice))
        assert verify(sent.source, changed, NOW_MS) == Rejected("bad_header")


@settings(max_examples=200)
@given(
    headers=st.lists(
        st.tuples(
            st.sampled_from([b"webhook-id", b"webhook-timestamp", b"webhook-signature"]),
            st.binary(max_size=60),
        )
    ),
    body=st.binary(max_size=60),
)
def test_verification_is_total(headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    request = Request(b"POST", b"/", b"", tuple(headers), body)
    for provider in ("standard_webhooks", "gitlab", "mailgun"):
        made = source(provider, ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])
        assert isinstance(verify(made, request, NOW_MS), Rejected)


def test_one_of_several_secrets_is_enough_and_told_while_it_is_valid() -> None:
    sent = of_provider("github", b"k" * 32, NOW_MS, b"{}")
    text = "s" + (b"k" * 32).hex()
    at = NOW_MS // 1000
    for secrets, verdict in (
        (["other", text], Verified(2)),
        ([{"secret": text, "until": at}], Rejected("no_valid_secret")),
        ([{"secret": text, "until": at + 1}], Verified(1)),
        ([{"secret": text, "from": at + 1}, "other"], Rejected("mismatch")),
        ([{"secret": text, "from": "2025-06-15T15:06:40Z"}], Verified(1)),
        (["other"], Rejected("mismatch")),
    ):
        assert verify(source("github", secrets), sent.request, NOW_MS) == verdict


def test_gitlabs_plain_token_counts_only_where_nothing_is_signed() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    made = source("gitlab", [secret])
    plain = Request(b"POST", b"/", b"", ((b"x-gitlab-token", secret.encode()),), b"{}")
    assert verify(made, plain, NOW_MS) == Verified(1)
    assert verify(made, with_header(plain, "x-gitlab-token", b"other"), NOW_MS) == Rejected("mismatch")
    forged = with_header(plain, "webhook-signature", b"v1,AAAA")
    assert isinstance(verify(made, forged, NOW_MS), Rejected)


def test_an_unsigned_source_verifies_nothing_and_says_so() -> None:
    made = replace(source("github", ["a"]), unsigned=True, secrets=())
    assert verify(made, Request(b"POST", b"/", b"", (), b""), NOW_MS) == Verified(0)


@pytest.mark.parametrize("digest", DIGESTS)
@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 127, 128, 129, 300])
def test_a_mac_by_a_key_of_any_length_is_that_of_the_standard_library(digest: str, length: int) -> None:
    scheme, key = altered(PRESETS["github"], digest=digest), b"key" * 100
    for content in (b"", b"{}", b"x" * 1000):
        assert (
            mac_of(scheme, key[:length], content)
            == hmac.new(key[:length], content, digest).hexdigest().encode()
        )
