"""The range of a stream that a read requests, and the part of it that Redis has. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.events import Recorded, Stream

VERSION_MAX: Final = 2**53  # what a Lua number holds exactly
PAGE_BYTES: Final = 1024 * 1024
"""Behind so many bytes of events a page ends: it is held in memory whole, by each request."""


class Narrow(msgspec.Struct, frozen=True, gc=False):
    """How much of events is enough: of all their data; of those of types in `apart` also type, time and
    revision; of those in `metadata`, which are in `apart` too, all but id and revision of the spec."""

    apart: frozenset[str] = frozenset()
    metadata: frozenset[str] = frozenset()


class Range(msgspec.Struct, frozen=True, gc=False):
    """Which events of a stream: versions `first` to `last`, at most `limit`, newest first or oldest. Once
    they are `bytes_max` (1 at least) no further one is begun: the last may be beyond, and there is one.

    The first `known` are known to be committed, and not wanted: where no others are, they are not looked at.
    `narrow`: so much is enough, and the page may have no more; where it has no event of a type in `apart`, it
    may have its events joined. None: all is wanted.
    """

    stream: Stream
    first: int = 1
    last: int = VERSION_MAX
    limit: int = 1000
    newest_first: bool = False
    known: int = 0
    bytes_max: int = PAGE_BYTES
    narrow: Narrow | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is a stream from its first event on."""
        return self.first == 1 and self.last == VERSION_MAX and self.limit > 0 and not self.newest_first


class Here(msgspec.Struct, frozen=True, gc=False):
    """What Redis holds of a range. `events` ascend or descend as asked, without those in doubt; `first` is
    the oldest version of the stream that is here, where the range shows it; `bytes` is what Redis counted of
    them."""

    length: int
    events: tuple[Recorded, ...]
    as_of: bytes
    bytes: int = 0

    @property
    def first(self) -> int | None:
        return self.events[0].version if self.events else None
