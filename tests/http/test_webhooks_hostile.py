"""What a stranger can do to a source of webhooks: nothing, without any database being asked."""

from __future__ import annotations

import contextlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import asyncpg
import httpx
import pytest

from gateway.catalog.migrate import migrate
from gateway.config import Config
from tests.http.raw import ask
from tests.http.webhooks import SOURCES, Hooks, open_hooks
from tests.inbound.test_signature import HOSTILE, TIMES
from tests.support.calls import new_client, refused, until
from tests.support.servers import Servers, open_folder, servers_in
from tests.support.serving import Served, serving


@dataclass(frozen=True)
class Stand:
    servers: Servers
    served: Served
    hooks: Hooks


@pytest.fixture(scope="module")
async def stand() -> AsyncIterator[Stand]:
    """A gateway that knows its sources, on servers that may be stopped."""
    with open_folder() as folder, contextlib.closing(servers_in(folder)) as servers:
        await servers.start()
        await migrate(servers.postgres_url, 2)
        config = Config(
            redis_url=servers.redis_url,
            postgres_url=servers.postgres_url,
            webhook_response_timeout_s=0.5,
            redis_timeout_s=0.3,
            shutdown_grace_s=2,
        )
        async with serving(config) as served, new_client(served.url, None) as client:
            async with asyncpg.create_pool(servers.postgres_url, min_size=1, max_size=2) as pool:
                declared = SOURCES | {"tokens": {"provider": "messagebird", "unsigned": True}}
                sources = {name: {**source, "actor": ACTOR, "to": TO} for name, source in declared.items()}
                hooks = await open_hooks(pool, client, sources)
            yield Stand(servers, served, hooks)
            servers.postgres.resume()
            servers.redis.resume()


ACTOR = {"type": "webhook", "id": "some_webhook"}
TO = {"type": "webhook_log", "id": "some_webhook", "event": "was_received"}


@pytest.fixture
def silent(stand: Stand) -> Iterator[Stand]:
    """Neither Postgres nor Redis answers: whatever asks one of them waits and fails."""
    stand.servers.postgres.pause()
    stand.servers.redis.pause()
    yield stand
    stand.servers.postgres.resume()
    stand.servers.redis.resume()


def raw(path: str, headers: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    lines = [b"POST " + path.encode() + b" HTTP/1.1", b"Host: sluice.test"]
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])


async def test_hostile_headers_are_a_401_while_no_database_answers(silent: Stand) -> None:
    hooks, body = silent.hooks, b'{"id": "evt_1"}'
    names = {"stripe": b"stripe-signature", "github": b"x-hub-signature-256", "slack": b"x-slack-signature"}
    for source, name in names.items():
        for label, value in HOSTILE.items():
            headers = [] if value is None else [(name, value)]
            if source == "slack":
                headers.append((b"x-slack-request-timestamp", b"1750000000"))
            answer = await ask(silent.served.port, raw(hooks.path(source), headers, body))
            assert answer is not None, (source, label)
            # Bytes that HTTP itself does not allow in a header are refused before.
            assert answer.status == (400 if label == "NUL" else 401), (source, label, answer)
            assert answer.json["ok"] is False


async def test_more_headers_than_are_read_are_a_401(silent: Stand) -> None:
    for headers in ([(b"x-%d" % n, b"x") for n in range(200)], [(b"stripe-signature", b"x" * 500_000)]):
        answer = await ask(silent.served.port, raw(silent.hooks.path("stripe"), headers, b"{}"))
        assert answer is not None
        assert (answer.status, answer.json["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_hostile_timestamps_are_a_401_though_they_are_signed_while_no_database_answers(
    silent: Stand,
) -> None:
    hooks, body, now = silent.hooks, b'{"event_id": "Ev1"}', int(time.time())
    times = {**TIMES, "fraction of now": b"%d.9" % now, "zeros before": b"%020d" % now, "comma": b"%d," % now}
    for label, value in times.items():
        mac = hmac.digest(b"s", b"v0:" + value + b":" + body, "sha256").hex().encode()
        headers = [(b"x-slack-signature", b"v0=" + mac), (b"x-slack-request-timestamp", value)]
        if label == "blank":  # HTTP takes it from the end of a header
            headers[1] = (headers[1][0], b"1750000000")
        answer = await ask(silent.served.port, raw(hooks.path("slack"), headers, body))
        assert answer is not None
        assert answer.status == 401, (label, answer)


async def test_a_signature_or_an_id_that_is_there_twice_is_a_401(silent: Stand) -> None:
    hooks, body = silent.hooks, b"{}"
    signed = [(k.encode(), v.encode()) for k, v in hooks.signed("github", body, "dlv_1").items()]
    for name in (b"x-hub-signature-256", b"x-github-delivery"):
        twice = [*signed, *[header for header in signed if header[0] == name]]
        answer = await ask(silent.served.port, raw(hooks.path("github"), twice, body))
        assert answer is not None
        assert answer.status == 401, (name, answer)


@pytest.mark.parametrize("value", [b"", b"\xe9", b"a" * 256])
async def test_a_delivery_id_that_can_not_be_one_is_a_401(silent: Stand, value: bytes) -> None:
    hooks, body = silent.hooks, b"{}"
    signed = [(k.encode(), v.encode()) for k, v in hooks.signed("github", body, "dlv_1").items()]
    headers = [header for header in signed if header[0] != b"x-github-delivery"]
    answer = await ask(
        silent.served.port, raw(hooks.path("github"), [*headers, (b"x-github-delivery", value)], body)
    )
    assert answer is not None
    assert answer.status == 401


async def test_a_token_with_the_delivery_id_that_can_not_be_one_is_a_401_though_nothing_is_signed(
    silent: Stand,
) -> None:
    name = b"messagebird-signature-jwt"
    for headers in ([(name, b"\xff")], [(name, b"")], [(name, b"a" * 9_000)], [(name, b"a.b.c")] * 2):
        answer = await ask(silent.served.port, raw(silent.hooks.path("tokens"), headers, b"{}"))
        assert answer is not None
        assert (answer.status, answer.json["code"]) == (401, "unauthorized"), headers


async def test_strangers_learn_which_sources_there_are_from_only_memory(silent: Stand) -> None:
    for path in ("/_/webhooks/nobody/stripe", silent.hooks.path("nobody"), "/_/webhooks/%00/%ff"):
        refused(await silent.hooks.client.post(path, content=b"{}"), 404, "not_found")


async def test_a_verified_delivery_that_can_not_be_committed_is_a_503_and_taken_when_it_comes_again(
    stand: Stand,
) -> None:
    hooks = stand.hooks
    stand.servers.postgres.pause()
    stand.servers.redis.pause()
    response = await hooks.send("stripe", {"id": "evt_out"})
    assert response.status_code == 503
    assert response.json()["code"] in ("not_committed", "outcome_unknown")
    assert int(response.headers["retry-after"]) >= 1
    stand.servers.postgres.resume()
    stand.servers.redis.resume()
    taken: list[httpx.Response] = []

    async def accepted() -> bool:
        taken.append(await hooks.send("stripe", {"id": "evt_out"}))
        return taken[-1].status_code == 202

    await until(accepted)
    events = [event for event in await hooks.events() if event["data"]["delivery_id"] == "evt_out"]
    assert [event["id"] for event in events] == [taken[-1].json()["event_id"]]
    assert json.loads(taken[-1].content)["ok"] is True
