"""The arguments of redis/sequence.lua, in the order that its header names."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Final, NamedTuple

import msgspec

from gateway.appends import Append, tag_keys
from gateway.items import Items, tags_of
from gateway.log.append.pending import Look
from gateway.log.redis.keys import PartitionKeys

_facts: Final = struct.Struct(">dIIII32s32sB").pack
_claiming_facts: Final = struct.Struct(">IdBI").pack
_condition_facts: Final = struct.Struct(">Iddd").pack
_items_facts: Final = struct.Struct(">H").pack
_tag_facts: Final = struct.Struct(">II").pack
_size: Final = struct.Struct(">I").pack
_pack: Final = msgspec.msgpack.Encoder().encode


class CallHead(NamedTuple):
    """The arguments of a call before its appends: ARGV 2 to 9 of the script."""

    epoch: int
    window: int
    committed_seq: int
    committed_chain: str
    stream_tail: int
    looked_up: int
    caller: str
    number: int


class ClaimingAppend(NamedTuple):
    """An append that claims unique values: its number from 1, the seq at which their holders were looked up,
    whether another aggregate holds one of them, and the values."""

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
    """KEYS, and ARGV after the nonce. A hint is '' or '<as of>:<head in Postgres>' of each stream, separated
    by blanks; `expected` replaces the lengths that the appends require; `looks` are those of their
    conditions."""
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
        if append.spread is not None:
            _, *others = append.spread.streams
            first, *more = hint.split(" ") if hint else [""] * (1 + len(others))
            told = first.encode()
            others_asked = tuple(map(float, append.others))  # cmsgpack makes large integers negative
            spread.append((n, len(names), others_asked, more, _order(append.spread.order)))
            for stream in others:
                names.append(keys.stream(stream))
        front = _array(1 + count) + append.header
        size = append.size_bytes if append.condition is None else sum(map(len, packed))
        bodies.append(front)
        bodies += packed
        facts += (
            _facts(
                asked, count, len(append.identities), len(front) + size, len(front),
                append.retry.request_digest, digests[:32], len(told),
            ),
            told,
        )  # fmt: skip
        if count > 1:
            facts += (digests[32:], _sizes(count)(*map(len, packed)))
    args: list[str | bytes | int] = [*head, b"".join(identities), b"".join(facts), b"".join(bodies)]
    several = _pack(spread) if spread else b""
    claiming = b"".join([_claiming(*each) for each in claims])
    conditions, tags, own = _conditions(keys, appends, looks) if any(looks) else (b"", b"", [])
    declared = b"".join([_tags(n, each.tag_keys) for n, each in enumerate(appends, 1) if each.tag_keys])
    if conditions or declared:
        return [*names, *keys.tags, *own], [*args, several, claiming, conditions, tags, declared]
    if several or claiming:
        args += (several, claiming)
    return names, args


def _claiming(number: int, looked_up: int, taken: bool, values: Sequence[bytes]) -> bytes:
    return _claiming_facts(number, looked_up, taken, len(values)) + b"".join(values)


def _tags(number: int, tag_keys: bytes) -> bytes:
    """Of ARGV 17."""
    return _tag_facts(number, len(tag_keys) // 16) + tag_keys


class Boundary(NamedTuple):
    """What conditions of the same items have in common: tags, by their texts and keys; and of ARGV 15 the
    numbers of tags of the items, and what only a search of the journal needs."""

    tags: tuple[str, ...]
    keys: bytes
    counts: bytes
    items: bytes

    @property
    def is_short(self) -> bool:
        """Whether it may be remembered: nothing bounds how long the tags of a query are."""
        return len(self.items) <= SHORT_BOUNDARY_BYTES


SHORT_BOUNDARY_BYTES: Final = 4 * 1024
BOUNDARIES_MAX: Final = 512
"""Short ones that are kept."""

_boundaries: Final[dict[tuple[bytes, Items], Boundary]] = {}


def boundary(tenant: bytes, items: Items) -> Boundary:
    found = _boundaries.get((tenant, items))
    if found is None:
        found = _boundary(tenant, items)
        if found.is_short:
            if len(_boundaries) >= BOUNDARIES_MAX:
                del _boundaries[next(iter(_boundaries))]
            _boundaries[tenant, items] = found
    return found


def _boundary(tenant: bytes, items: Items) -> Boundary:
    tags = tags_of(items)
    named = [([".".join(each) for each in sorted(item.types)], sorted(item.tags)) for item in items]
    packed = _pack((tenant.hex(), named))
    return Boundary(
        tags,
        tag_keys(tenant, (tags,)),
        _items_facts(len(items)) + bytes([len(item.tags) for item in items]),
        _size(len(packed)) + packed,
    )


def _conditions(
    keys: PartitionKeys, appends: Sequence[Append], looks: Sequence[Look | None]
) -> tuple[bytes, bytes, list[str]]:
    """ARGV 15 and 16, and the streams that the tags are the own ones of."""
    own: list[str] = []
    conditions: list[bytes] = []
    tags: list[bytes] = []
    for n, (append, look) in enumerate(zip(appends, looks, strict=True), 1):
        condition, tenant = append.condition, append.stream.tenant
        if condition is not None:
            assert look is not None
            of = boundary(tenant, condition.items)
            told = b"\x01" + struct.pack(f">{len(look.lasts)}d", *look.lasts) if look.lasts else b"\x00"
            facts = _condition_facts(n, condition.after, look.seq, look.matched)
            conditions += (facts, of.counts, told, of.items)
            tags.append(of.keys)
            own += [keys.own_stream(tenant, tag) for tag in of.tags]
    return b"".join(conditions), b"".join(tags), own


@cache
def _sizes(count: int) -> Callable[..., bytes]:
    """Packs so many."""
    return struct.Struct(f">{count}I").pack


@lru_cache(256)
def _order(order: tuple[int, ...]) -> str:
    """The numbers of the streams of an append's events, from 1, as characters: Lua's MessagePack has no
    bytes."""
    return "".join([chr(1 + which) for which in order])


@cache
def _array(items: int) -> bytes:
    """How a MessagePack array of so many items begins."""
    if items < 16:
        return bytes((0x90 | items,))
    return struct.pack(">BI", 0xDD, items)
