"""Secrets of the environment over HTTP: no tenant can name another's, nor learn which there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import asyncpg
import pytest

from gateway.catalog.secrets import prefix_of
from tests.http.webhooks import declared
from tests.support.accounts import Account, open_account
from tests.support.calls import new_client, refused
from tests.support.serving import Served

SECRET = "whsec_" + "c2VjcmV0" * 4


@pytest.fixture
async def accounts(
    gateway: Served, outbox: asyncpg.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[Account]:
    """Two tenants of which the first has a variable and a file, as main has without a name."""
    one, other = [await open_account(outbox, declared()) for _ in range(2)]
    monkeypatch.setenv("SLUICE_SECRETS_DIR", str(tmp_path))
    for name in (f"{prefix_of(one.name)}ACME", "SLUICE_SECRET_ACME"):
        monkeypatch.setenv(name, SECRET)
    (tmp_path / one.name).mkdir()
    for path in (tmp_path / one.name / "acme", tmp_path / "acme"):
        path.write_text(SECRET)
    return [one, other]


def without(value: Any, *names: str) -> str:
    text = str(value)
    for name in names:
        text = text.replace(name, "NAME")
    return text


async def test_a_secret_of_another_tenant_is_answered_as_one_that_is_not_there(
    gateway: Served, accounts: list[Account]
) -> None:
    one, other = accounts
    own = f"{prefix_of(one.name)}ACME"
    absent = f"{prefix_of(one.name)}NONE"
    pairs = [
        (f"env:{own}", f"env:{absent}"),
        ("env:SLUICE_SECRET_ACME", "env:SLUICE_SECRET_NONE"),
        ("file:acme", "file:none"),
    ]
    async with new_client(gateway.url, other.admin) as client:
        for pair in pairs:
            told = []
            for secret in pair:
                name = secret.partition(":")[2]
                source = {"provider": "github", "secrets": [secret]}
                response = await client.put("/_/spec", json=declared(s=source))
                refused(response, 422, "invalid_spec", more=("faults",))
                assert [fault["code"] for fault in response.json()["faults"]] == ["missing_secret"]
                target = {"type": "webhook", "url": "https://a.example/", "secret": secret}
                subscribed = await client.put("/_/subscriptions/s", json={"target": target})
                assert subscribed.status_code == 422, subscribed.text
                answers = (response, subscribed)
                headers = [
                    {**each.headers, "date": "", "content-length": "", "x-correlation-id": ""}
                    for each in answers
                ]
                told.append(without([[each.json() for each in answers], headers], name))
            assert told[0] == told[1]
    async with new_client(gateway.url, one.admin) as client:
        for secret in (f"env:{own}", "file:acme"):
            source = {"provider": "github", "secrets": [secret]}
            assert (await client.put("/_/spec", json=declared(s=source))).status_code == 200
            target = {"type": "webhook", "url": "https://a.example/", "secret": secret}
            response = await client.put("/_/subscriptions/s", json={"target": target})
            assert response.status_code in (200, 201), response.text
