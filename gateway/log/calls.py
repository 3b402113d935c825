"""The arguments of redis/sequence.lua, in the order that its header names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gateway.events import Append
from gateway.log.keys import PartitionKeys


class CallHead(NamedTuple):
    """What a call says before its appends: see the script's ARGV 2 to 9."""

    epoch: int
    window: int
    committed_seq: int
    committed_chain: str
    trim_below: int
    looked_up: int
    caller: str
    number: int


def sequence_call(
    keys: PartitionKeys, head: CallHead, appends: Sequence[Append], hints: Sequence[str]
) -> tuple[list[str], list[str | bytes | int]]:
    """KEYS, and ARGV after the nonce. A hint is '' or '<generation>:<head in Postgres>'."""
    names = [keys.meta, keys.journal, *keys.identities, keys.calls]
    identities: list[bytes] = []
    args: list[str | bytes | int] = []
    for append, hint in zip(appends, hints, strict=True):
        names.append(keys.stream(append.stream))
        identities += append.identities
        args += (append.expected, hint, len(append.identities), append.request_digest)
        args += (len(append.packed), append.digests, append.header, *append.packed)
    return names, [*head, len(appends), len(identities), *identities, *args]
