"""Numbers for children: `bd-k86gaq.1`, `.2`, `.3` …, and the names that they make.

Owns the stream in which an aggregate's children are numbered. It is the parent's own and not the parent's
stream, whose length is its users'. Each event in it says a number that is greater than the one before, so
whatever becomes of a child, its number is never given again.

Order: the number, then the name, then (the caller's part) the child's first events. Each has an identity that
follows from the request's, so a retry finds what is done and continues from there. A request that gives up in
between leaves a number without a child.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

import msgspec
from uuid_utils import uuid7

from gateway.aliases.store import Snapshot
from gateway.aliases.writer import ACTOR_TYPE, ASSIGNING, Writer
from gateway.appends import Append, Appended, Retry, identity, make_append
from gateway.events import Event, Stream
from gateway.log.log import Log
from gateway.log.read.ranges import Range
from gateway.names import hash_ids
from gateway.names.aliases import Alias, of_hash
from gateway.names.changes import Change, Give, Given, named
from gateway.names.hash_ids import CHILD_NUMBER_MAX
from gateway.outcomes import Conflict, NotCommitted, Outcome

STREAM_TYPE: Final = "_children"
NUMBERED: Final = "_child_numbered"
NUMBER_S: Final = 10.0
"""For one number with all its tries; each lost try is one that another child of the same parent won."""
ATTEMPTS_MAX: Final = 8
"""For one child. Its number may be an import's, the second one lies behind all that this brought; or its key
another's, once in 35 million among a million humane codes."""


@dataclass(frozen=True, slots=True)
class Child:
    """The key that the child has, or is to be created under, and its name."""

    key: str
    alias: Alias


class _Numbered(msgspec.Struct, frozen=True):
    number: int
    aggregate_type: str
    key: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Numbered).decode


def child_of(parent: Alias, number: int) -> Alias | None:
    """The name of a child; None where the parent's is as deep as names go."""
    name = hash_ids.parse(parent.text)
    assert name is not None
    child = hash_ids.child_of(name, number)
    return None if child is None else of_hash(child)


def stream_of(parent: Stream) -> Stream:
    """The one in which the children of an aggregate are numbered; no type has a colon."""
    return Stream(parent.tenant, STREAM_TYPE, f"{parent.aggregate_type}:{parent.key}")


class Children:
    def __init__(self, log: Log, writer: Writer) -> None:
        self._log = log
        self._writer = writer
        self._turns: WeakValueDictionary[Stream, asyncio.Lock] = WeakValueDictionary()

    async def name(
        self, parent: Stream, alias: Alias, child: Stream, retry: Retry, mint: Callable[[], str]
    ) -> Child | Outcome:
        """A name below `alias`, which is the parent's and not too deep, for a child that `child` would be;
        under another key by `mint` where that one is an aggregate's already.

        A repeated request gets the child of the first one, also its key. Any outcome but a `Child` says why
        there is none; nothing of the child was written then. Raises PostgresTrouble and NotWritten.
        """
        least = 1
        for attempt in range(ATTEMPTS_MAX):
            numbered = await self._number(parent, child, _of_attempt(retry, attempt), least)
            if not isinstance(numbered, _Numbered):
                return numbered
            name = child_of(alias, numbered.number)
            assert name is not None
            found = Child(numbered.key, name)
            # A child is named before it is written: what is there without the name is another aggregate.
            written = await self._log.length(msgspec.structs.replace(child, key=found.key))
            taken = await self._give(found, child, free=not written)
            if taken is None:
                return found
            least = taken + 1
            if written:
                child = msgspec.structs.replace(child, key=mint())
        return NotCommitted("each number or key that it could have was taken in the meantime")

    async def _number(self, parent: Stream, child: Stream, retry: Retry, least: int) -> _Numbered | Outcome:
        stream = stream_of(parent)
        turn = self._turns.setdefault(stream, asyncio.Lock())
        loop = asyncio.get_running_loop()
        until = loop.time() + NUMBER_S
        while True:
            async with turn:  # of this gateway only one at a time: they would only make each other lose
                page = await self._log.page(Range(stream, limit=1, newest_first=True))
                last = _decode(page.events[0].event.payload or b"").number if page.events else 0
                number = max(last + 1, least)
                if number > CHILD_NUMBER_MAX:
                    return NotCommitted("the parent has no numbers left for children", 60)
                numbered = _Numbered(number, child.aggregate_type, child.key)
                outcome = await self._writer.append(_append(stream, numbered, page.length, retry))
            if isinstance(outcome, Appended):
                return await self._earlier(stream, outcome) if outcome.replayed else numbered
            if not isinstance(outcome, Conflict):
                return outcome
            if loop.time() > until:
                return NotCommitted(f"other children were numbered first for {NUMBER_S:g} s")

    async def _earlier(self, stream: Stream, done: Appended) -> _Numbered:
        """What a request like this one was given before."""
        version = done.first_version
        page = await self._log.page(Range(stream, version, version, 1))
        return _decode(page.events[0].event.payload or b"")

    async def _give(self, found: Child, child: Stream, *, free: bool) -> int | None:
        """None once the child has its name; the greatest number in use where another has it, 0 where the key
        is not `free` and has no name here."""
        taken: list[int] = []

        async def plan(at: Snapshot) -> Sequence[Change]:
            taken.clear()
            name = named(found.alias)
            holder = (await at.holders([name])).get(name)
            if holder is None and free:
                given = Given(name.kind, name.prefix, name.body, name.path, child.aggregate_type, found.key)
                return (Give((given,)),)
            if holder is None:
                taken.append(0)
            elif (holder.aggregate_type, holder.key) != (child.aggregate_type, found.key):
                taken.append(await at.greatest_child(name))
            return ()

        await self._writer.write(child.tenant, plan)
        return taken[0] if taken else None


def _of_attempt(retry: Retry, attempt: int) -> Retry:
    """The request's identities as those of the number that it asks for. What it asks for is part of them: a
    request that was given up does not burn its identities, and another under them has its own number."""
    kind = f"child/{attempt}"
    chosen = tuple([identity(retry.tenant, kind, each + retry.request_digest) for each in retry.chosen])
    return Retry(retry.tenant, chosen, (), retry.request_digest)


def _append(stream: Stream, numbered: _Numbered, expected: int, retry: Retry) -> Append:
    event = Event(
        id=uuid7().bytes,
        type=NUMBERED,
        actor_type=ACTOR_TYPE,
        actor_id=ASSIGNING,
        target_type=None,
        target_id=None,
        correlation_id=uuid7().bytes,
        causation_id=None,
        spec_rev=0,
        recorded_at_ms=time.time_ns() // 1_000_000,
        extra=None,
        payload=_encode(numbered),
    )
    return make_append(stream, (event,), expected, retry)
