"""The four kinds of identifier as HTTP shows them: one rule, on the raw path, and in bodies."""

from __future__ import annotations

import random
from urllib.parse import unquote, unquote_to_bytes

import httpx
import pytest

from tests.http.raw import ask, connected, request
from tests.support.accounts import Account
from tests.support.calls import append, appended, bulk, bulk_line, events_of, length_of, new_id, refused
from tests.support.serving import Served

UUID = "a0000000-0000-4000-a000-00000000abcd"

SPELLINGS = {
    "A0000000-0000-4000-A000-00000000ABCD": UUID,
    "%61" + UUID[1:]: UUID,
    UUID.replace("-", "%2D"): UUID,
    UUID.replace("-", "%2d"): UUID,
    "a0000000-0000-5000-8000-000000000000": "a0000000-0000-5000-8000-000000000000",
    "ABC123XYZ": "ABC123XYZ",
    "abc123xyz": "ABC123XYZ",
    "iIlLoOuUv": "1111" + "00" + "VVV",
    "0000000oO": "000000000",
    "global": "global",
    "%67lobal": "global",
    "stripe_webhook": "stripe_webhook",
    "stripe%5Fwebhook": "stripe_webhook",
    f"{UUID}:2026": f"{UUID}:2026",
    f"{UUID.upper()}:a": f"{UUID}:a",
    f"{UUID}%3A2026": f"{UUID}:2026",
    f"{UUID}:abcdefghij": f"{UUID}:abcdefghij",
}

# What no spelling rule may let through. Most change into something valid under upper(), lower() or int().
BAD = [
    "nope",
    "Global",
    "GLOBAL",
    "global%20",
    "global%0A",
    "global%00",
    "global.",
    "twilio_webhook",
    "Stripe_webhook",
    "stripe_webhook%0a",
    "ABC123XY",
    "ABC123XYZ0",
    "ABC-123XYZ",
    "ABC123XY%5A%0A",
    "ABC123XY%C5%BF",  # ſ, which .upper() makes an S
    "ABC123XY%E2%84%AA",  # the Kelvin sign, which .lower() makes a k
    "ABC123XY%C4%B1",  # ı, which .upper() makes an I
    "ABC123XY%EF%AC%81",  # ﬁ, which .upper() makes two letters
    "ABC123XY%D9%A3",  # an Arabic digit
    "ABC123XY%EF%BC%A1",  # a full-width A
    "%EF%BC%A1BC123XYZ",
    UUID + "%0A",
    UUID + "%20",
    "%20" + UUID,
    UUID + "%00",
    UUID.replace("-", ""),
    "%7B" + UUID + "%7D",
    "urn:uuid:" + UUID,
    UUID[:-1],
    UUID + "0",
    UUID.replace("-4000-", "-1000-"),
    UUID.replace("-4000-", "-7000-"),
    UUID.replace("-4000-", "-3000-"),
    UUID.replace("-a000-", "-c000-"),
    UUID.replace("-a000-", "-7000-"),
    UUID.replace("a", "%D0%B0"),  # a Cyrillic letter
    UUID.replace("0", "%D9%A0"),
    "a-0000000-0000-4000-a000-00000000abcd",
    UUID + ":",
    UUID + ":ABC",
    UUID + ":abcdefghijk",
    UUID + ":a-b",
    UUID + ":a:b",
    UUID + ":%C5%BF",
    UUID + ":1%0A",
    "ABC123XYZ:2026",
    "global:2026",
    "VNO-42",
    "bd-k86gaq",
    "@VNO-042",
    "@VNO-42%0A",
    "%40VNO-0",
    "%2541BC123XYZ",
    "%252E",
    "a%2Fb",
    "ABC%2F23XYZ",
    "..%2F..%2Fetc",
    "%2E%2E",
    "%2e",
    "%ff",
    "%fe",
    "%C0%80",
    "%ED%A0%80",
    "%E2%82",
    "%",
    "%4",
    "%zz",
    "%u0041",
    "a%0d%0ab",
    "x" * 300,
    "%F0%9F%98%80",
]


@pytest.mark.parametrize(("spelling", "canonical"), SPELLINGS.items())
async def test_two_spellings_of_one_id_never_make_two_streams(
    gateway: Served, tenant: Account, client: httpx.AsyncClient, spelling: str, canonical: str
) -> None:
    body = b'{"data":1,"metadata":{"actor":{"type":"user","id":"global"}}}'
    for length, each in enumerate((spelling, canonical, spelling), 1):
        answer = await ask(gateway.port, request("POST", f"/order/{each}/was_noted", tenant.write, body))
        assert answer is not None
        assert (answer.status, answer.json["key"], answer.json["length"]) == (201, canonical, length)
        assert answer.headers["location"] == f"/order/{canonical}/events/{length}"
    for end in ("", "/events", "/length", "/events/3"):
        answer = await ask(gateway.port, request("GET", f"/order/{spelling}{end}", tenant.read))
        assert answer is not None
        assert answer.status == 200
        assert answer.json.get("key", canonical) == canonical
    assert [event["key"] for event in await events_of(client, "order", canonical)] == [canonical] * 3


async def test_whatever_is_no_id_is_refused(gateway: Served, tenant: Account) -> None:
    body = b'{"data":1,"metadata":{"actor":{"type":"user","id":"global"}}}'
    several = b'{"events":[{"type":"was_noted","data":1}],"metadata":{"actor":{"type":"user","id":"global"}}}'
    async with connected(gateway.port) as connection:
        for bad in BAD:
            for data in (
                request("POST", f"/order/{bad}/was_noted", tenant.write, body),
                request("POST", f"/order/{bad}", tenant.write, several),
                request("GET", f"/order/{bad}", tenant.read),
                request("GET", f"/order/{bad}/events", tenant.read),
                request("GET", f"/order/{bad}/length", tenant.read),
            ):
                answer = await connection.ask(data)
                assert answer is not None, bad
                told = answer.json
                assert (answer.status, told["code"], told["path"]) == (422, "invalid_identifier", "key"), bad


