"""What stands beside an event's data in the outbox: the client's `extra` as it was sent, and what identifies
the event as a record, where its type declares that.

Without a record it is the bytes of `extra`. With one it is `{"$identity":{…},"$extra":…}`, content and
context first and at fixed places: an index of Postgres finds them there. Pure.
"""

from __future__ import annotations

from typing import Final

import msgspec

_BEGINS: Final = b'{"$identity":'
_NOT_DECLARED: Final = b"0"
"""In place of a record, where no type declares any: a client's `extra` that looks like one."""


class SourceRef(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Of which foreign id an event is a record, by the name that its scope had then."""

    source: str
    scope: str
    source_id: str

    def elsewhere(self, other: SourceRef) -> bool:
        """Whether the other is the same id in another scope, or in this one by another name."""
        same_id = (self.source, self.source_id) == (other.source, other.source_id)
        return same_id and self.scope != other.scope


class RecordSaid(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Hashes in hex; `context` is None where none is declared."""

    content: str
    context: str | None
    grade: str
    source: SourceRef | None = None


class _Stored(msgspec.Struct, rename={"identity": "$identity", "extra": "$extra"}):
    identity: RecordSaid | int | None
    extra: msgspec.Raw = msgspec.Raw()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Stored).decode


def guarded(extra: bytes) -> bytes:
    """As it is stored without a record: what a client sends is never taken for one."""
    if not extra.startswith(_BEGINS):
        return extra
    return b'%b%b,"$extra":%b}' % (_BEGINS, _NOT_DECLARED, extra)


def with_record(extra: bytes | None, record: RecordSaid | None) -> bytes:
    """The stored form, of an event whose type declares records; `record` is None where the event is no
    record. `extra` is as it was sent."""
    said = b"null" if record is None else _said(record)
    if extra is None:
        return b"%b%b}" % (_BEGINS, said)
    return b'%b%b,"$extra":%b}' % (_BEGINS, said, extra)


def _said(record: RecordSaid) -> bytes:
    """In this order, the context even if there is none."""
    context = b"null" if record.context is None else b'"%b"' % record.context.encode()
    source = b"" if record.source is None else b',"source":%b' % _encode(record.source)
    return b'{"content":"%b","context":%b,"grade":"%b"%b}' % (
        record.content.encode(),
        context,
        record.grade.encode(),
        source,
    )


def split(stored: bytes | None) -> tuple[bytes | None, RecordSaid | None, bool]:
    """The client's `extra` as it was sent, the record, and whether the type declared records."""
    if stored is None or not stored.startswith(_BEGINS):
        return stored, None, False
    found = _decode(stored)
    if isinstance(found.identity, int):
        return bytes(found.extra), None, False
    return bytes(found.extra) or None, found.identity, True


def identity_json(record: RecordSaid | None) -> bytes:
    """As an event tells it."""
    if record is None:
        return b"null"
    context = b"null" if record.context is None else b'"%b"' % record.context.encode()
    return b'{"content":"%b","context":%b,"grade":"%b"}' % (
        record.content.encode(),
        context,
        record.grade.encode(),
    )
