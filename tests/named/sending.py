"""Requests to gateways, each repeated until it is taken."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from uuid import uuid4

import httpx

ACTOR = {"type": "user", "id": "a0000000-0000-4000-a000-000000000001"}
GIVE_UP_S = 120.0


class Sender:
    """`harms` are answers that no request should get."""

    def __init__(self, client: httpx.AsyncClient, urls: Sequence[str]) -> None:
        self._client = client
        self._all = tuple(urls)
        self._urls = itertools.cycle(urls)
        self.harms: list[str] = []
        self.requests = 0

    async def until_known(self, aggregate_type: str) -> None:
        """Returns once every gateway follows the spec that declares it."""
        for url in self._all:
            until = time.monotonic() + GIVE_UP_S
            while time.monotonic() < until:
                answer = await self._client.get(f"{url}/{aggregate_type}/{uuid4()}")
                if answer.json()["code"] == "not_found":
                    break
                await asyncio.sleep(0.05)

    async def get(self, path: str, **params: str) -> httpx.Response:
        return await self._sent("GET", path, None, {}, params)

    async def post(
        self,
        path: str,
        body: Mapping[str, object] | bytes,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self._sent(
            "POST", path, content, {"content-type": "application/json", **(headers or {})}
        )

    async def put_spec(self, spec: Mapping[str, object]) -> int:
        """Its status: some deployments are refused."""
        content = json.dumps({"spec": spec}).encode()
        url = f"{next(self._urls)}/_/spec"
        answer = await self._client.put(url, content=content, headers={"content-type": "application/json"})
        return answer.status_code

    async def bulk(self, lines: Sequence[Mapping[str, object]]) -> None:
        left, until = list(lines), time.monotonic() + GIVE_UP_S
        while left and time.monotonic() < until:
            content = b"".join([json.dumps(each).encode() + b"\n" for each in left])
            answer = await self.post("/_/bulk", content, {"content-type": "application/x-ndjson"})
            told = [json.loads(line) for line in answer.content.splitlines()]
            self.harms += [f"bulk: {each}" for each in told if each["status"] in range(400, 500)]
            left = [line for line, each in zip(left, told, strict=True) if each["status"] >= 500]

    async def _sent(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str],
        params: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        until = time.monotonic() + GIVE_UP_S
        while True:
            self.requests += 1
            url = next(self._urls) + path
            answer = await self._client.request(
                method, url, content=content, headers=dict(headers), params=params
            )
            if answer.status_code < 300:
                return answer
            if not (answer.status_code >= 500 or answer.status_code == 429):
                raise AssertionError(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
            if time.monotonic() > until:
                raise AssertionError(f"{method} {path}: still {answer.status_code} {answer.text[:300]}")
            await asyncio.sleep(0.05)
