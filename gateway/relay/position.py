"""The position of a reader: a string for a client to store, opaque to it. Pure.

A position covers all partitions: for each one, the last event that lies behind the reader. Partitions that
it does not name are still to be read from their beginning. The *mark* is the beginning of that event's row
digest: if Postgres came to hold another history (an old copy restored, commits lost and given up), a position
of the old one is found out, instead of skipping in silence what the new one put there.
"""

from __future__ import annotations

import itertools
import re
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import a2b_base64, b2a_base64
from typing import Final

import msgspec

MARK_BYTES: Final = 4
SEQ_MAX: Final = 2**53

_FORMAT: Final = 1
_TEXT: Final = re.compile(r"[A-Za-z0-9_-]{2,32768}")
_PLACE: Final = struct.Struct(">HQ4s")
_ONE: Final = struct.Struct(">BHQ4s")
_ONE_CHARS: Final = _ONE.size // 3 * 4
_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_URLSAFE: Final = bytes.maketrans(b"+/", b"-_")


class Place(msgspec.Struct, frozen=True, gc=False):
    """Behind the event at `seq` of one partition; 0 is before the first."""

    seq: int
    mark: bytes


BEGINNING: Final = Place(0, bytes(MARK_BYTES))


class Position(msgspec.Struct, frozen=True):
    """`places` ascend by partition and leave out those where nothing was read yet."""

    places: tuple[tuple[int, Place], ...] = ()

    def at(self, p: int) -> Place:
        return next((place for number, place in self.places if number == p), BEGINNING)

    def moved(self, p: int, place: Place) -> Position:
        places = dict(self.places) | {p: place}
        return Position(tuple(sorted((number, each) for number, each in places.items() if each.seq)))


START: Final = Position()
"""Before the first event of every partition."""


def encode(position: Position) -> str:
    """Visible ASCII without `=`: fits a query and a `Last-Event-ID` as it is."""
    parts = [_PLACE.pack(p, place.seq, place.mark) for p, place in position.places]
    return urlsafe_b64encode(bytes((_FORMAT, *b"".join(parts)))).rstrip(b"=").decode()


def encode_one(p: int, place: Place) -> str:
    """`encode` of a position in one partition, for every event of a feed."""
    return encode_place(p, place.seq, place.mark)


def encode_place(p: int, seq: int, mark: bytes) -> str:
    """The same by the parts of the place, for every receipt."""
    return b2a_base64(_ONE.pack(_FORMAT, p, seq, mark), newline=False).translate(_URLSAFE).decode()


def decode_in(text: str, p: int) -> Place | None:
    """Where in partition `p` the position is that is written exactly so; None where none is, or it is in
    other partitions too."""
    if len(text) == _ONE_CHARS and _TEXT.fullmatch(text):
        one = _decode_one(text)
        return None if one is None or one[0] != p else one[1]
    position = decode(text)
    if position is None or any(number != p for number, _ in position.places):
        return None
    return position.at(p)


def _decode_one(text: str) -> tuple[int, Place] | None:
    """Of so many legal characters."""
    form, p, seq, mark = _ONE.unpack(a2b_base64(text.encode().translate(_STANDARD)))
    return (p, Place(seq, mark)) if form == _FORMAT and 0 < seq <= SEQ_MAX else None


def decode(text: str) -> Position | None:
    """The position that is written exactly so; None where none is."""
    if len(text) == _ONE_CHARS and _TEXT.fullmatch(text):  # as nearly always: whole bytes, one place
        one = _decode_one(text)
        return None if one is None else Position((one,))
    if not _TEXT.fullmatch(text) or len(text) % 4 == 1:
        return None
    raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if raw[0] != _FORMAT or (len(raw) - 1) % _PLACE.size:
        return None
    places = tuple((p, Place(seq, mark)) for p, seq, mark in _PLACE.iter_unpack(raw[1:]))
    position = Position(places)
    numbers = [p for p, _ in places]
    ordered = all(before < after for before, after in itertools.pairwise(numbers))
    if not ordered or not all(0 < place.seq <= SEQ_MAX for _, place in places):
        return None
    return position if encode(position) == text else None