@pytest.mark.parametrize("undecodable", ["%ff", "%00", "%0a", ".", "..", "%zz"])
async def test_what_can_not_be_decoded_is_refused_for_that(
    gateway: Served, tenant: Account, undecodable: str
) -> None:
    for method, path, status, code, at in (
        ("POST", f"/{undecodable}/global/was_noted", 404, "unknown_aggregate_type", "type"),
        ("POST", f"/{undecodable}", 404, "unknown_aggregate_type", "type"),
        ("GET", f"/{undecodable}/global", 404, "unknown_aggregate_type", "type"),
        ("POST", f"/order/global/{undecodable}", 404, "unknown_event_type", "event_type"),
        ("POST", f"/order/{undecodable}/was_noted", 422, "invalid_identifier", "key"),
    ):
        answer = await ask(gateway.port, request(method, path, tenant.write, b"{}"))
        assert answer is not None
        told = answer.json
        assert (answer.status, told["code"], told["path"]) == (status, code, at), path
        assert "decoded" in told["error"] or "control characters, or is `.`" in told["error"], told


async def test_a_dot_is_no_id_and_never_climbs(gateway: Served, tenant: Account) -> None:
    for dots in (".", ".."):
        answer = await ask(gateway.port, request("GET", f"/order/{dots}", tenant.read))
        assert answer is not None
        assert (answer.status, answer.json["code"]) == (422, "invalid_identifier")
        answer = await ask(gateway.port, request("GET", f"/{dots}/_/spec", tenant.read))
        assert answer is not None
        assert answer.status in (404, 405)


async def test_an_encoded_slash_never_splits_a_segment(gateway: Served, tenant: Account) -> None:
    for path, status in (
        (f"/order%2F{UUID}", 404),  # one segment: the list of a type that is not declared
        (f"/order/{UUID}%2Fevents", 422),
        (f"/order/{UUID}/events%2F1", 405),
        ("/_%2Fspec", 404),
        ("/_/ids%2Fhumane", 404),
    ):
        answer = await ask(gateway.port, request("GET", path, tenant.admin))
        assert answer is not None
        assert answer.status == status, path


async def test_the_same_rule_holds_for_actor_and_target(client: httpx.AsyncClient) -> None:
    texts = [unquote(bad, errors="strict") for bad in BAD if "%ff" not in bad and is_utf8(bad)]
    for text in [*texts, "", " ", "null"]:
        for name in ("actor", "target"):
            kind = "user"
            metadata = {name: {"type": kind, "id": text}}
            response = await append(client, "order", "global", "was_noted", **metadata)
            told = response.json()
            if response.status_code == 400:  # U+0000 is refused in any string
                assert "\x00" in text
                continue
            assert (response.status_code, told["code"]) == (422, "invalid_identifier"), text
            assert told["path"] == f"metadata.{name}.id"
    assert await length_of(client, "global") == 0


def is_utf8(segment: str) -> bool:
    try:
        unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        return False
    return True


async def test_spellings_are_one_in_bodies_and_bulk_lines_too(client: httpx.AsyncClient) -> None:
    for spelling, canonical in SPELLINGS.items():
        text = unquote(spelling)
        [told] = await bulk(client, bulk_line(text))
        assert told["key"] == canonical
        actor, target = {"type": "user", "id": text}, {"type": "order", "id": text}
        await appended(client, "order", "global", "was_noted", actor=actor, target=target)
        metadata = (await events_of(client, "order", "global"))[-1]["metadata"]
        assert (metadata["actor"]["id"], metadata["target"]["id"]) == (canonical, canonical)


async def test_tags_name_different_aggregates(client: httpx.AsyncClient) -> None:
    uuid = new_id()
    for key in (uuid, f"{uuid}:2025", f"{uuid}:2026"):
        assert (await appended(client, "order", key, "was_noted"))["length"] == 1


async def test_one_key_names_a_different_aggregate_in_each_type(client: httpx.AsyncClient) -> None:
    key = new_id()
    await appended(client, "order", key, "was_noted")
    await appended(client, "ticket", key, "was_opened", previous_length=0)
    refused(await client.get(f"/config/{key}"), 404, "not_found")


async def test_any_segment_is_an_id_or_a_422(gateway: Served, tenant: Account) -> None:
    """Bytes at random, encoded at random; the answer's key is canonical and stays so."""
    chance = random.Random(4)
    alphabet = [
        b"a",
        b"A",
        b"0",
        b"9",
        b"-",
        b":",
        b"_",
        b"%",
        b".",
        b"~",
        b"I",
        b"\xc5\xbf",
        b"\xff",
        b"%41",
        b"%2f",
    ]
    async with connected(gateway.port) as connection:
        for _ in range(400):
            segment = b"".join(chance.choices(alphabet, k=chance.choice((1, 8, 9, 36))))
            if chance.random() < 0.3:
                segment = "".join(chance.choices("0123456789ABCDEFGHJKMNPQRSTVWXYZilou", k=9)).encode()
            if chance.random() < 0.3:
                segment = b"".join(b"%%%02x" % byte for byte in segment)
            path = b"/order/" + segment.replace(b"\xff", b"%ff").replace(b"\xc5\xbf", b"%c5%bf") + b"/length"
            answer = await connection.ask(request("GET", path, tenant.read))
            assert answer is not None, path
            assert answer.status in (200, 422), path
