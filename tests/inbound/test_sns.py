"""Messages of Amazon SNS: which are believed, and which URLs may come of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from gateway.inbound.handshakes import Confirming, handshake
from gateway.inbound.request import Request
from gateway.inbound.signing import sign
from gateway.inbound.verdicts import Rejected, Uncertified, Verified
from gateway.inbound.verify import sns
from gateway.inbound.verify.signature import verify
from gateway.inbound.verify.sns import Certificate
from spec.webhooks.sources import Source
from tests.inbound.amazon import (
    HOST,
    HOUR,
    NAME,
    PEM_PATH,
    SIGNED,
    TOKEN,
    TOPIC,
    message,
    request,
    rsa_key,
    signing_pem,
)
from tests.inbound.vectors import source

PUBLISHED = json.loads((Path(__file__).parent / "sns.json").read_bytes())
NOW_MS = 1_750_000_000_000
URL = f"https://{HOST}{PEM_PATH}"
KINDS = ("Notification", "SubscriptionConfirmation", "UnsubscribeConfirmation")
OTHER = "arn:aws:sns:eu-west-1:123456789012:other"


def made(*topics: str, **more: Any) -> Source:
    more = {"handshake": "subscription_confirmation", **more}
    return source("sns", [], topics=list(topics or (OTHER, TOPIC)), **more)


def certified() -> dict[str, Certificate]:
    found = sns.certificate(signing_pem(around_ms=NOW_MS), NOW_MS)
    assert isinstance(found, Certificate), found
    return {URL: found}


SOURCE = made()
CERTIFIED = certified()


def judged(told: object) -> Verified | Rejected | Uncertified:
    return verify(SOURCE, told if isinstance(told, Request) else request(told), NOW_MS, CERTIFIED)


@pytest.mark.parametrize("told", PUBLISHED["messages"], ids=lambda told: told["MessageId"][:8])
def test_what_amazon_signed_is_believed_and_no_other_text_of_it(told: dict[str, Any]) -> None:
    at_ms = int(datetime.fromisoformat(told["Timestamp"]).timestamp() * 1000)
    found = sns.certificate(PUBLISHED["certificate"].encode(), at_ms)
    assert isinstance(found, Certificate), found
    certificates, declared = {told["SigningCertURL"]: found}, made(PUBLISHED["topic"])
    assert verify(declared, request(told), at_ms, certificates) == Verified(1)
    for name in told.keys() & set(SIGNED):
        changed = {**told, name: told[name] + " "}
        assert not isinstance(verify(declared, request(changed), at_ms, certificates), Verified), name
    asked = handshake(declared, request(told), at_ms)
    of_subscription = told["Type"] == "SubscriptionConfirmation"
    assert asked == (Confirming(told["SubscribeURL"]) if of_subscription else None)


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_believed_by_both_versions_of_signatures(kind: str, version: str) -> None:
    assert judged(message(kind, NOW_MS, version=version)) == Verified(2), "of the second topic"
    with_subject = message("Notification", NOW_MS, version=version, Subject="a subject")
    assert judged(with_subject) == Verified(2)
    assert judged({**message(kind, NOW_MS, version=version), "Subject": None}) == Verified(2)


@pytest.mark.parametrize("kind", KINDS)
def test_no_bit_of_what_is_signed_can_be_changed(kind: str) -> None:
    more = {"Subject": "a subject"} if kind == "Notification" else {}
    told = message(kind, NOW_MS, **more)
    body = json.dumps(told, ensure_ascii=False).encode()
    assert judged(body) == Verified(2)
    held = {name: told[name] for name in told}
    for place in range(len(body)):
        for bit in range(8):
            changed = body[:place] + bytes([body[place] ^ (1 << bit)]) + body[place + 1 :]
            if isinstance(judged(changed), Verified):
                assert json.loads(changed) == held, "only blanks between members are another spelling"


@pytest.mark.parametrize("name", [*SIGNED, "Signature", "SignatureVersion", "SigningCertURL"])
@pytest.mark.parametrize("value", [None, "", 1, True, [], {}, ["x"], "x", "a\nb", "x" * 100_000, "\x7f", "é"])
def test_a_field_with_anything_else_in_it_is_refused(name: str, value: object) -> None:
    kind = "Notification" if name == "Subject" else "SubscriptionConfirmation"
    more = {"Subject": "a subject"} if name == "Subject" else {}
    told = message(kind, NOW_MS, **more)
    assert judged(told) == Verified(2)
    verdict = judged({**told, name: value})
    assert isinstance(verdict, Rejected), verdict
    if value is None:
        del told[name]
        assert isinstance(judged(told), Rejected)


@pytest.mark.parametrize("name", sorted({*SIGNED} - {"Message"}))
@pytest.mark.parametrize("end", ["\n", "\r"])
def test_a_line_break_is_refused_though_it_is_signed(name: str, end: str) -> None:
    """What is signed would have two meanings."""
    kind = "Notification" if name == "Subject" else "SubscriptionConfirmation"
    told = message(kind, NOW_MS, **{"Subject": "a subject"} if name == "Subject" else {})
    assert judged(message(kind, NOW_MS, **{name: told[name] + end})) == Rejected("no_signature")


def test_one_message_is_not_read_as_another_of_the_same_lines() -> None:
    told = message("Notification", NOW_MS, Message="a\nMessageId\nmine\nSubject\nb")
    assert judged(told) == Verified(2)
    shifted = {**told, "Message": "a", "MessageId": "mine"}
    for subject in ("b\nMessageId\n" + told["MessageId"], "b"):
        assert isinstance(judged({**shifted, "Subject": subject}), Rejected)


def test_a_topic_that_the_source_does_not_name_is_refused_however_well_it_is_signed() -> None:
    for arn in (TOPIC + "2", TOPIC.upper(), TOPIC.replace("eu-west-1", "eu-west-2"), TOPIC + " ", "orders"):
        assert judged(message("Notification", NOW_MS, TopicArn=arn)) == Rejected("other_topic")


URLS = [
    f"http://{HOST}{PEM_PATH}", f"https://{HOST}:443{PEM_PATH}", f"https://{HOST}:8443{PEM_PATH}",
    f"https://u@{HOST}{PEM_PATH}", f"https://{HOST}@evil.example{PEM_PATH}", f"https://{HOST}.{PEM_PATH}",
    f"https://{HOST}.evil.example{PEM_PATH}", f"https://evil.example/{HOST}{PEM_PATH}",
    f"https://sns.us-east-1.amazonaws.com{PEM_PATH}", f"https://sns.eu-west-1.amazonaws.com.cn{PEM_PATH}",
    f"https://s3.eu-west-1.amazonaws.com{PEM_PATH}", f"https://x.{HOST}{PEM_PATH}", f"//{HOST}{PEM_PATH}",
    f"https://{HOST}/a{PEM_PATH}", f"https://{HOST}/..{PEM_PATH}", f"https://{HOST}{PEM_PATH}?a=1",
    f"https://{HOST}{PEM_PATH}#a", f"https://{HOST}/?Action=x&a=.pem", f"https://{HOST}/%2e.pem",
    f"https://{HOST}{PEM_PATH[:-4]}.crt", f"https://{HOST}/.pem", f"https://{HOST}", f"https://{HOST}/é.pem",
    f"https://{HOST}\\@evil.example{PEM_PATH}", f" https://{HOST}{PEM_PATH}", f"https://{HOST}{PEM_PATH} ",
    f"HTTPS://{HOST}{PEM_PATH}", f"https://{HOST.upper()}{PEM_PATH}", f"https://{HOST}/{'a' * 201}.pem",
    f"https://{HOST}\t{PEM_PATH}", "https://169.254.169.254/latest.pem", "file:///etc/ssl/cert.pem", "",
]  # fmt: skip


@pytest.mark.parametrize("url", URLS)
def test_no_certificate_is_wanted_from_anywhere_but_the_topics_own_host(url: str) -> None:
    assert judged(message("Notification", NOW_MS, SigningCertURL=url)) == Rejected("bad_url")


def test_a_certificate_is_wanted_after_all_else_is_checked() -> None:
    told = message("Notification", NOW_MS)
    assert verify(SOURCE, request(told), NOW_MS) == Uncertified(URL)
    for changed in (
        {**told, "TopicArn": "x"},
        {**told, "Signature": told["Signature"][:-4]},
        {**told, "Signature": told["Signature"].rstrip("=")},
        {**told, "Signature": "QUFB"},
        {**told, "SignatureVersion": "3"},
        message("Notification", NOW_MS - 7_201_000),
        message("Notification", NOW_MS + 7_201_000),
        message("Notification", NOW_MS, Timestamp="2025-06-15 15:06:40Z"),
        message("Notification", NOW_MS, Timestamp="1750000000"),
    ):
        assert isinstance(verify(SOURCE, request(changed), NOW_MS), Rejected), changed
    form = ((b"content-type", b"application/x-www-form-urlencoded"),)
    assert verify(SOURCE, altered(request(told), headers=form), NOW_MS) == Rejected("no_signature")
    for certificate in (
        Certificate(None, NOW_MS + 1, NOW_MS + 9),
        Certificate(None, NOW_MS - 9, NOW_MS),
    ):
        assert verify(SOURCE, request(told), NOW_MS, {URL: certificate}) == Uncertified(URL)


def test_a_message_that_is_sent_again_for_an_hour_is_in_time_unless_the_spec_says_less() -> None:
    told = request(message("Notification", NOW_MS - 3_700_000))
    assert judged(told) == Verified(2)
    assert verify(made(tolerance_s=300), told, NOW_MS, CERTIFIED) == Rejected("outside_tolerance")


def test_another_key_signs_nothing() -> None:
    other = message("Notification", NOW_MS, key=rsa_key(3072))
    assert judged(other) == Rejected("mismatch")
    told = message("Notification", NOW_MS, version="1")
    assert judged({**told, "SignatureVersion": "2"}) == Rejected("mismatch")


@settings(max_examples=200)
@given(
    st.binary(max_size=60)
    | st.dictionaries(
        st.sampled_from([*SIGNED, "Signature", "SignatureVersion", "SigningCertURL"]),
        st.sampled_from([*KINDS, TOPIC, URL, "1", "2", "QUFB", "a\n", ""]) | st.none() | st.integers(),
    ).map(lambda told: json.dumps(told).encode())
)
def test_verification_is_total(body: bytes) -> None:
    assert isinstance(verify(SOURCE, Request(b"POST", b"/", b"", (), body), NOW_MS), Rejected)
    assert handshake(SOURCE, Request(b"POST", b"/", b"", (), body), NOW_MS) is None


# ---- certificates


@pytest.mark.parametrize(
    "name",
    [
        NAME,
        "sns.amazonaws.com.cn",
        "sns-signing.af-south-1.amazonaws.com",
        "sns-us-gov-west-1.amazonaws.com",
        "sns-cn-north-1.amazonaws.com.cn",
        HOST,
    ],
)
def test_a_certificate_of_a_name_of_sns_signs_for_a_day_at_most(name: str) -> None:
    found = sns.certificate(signing_pem(name=name, around_ms=NOW_MS), NOW_MS)
    assert isinstance(found, Certificate), found
    assert (found.from_ms, found.until_ms) == (NOW_MS - 3_600_000, NOW_MS + 3_600_000)
    found = sns.certificate(signing_pem(around_ms=NOW_MS, ends=timedelta(days=365)), NOW_MS)
    assert isinstance(found, Certificate)
    assert found.until_ms == NOW_MS + 86_400_000


@pytest.mark.parametrize(
    ("pem", "why"),
    [
        (signing_pem(around_ms=NOW_MS, begins=-2 * HOUR, ends=-HOUR), "not valid now"),
        (signing_pem(around_ms=NOW_MS, begins=HOUR, ends=2 * HOUR), "not valid now"),
        (signing_pem(rsa_key(1024), around_ms=NOW_MS), "RSA"),
        (signing_pem(ec.generate_private_key(ec.SECP256R1()), around_ms=NOW_MS), "RSA"),
        *[
            (signing_pem(name=name, around_ms=NOW_MS), "name")
            for name in (
                "example.com",
                "s3.amazonaws.com",
                "sns.amazonaws.com.evil.example",
                "evil-sns.amazonaws.com",
                "snsxamazonaws.com",
                "*.amazonaws.com",
            )
        ],
        (signing_pem(name=None, around_ms=NOW_MS), "is not a certificate"),
        (b"", "is not a certificate"),
        (b"<Error>AccessDenied</Error>", "is not a certificate"),
        (signing_pem(around_ms=NOW_MS)[:-100], "is not a certificate"),
        (signing_pem(around_ms=NOW_MS).replace(b"CERTIFICATE", b"PUBLIC KEY"), "is not a certificate"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "is not a certificate"),
        (b"\xff" * 100, "is not a certificate"),
    ],
)
def test_what_can_not_sign_says_why(pem: bytes, why: str) -> None:
    found = sns.certificate(pem, NOW_MS)
    assert isinstance(found, str)
    assert why in found


# ---- subscriptions


def confirming(**more: Any) -> Confirming | None:
    asked = handshake(SOURCE, request(message("SubscriptionConfirmation", NOW_MS, **more)), NOW_MS)
    assert asked is None or isinstance(asked, Confirming)
    return asked


QUERY = f"Action=ConfirmSubscription&TopicArn={TOPIC}&Token={TOKEN}"


def test_a_subscription_is_confirmed_by_its_own_url() -> None:
    for query in (QUERY, f"Token={TOKEN}&TopicArn={TOPIC.replace(':', '%3A')}&Action=ConfirmSubscription"):
        url = f"https://{HOST}/?{query}"
        assert confirming(SubscribeURL=url) == Confirming(url)
    assert confirming(TopicArn=OTHER, SubscribeURL=f"https://{HOST}/?{QUERY}") is None
    told = request(message("SubscriptionConfirmation", NOW_MS))
    without = source("sns", [], topics=[OTHER, TOPIC])
    assert handshake(without, told, NOW_MS) is None
    unsigned = source("sns", [], unsigned=True, handshake="subscription_confirmation")
    assert handshake(unsigned, told, NOW_MS) is None, "nobody says that it is Amazon's"
    for kind in ("Notification", "UnsubscribeConfirmation"):
        text = message(kind, NOW_MS, Message="SubscriptionConfirmation")
        assert handshake(SOURCE, request(text), NOW_MS) is None


@pytest.mark.parametrize(
    "url",
    [
        f"http://{HOST}/?{QUERY}", f"https://{HOST}:443/?{QUERY}", f"https://{HOST}/x?{QUERY}",
        f"https://u@{HOST}/?{QUERY}", f"https://{HOST}@evil.example/?{QUERY}", f"https://evil.example/?{QUERY}",
        f"https://{HOST}.evil.example/?{QUERY}", f"https://sns.us-east-1.amazonaws.com/?{QUERY}",
        f"https://{HOST}/?{QUERY}&Action=Unsubscribe", f"https://{HOST}/?{QUERY}&Endpoint=x",
        f"https://{HOST}/?{QUERY.replace('ConfirmSubscription', 'DeleteTopic')}", f"https://{HOST}/?{QUERY}1",
        f"https://{HOST}/?{QUERY}#x", f"https://{HOST}/?{QUERY} ", f"https://{HOST}/?{QUERY}\x7f",
        f"https://{HOST}/?{QUERY.replace(TOPIC, OTHER)}", f"https://{HOST}/?{QUERY}&é", f"https://{HOST}/",
        f"https://{HOST}/?{QUERY}%", "https://169.254.169.254/", "",
    ],
)  # fmt: skip
def test_a_url_that_does_anything_else_is_never_called(url: str) -> None:
    assert confirming(SubscribeURL=url) is None
    with_token = message("SubscriptionConfirmation", NOW_MS, Token=TOKEN + "2")
    assert handshake(SOURCE, request(with_token), NOW_MS) is None


def test_what_amazon_signs_is_not_made_here_and_that_is_said() -> None:
    with pytest.raises(ValueError, match="publish a message to the topic"):
        sign(SOURCE, request(message("Notification", NOW_MS)), NOW_MS, "1")


def test_the_clock_of_the_tests_is_one_of_amazons() -> None:
    told = message("Notification", NOW_MS)["Timestamp"]
    assert told == datetime.fromtimestamp(NOW_MS / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
