"""The client with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from time import monotonic
from typing import Unpack

import httpx

from gateway.client import calls
from gateway.client.connection import (
    FOLLOW,
    FOLLOW_READ_S,
    Following,
    answer_of,
    chance,
    default_headers,
    lost_of,
    new_key,
    timeouts,
)
from gateway.client.errors import Unavailable
from gateway.client.model import Event, FeedPage, Receipt, State
from gateway.client.options import AppendOptions, FeedOptions
from gateway.client.positions import SavedPosition
from gateway.client.retry import Answer, Call, Lost, Patience, Request, T, attempts


class AsyncClient:
    """Calls repeat by themselves what may be repeated, for as long as `patience` says. Each raises Refused
    for what the service refuses, Unavailable where it gives no answer in time. Making one raises Refused
    for an API key that no header can carry."""

    def __init__(self, url: str, key: str, *, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._http = httpx.AsyncClient(base_url=url, headers=default_headers(key))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    # -- appends

    async def append(
        self,
        aggregate_type: str,
        key: str,
        event_type: str,
        data: object = None,
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """One event, exactly once: the call carries an Idempotency-Key and is repeated with it. `data` is
        whatever msgspec can encode; msgspec.Raw where it is JSON already.

        Raises Conflict where `previous_length` does not hold; NotCommitted or OutcomeUnknown in place of
        Unavailable.
        """
        call = calls.append(aggregate_type, key, event_type, data, new_key(), options)
        return await self._carry_out(call)

    async def append_many(
        self,
        aggregate_type: str,
        key: str,
        events: Sequence[tuple[str, object]],
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Several of one aggregate, all or none: (event type, data) each. Otherwise as `append`."""
        return await self._carry_out(calls.append_many(aggregate_type, key, events, new_key(), options))

    async def create(
        self,
        aggregate_type: str,
        events: Sequence[tuple[str, object]],
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """The same for a new aggregate, whose key the gateway mints and the receipt tells."""
        return await self._carry_out(calls.append_many(aggregate_type, None, events, new_key(), options))

    # -- reads

    async def state(
        self, aggregate_type: str, key: str, *, at_length: int | None = None, min_length: int | None = None
    ) -> State:
        """As its events make it: all of them, or the first `at_length`; once there are `min_length`. Raises
        Refused (404) for an aggregate that was never written."""
        given = {"at_length": at_length, "min_length": min_length}
        params = {name: str(value) for name, value in given.items() if value is not None}
        return await self._carry_out(calls.state(aggregate_type, key, params))

    async def length(self, aggregate_type: str, key: str) -> int:
        """0 where nothing was ever written."""
        return await self._carry_out(calls.length(aggregate_type, key))

    async def events(self, aggregate_type: str, key: str, *, start: int = 1) -> AsyncGenerator[Event, None]:
        """An aggregate's events from a version on, to where they end now. Raises Refused (404) for one that
        was never written."""
        following: int | None = start
        while following is not None:
            page, following = await self._carry_out(calls.events(aggregate_type, key, following))
            for event in page:
                yield event

    async def event(self, event_id: str) -> Event:
        """By its id."""
        return await self._carry_out(calls.event(event_id))

    # -- the feed

    async def feed(
        self, *, limit: int = calls.PAGE_EVENTS, wait_s: int = 0, **options: Unpack[FeedOptions]
    ) -> FeedPage:
        """One page of what is committed; with `wait_s`, where nothing is left, the first that comes."""
        return await self._carry_out(calls.feed(limit, wait_s, options))

    def follow(
        self, saved: SavedPosition | None = None, **options: Unpack[FeedOptions]
    ) -> AsyncGenerator[Event, None]:
        """Every committed event in order, for ever: from the saved position, where there is one, else from
        `after`. Connections that break are made anew without a gap.

        An event counts as processed once the next one is asked for; then its position is saved, at most once
        a second and at the end. After a crash what was processed since comes again, with the same
        ids: a second's events, or the last ones before a quiet time.

        Raises Refused for what the service refuses, and waits out everything else.
        """
        return self._follow(saved, options, calls.decode_event)

    def follow_json(
        self, saved: SavedPosition | None = None, **options: Unpack[FeedOptions]
    ) -> AsyncGenerator[bytes, None]:
        """The same, each event as the JSON that the feed sends."""
        return self._follow(saved, options, bytes)

    async def _follow(
        self, saved: SavedPosition | None, options: FeedOptions, decode: Callable[[bytes], T]
    ) -> AsyncGenerator[T, None]:
        following = Following(options, saved, self._patience)
        if following.from_now:
            following.begin(await self._now(following))
        try:
            while True:
                try:
                    async with self._http.stream(
                        "GET",
                        FOLLOW,
                        params=following.params(),
                        headers=following.headers(),
                        timeout=timeouts(FOLLOW_READ_S),
                    ) as response:
                        if response.status_code != 200:
                            following.refused(answer_of(response, await response.aread()))
                        else:
                            async for received in response.aiter_bytes():
                                for document in following.received(received):
                                    yield decode(document)
                                    following.processed()
                except (httpx.TransportError, httpx.DecodingError):
                    pass  # the gateway or the network is away: connect again
                await asyncio.sleep(following.pause_s(chance()))
        finally:
            following.end()

    async def _now(self, following: Following) -> str:
        """Behind all that is committed when it is found out."""
        while True:
            try:
                return (await self.feed(limit=1, **following.options)).position
            except Unavailable:
                await asyncio.sleep(following.pause_s(chance()))

    # -- anything else

    async def call(self, call: Call[T]) -> T:
        """A request that has no method here, repeated and refused as the others."""
        return await self._carry_out(call)

    # -- carrying out

    async def _carry_out(self, call: Call[T]) -> T:
        steps = attempts(call, self._patience, monotonic, chance)
        step = next(steps)
        while True:
            got: Answer | Lost | None = None
            if isinstance(step, Request):
                got = await self._send(step)
            else:
                await asyncio.sleep(step)
            try:
                step = steps.send(got)
            except StopIteration as done:
                result: T = done.value
                return result

    async def _send(self, request: Request) -> Answer | Lost:
        try:
            response = await self._http.request(
                request.method,
                request.path,
                params=dict(request.params),
                headers=dict(request.headers),
                content=request.content,
                timeout=timeouts(request.wait_s),
            )
        except httpx.TransportError as trouble:
            return lost_of(trouble)
        return answer_of(response, response.content)
