"""HTTP message signatures: what a request must cover and tell, and how each thing that is covered is read."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from gateway.inbound.request import Request
from gateway.inbound.signing import sign
from gateway.inbound.verdicts import Rejected, Verified
from gateway.inbound.verify import message_signatures
from gateway.inbound.verify.message_signatures import content, is_body_of, signatures, signed_by
from gateway.inbound.verify.signature import verify
from spec.webhooks.sources import Key
from tests.inbound.senders import of_message

NOW_MS = 1_750_000_000_000
NOW = NOW_MS // 1000
SHA512 = f"sha-512=:{base64.b64encode(hashlib.sha512(b'{}').digest()).decode()}:"
SHA256 = f"sha-256=:{base64.b64encode(hashlib.sha256(b'{}').digest()).decode()}:"


def request(
    text: str, signature: str = "a=:AAAA:", *, path: str = "/foo", query: str = "", **more: str
) -> Request:
    """A request of a signature that covers what `text` says; `more` are headers."""
    headers = {"signature-input": text, "signature": signature, **more}
    raw = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    return Request(b"POST", path.encode(), query.encode(), raw, b"{}")


@pytest.mark.parametrize(
    ("text", "signature"),
    [
        ("a=()", "a=:AAAA:, a=:AAAA:"),
        ("a=(), a=()", "a=:AAAA:"),
        ("a=()", "b=:AAAA:"),
        ("a=(),", "a=:AAAA:"),
        ("a=()", "a=AAAA"),
        ("a=(@method)", "a=:AAAA:"),
        ('a=("date"  "host")', "a=:AAAA:"),
        ('a=("date" "date")', "a=:AAAA:"),
        ("a=();created=1;created=2", "a=:AAAA:"),
        ("a=();created=1.5", "a=:AAAA:"),
        ('a=("date"', "a=:AAAA:"),
        ('a=("da\\"te")', "a=:AAAA:"),
    ],
)
def test_what_is_not_written_as_the_rfc_says_is_no_signature(text: str, signature: str) -> None:
    assert signatures(request(text, signature)) == []


def test_a_request_without_one_of_the_headers_has_none() -> None:
    for kept in (b"signature", b"signature-input"):
        whole = request("a=()")
        one = altered(whole, headers=tuple(header for header in whole.headers if header[0] == kept))
        assert signatures(one) == []


def test_several_signatures_are_read_with_what_each_tells() -> None:
    text = 'a=("date" "@query-param";name="x");created=1;keyid="k\\"1";ok, b=();tag=a/b;n=-5;q=?1'
    first, second = signatures(request(text, "b=:BBBB:,a=:AAAA:, c=:CCCC:"))
    assert first.components == ((b"date", b""), (b"@query-param", b';name="x"'))
    assert first.parameters == {b"created": b"1", b"keyid": b'"k\\"1"', b"ok": b"?1"}
    assert (first.created, second.created) == (b"1", b"")
    assert second.parameters == {b"tag": b"a/b", b"n": b"-5", b"q": b"?1"}
    assert (first.octets, second.octets) == (b"AAAA", b"BBBB")


@pytest.mark.parametrize(
    ("covered", "query", "enough"),
    [
        ('"@method" "content-digest" "@target-uri"', "a=1", True),
        ('"@method" "content-digest" "@authority" "@path" "@query"', "a=1", True),
        ('"@method" "content-digest" "@authority" "@request-target"', "a=1", True),
        ('"@method" "content-digest" "@authority" "@path"', "", True),
        ('"@method" "content-digest" "@authority" "@path"', "a=1", False),
        ('"@method" "content-digest" "@path" "@query"', "a=1", False),
        ('"@method" "content-digest" "@authority" "@query"', "a=1", False),
        ('"@method" "content-digest"', "", False),
        ('"@method" "@target-uri"', "", False),
        ('"content-digest" "@target-uri"', "", False),
        ('"@method" "content-digest";req "@target-uri"', "", False),
        ("", "", False),
    ],
)
def test_a_webhook_must_be_covered_whole(covered: str, query: str, enough: bool) -> None:
    sent = request(f"a=({covered})", query=query)
    (signature,) = signatures(sent)
    assert signature.covers(("method", "url", "body"), sent) is enough
    assert signature.covers((), sent)


@pytest.mark.parametrize(
    ("component", "value"),
    [
        ('"@method"', "POST"),
        ('"@target-uri"', "HTTPS://me@Hooks.Example.com:443/in/foo?a=1&b=x%20y&b2=~&c=1&c=2"),
        ('"@path"', "/in/foo"),
        ('"@query"', "?a=1&b=x%20y&b2=~&c=1&c=2"),
        ('"@request-target"', "/in/foo?a=1&b=x%20y&b2=~&c=1&c=2"),
        ('"@query-param";name="a"', "1"),
        ('"@query-param";name="b"', "x%20y"),
        ('"@query-param";name="b2"', "%7E"),
        ('"@query-param";name="c"', None),
        ('"@query-param";name="d"', None),
        ('"@query-param"', None),
        ('"@status"', None),
        ('"@path";req', None),
        ('"x-one"', "1"),
        ('"X-One"', None),
        ('"x-two"', None),
    ],
)
def test_what_is_covered_is_read_from_the_request(component: str, value: str | None) -> None:
    sent = request(f"a=({component})", query="a=1&b=x%20y&b2=~&c=1&c=2", x_one="1")
    (signature,) = signatures(sent)
    made = content(signature, sent, "HTTPS://me@Hooks.Example.com:443/in")
    if value is None:
        assert made is None
    else:
        assert made == f'{component}: {value}\n"@signature-params": ({component})'.encode()


@pytest.mark.parametrize(
    ("base_url", "authority"),
    [
        ("https://Hooks.Example.com", "hooks.example.com"),
        ("https://me@hooks.example.com:443/in", "hooks.example.com"),
        ("http://hooks.example.com:80", "hooks.example.com"),
        ("https://hooks.example.com:80", "hooks.example.com:80"),
        ("https://hooks.example.com:8443", "hooks.example.com:8443"),
    ],
)
def test_the_authority_is_in_lower_case_without_the_schemes_own_port(base_url: str, authority: str) -> None:
    sent = request('a=("@authority" "@scheme")')
    (signature,) = signatures(sent)
    scheme = base_url.partition(":")[0]
    expected = (
        f'"@authority": {authority}\n"@scheme": {scheme}\n"@signature-params": ("@authority" "@scheme")'
    )
    assert content(signature, sent, base_url) == expected.encode()


@pytest.mark.parametrize(
    ("digest", "held"),
    [
        (SHA256, True),
        (SHA512, True),
        (f"{SHA256}, {SHA512}", True),
        (f"md5=:AAAA:, {SHA256}", True),
        ("md5=:AAAA:", False),
        (f"{SHA512}, sha-256=:AAAA:", False),
        (f"{SHA256} ,", False),
        ("sha-256=AAAA", False),
    ],
)
def test_a_digest_of_the_body_holds_by_all_that_is_known_and_at_least_one(digest: str, held: bool) -> None:
    assert is_body_of(request("a=()", content_digest=digest)) is held


def test_a_body_without_a_digest_is_of_no_signer() -> None:
    assert not is_body_of(request("a=()"))


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        ({}, Verified(1)),
        ({"nonce": b'"n"', "tag": b'"webhook"'}, Verified(1)),
        ({"expires": b"%d" % NOW}, Verified(1)),
        ({"expires": b"%d" % (NOW - 1)}, Rejected("outside_tolerance")),
        ({"expires": b'"soon"'}, Rejected("outside_tolerance")),
        ({"created": b"%d" % (NOW - 300)}, Verified(1)),
        ({"created": b"%d" % (NOW - 301)}, Rejected("outside_tolerance")),
        ({"created": b"%d" % (NOW + 301)}, Rejected("outside_tolerance")),
        ({"created": b"-1"}, Rejected("bad_timestamp")),
        ({"created": b'"now"'}, Rejected("bad_timestamp")),
        ({"alg": b'"hmac-sha256"'}, Verified(1)),
        ({"alg": b'"ed25519"'}, Rejected("mismatch")),
        ({"alg": b'"none"'}, Rejected("mismatch")),
        ({"alg": b"hmac-sha256"}, Rejected("mismatch")),
    ],
)
def test_what_a_signature_tells_of_itself_is_held_to(
    told: dict[str, bytes], verdict: Verified | Rejected
) -> None:
    sent = of_message("hmac-sha256", b"{}", NOW_MS, **told)
    assert verify(sent.source, sent.request, NOW_MS) == verdict


def with_value(sent: Request, name: bytes, old: bytes, new: bytes) -> Request:
    return altered(
        sent,
        headers=tuple((n, value.replace(old, new) if n == name else value) for n, value in sent.headers),
    )


def test_time_and_key_must_be_told() -> None:
    sent = of_message("hmac-sha256", b"{}", NOW_MS)
    for old in (b";created=%d" % NOW, b';keyid="some"'):
        changed = with_value(sent.request, b"signature-input", old, b"")
        assert verify(sent.source, changed, NOW_MS) == Rejected("bad_timestamp")
    for old, new in ((b";created=%d" % NOW, b";created"), (b";keyid", b";created;keyid")):
        changed = with_value(sent.request, b"signature-input", old, new)
        assert isinstance(verify(sent.source, changed, NOW_MS), Rejected)
    changed = with_value(sent.request, b"signature-input", b";keyid", b";expires;keyid")
    assert verify(sent.source, changed, NOW_MS) == Rejected("outside_tolerance")


PARTS = (
    "sig", "=", "(", ")", '"@method"', '"@target-uri"', '"content-digest"', '"x"', " ", ";", ",", "created",
    "keyid", "expires", "alg", "=1", "=1750000000", '="k"', ":", "AAAA", "\\", '"', "?1",
    '"@query-param";name="a"',
)  # fmt: skip


@given(
    text=st.lists(st.sampled_from(PARTS), max_size=20).map("".join),
    more=st.lists(st.sampled_from(PARTS), max_size=6).map("".join),
    query=st.binary(max_size=20),
)
def test_reading_is_total(text: str, more: str, query: bytes) -> None:
    made = of_message("hmac-sha256", b"{}", NOW_MS).source
    covered = '("@method" "@target-uri" "content-digest"' + more + ")"
    for told in (text, f"sig={covered};keyid{text}", f'sig={covered};created={NOW};keyid="k"{text}'):
        sent = altered(request(told or "x", "sig=:AAAA:", content_digest=SHA256), query=query)
        assert isinstance(verify(made, sent, NOW_MS), Rejected)


def test_one_of_several_signatures_is_enough() -> None:
    sent = of_message("ed25519", b"{}", NOW_MS)
    more = with_value(sent.request, b"signature-input", b"sig=", b"other=(), sig=")
    more = with_value(more, b"signature", b"sig=", b"other=:AAAA:, sig=")
    assert verify(sent.source, more, NOW_MS) == Verified(1)
    forged = with_value(more, b"signature", b"sig=:", b"sig=:AAAA")
    assert verify(sent.source, forged, NOW_MS) == Rejected("mismatch")


def test_a_covered_header_that_is_there_twice_is_refused() -> None:
    sent = of_message("ed25519", b"{}", NOW_MS)
    for name in (b"signature", b"signature-input", b"content-digest"):
        twice = [header for header in sent.request.headers if header[0] == name]
        changed = altered(sent.request, headers=(*sent.request.headers, *twice))
        assert verify(sent.source, changed, NOW_MS) == Rejected("bad_header")


def test_an_rsa_key_without_an_algorithm_means_pss() -> None:
    for algorithm, verdict in (
        ("rsa-pss-sha512", Verified(1)),
        ("rsa-v1_5-sha256", Rejected("mismatch")),
    ):
        sent = of_message(algorithm, b"{}", NOW_MS)
        assert verify(sent.source, sent.request, NOW_MS) == verdict


@pytest.mark.parametrize(
    "algorithm", [name.decode() for names in message_signatures.ALGORITHMS.values() for name in names]
)
@pytest.mark.parametrize("octets", [b"AAA", b"AAAA", b"AAB=", b"A" * 86 + b"=="])
def test_octets_that_are_no_signature_are_refused(algorithm: str, octets: bytes) -> None:
    sent = of_message(algorithm, b"{}", NOW_MS, alg=f'"{algorithm}"'.encode())
    (signature,) = signatures(sent.request)
    key = sent.source.secrets[0].key
    assert not signed_by(key, replace(signature, octets=octets), b"content")
    assert not signed_by(Key("none", b""), signature, b"content")


def test_such_a_signature_is_not_made_here() -> None:
    sent = of_message("hmac-sha256", b"{}", NOW_MS)
    with pytest.raises(ValueError, match="this command can't make"):
        sign(sent.source, sent.request, NOW_MS, "1")
