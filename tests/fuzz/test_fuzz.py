"""A few seconds of each fuzzer, with another seed each day; and each is tried on what it has to find."""

from __future__ import annotations

import random
import time

import asyncpg
import pytest

from gateway.config import Config
from gateway.inbound.verify import message_signatures
from gateway.relay import gzipped
from gateway.state import lists, operations, templates
from tests.fuzz import gzip_followers, handlers, signatures
from tests.support.accounts import open_account
from tests.support.daily import DAY_S

SEED = int(time.time()) // DAY_S * 1_000_000
SIGNATURES = 10_000
HANDLERS = 150
FOLLOWERS_S = 4.0


def test_no_change_to_a_signed_request_is_taken_for_what_was_signed() -> None:
    wrong = [each for n in range(SIGNATURES) if (each := signatures.wrong(SEED + n)) is not None]
    assert wrong == []


@pytest.mark.parametrize("name", signatures.NAMES)
def test_unchanged_requests_are_taken(name: str) -> None:
    """Or nothing would be tried."""
    sent, _ = signatures.signed(name)
    verdict = signatures.verify(sent.source, sent.request, signatures.NOW_MS)
    assert isinstance(verdict, signatures.Verified)


@pytest.mark.parametrize(
    ("name", "without"),
    [("is_body_of", lambda *_: True), ("signed_by", lambda *_: True)],
)
def test_a_verification_that_leaves_something_out_is_caught(
    monkeypatch: pytest.MonkeyPatch, name: str, without: object
) -> None:
    for module in (message_signatures, "gateway.inbound.verify.signature"):
        target = f"{module}.{name}" if isinstance(module, str) else f"{module.__name__}.{name}"
        monkeypatch.setattr(target, without, raising=False)
    assert any(signatures.wrong(n) is not None for n in range(2_000))


def test_handlers_fold_as_a_naive_fold_does_within_bounds() -> None:
    found = []
    for n in range(HANDLERS):
        numbers = random.Random(SEED + n)
        found += [handlers.small(numbers), handlers.broken(numbers)]
        if n % 50 == 0:
            found.append(handlers.heavy(numbers, with_memory=False))
    assert [each for each in found if each is not None] == []


@pytest.mark.parametrize(
    ("module", "name", "without"),
    [
        (lists, "merged", lambda item, _: item),
        (lists, "keep", lists.remove),
        (operations, "_bound", lambda _, view: view),
        (templates, "_all_at", lambda node, *_: node),
    ],
)
def test_a_fold_that_does_something_else_is_caught(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, without: object
) -> None:
    monkeypatch.setattr(module, name, without)
    assert any(handlers.small(random.Random(n)) is not None for n in range(2_000))


@pytest.fixture
async def config(redis_url: str, postgres_url: str) -> Config:
    return Config(redis_url=redis_url, postgres_url=postgres_url, relay=False)


async def found(config: Config) -> list[str]:
    async with asyncpg.create_pool(config.postgres_url, min_size=1, max_size=1) as pool:
        account = await open_account(pool)
    return await gzip_followers.fuzzed(config, account, FOLLOWERS_S, SEED)


async def test_followers_in_gzip_get_whole_streams(config: Config) -> None:
    assert await found(config) == []


async def test_a_stream_that_counts_wrongly_is_caught(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = gzipped.Sent.end
    monkeypatch.setattr(gzipped.Sent, "end", lambda sent: settled(sent)[:-1] + b"\xff")
    assert any("BadGzipFile" in each or "Error" in each for each in await found(config))
