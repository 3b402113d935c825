"""The sequence script against a model in the plainest words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from gateway.appends import ANY_LENGTH, AT_LEAST_ONE, Append, next_chain
from gateway.events import Stream
from gateway.log.redis.scripts import Scripts
from tests.log.scripted import Partition
from tests.support.drive import append, append_to_all, new_stream, new_tenant


@dataclass(frozen=True, slots=True)
class Asked:
    stream: int
    count: int
    expected: int
    key: int | None
    body: int
    linked: bool
    """Its length holds only if every earlier append of the call to its stream has its place."""
    others: tuple[tuple[int, int], ...]
    """Streams beside its own, and what each is expected to be: an event each, then the rest of its own."""


ASKED = st.builds(
    Asked,
    stream=st.integers(0, 2),
    count=st.integers(1, 3),
    expected=st.sampled_from([ANY_LENGTH, ANY_LENGTH, AT_LEAST_ONE, 0, 1, 2, 3]),
    key=st.sampled_from([None, None, 0, 1]),
    body=st.sampled_from([0, 0, 0, 1]),
    linked=st.booleans(),
    others=st.one_of(
        st.just(()),
        st.lists(
            st.tuples(st.integers(0, 2), st.sampled_from([ANY_LENGTH, ANY_LENGTH, AT_LEAST_ONE, 0, 1, 2])),
            min_size=1,
            max_size=3,
        ).map(tuple),
    ),
)


@dataclass(slots=True)
class Model:
    """What the script should answer, in the plainest words."""

    window: int
    heads: dict[Stream, int] = field(default_factory=dict)
    claims: dict[bytes, tuple[int, int, bytes]] = field(default_factory=dict)
    q: int = 0
    c: int = 0
    chain: str = ""

    def answer(self, one: Append, linked: bool, blocked: set[Stream], skipped: set[Stream]) -> Any:
        answer = self._answer(one, linked and one.expected >= 0, blocked, skipped)
        if isinstance(answer, bytes) and answer[:1] != b"V":
            skipped.update(one.streams)
        return answer

    def _answer(self, one: Append, linked: bool, blocked: set[Stream], skipped: set[Stream]) -> Any:
        if any(each in blocked for each in one.streams):
            blocked.update(one.streams)
            return b"B"
        held = [self.claims[each] for each in one.identities if each in self.claims]
        if held:
            same = len(held) >= len(one.identities) - 1 and held.count(held[0]) == len(held)
            if not same or held[0][2] != one.request_digest:
                return b"M"
            return b"D%d:%d" % held[0][:2]
        heads = [self.heads.get(each, 0) for each in one.streams]
        lengths = (one.expected, *one.others)
        for which, (head, length) in enumerate(zip(heads, lengths, strict=True)):
            if (length >= 0 and length != head) or (length == AT_LEAST_ONE and head == 0):
                return b"C%d" % head if one.spread is None else b"C%d:%d" % (head, which)
        if linked and one.stream in skipped:
            return b"C%d" % heads[0]
        count = len(one.events)
        if self.q > self.c and self.q - self.c + count > self.window:
            blocked.update(one.streams)
            return b"B"
        return self._place(one, heads)

    def _place(self, one: Append, heads: list[int]) -> Any:
        versions = []
        for n in range(len(one.events)):
            stream = one.stream if one.spread is None else one.spread.stream_of(n)
            self.heads[stream] = self.heads.get(stream, 0) + 1
            versions.append(self.heads[stream])
        self.q += len(versions)
        self.chain = next_chain(self.chain, versions[0], one.digests, tuple(versions))
        for each in one.identities:
            self.claims[each] = (self.q, len(versions), one.request_digest)
        if one.spread is None:
            return versions[0]
        return b"V" + b",".join([b"%d" % (head + 1) for head in heads])


def _linked(asked: Asked) -> bool:
    return asked.linked and not asked.others


def _made(streams: list[Stream], asked: Asked) -> Append:
    key, body = None if asked.key is None else b"%d" % asked.key, b"%d" % asked.body
    if not asked.others:
        return append(streams[asked.stream], asked.count, expected=asked.expected, key=key, body=body)
    order = [asked.stream, *[each for each, _ in asked.others], *[asked.stream] * (asked.count - 1)]
    lengths = {streams[each]: length for each, length in reversed(asked.others)}
    lengths[streams[asked.stream]] = asked.expected
    return append_to_all([streams[each] for each in order], lengths, key=key, body=body)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    calls=st.lists(st.tuples(st.lists(ASKED, max_size=6), st.booleans()), max_size=6),
    window=st.integers(1, 9),
)
async def test_the_script_answers_as_the_model_does(
    redis: Redis, calls: list[tuple[list[Asked], bool]], window: int
) -> None:
    partition, model = Partition(redis, Scripts(redis)), Model(window)
    await partition.install()
    tenant = new_tenant()
    streams = [new_stream(tenant) for _ in range(3)]
    for asked, commits in calls:
        appends = [_made(streams, each) for each in asked]
        blocked: set[Stream] = set()
        skipped: set[Stream] = set()
        if commits:
            model.c = model.q
        reply = await partition.sequence(
            *appends,
            window=window,
            told=(model.c, model.chain if commits else ""),
            expected=[each.expected + (_linked(each) and each.expected >= 0) / 2 for each in asked],
        )
        answers = [
            model.answer(one, _linked(each), blocked, skipped)
            for one, each in zip(appends, asked, strict=True)
        ]
        assert reply[7:] == answers
        assert (int(reply[3]), reply[4].decode(), int(reply[5])) == (model.q, model.chain, model.c)
