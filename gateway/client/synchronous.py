"""The client with plain calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
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


class Client:
    """Calls repeat by themselves what may be repeated, for as long as `patience` says. Each raises Refused
    for what the service refuses, Unavailable where it gives no answer in time. Threads may share one. Making
    one raises Refused for an API key that no header can carry."""

    def __init__(self, url: str, key: str, *, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._http = httpx.Client(base_url=url, headers=default_headers(key))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # -- appends

    def append(
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
        return self._carry_out(call)

    def append_many(
        self,
        aggregate_type: str,
        key: str,
        events: Sequence[tuple[str, object]],
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Several of one aggregate, all or none: (event type, data) each. Otherwise as `append`."""
        return self._carry_out(calls.append_many(aggregate_type, key, events, new_key(), options))

    def create(
        self,
        aggregate_type: str,
        events: Sequence[tuple[str, object]],
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """The same for a new aggregate, whose key the gateway mints and the receipt tells."""
        return self._carry_out(calls.append_many(aggregate_type, None, events, new_key(), options))

    # -- reads

    def state(
        self, aggregate_type: str, key: str, *, at_length: int | None = None, min_length: int | None = None
    ) -> State:
        """As its events make it: all of them, or the first `at_length`; once there are `min_length`. Raises
        Refused (404) for an aggregate that was never written."""
        given = {"at_length": at_length, "min_length": min_length}
        params = {name: str(value) for name, value in given.items() if value is not None}
        return self._carry_out(calls.state(aggregate_type, key, params))

    def length(self, aggregate_type: str, key: str) -> int:
        """0 where nothing was ever written."""
        return self._carry_out(calls.length(aggregate_type, key))

    def events(self, aggregate_type: str, key: str, *, start: int = 1) -> Generator[Event, None, None]:
        """An aggregate's events from a version on, to where they end now. Raises Refused (404) for one that
        was never written."""
        following: int | None = start
        while following is not None:
            page, following = self._carry_out(calls.events(aggregate_type, key, following))
            yield from page

    def event(self, event_id: str) -> Event:
        """By its id."""
        return self._carry_out(calls.event(event_id))

    # -- the feed

    def feed(
        self, *, limit: int = calls.PAGE_EVENTS, wait_s: int = 0, **options: Unpack[FeedOptions]
    ) -> FeedPage:
        """One page of what is committed; with `wait_s`, where nothing is left, the first that comes."""
        return self._carry_out(calls.feed(limit, wait_s, options))

    def follow(
        self, saved: SavedPosition | None = None, **options: Unpack[FeedOptions]
    ) -> Generator[Event, None, None]:
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
    ) -> Generator[bytes, None, None]:
        """The same, each event as the JSON that the feed sends."""
        return self._follow(saved, options, bytes)

    def _follow(
        self, saved: SavedPosition | None, options: FeedOptions, decode: Callable[[bytes], T]
    ) -> Generator[T, None, None]:
        following = Following(options, saved, self._patience)
        if following.from_now:
            following.begin(self._now(following))
        try:
            while True:
                try:
                    with self._http.stream(
                        "GET",
                        FOLLOW,
                        params=following.params(),
                        headers=following.headers(),
                        timeout=timeouts(FOLLOW_READ_S),
                    ) as response:
                        if response.status_code != 200:
                            following.refused(answer_of(response, response.read()))
                        else:
                            for received in response.iter_bytes():
                                for document in following.received(received):
                                    yield decode(document)
                                    following.processed()
                except (httpx.TransportError, httpx.DecodingError):
                    pass  # the gateway or the network is away: connect again
                time.sleep(following.pause_s(chance()))
        finally:
            following.end()

    def _now(self, following: Following) -> str:
        """Behind all that is committed when it is found out."""
        while True:
            try:
                return self.feed(limit=1, **following.options).position
            except Unavailable:
                time.sleep(following.pause_s(chance()))

    # -- anything else

    def call(self, call: Call[T]) -> T:
        """A request that has no method here, repeated and refused as the others."""
        return self._carry_out(call)

    # -- carrying out

    def _carry_out(self, call: Call[T]) -> T:
        steps = attempts(call, self._patience, monotonic, chance)
        step = next(steps)
        while True:
            got: Answer | Lost | None = None
            if isinstance(step, Request):
                got = self._send(step)
            else:
                time.sleep(step)
            try:
                step = steps.send(got)
            except StopIteration as done:
                result: T = done.value
                return result

    def _send(self, request: Request) -> Answer | Lost:
        try:
            response = self._http.request(
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
