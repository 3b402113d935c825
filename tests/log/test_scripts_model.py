"""The sequence script against a model in the plainest words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from gateway.events import ANY_LENGTH, AT_LEAST_ONE, Append, Stream, next_chain
from gateway.log.redis.scripts import Scripts
from tests.log.scripted import Partition
from tests.support.drive import append, new_stream, new_tenant


@dataclass(frozen=True, slots=True)
class Asked:
    stream: int
    count: int
    expected: int
    key: int | None
    body: int
    linked: bool
    """Its length holds only if every earlier append of the call to its stream has its place."""


ASKED = st.builds(
    Asked,
    stream=st.integers(0, 2),
    count=st.integers(1, 3),
    expected=st.sampled_from([ANY_LENGTH, ANY_LENGTH, AT_LEAST_ONE, 0, 1, 2, 3]),
    key=st.sampled_from([None, None, 0, 1]),
    body=st.sampled_from([0, 0, 0, 1]),
    linked=st.booleans(),
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
        if isinstance(answer, bytes):
            skipped.add(one.stream)
        return answer

    def _answer(self, one: Append, linked: bool, blocked: set[Stream], skipped: set[Stream]) -> Any:
        if one.stream in blocked:
            return b"B"
        held = [self.claims[each] for each in one.identities if each in self.claims]
        if held:
            same = len(held) >= len(one.identities) - 1 and held.count(held[0]) == len(held)
            if not same or held[0][2] != one.request_digest:
                return b"M"
            return b"D%d:%d" % held[0][:2]
        head = self.heads.get(one.stream, 0)
        if (one.expected >= 0 and one.expected != head) or (one.expected == AT_LEAST_ONE and head == 0):
            return b"C%d" % head
        if linked and one.stream in skipped:
            return b"C%d" % head
        count = len(one.events)
        if self.q > self.c and self.q - self.c + count > self.window:
            blocked.add(one.stream)
            return b"B"
        self.heads[one.stream] = head + count
        self.q += count
        self.chain = next_chain(self.chain, head + 1, one.digests)
        for each in one.identities:
            self.claims[each] = (self.q, count, one.request_digest)
        return head + 1


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
        appends = [
            append(streams[each.stream], each.count, expected=each.expected,
                   key=None if each.key is None else b"%d" % each.key, body=b"%d" % each.body)
            for each in asked
        ]  # fmt: skip
        blocked: set[Stream] = set()
        skipped: set[Stream] = set()
        if commits:
            model.c = model.q
        reply = await partition.sequence(
            *appends,
            window=window,
            told=(model.c, model.chain if commits else ""),
            expected=[each.expected + (each.linked and each.expected >= 0) / 2 for each in asked],
        )
        answers = [
            model.answer(one, each.linked, blocked, skipped) for one, each in zip(appends, asked, strict=True)
        ]
        assert reply[7:] == answers
        assert (int(reply[3]), reply[4].decode(), int(reply[5])) == (model.q, model.chain, model.c)
