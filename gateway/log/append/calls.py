"""The arguments of redis/sequence.lua, in the order that its header names."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

import msgspec

from gateway.events import Append
from gateway.log.append.pending import Look
from gateway.log.redis.keys import PartitionKeys

_facts: Final = struct.Struct(">dIIII32s32sB").pack
_claiming_facts: Final = struct.Struct(">IdBI").pack
_pack: Final = msgspec.msgpack.Encoder().encode


class CallHead(NamedTuple):
    """What a call says before its appends: see the script's ARGV 2 to 9."""

    epoch: int
    window: int
    committed_seq: int
    committed_chain: str
    stream_tail: int
    looked_up: int
    caller: str
    number: int


class ClaimingAppend(NamedTuple):
    """An append that claims unique values: its number from 1, the seq at which it was looked up who holds
    them, whether another aggregate has one of them, and the values."""

    number: int
    looked_up: int
    taken: bool
    values: Sequence[bytes]


def sequence_call(
    keys: PartitionKeys,
    head: CallHead,
    appends: Sequence[Append],
    hints: Sequence[str],
    expected: Sequence[float] | None = None,
    claims: Sequence[ClaimingAppend] = (),
    looks: Sequence[Look | None] = (),
) -> tuple[list[str], list[str | bytes | int]]:
    """KEYS, and ARGV after the nonce. A hint is '' or '<as of>:<head in Postgres>' of each stream, a blank
    between them; `expected` stands in place of what the appends ask for themselves; `looks` are those of
    their conditions."""
    expected = [append.expected for append in appends] if expected is None else expected
    names = [keys.meta, keys.journal, *keys.identities, keys.calls, keys.heads]
    names += [keys.stream(append.stream) for append in appends]
    identities: list[bytes] = []
    facts: list[bytes] = []
    bodies: list[bytes] = []
    spread: list[tuple[object, ...]] = []
    for n, (append, hint, asked) in enumerate(zip(appends, hints, expected, strict=True), 1):
        identities += append.identities
        packed, digests, told = append.packed, append.digests, hint.encode()
        count = len(packed)
        if append.spread is not None or append.condition is not None:
            others = append.streams[1:]
            first, *more = hint.split(" ")
            told = first.encode()
            of_each = (0,) * count if append.spread is None else append.spread.order
            order = "".join([chr(1 + which) for which in of_each])  # Lua's MessagePack has no bytes
            spread.append((n, len(names), append.others, more or [""] * len(others), order))
            names += [keys.stream(stream) for stream in others]
        front = _array(1 + count) + append.header
        bodies.append(front)
        bodies += packed
        facts += (
            _facts(
                asked, count, len(append.identities), len(front) + append.size_bytes, len(front),
                append.request_digest, digests[:32], len(told),
            ),
            told,
        )  # fmt: skip
        if count > 1:
            facts += (digests[32:], struct.pack(f">{count}I", *map(len, packed)))
    several = _pack(spread) if spread else b""
    conditions = _conditions(appends, looks) if spread and looks else b""
    claiming = b"".join([_claiming(*each) for each in claims])
    return names, [
        *head,
        b"".join(identities),
        b"".join(facts),
        b"".join(bodies),
        several,
        claiming,
        conditions,
    ]


def _claiming(number: int, looked_up: int, taken: bool, values: Sequence[bytes]) -> bytes:
    return _claiming_facts(number, looked_up, taken, len(values)) + b"".join(values)


def _conditions(appends: Sequence[Append], looks: Sequence[Look | None]) -> bytes:
    """ARGV 15."""
    conditions = []
    for n, (append, look) in enumerate(zip(appends, looks, strict=True), 1):
        if append.condition is not None:
            assert look is not None
            items = [
                ([".".join(each) for each in sorted(item.types)], sorted(item.tags))
                for item in append.condition.items
            ]
            conditions.append((n, look.seq, look.matched, append.stream.tenant.hex(), items))
    return _pack(conditions) if conditions else b""


@cache
def _array(items: int) -> bytes:
    """How a MessagePack array of so many items begins."""
    if items < 16:
        return bytes((0x90 | items,))
    return struct.pack(">BI", 0xDD, items)
